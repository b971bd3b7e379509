"""Flags: the ones every command has, and how a command's own become its arguments.

A flag wins over its `RUNLANE_*` variable, that over the default. The common flags may stand before the command's name
or after it. No flag takes a secret: keys come from the environment only.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_type_hints

import anyio
import typer

from runlane.cli._exits import Exit, telling_error
from runlane.cli._terminal import Form, OutputFailedError, Terminal
from runlane.errors import InvalidValueError

__all__ = ["Call", "CommonFlags", "add_command", "common_flags"]


@dataclass(frozen=True, kw_only=True)
class CommonFlags:
    """The flags of every command."""

    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Store: sqlite:///PATH, or a plain path."),
    ] = None
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON document."),
    ] = False
    jsonl: Annotated[
        bool,
        typer.Option("--jsonl", help="Print a JSON object a line, live."),
    ] = False
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="Leave out all but the result.", envvar="RUNLANE_QUIET"),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Show the traceback of an error.", envvar="RUNLANE_VERBOSE"),
    ] = False
    no_color: Annotated[
        bool,
        typer.Option("--no-color", help="No colours; so does NO_COLOR.", envvar="RUNLANE_NO_COLOR"),
    ] = False

    def under(self, inner: CommonFlags, /) -> CommonFlags:
        """Return these flags, given before the command's name, with those given after it on top."""
        return CommonFlags(
            store=self.store if inner.store is None else inner.store,
            json=self.json or inner.json,
            jsonl=self.jsonl or inner.jsonl,
            quiet=self.quiet or inner.quiet,
            verbose=self.verbose or inner.verbose,
            no_color=self.no_color or inner.no_color,
        )

    @property
    def form(self) -> Form:
        """The form of the output.

        Raises:
            InvalidValueError: Two forms were asked for.
        """
        if self.json and self.jsonl:
            raise InvalidValueError("give --json or --jsonl, not both", argument="--json")
        if self.json:
            return "json"
        return "jsonl" if self.jsonl else "human"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One invocation of a command, beside its own flags."""

    terminal: Terminal
    common: CommonFlags
    environ: Mapping[str, str]


class _HasFields(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


F = TypeVar("F", bound=_HasFields)


def common_flags() -> list[inspect.Parameter]:
    """Return the common flags as parameters of a function, for typer to read."""
    return _parameters(CommonFlags)


def add_command(app: typer.Typer, path: str, flags: type[F], body: Callable[[Call, F], Awaitable[int]], /) -> None:
    """Give `app` a command.

    Args:
        app: Where it goes; the root's callback leaves the common flags in the context's `obj`.
        path: Its name, behind those of the groups it is in and a dot each; so it stands in the schema of its JSON.
        flags: A dataclass whose fields say, annotated with `typer.Option` or `typer.Argument`, what the command takes.
        body: What it does, as a coroutine; returns the exit code. Its docstring is the help text.
    """

    def command(context: typer.Context, **values: Any) -> int:  # noqa: ANN401 - whatever the flags' types are
        inner, own = _split(values)
        outer = context.obj if isinstance(context.obj, CommonFlags) else CommonFlags()
        common = outer.under(inner)
        return _guarded(path, common, lambda call: anyio.run(partial(body, call, flags(**own))))

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    signature = inspect.Signature([context, *_parameters(flags), *common_flags()])
    command.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads the flags from
    command.__doc__ = body.__doc__
    app.command(path.rpartition(".")[2])(command)


def _guarded(name: str, common: CommonFlags, work: Callable[[Call], int], /) -> int:
    """Do a command's work; whatever goes wrong becomes a message and an exit code."""
    environ = os.environ
    terminal = Terminal(command=name, verbose=common.verbose, color=not common.no_color, environ=environ)
    try:
        terminal = Terminal(
            command=name,
            form=common.form,
            quiet=common.quiet,
            verbose=common.verbose,
            color=not common.no_color,
            environ=environ,
        )
        return work(Call(terminal=terminal, common=common, environ=environ))
    except BrokenPipeError:
        return Exit.BROKEN_PIPE
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except OutputFailedError as error:
        return _without_output(error, terminal)
    except BaseExceptionGroup as group:
        return _end_of(group, terminal)
    except Exception as error:  # noqa: BLE001 - the one place where every error becomes a message
        return terminal.fail_with(error)


def _end_of(group: BaseExceptionGroup[BaseException], terminal: Terminal, /) -> int:
    """Return the exit code of a command that several errors ended at once."""
    if group.subgroup(KeyboardInterrupt) is not None:
        return Exit.INTERRUPTED
    if group.subgroup(BrokenPipeError) is not None:
        return Exit.BROKEN_PIPE
    told = telling_error(group)
    return _without_output(told, terminal) if isinstance(told, OutputFailedError) else terminal.fail_with(group)


def _without_output(error: OutputFailedError, terminal: Terminal, /) -> int:
    terminal.complain_of_output(error.cause)
    return Exit.UNEXPECTED


def _parameters(flags: type[_HasFields], /) -> list[inspect.Parameter]:
    hints = get_type_hints(flags, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(flags)
    ]


def _split(values: dict[str, Any], /) -> tuple[CommonFlags, dict[str, Any]]:
    """Part the common flags from the command's own."""
    names = {field.name for field in dataclasses.fields(CommonFlags)}
    common = CommonFlags(**{name: value for name, value in values.items() if name in names})
    return common, {name: value for name, value in values.items() if name not in names}
