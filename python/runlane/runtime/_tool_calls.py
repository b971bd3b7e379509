"""Tools inside a run: what the model may call, and answering its calls.

A call is durable, with the intent to carry it out, before its handler is entered; that commit is made under the run's
ownership, so it is also the first check of the fence. Calls of one step run side by side. The result of a call is
durable as soon as others still run, otherwise with the next commit; in the record results stand in the order of the
calls, whatever the order in which they came.

| what | becomes |
|---|---|
| unknown tool, arguments that do not fit, denial, any failure of the handler | an error result for the model |
| the run is lost, before a handler or after it | the end of the turn; a result that came too late is discarded |
| the run is told to stop | the end of the turn; running calls are told as `interrupted` |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

import anyio
from pydantic import JsonValue

from runlane.contracts import CancelToken
from runlane.errors import UnknownToolError, UsageError
from runlane.models import ModelFunction
from runlane.records import ToolCallPart, ToolOutcome, ToolResultPart
from runlane.runtime._announcing import RunVoice
from runlane.runtime._core import RuntimeCore
from runlane.runtime._progress_queue import ProgressQueue
from runlane.runtime._turn import Turn, TurnPart
from runlane.runtime._turn_writer import TurnWriter, holds
from runlane.store import AppendEvent, once_event_id
from runlane.tools import (
    MountedCall,
    MountedTools,
    ToolFenceConfig,
    ToolFenceContext,
    ToolFenceLifecycle,
    ToolTurnFacts,
    error_envelope,
    mount_tools,
)

__all__ = ["RunTools", "answer_calls", "effect_event_id"]

Emit: TypeAlias = Callable[[TurnPart], Awaitable[None]]

_EFFECT: Final = "durability/effect"
_TELL_WITHIN: Final = 1.0
"""Seconds a publisher has for what is told of a call that was cut off."""


def effect_event_id(run_id: str, call_id: str, /) -> str:
    """Return the id of the ledger entry that says a call's handler is about to be entered."""
    return once_event_id(_EFFECT, f"{run_id}:tool:{call_id}")


async def answer_calls(
    turn: Turn, calls: Sequence[ToolCallPart], active: frozenset[str] | None = None, /
) -> tuple[ToolResultPart, ...] | None:
    """Carry out the calls of one step, and add what they gave to the answer.

    Args:
        turn: The run. Its calls were emitted already.
        calls: In the model's order.
        active: Names of the tools the model was shown, or None for all of them.

    Returns:
        The results, in the order of the calls; None if a call waits for somebody's consent, which ends the turn.

    Raises:
        ToolFenceError, RuntimeConflictError: The run is lost.
        StoreError: What must be durable could not be made so.
    """
    return await turn.tools.answer(calls, active)


class RunTools:
    """The tools of one run, as its turn holds them."""

    def __init__(
        self, core: RuntimeCore, writer: TurnWriter, voice: RunVoice, signal: CancelToken, app: object, emit: Emit, /
    ) -> None:
        """Serve a run; nothing can be called before `mount`.

        Args:
            core: The runtime.
            writer: Makes the run durable.
            voice: Tells of calls that were cut off, and of progress.
            signal: Ends calls when it trips.
            app: The application's own value.
            emit: Adds a part to the answer.
        """
        self._core = core
        self._writer = writer
        self._voice = voice
        self._signal = signal
        self._app = app
        self._emit = emit
        self._mounted: MountedTools | None = None
        self._proven: set[str | None] = set()
        self._running = 0
        self._queue = ProgressQueue()
        run = writer.run
        self.fence = ToolFenceLifecycle(
            ToolFenceConfig(
                run_id=run.id,
                assert_current=self._verdict,
                context=ToolFenceContext(run_id=run.id, fencing_token=writer.ownership.fencing_token),
            )
        )

    async def mount(self) -> None:
        """Bring the runtime's tools in.

        Raises:
            Exception: Whatever a condition of a tool raised.
        """
        core = self._core
        facts = ToolTurnFacts(
            run_id=self._writer.run.id,
            fencing_token=self._writer.ownership.fencing_token or 0,
            signal=self._signal,
            clock=core.clock,
            ids=core.ids,
            tell_progress=self._progress,
        )
        self._mounted = await mount_tools(core.tools, fence=self.fence, turn_facts=facts, app=self._app)

    def functions(self, active: frozenset[str] | None = None, /) -> tuple[ModelFunction, ...]:
        """Return what the model is shown: all tools, or those of them that are named."""
        functions = () if self._mounted is None else self._mounted.functions
        return functions if active is None else tuple(shown for shown in functions if shown.name in active)

    async def answer(
        self, calls: Sequence[ToolCallPart], active: frozenset[str] | None = None, /
    ) -> tuple[ToolResultPart, ...] | None:
        """Carry out calls; see `answer_calls`."""
        admitted = [await self._admit(call, active) for call in calls]
        return await self._carry_out(admitted)

    async def _admit(self, call: ToolCallPart, active: frozenset[str] | None) -> MountedCall:
        if self._mounted is None:
            raise UsageError("tools are not mounted yet", argument="turn.tools")
        if active is not None and call.tool_name not in active:
            output = error_envelope(UnknownToolError(tool_id=call.tool_name))
            return MountedCall(call=call, refusal=_result(call, "error", output))
        return await self._mounted.admit(call)

    async def _carry_out(self, admitted: Sequence[MountedCall]) -> tuple[ToolResultPart, ...]:
        """Have the calls run, and return their results in order."""
        results: dict[str, ToolResultPart] = {}
        start = self._writer.draft.size
        for mounted in admitted:
            if mounted.refusal is not None:
                await self._take(mounted.refusal, results)
        ready = [mounted for mounted in admitted if mounted.refusal is None]
        begun = {mounted.call.call_id for mounted in ready if self._tools.take_slot(mounted)}
        try:
            await self._intend(begun)
        except BaseException:
            for mounted in ready:
                self._tools.let_go(mounted)
            raise
        self._running = len(ready)
        await self._run_all(ready, begun, results)
        ordered = tuple(results[mounted.call.call_id] for mounted in admitted)
        if list(results) != [result.call_id for result in ordered]:
            self._writer.draft.cut(start)
            for result in ordered:
                self._writer.draft.add(result)
        return ordered

    async def _run_all(self, ready: Sequence[MountedCall], begun: set[str], results: dict[str, ToolResultPart]) -> None:
        has_publisher = self._core.publishing.has_publisher
        if len(ready) < 2 and not has_publisher:  # noqa: PLR2004 - one call needs no group
            for mounted in ready:
                await self._one(mounted, begun, results)
            return
        queue = self._queue = ProgressQueue()
        failures: list[Exception] = []

        async def run(mounted: MountedCall) -> None:
            try:
                await self._one(mounted, begun, results)
            except Exception as error:  # noqa: BLE001 - raised below, outside the group
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            if has_publisher:
                tasks.start_soon(queue.work)
            async with anyio.create_task_group() as calls:
                for mounted in ready:
                    calls.start_soon(run, mounted)
            queue.end()
        if failures:
            raise failures[0]

    async def _one(self, mounted: MountedCall, begun: set[str], results: dict[str, ToolResultPart]) -> None:
        call = mounted.call
        try:
            if call.call_id not in begun:
                await self._tools.wait_for_slot(mounted)
                await self._intend({call.call_id})
            result = await self._tools.carry_out(mounted)
        except BaseException:
            self._tools.let_go(mounted)
            await self._tell_interrupted(call)
            raise
        self._running -= 1
        await self._take(result, results)
        if self._running:
            await self._writer.checkpoint()

    def _progress(self, call: ToolCallPart, message: str, progress: float | None, total: float | None) -> None:
        self._queue.put(self._voice.progress(call, message, progress, total))

    async def _take(self, result: ToolResultPart, results: dict[str, ToolResultPart]) -> None:
        results[result.call_id] = result
        await self._emit(result)

    @property
    def _tools(self) -> MountedTools:
        if self._mounted is None:
            raise UsageError("tools are not mounted yet", argument="turn.tools")
        return self._mounted

    # --- the fence -----------------------------------------------------------------------------------------------

    async def _intend(self, call_ids: set[str]) -> None:
        """Have it durable, under the run's ownership, that handlers are about to be entered."""
        run = self._writer.run
        for call_id in sorted(call_ids):
            self._writer.owe(
                AppendEvent(
                    command_id=self._core.ids.new("command"),
                    at=self._core.clock.now(),
                    kind=_EFFECT,
                    payload={"run_id": run.id, "effect_name": f"tool:{call_id}", "phase": "intent"},
                    event_id=effect_event_id(run.id, call_id),
                )
            )
        await self._writer.checkpoint(proves=bool(call_ids))
        self._proven.update(call_ids)

    async def _verdict(self, context: ToolFenceContext) -> str | None:
        """Say why the run is lost, or None; the commit of an intent stands for the first check of its call."""
        if self._signal.cancelled:
            return "run_interrupted"
        if context.call_id in self._proven:
            self._proven.discard(context.call_id)
            return None
        conversation_id, run_id = self._writer.run.conversation_id, self._writer.run.id
        view = await self._core.calls.read(lambda store: store.load_run(conversation_id, run_id))
        if view is None or not holds(self._writer.ownership, view.run):
            return "stale_run"
        if view.run.state == "interrupt_requested":
            self._signal.cancel("user-interrupt")
            return "run_interrupted"
        return None

    async def _tell_interrupted(self, call: ToolCallPart) -> None:
        telling = self._voice.tool(_result(call, "interrupted", None))
        if telling is not None:
            with anyio.move_on_after(_TELL_WITHIN, shield=True):
                await telling


def _result(call: ToolCallPart, outcome: ToolOutcome, output: JsonValue) -> ToolResultPart:
    return ToolResultPart(call_id=call.call_id, tool_name=call.tool_name, outcome=outcome, output=output)
