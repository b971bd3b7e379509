"""The mounted tools of a turn, as the nodes of a workflow invoke them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NoReturn

import anyio

from runlane.clock import Clock
from runlane.contracts import (
    CancelToken,
    ExecutionOptions,
    Id,
    InvocationResult,
    ToolCallRecord,
    ToolResult,
    elapsed_ms,
    require_id,
    timestamp_ms,
)
from runlane.errors import ToolError, UsageError
from runlane.ids import IdSource
from runlane.records import ToolCallPart, ToolResultPart
from runlane.runtime import Turn
from runlane.tools import ToolInvocationRequest

__all__ = ["WAITS_FOR_CONSENT", "TurnToolInvoker"]

_OWN_IDS: Final = "flow-"

WAITS_FOR_CONSENT: Final = object()
"""Why a workflow stops whose tool call waits for somebody's consent."""


class TurnToolInvoker:
    """Invokes the tools of a turn: calls and results become part of the answer, the fence is asked, consent applies.

    A call that fails raises what the model would have been told as a `ToolError`. A call that waits for consent stops
    the workflow, once the calls beside it have their results; the turn ends with the call pending.

    A workflow that begins again, after a crash or after consent, meets the results of calls that were carried out
    before: a call to the same tool, with the same arguments and the same id if it was given one, gives the next such
    result on record and enters no handler. A workflow that then asks for something else has it carried out anew.
    """

    def __init__(self, turn: Turn, waiting: CancelToken, clock: Clock, ids: IdSource, /) -> None:
        """Serve a turn; `waiting` is tripped with `WAITS_FOR_CONSENT` when a call waits."""
        self._turn = turn
        self._waiting = waiting
        self._clock = clock
        self._ids = ids
        self._known = _results_on_record(turn)
        self._count = 0
        self._made: list[str] = []
        self._in_flight = 0
        self._is_pending = False

    @property
    def made(self) -> Sequence[str]:
        """The ids of the calls that were made, or answered from the record, in order."""
        return self._made

    def pass_over(self, call_ids: Sequence[str], /) -> None:
        """Take calls that finished work made as made: nothing that is asked now gets their results."""
        self._count += len(call_ids)
        self._made += call_ids
        for results in self._known.values():
            results[:] = [result for result in results if result.call_id not in call_ids]

    async def invoke(
        self, request: ToolInvocationRequest, options: ExecutionOptions | None = None, /
    ) -> ToolResult[object]:
        """Carry one call out.

        Raises:
            ToolError: The tool is unknown, was refused, or failed; never with its cause.
            UsageError, InvalidValueError: The input is not JSON, or an id is none; names it.
        """
        call = self._call(request)
        started_at, started = timestamp_ms(self._clock.now()), self._clock.monotonic()
        result = self._on_record(call, request.call_id)
        if result is None:
            [call] = self._turn.tools.distinct((call,))
            self._made.append(call.call_id)
            result = await self._carry_out(call)
        else:
            self._made.append(result.call_id)
        if result.outcome != "success":
            raise _error_of(result)
        diagnostics = None if options is None else options.diagnostics
        receipt = ToolCallRecord(
            invocation_id=Id(self._ids.new("invocation")),
            span_id=None if diagnostics is None else diagnostics.identity.span_id,
            run_id=Id(self._turn.run.id),
            started_at=started_at,
            duration_ms=elapsed_ms(started, self._clock.monotonic()),
            status="succeeded",
            tool_id=Id(request.tool_id),
            identity=f"{self._turn.run.id}:{result.call_id}",
            call_id=Id(result.call_id),
        )
        return InvocationResult(value=result.output, receipt=receipt)

    def _call(self, request: ToolInvocationRequest) -> ToolCallPart:
        tool_id = require_id(request.tool_id, argument="tool_id")
        call_id = None if request.call_id is None else require_id(request.call_id, argument="call_id")
        try:
            arguments = json.dumps(request.input, ensure_ascii=False, allow_nan=False)
            arguments.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"must be JSON: {error}", argument="tool_input") from None
        self._count += 1
        return ToolCallPart(
            call_id=call_id or f"{_OWN_IDS}{self._count}",
            tool_name=tool_id,
            arguments=arguments,
            input=json.loads(arguments),
        )

    def _on_record(self, call: ToolCallPart, given_id: str | None) -> ToolResultPart | None:
        """Take the next result of such a call off the record; of tasks that run side by side the order may change."""
        found = self._known.get((call.tool_name, call.arguments), [])
        for result in found:
            own, of_workflow = result.call_id.split("~", 1)[0], result.call_id.startswith(_OWN_IDS)
            if of_workflow if given_id is None else given_id in {own, result.call_id}:
                found.remove(result)
                return result
        return None

    async def _carry_out(self, call: ToolCallPart) -> ToolResultPart:
        self._in_flight += 1
        try:
            await self._turn.emit(call)
            results = await self._turn.tools.answer((call,))
            self._is_pending = self._is_pending or results is None
        finally:
            self._in_flight -= 1
            if self._is_pending and not self._in_flight:
                self._waiting.cancel(WAITS_FOR_CONSENT)
        if results is None:
            await self._wait_for_consent()
        return results[0]

    async def _wait_for_consent(self) -> NoReturn:
        """Wait for the token to trip, which stops the workflow: nothing after this is reached."""
        await anyio.sleep_forever()
        raise AssertionError  # pragma: no cover - the token ended the wait


def _results_on_record(turn: Turn) -> dict[tuple[str, str], list[ToolResultPart]]:
    """Return what calls gave since the input that is being answered: in this run, and in one it goes on from."""
    parts: list[object] = []
    for message in turn.messages:
        if message.role == "user":
            parts.clear()
        else:
            parts += message.items
    parts += turn.step_parts()
    calls = {part.call_id: part for part in parts if isinstance(part, ToolCallPart)}
    found: dict[tuple[str, str], list[ToolResultPart]] = {}
    results = {part.call_id: part for part in parts if isinstance(part, ToolResultPart)}
    for call_id, call in calls.items():
        if call_id in results:
            found.setdefault((call.tool_name, call.arguments), []).append(results[call_id])
    return found


def _error_of(result: ToolResultPart) -> ToolError:
    """Return a failed result as the error it was told as."""
    facts = result.output if isinstance(result.output, dict) else {}
    code, retryable, details, hint = (facts.get(name) for name in ("error", "retryable", "details", "_hint"))
    return ToolError(
        code if isinstance(code, str) else "tool.internal",
        retryable=retryable if isinstance(retryable, bool) else None,
        details={**details} if isinstance(details, dict) else None,
        hint=hint if isinstance(hint, str) else None,
    )
