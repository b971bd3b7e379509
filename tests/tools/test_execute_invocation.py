"""An invocation carried out in the calling thread, without an event loop."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from runlane.clock import SystemClock
from runlane.contracts import CancelToken, Id
from runlane.diagnostics import create_diagnostics
from runlane.errors import ToolArgumentsError, UsageError
from runlane.ids import RandomIds
from runlane.tools import CompiledTool, ToolExecutionContext, execute_invocation
from tests.tools.scenes import Handler, Journal, double


def _context(token: CancelToken | None = None) -> ToolExecutionContext[object]:
    scope = create_diagnostics()
    return ToolExecutionContext(
        signal=token or CancelToken(),
        diagnostics=scope,
        invocation_id=Id("i1"),
        run_id=Id("r1"),
        clock=SystemClock(),
        ids=RandomIds(),
        app=None,
        tool_id=Id("t"),
        identity="same",
        reporting=scope.reporting(),
    )


class _Erased:
    """A tool by hand."""

    id = Id("t")
    blocking = True

    def __init__(self, does: Callable[[Any], Any]) -> None:
        self.does = does
        self.parsed = 0

    def parse(self, value: object, /) -> object:
        """Count."""
        self.parsed += 1
        return value

    def execute(self, value: Any, _: ToolExecutionContext[Any], /) -> Any:  # noqa: ANN401 - any tool
        """Do it."""
        return self.does(value)

    def parse_output(self, value: Any, /) -> object:  # noqa: ANN401 - any output
        """Keep it."""
        return value


def test_l17_it_runs_in_the_calling_thread_without_an_event_loop() -> None:
    """It returns when everything is recorded: value, receipt, start and finish."""
    journal = Journal()
    erased = _Erased(lambda value: (value, threading.get_ident()))
    result = execute_invocation(erased, 1, _context(), journal=journal)
    assert result.value == (1, threading.get_ident())
    assert (result.receipt.invocation_id, result.receipt.identity) == ("i1", "same")
    assert (len(journal.starts), [entry.status for entry in journal.finishes]) == (1, ["succeeded"])


def test_l18_an_awaitable_is_closed_and_fails_the_invocation() -> None:
    """From the tool or from a handler: `UsageError`, which is a `TypeError`; no coroutine stays unawaited."""

    async def later(*_: object) -> None:
        return None

    for erased, after in ((_Erased(later), ()), (_Erased(lambda _: 1), (Handler("late", later),))):
        journal = Journal()
        with pytest.raises(UsageError) as refused:
            execute_invocation(erased, 1, _context(), journal=journal, after=after)
        assert isinstance(refused.value, TypeError)
        assert [entry.status for entry in journal.finishes] == ["failed"]


def test_l19_it_looks_at_the_token_before_the_start_and_before_each_handler() -> None:
    """Tripped before: nothing is written. Tripped by a handler: the next one does not run, and that is cancelled."""
    token, journal, ran = CancelToken(), Journal(), list[str]()
    token.cancel(LookupError("enough"))
    with pytest.raises(LookupError):
        execute_invocation(_Erased(ran.append), 1, _context(token), journal=journal)
    assert (journal.starts, ran) == ([], [])
    token = CancelToken()
    before = [Handler("trips", lambda *_: token.cancel(LookupError("now")) or None)]
    with pytest.raises(LookupError):
        execute_invocation(_Erased(ran.append), 1, _context(token), journal=journal, before=before)
    assert ([entry.status for entry in journal.finishes], ran) == (["cancelled"], [])


def test_a_definition_runs_without_a_registry() -> None:
    """Compiled, it parses and executes; what it is given must have been parsed."""
    compiled = CompiledTool(double)
    value = compiled.parse({"number": 4})
    assert execute_invocation(compiled, value, _context()).value == 8
    with pytest.raises(ToolArgumentsError):
        compiled.parse({"number": "4"})


def test_l20_the_value_is_not_parsed_again() -> None:
    """What is passed in is what the tool gets."""
    erased = _Erased(lambda value: value)
    value = object()
    assert execute_invocation(erased, value, _context()).value is value
    assert erased.parsed == 0
