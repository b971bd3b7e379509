"""The command line as a whole."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from runlane.cli._chat import ChatFlags, chat
from runlane.cli._demo import DemoFlags, demo
from runlane.cli._exits import Exit
from runlane.cli._failure import Failure
from runlane.cli._flags import CommonFlags, add_command, common_flags
from runlane.cli._flow_check import FlowCheckFlags, flow_check
from runlane.cli._terminal import Form, Terminal, write_nowhere

__all__ = ["run"]


def _root(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
    **common: Any,  # noqa: ANN401 - the common flags, whatever their types
) -> None:
    """Durable conversations with language models: nothing accepted is lost, nothing is answered twice."""
    context.obj = CommonFlags(**common)
    if show_version:
        typer.echo(f"runlane {version('runlane')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(Exit.USAGE)


def _application() -> typer.Typer:
    app = typer.Typer(
        name="runlane",
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    own = [
        parameter
        for parameter in inspect.signature(_root, eval_str=True).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    _root.__signature__ = inspect.Signature([*own, *common_flags()])  # type: ignore[attr-defined]
    app.callback(invoke_without_command=True)(_root)
    add_command(app, "chat", ChatFlags, chat)
    add_command(app, "demo", DemoFlags, demo)
    flow = typer.Typer(help="Workflows of your own.", no_args_is_help=True)
    add_command(flow, "flow.check", FlowCheckFlags, flow_check)
    app.add_typer(flow, name="flow")
    return app


def run(arguments: Sequence[str], /) -> int:
    """Run the command that the arguments name and return its exit code."""
    code = _code_of(arguments)
    return code if _flush() else Exit.UNEXPECTED


def _code_of(arguments: Sequence[str]) -> int:
    try:
        return int(_application()(args=list(arguments), prog_name="runlane", standalone_mode=False) or 0)
    except typer.Abort:
        return Exit.INTERRUPTED
    except typer.TyperException as error:
        return _misused(error, arguments)
    except BrokenPipeError:
        return Exit.BROKEN_PIPE
    except OSError as error:
        # Nothing but help is written outside of commands, which handle their own.
        write_nowhere()
        Terminal(environ=os.environ).complain_of_output(error)
        return Exit.UNEXPECTED


def _misused(error: typer.TyperException, arguments: Sequence[str], /) -> int:
    """Tell what is wrong with the arguments; the flags themselves could not be read."""
    form: Form = "jsonl" if "--jsonl" in arguments else "json" if "--json" in arguments else "human"
    terminal = Terminal(form=form, environ=os.environ)
    # Typer's contexts here are those of the parser inside it, of which its own class is one kind.
    path = getattr(getattr(error, "ctx", None), "command_path", "runlane")
    message = f"{error.format_message().rstrip('.')}; see: {path} --help"
    terminal.fail(Failure(code="usage", message=message, retryable=False))
    return Exit.USAGE


def _flush() -> bool:
    """Write what is left; whether it went anywhere.

    A reader that went away ends the program quietly, and any other failure with a line on stderr: not at the
    interpreter's exit with a traceback.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        write_nowhere()
    except OSError as error:
        write_nowhere()
        Terminal(environ=os.environ).complain_of_output(error)
        return False
    return True
