"""Where a command's words go.

For people: text and tables on stdout, diagnostics on stderr. For machines (`--json`, `--jsonl`): stdout holds JSON and
nothing else. Colour only where a terminal shows it and nobody asked for none; any encoding of the terminal will do,
what it cannot show becomes `?`.
"""

from __future__ import annotations

import io
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TextIO, TypeAlias

from rich.console import Console, RenderableType
from rich.text import Text
from typing_extensions import override

from runlane.cli._exits import Exit, exit_for, telling_error
from runlane.cli._failure import Failure
from runlane.cli._text import Mask, printable
from runlane.errors import RunlaneError

__all__ = ["Form", "Json", "OutputFailedError", "Terminal", "write_nowhere"]

Form: TypeAlias = Literal["human", "json", "jsonl"]
Json: TypeAlias = Mapping[str, object]

_NARROWEST: Final = 20


class Terminal:
    """One command's output."""

    def __init__(
        self,
        *,
        command: str = "runlane",
        form: Form = "human",
        quiet: bool = False,
        verbose: bool = False,
        color: bool = True,
        environ: Mapping[str, str],
    ) -> None:
        """Write to the process's own stdout and stderr.

        Args:
            command: Names the JSON schema of the result.
            form: For people, one JSON document, or one JSON object a line.
            quiet: Leave out what is not the result.
            verbose: Show the traceback of an error.
            color: False: no escape sequence at all.
            environ: Where secrets to be hidden, `NO_COLOR` and `TERM` are read.
        """
        self.form: Form = form
        self.verbose = verbose
        self.mask = Mask(environ)
        self._command = command
        self._quiet = quiet
        plain = not color or bool(environ.get("NO_COLOR"))
        self._out = _console(sys.stdout, plain=plain)
        self._err = _console(sys.stderr, plain=plain)

    @property
    def for_people(self) -> bool:
        """Whether stdout is to be read by people."""
        return self.form == "human"

    @property
    def is_typed_at(self) -> bool:
        """Whether a person types at it: stdin is a terminal, and stdout is for people."""
        return self.for_people and sys.stdin is not None and sys.stdin.isatty()

    @property
    def width(self) -> int:
        """Columns of stdout."""
        return self._out.width

    # --- for people ---------------------------------------------------------------------------------------------

    def say(self, text: str = "", *, style: str = "", indent: tuple[str, str] = ("", "")) -> None:
        """Put a line on stdout, wrapped at words; nothing in a machine's form.

        Args:
            text: The line.
            style: A style of rich.
            indent: What stands before the first line, and before those that it is wrapped into.
        """
        if self.for_people:
            lines = textwrap.wrap(
                self.mask(printable(text)),
                max(_NARROWEST, self.width),
                initial_indent=indent[0],
                subsequent_indent=indent[1],
                break_long_words=False,  # a path that is broken cannot be copied
                break_on_hyphens=False,
            )
            self._out.print(Text("\n".join(lines), style=style), soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """Put a table or the like on stdout; nothing in a machine's form."""
        if self.for_people:
            self._out.print(what)

    def aside(self, text: str = "", *, style: str = "", indent: tuple[str, str] = ("", "")) -> None:
        """Put a line on stdout that is not the result: quiet leaves it out. As `say` otherwise."""
        if not self._quiet:
            self.say(text, style=style, indent=indent)

    def stream_aside(self, piece: str, /) -> None:
        """Put a piece of streaming text on stdout that is not the result: quiet leaves it out."""
        if not self._quiet:
            self.stream(piece)

    def stream(self, piece: str, *, style: str = "") -> None:
        """Put a piece of streaming text on stdout at once, as it is but for what steers a terminal."""
        if self.for_people and piece:
            self._out.print(Text(printable(piece), style=style), end="", soft_wrap=True)
            with _writing():
                self._out.file.flush()

    def note(self, text: str, *, style: str = "dim") -> None:
        """Put a diagnostic line on stderr, unless quiet."""
        if not self._quiet:
            self._err.print(Text(self.mask(printable(text)), style=style), soft_wrap=True)

    # --- for machines -------------------------------------------------------------------------------------------

    def event(self, item: Json) -> None:
        """Put one object on stdout as it happens; only with `--jsonl`."""
        if self.form == "jsonl":
            _write_json(item)

    def result(self, data: Json) -> None:
        """Put the command's result on stdout, in its envelope; nothing for people."""
        if not self.for_people:
            _write_json({"schema": self._schema, "ok": True, "data": data}, indent=self._indent)

    # --- the end ------------------------------------------------------------------------------------------------

    def complain(self, failure: Failure, /) -> None:
        """Tell a person, on stderr, what went wrong while the command goes on."""
        self._err.print(Text(f"runlane: {self.mask(printable(failure.message))}", style="red"), soft_wrap=True)

    def complain_of_output(self, error: OSError, /) -> None:
        """Tell a person, if that is possible, that stdout cannot be written, and write there no more."""
        write_nowhere()
        with suppress(OSError, OutputFailedError):
            self.complain(Failure(code="output.failed", message=f"the output cannot be written: {error.strerror}"))

    def fail(self, failure: Failure, *, data: Json | None = None) -> None:
        """Tell that the command did not do what was asked: on stderr for people, in an envelope for machines."""
        if self.for_people:
            self.complain(failure)
            return
        message = self.mask(printable(failure.message))
        error = {"code": failure.code, "message": message, "retryable": failure.retryable}
        envelope: dict[str, object] = {"schema": self._schema, "ok": False, "error": error}
        _write_json(envelope | ({} if data is None else {"data": data}), indent=self._indent)

    def fail_with(self, error: BaseException, /) -> Exit:
        """Tell of an error that ends the command, and return the exit code it ends with."""
        told = telling_error(error)
        if self.verbose:
            self._err.print(Text(self.mask(printable("".join(traceback.format_exception(error))))), soft_wrap=True)
        failure = Failure.of(told)
        try:
            self.fail(failure)
        except OutputFailedError as unheard:
            self.complain_of_output(unheard.cause)
        return exit_for(failure.code)

    @property
    def _schema(self) -> str:
        return f"runlane.cli.{self._command}/1"

    @property
    def _indent(self) -> int | None:
        return 2 if self.form == "json" else None


class OutputFailedError(RunlaneError):
    """Stdout, or stderr, cannot be written; there may be nowhere left to say so.

    Attributes:
        cause: What the system said.
    """

    code = "output.failed"

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"the output cannot be written: {cause.strerror}")
        self.cause = cause


@contextmanager
def _writing() -> Iterator[None]:
    """Tell a failure of the output from any other of the system; a reader that went away is none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputFailedError(error) from error


class _HonestConsole(Console):
    @override
    def print(self, *objects: Any, **more: Any) -> None:
        with _writing():
            super().print(*objects, **more)

    @override
    def on_broken_pipe(self) -> None:
        """Let the error through, where rich would end the program here and now, whatever is under way."""
        raise BrokenPipeError


def _console(file: TextIO, *, plain: bool) -> Console:
    """Return a console that writes whatever it is given: a terminal's encoding never makes a command fail."""
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="replace")
    return _HonestConsole(
        file=file,
        color_system=None if plain else "auto",
        markup=False,
        emoji=False,
        highlight=False,
    )


def write_nowhere() -> None:
    """Let whatever else is written to stdout, and what is left in its buffer, go nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_json(value: Json, *, indent: int | None = None) -> None:
    """Put one JSON document on stdout: ASCII only, so that every encoding can carry it."""
    with _writing():
        sys.stdout.write(json.dumps(value, indent=indent) + "\n")
        sys.stdout.flush()
