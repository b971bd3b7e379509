"""A registry inside a durable run: calls go through the fence, and every failure becomes a result for the model."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import JsonValue

from runlane.clock import Clock
from runlane.contracts import CancelToken, Id, Issue, require_kind, stray_ends, sync_result
from runlane.diagnostics import CreateDiagnosticsOptions, DiagnosticContext, create_diagnostics
from runlane.errors import ToolArgumentsError, ToolDeniedError, ToolError, ToolFenceError, UnknownToolError, UsageError
from runlane.ids import IdSource
from runlane.models import ModelFunction
from runlane.records import ToolCallPart, ToolOutcome, ToolResultPart
from runlane.tools._context import ToolDurability, ToolInvocationPorts
from runlane.tools._envelope import TOO_LARGE, as_json, error_envelope
from runlane.tools._fence import ToolFenceContext, ToolFenceLifecycle
from runlane.tools._pipeline import Asked, CallFacts, Invocation, Pipeline
from runlane.tools._ports import ToolInvocationRequest
from runlane.tools._progress import CallProgress
from runlane.tools._reconcile import reconciled
from runlane.tools._registry import ToolRegistry, pipeline_of

__all__ = ["MountedCall", "MountedTools", "OnToolFailure", "TellCallProgress", "ToolTurnFacts", "mount_tools"]

OnToolFailure: TypeAlias = Callable[[ToolCallPart, Exception], object]
"""Told what really went wrong with a call: for the operator, never for the model or the record. Must not raise."""

TellCallProgress: TypeAlias = Callable[[ToolCallPart, str, float | None, float | None], object]
"""Told of progress that is to be published: the call, the message, how far, of how much."""

_NOT_JSON: Final = Issue(code="json", message="the arguments are not valid JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTurnFacts:
    """What a mount knows of the run it serves.

    Attributes:
        fencing_token: Of this execution.
        signal: Ends every call when it trips.
        ports: Helpers every call gets, beside its progress; what it has none of is the registry's own for the host.
        durability: Makes the run's durability for the first call that needs one, or None.
        tell_progress: Where progress goes, or None.
        on_failure: See `OnToolFailure`.
        diagnostics: Where invocations are recorded.
        max_output_bytes: How large the JSON of one call's output may be, or None.
    """

    run_id: str
    fencing_token: int
    signal: CancelToken
    clock: Clock
    ids: IdSource
    ports: ToolInvocationPorts = field(default_factory=ToolInvocationPorts)
    tell_progress: TellCallProgress | None = None
    on_failure: OnToolFailure | None = None
    diagnostics: DiagnosticContext | None = None
    max_output_bytes: int | None = None
    durability: Callable[[], ToolDurability] | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class MountedCall:
    """A model's call on its way.

    Attributes:
        key: Names it over every attempt: the run that asked for it, and its id.
        is_approved: Somebody agreed already.
        refusal: Its result, if it will not run.
        invocation: What will run, otherwise.
    """

    call: ToolCallPart
    key: str
    is_approved: bool = False
    refusal: ToolResultPart | None = None
    invocation: Invocation | None = None

    @property
    def approval(self) -> Literal["needed", "automatic"] | None:
        """`needed`: a person decides first; `automatic`: it goes on record as approved; None: neither."""
        if self.invocation is None or self.is_approved:
            return None
        verdict = self.invocation.authorization.verdict
        return "needed" if verdict == "ask" else "automatic" if verdict == "approve" else None

    @property
    def idempotent(self) -> bool:
        """Whether the tool may be called again with the same key."""
        return self.invocation is not None and self.invocation.tool.definition.idempotent


class MountedTools:
    """The tools of one run. Made by `mount_tools`; many runs may mount one registry.

    Attributes:
        functions: What the model is shown.
    """

    def __init__(
        self,
        pipeline: Pipeline | None,
        functions: tuple[ModelFunction, ...],
        fence: ToolFenceLifecycle,
        facts: ToolTurnFacts,
        app: object,
        /,
    ) -> None:
        """Serve a run; without a pipeline there is no tool."""
        self._pipeline = pipeline
        self._fence = fence
        self._facts = facts
        self._app = app
        self._diagnostics = facts.diagnostics
        self.functions = functions

    async def execute(self, call: ToolCallPart, /) -> ToolResultPart:
        """Carry a call out from beginning to end. One that would need an approval is denied.

        Raises:
            ToolFenceError: The run is lost. Never shown to the model.
        """
        mounted = await self.admit(call)
        if mounted.refusal is not None:
            return mounted.refusal
        if mounted.approval == "needed":
            return await self.deny(mounted, "approval_required")
        return await self.carry_out(mounted)

    async def admit(
        self, call: ToolCallPart, /, *, run_id: str | None = None, is_approved: bool = False
    ) -> MountedCall:
        """Find the tool, parse the arguments, ask whether the call may be made; nothing runs yet.

        Args:
            call: The model's call.
            run_id: The run that asked for it, if it was another one; its idempotency key names that run.
            is_approved: Somebody agreed already.

        Raises:
            ToolFenceError: The run is lost.
        """
        key = f"{run_id or self._facts.run_id}:{call.call_id}"
        mounted = MountedCall(call=call, key=key, is_approved=is_approved)
        try:
            mounted.invocation = await self._admitted(call, key)
        except Exception as error:  # noqa: BLE001 - every failure is a result, or raised again
            mounted.refusal = self.failed(call, error)
        return mounted

    async def _admitted(self, call: ToolCallPart, key: str) -> Invocation:
        if self._pipeline is None:
            raise UnknownToolError(tool_id=call.tool_name)
        if not call.has_input:
            await self._pipeline.find(call.tool_name, self._app)
            raise ToolArgumentsError(tool_id=call.tool_name, issues=[_NOT_JSON])
        return await self._pipeline.admit(self._asked(call, key))

    def take_slot(self, mounted: MountedCall, /) -> bool:
        """Whether a call can begin at once: it needs no thread, or one is free, which it then holds."""
        call, pipeline = mounted.invocation, self._pipeline
        if call is None or pipeline is None or not call.tool.blocking or call.has_slot:
            return True
        call.has_slot = pipeline.slots.take_now()
        return call.has_slot

    async def wait_for_slot(self, mounted: MountedCall, /) -> None:
        """Wait until a call can begin."""
        if not self.take_slot(mounted) and mounted.invocation is not None and self._pipeline is not None:
            await self._pipeline.slots.take()
            mounted.invocation.has_slot = True

    def let_go(self, mounted: MountedCall, /) -> None:
        """Give back the slot of a call that will not begin."""
        if mounted.invocation is not None and self._pipeline is not None:
            self._pipeline.let_go(mounted.invocation)

    async def deny(self, mounted: MountedCall, reason: str | None, /) -> ToolResultPart:
        """Return the result of a call that somebody refused."""
        call = mounted.call
        error = ToolDeniedError(tool_id=call.tool_name, reason=reason)
        if mounted.invocation is not None and self._pipeline is not None:
            await self._pipeline.refuse(mounted.invocation, error)
        return self.failed(call, error)

    async def reconcile(self, mounted: MountedCall, /) -> ToolResultPart | None:
        """Return the result of a call whose handler was entered before, if its tool can prove what came of it.

        What the tool raises, or if it takes too long, is told to the operator: nobody knows then.

        Raises:
            Exception: The reason of the tripped token.
        """
        call, signal = mounted.invocation, self._facts.signal
        ask = None if call is None else call.tool.definition.reconcile
        if call is None or ask is None:
            return None
        try:
            found = await reconciled(ask, call.value, call.context)
            if found is None:
                return None
            value = call.tool.parse_output(found.output)
            output = as_json(value, call.tool.definition.present, max_bytes=self._facts.max_output_bytes)
        except Exception as error:
            if signal.cancelled and error is signal.error():
                raise
            if issubclass(type(error), ToolError) and cast("ToolError", error).code == TOO_LARGE:
                return self.failed(mounted.call, error)
            self._report(mounted.call, error)
            return None
        return _result(mounted.call, "success", output)

    async def carry_out(self, mounted: MountedCall, /) -> ToolResultPart:
        """Run an admitted call inside the fence, and return what the model and the record get of it.

        Raises:
            ToolFenceError: The run is lost: before the handler, which then did not run, or after it, and then its
                result is discarded.
        """
        invocation, pipeline, call = mounted.invocation, self._pipeline, mounted.call
        if invocation is None or pipeline is None:
            raise UsageError("was refused and cannot be carried out", argument="call")
        gate = _FenceGate(self._fence, self._fence.context(call_id=call.call_id, idempotency_key=mounted.key))
        try:
            value = await self._value(pipeline, mounted, invocation, gate)
            output = as_json(value, invocation.tool.definition.present, max_bytes=self._facts.max_output_bytes)
        except Exception as error:
            if error is gate.failure:
                raise
            return self.failed(call, error)
        finally:
            progress = invocation.context.ports.progress
            if isinstance(progress, CallProgress):
                progress.end()
        return _result(call, "success", output)

    async def _value(
        self, pipeline: Pipeline, mounted: MountedCall, invocation: Invocation, gate: _FenceGate
    ) -> object:
        """Return what the tool returned; what somebody raises who is only told of that does not take it back."""
        try:
            return (await pipeline.carry_out(invocation, gate)).value
        except Exception as error:
            if invocation.result is None:
                raise
            self._report(mounted.call, error)
            return invocation.result.value

    def _asked(self, call: ToolCallPart, key: str) -> Asked:
        facts = self._facts
        request = ToolInvocationRequest(
            tool_id=call.tool_name, input=call.input, app=self._app, call_id=call.call_id, ports=self._helpers(call)
        )
        run_id = Id(facts.run_id)
        return Asked(
            request=request,
            invocation_id=Id(facts.ids.new("invocation")),
            signal=facts.signal,
            diagnostics=self._scope(),
            facts=CallFacts(
                run_id=run_id,
                clock=facts.clock,
                ids=facts.ids,
                idempotency_key=key,
                fencing_token=facts.fencing_token,
            ),
        )

    def _helpers(self, call: ToolCallPart) -> ToolInvocationPorts:
        """Return the helpers of a call: the run's own, and the host's for what the run has none of."""
        facts, pipeline = self._facts, self._pipeline
        ports, tell = facts.ports, facts.tell_progress
        own = ports if pipeline is None or pipeline.ports.invocation_ports is None else pipeline.helpers(self._app)
        durability = ports.durability
        if durability is None and facts.durability is not None:
            durability = facts.durability()
        return ToolInvocationPorts(
            model=ports.model or own.model,
            cache=ports.cache or own.cache,
            durability=durability or own.durability,
            progress=ports.progress or own.progress
            if tell is None
            else CallProgress(functools.partial(tell, call), facts.clock),
        )

    def _scope(self) -> DiagnosticContext:
        """Return the scope of the run's tools; made with the first call if nobody gave one."""
        if self._diagnostics is None:
            facts = self._facts
            options = CreateDiagnosticsOptions(run_id=Id(facts.run_id), clock=facts.clock, ids=facts.ids)
            self._diagnostics = create_diagnostics(options)
        return self._diagnostics

    def failed(self, call: ToolCallPart, error: Exception, /) -> ToolResultPart:
        """Return the result of a call that failed.

        Raises:
            Exception: The error itself, if it ends the turn: it is the fence's, or the reason of the tripped token.
        """
        signal = self._facts.signal
        if issubclass(type(error), ToolFenceError) or (signal.cancelled and error is signal.error()):
            raise error
        self._report(call, error)
        output: JsonValue = error_envelope(error, max_bytes=self._facts.max_output_bytes)
        return _result(call, "error", output)

    def _report(self, call: ToolCallPart, error: Exception) -> None:
        """Tell the operator what went wrong; nobody is left to tell if that does, too."""
        if self._facts.on_failure is not None:
            with suppress(Exception), stray_ends("on_failure"):
                sync_result(self._facts.on_failure(call, error), argument="on_failure")


def _result(call: ToolCallPart, outcome: ToolOutcome, output: JsonValue) -> ToolResultPart:
    """Return the result of a call, without asking of each value in its output, which was just made JSON, what it is."""
    return ToolResultPart.model_construct(
        call_id=call.call_id, tool_name=call.tool_name, outcome=outcome, output=output
    )


class _FenceGate:
    """The fence of a run, around one call.

    Attributes:
        failure: What the fence itself raised: that ends the turn, whatever it is.
    """

    def __init__(self, fence: ToolFenceLifecycle, context: ToolFenceContext) -> None:
        self._fence = fence
        self._context = context
        self.failure: Exception | None = None

    async def before(self) -> None:
        await self._pass(self._fence.check)

    async def after(self) -> None:
        await self._pass(self._fence.settled)

    async def _pass(self, check: Callable[[ToolFenceContext], Awaitable[None]]) -> None:
        try:
            await check(self._context)
        except Exception as error:
            self.failure = error
            raise


async def mount_tools(
    registry: ToolRegistry[Any] | None, /, *, fence: ToolFenceLifecycle, turn_facts: ToolTurnFacts, app: object
) -> MountedTools:
    """Bring a registry into a run.

    Args:
        registry: Sealed; None stands for no tools at all.
        fence: Of the run's executor; one for each mount.
        turn_facts: The run.
        app: The application's own value, as handlers and conditions get it.

    Raises:
        UsageError: The registry is not sealed, or an argument is of the wrong kind.
        Exception: Whatever a tool's `condition` or the port `visible` raised.
    """
    require_kind(fence, ToolFenceLifecycle, argument="fence")
    require_kind(turn_facts, ToolTurnFacts, argument="turn_facts")
    if registry is None:
        return MountedTools(None, (), fence, turn_facts, app)
    pipeline = pipeline_of(require_kind(registry, ToolRegistry, argument="registry"))
    functions = tuple(tool.function for tool in await pipeline.visible(app))
    return MountedTools(pipeline, functions, fence, turn_facts, app)
