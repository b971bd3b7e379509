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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import anyio

from runlane.contracts import CancelToken
from runlane.errors import ToolDeniedError, ToolError, UnknownToolError, UsageError
from runlane.models import AnyModelMessage, ModelFunction
from runlane.records import (
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime._announcing import RunVoice
from runlane.runtime._core import RuntimeCore
from runlane.runtime._effects import effect_entry, effect_event_id
from runlane.runtime._intake import Intake
from runlane.runtime._left_open import AnsweredCall, LeftOpen, spoken_rounds
from runlane.runtime._pairing import Pairing, check_names
from runlane.runtime._turn import Turn
from runlane.runtime._turn_writer import TurnWriter, holds
from runlane.tools import (
    ApprovalKind,
    MountedCall,
    MountedTools,
    ToolDurability,
    ToolFenceConfig,
    ToolFenceContext,
    ToolFenceLifecycle,
    ToolTurnFacts,
    approval_kind,
    mount_tools,
)

__all__ = ["RunTools", "answer_calls"]


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


@dataclass(eq=False, slots=True)
class _Plan:
    """What is to become of a call.

    Attributes:
        asks: Consent it needs that nobody asked for yet, beside what its tool asks for.
        waits: Consent was asked for and not given yet.
        was_entered: An earlier execution entered its handler; that is on record.
        may_begin: It is on record that the handler is about to be entered.
    """

    mounted: MountedCall
    asks: ApprovalKind | None = None
    waits: bool = False
    was_entered: bool = False
    may_begin: bool = False


class _Hold:
    """Whether a run is still held, as the fence asks.

    Attributes:
        proven: Calls whose intent was just committed: that stands for the first check.
    """

    __slots__ = ("_core", "_signal", "_writer", "proven")

    def __init__(self, core: RuntimeCore, writer: TurnWriter, signal: CancelToken, /) -> None:
        """Nothing is proven yet."""
        self._core = core
        self._writer = writer
        self._signal = signal
        self.proven: set[str | None] = set()

    async def verdict(self, context: ToolFenceContext) -> str | None:
        """Say why the run is lost, or None; the commit of an intent stands for the first check of its call."""
        if self._signal.cancelled:
            return "run_interrupted"
        if context.call_id in self.proven:
            self.proven.discard(context.call_id)
            return None
        conversation_id, run_id = self._writer.run.conversation_id, self._writer.run.id
        view = await self._core.calls.read(lambda store: store.load_run(conversation_id, run_id))
        if view is None or not holds(self._writer.ownership, view.run):
            return "stale_run"
        if view.run.state == "interrupt_requested":
            self._signal.cancel("user-interrupt")
            return "run_interrupted"
        return None


class RunTools:
    """The tools of one run, as its turn holds them.

    Attributes:
        fence: Around every handler; hand it to tools that are called in another way.
        waits: Whether a call waits for somebody's consent, which ends the turn.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a run's tools are made of
        self,
        core: RuntimeCore,
        writer: TurnWriter,
        voice: RunVoice,
        signal: CancelToken,
        app: object,
        pairing: Pairing,
        intake: Intake,
        durability: Callable[[], ToolDurability],
        /,
    ) -> None:
        """Serve a run; nothing can be called before `mount`.

        Args:
            core: The runtime.
            writer: Makes the run durable.
            voice: Tells of calls that were cut off, and of progress.
            signal: Ends calls when it trips.
            app: The application's own value.
            pairing: Knows the calls of the answer.
            intake: Adds to the answer.
            durability: Gives the run's named work, for the tools that want it.
        """
        self._core = core
        self._durability = durability
        self._writer = writer
        self._voice = voice
        self._signal = signal
        self._app = app
        self._pairing = pairing
        self._intake = intake
        self._mounted: MountedTools | None = None
        self._hold = _Hold(core, writer, signal)
        self._running = 0
        self.waits = False
        run = writer.run
        self.fence = ToolFenceLifecycle(
            ToolFenceConfig(
                run_id=run.id,
                assert_current=self._hold.verdict,
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
            tell_progress=self._voice.progress,
            on_failure=core.config.tools.on_error,
            max_output_bytes=core.config.tools.max_output_bytes,
            durability=self._durability,
        )
        self._mounted = await mount_tools(core.tools, fence=self.fence, turn_facts=facts, app=self._app)

    def functions(self, active: frozenset[str] | None = None, /) -> tuple[ModelFunction, ...]:
        """Return what the model is shown: all tools, or those of them that are named."""
        check_names(active)
        functions = () if self._mounted is None else self._mounted.functions
        return functions if active is None else tuple(shown for shown in functions if shown.name in active)

    def distinct(self, calls: Sequence[ToolCallPart], /) -> tuple[ToolCallPart, ...]:
        """Return calls with ids no earlier call of the run has; see `TurnTools.distinct`."""
        return self._pairing.distinct(calls)

    async def answer(
        self, calls: Sequence[ToolCallPart], active: frozenset[str] | None = None, /
    ) -> tuple[ToolResultPart, ...] | None:
        """Carry out calls; see `answer_calls`."""
        check_names(active)
        self._pairing.start(calls)
        return await self._carry_out([_Plan(await self._admit(call, active)) for call in calls])

    async def resume(self, left: LeftOpen, /) -> tuple[AnyModelMessage, ...] | None:
        """Deal with what was left open.

        Returns:
            What the model is told of it; None if a call waits for somebody's consent.
        """
        plans = [await self._reopened(call, left) for call in left.open_calls]
        plans += [await self._answered(entry) for entry in left.unanswered]
        results = await self._carry_out(plans)
        self.waits = self.waits or left.waits
        if results is None or self.waits:
            return None
        return spoken_rounds(self._writer.draft.parts())

    async def _admit(self, call: ToolCallPart, active: frozenset[str] | None) -> MountedCall:
        if active is not None and call.tool_name not in active:
            error = UnknownToolError(tool_id=call.tool_name)
            return MountedCall(call=call, key="", refusal=self._tools.failed(call, error))
        return await self._tools.admit(call)

    # --- what was left open --------------------------------------------------------------------------------------

    async def _reopened(self, call: ToolCallPart, left: LeftOpen) -> _Plan:
        """Plan a call that an earlier execution of this run left without a result."""
        run_id = self._writer.run.id
        asked = [part for part in left.kept if isinstance(part, ToolApprovalRequestPart)]
        request = next((part for part in asked if part.call_id == call.call_id), None)
        if request is not None and not request.is_automatic:
            return _Plan(MountedCall(call=call, key=""), waits=True)
        return await self._planned(call, run_id, is_approved=request is not None, may_ask=request is None)

    async def _answered(self, entry: AnsweredCall) -> _Plan:
        """Plan a call that somebody agreed to, or refused."""
        call, reason = entry.call, entry.response.reason
        if entry.response.approved:
            return await self._planned(call, entry.run_id, is_approved=True, may_ask=False)
        is_unknown = approval_kind(entry.request) == "effect-unknown"
        error = _outcome_unknown(reason) if is_unknown else ToolDeniedError(tool_id=call.tool_name, reason=reason)
        return _Plan(MountedCall(call=call, key="", refusal=self._tools.failed(call, error)))

    async def _planned(self, call: ToolCallPart, run_id: str, *, is_approved: bool, may_ask: bool) -> _Plan:
        """Plan a call that may have been entered by an execution of this run that died.

        A call has one request for consent in its life: of one that had it the model is told that nobody knows.
        """
        own, key = self._writer.run, f"{run_id}:{call.call_id}"
        event_id = effect_event_id(own.id, key)
        entry = await self._core.calls.read(lambda store: store.find_event(own.conversation_id, event_id))
        was_entered = entry is not None
        mounted = await self._tools.admit(call, run_id=run_id, is_approved=is_approved or was_entered)
        if not was_entered or mounted.idempotent:
            return _Plan(mounted, was_entered=was_entered)
        self._tools.let_go(mounted)
        proven = None if mounted.refusal is not None else await self._tools.reconcile(mounted)
        if proven is not None:
            mounted.refusal = proven
            return _Plan(mounted)
        if may_ask and mounted.refusal is None and self._core.config.tools.unknown_effect == "ask":
            return _Plan(mounted, asks="effect-unknown")
        mounted.refusal = self._tools.failed(call, _outcome_unknown(None))
        return _Plan(mounted)

    # --- carrying out --------------------------------------------------------------------------------------------

    async def _carry_out(self, plans: Sequence[_Plan]) -> tuple[ToolResultPart, ...] | None:
        """Have the calls run, and return their results in order; None if one waits for consent."""
        results: dict[str, ToolResultPart] = {}
        waits = [self._ask(plan) for plan in plans]
        answerable = [plan for plan, waiting in zip(plans, waits, strict=True) if not waiting]
        start = self._writer.draft.size
        for plan in answerable:
            if plan.mounted.refusal is not None:
                self._take(plan.mounted.refusal, results)
        ready = [plan for plan in answerable if plan.mounted.refusal is None]
        begun = [plan for plan in ready if self._tools.take_slot(plan.mounted)]
        try:
            await self._intend(begun)
        except BaseException:
            for plan in ready:
                self._tools.let_go(plan.mounted)
            raise
        self._running += len(ready)
        await self._run_all(ready, results)
        ordered = tuple(results[plan.mounted.call.call_id] for plan in answerable)
        in_order = list(results) == [result.call_id for result in ordered]
        if not in_order and self._writer.draft.size == start + len(ordered):
            self._writer.draft.cut(start)
            for result in ordered:
                self._writer.draft.put(result)
        self.waits = self.waits or any(waits)
        return None if any(waits) else ordered

    def _ask(self, plan: _Plan) -> bool:
        """Put on record what consent a call needs; whether it now waits for it."""
        if plan.waits:
            return True
        mounted, kind = plan.mounted, plan.asks
        if kind is None and mounted.approval is None:
            return False
        run, ids = self._writer.run, self._core.ids
        request = self._core.config.tools.seal.request(
            mounted.call, ids.new("approval"), kind or "call", conversation_id=run.conversation_id, run_id=run.id
        )
        if kind is None and mounted.approval == "automatic":
            self._intake.take(request.model_copy(update={"is_automatic": True}))
            self._intake.take(ToolApprovalResponsePart(approval_id=request.approval_id, approved=True))
            return False
        self._intake.take(request)
        if kind == "effect-unknown":
            self._owe(mounted, "uncertain")
        return True

    async def _run_all(self, ready: Sequence[_Plan], results: dict[str, ToolResultPart]) -> None:
        if len(ready) < 2:  # noqa: PLR2004 - one call needs no group
            for plan in ready:
                await self._one(plan, results)
            return
        failures: list[Exception] = []

        async def run(plan: _Plan) -> None:
            try:
                await self._one(plan, results)
            except Exception as error:  # noqa: BLE001 - raised below, outside the group
                failures.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for plan in ready:
                tasks.start_soon(run, plan)
        if failures:
            raise failures[0]

    async def _one(self, plan: _Plan, results: dict[str, ToolResultPart]) -> None:
        mounted = plan.mounted
        try:
            if not plan.may_begin:
                await self._tools.wait_for_slot(mounted)
                await self._intend([plan])
            result = await self._tools.carry_out(mounted)
        except BaseException:
            self._tools.let_go(mounted)
            self._tell_interrupted(mounted.call)
            raise
        finally:
            self._running -= 1
        self._take(result, results)
        if self._running:
            await self._writer.checkpoint()

    def _take(self, result: ToolResultPart, results: dict[str, ToolResultPart]) -> None:
        results[result.call_id] = result
        self._intake.take(result)

    @property
    def _tools(self) -> MountedTools:
        if self._mounted is None:
            raise UsageError("tools are not mounted yet", argument="turn.tools")
        return self._mounted

    # --- the fence -----------------------------------------------------------------------------------------------

    async def _intend(self, plans: Sequence[_Plan]) -> None:
        """Have it durable, under the run's ownership, that handlers are about to be entered."""
        for plan in plans:
            if not plan.was_entered:
                self._owe(plan.mounted, "intent")
        await self._writer.checkpoint(proves=bool(plans))
        for plan in plans:
            plan.may_begin = True
            self._hold.proven.add(plan.mounted.call.call_id)

    def _owe(self, mounted: MountedCall, phase: Literal["intent", "uncertain"]) -> None:
        run = self._writer.run
        ids, clock = self._core.ids, self._core.clock
        self._writer.owe(
            effect_entry(phase, command_id=ids.new("command"), at=clock.now(), run_id=run.id, key=mounted.key)
        )

    def _tell_interrupted(self, call: ToolCallPart) -> None:
        self._voice.tool(ToolResultPart(call_id=call.call_id, tool_name=call.tool_name, outcome="interrupted"))


def _outcome_unknown(reason: str | None) -> ToolError:
    return ToolError(
        "tool.outcome_unknown",
        retryable=False,
        details={"reason": reason} if reason else None,
        hint="The tool may have run and had its effect. Find out before you try again.",
    )
