"""The steps of an invocation, in their order.

| step | on refusal |
|---|---|
| 1 find the tool, ask `condition` and `visible` | `UnknownToolError` |
| 2 parse the input, once | `ToolArgumentsError` |
| 3 ask `authorize`, with the parsed input | `ToolDeniedError` |
| 4 identity | as raised |
| 5 journal start | as raised; nothing runs |
| 6 `before`, the tool, `after` | the handler's own exception |
| 7 parse the output | `CheckFailedError` |
| 8 journal finish | the outcome stands |
| 9 call log, then the observer | the observer's error reaches the caller, unless another one is leaving |

What fails from step 2 on is settled, logged and observed. A mount asks for an approval between 4 and 5, and puts its
fence around 5 to 7.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import anyio

from runlane.clock import Clock
from runlane.contracts import (
    CancelToken,
    ErrorContext,
    Id,
    InvocationResult,
    MaybeAwaitable,
    ToolResult,
    annotate_error,
    resolve,
    stray_ends,
    sync_result,
)
from runlane.diagnostics import DiagnosticContext, DiagnosticSpanFields
from runlane.errors import ToolDeniedError, ToolTimeoutError, UnknownToolError, UsageError
from runlane.ids import IdSource
from runlane.tools._blocking import BlockingSlots
from runlane.tools._compiled import AnyTool
from runlane.tools._context import ToolExecutionContext, ToolInvocationPorts
from runlane.tools._course import Course
from runlane.tools._invocation import await_steps, run_steps
from runlane.tools._journal import ToolExecutionEvent, ToolJournal
from runlane.tools._ports import ToolAuthorization, ToolInvocationRequest, ToolRegistryPorts
from runlane.tools._trace import Trace

__all__ = ["Asked", "CallFacts", "Gate", "Invocation", "Pipeline"]

T = TypeVar("T")

_ALLOWED: Final = ToolAuthorization("allow")
_LONGEST_ID: Final = 512
_OBSERVE_WITHIN: Final = 1.0
"""Seconds an observer has once the invocation was cancelled."""


class Gate(Protocol):
    """What stands around a handler in a durable run."""

    async def before(self) -> None:
        """Called right before the start is journalled; what it raises keeps the handler from running."""
        ...

    async def after(self) -> None:
        """Called once the handler has returned; what it raises takes its result back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """What an invocation knows of whatever it is part of."""

    run_id: Id
    clock: Clock
    ids: IdSource
    idempotency_key: str | None = None
    fencing_token: int | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Invocation:
    """A call that may be carried out: steps 1 to 4 are behind it.

    Attributes:
        value: Its parsed input.
        authorization: What `authorize` said; `ask` also if the definition wants an approval.
        timeout: Seconds for the handlers.
        has_slot: It holds a thread's slot already.
        result: What came of it, once it succeeded: whatever those raise who are told afterwards.
    """

    tool: AnyTool
    course: Course
    value: object
    context: ToolExecutionContext[Any]
    authorization: ToolAuthorization
    journal: ToolJournal | None
    trace: Trace
    timeout: float | None
    has_slot: bool = False
    result: ToolResult[object] | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Asked:
    """A request, with everything it left out.

    Attributes:
        timeout: Seconds for the handlers, beside the tool's own limit.
    """

    request: ToolInvocationRequest
    invocation_id: Id
    signal: CancelToken
    diagnostics: DiagnosticContext
    facts: CallFacts
    timeout: float | None = None


@dataclass(eq=False, slots=True)
class Pipeline:
    """Carries invocations of one registry out.

    Attributes:
        tools: By id, in the order of registration.
        log: Settled invocations, newest last.
    """

    ports: ToolRegistryPorts[Any]
    slots: BlockingSlots
    log: deque[ToolExecutionEvent]
    tools: dict[Id, AnyTool] = field(default_factory=dict)

    # --- step 1 --------------------------------------------------------------------------------------------------

    async def is_visible(self, tool: AnyTool, app: object, /) -> bool:
        """Whether a tool exists for a host context, at this moment."""
        condition = tool.definition.condition
        if condition is not None and not await resolve(condition(app)):
            return False
        visible = self.ports.visible
        return visible is None or bool(await resolve(visible(tool.registered, app)))

    async def visible(self, app: object, /) -> tuple[AnyTool, ...]:
        """Return the tools that exist for a host context, in the order of registration."""
        return tuple([tool for tool in tuple(self.tools.values()) if await self.is_visible(tool, app)])

    async def find(self, tool_id: str, app: object, /) -> AnyTool:
        """Return a tool that exists for a host context.

        Raises:
            UnknownToolError: There is none.
        """
        tool = self.tools.get(Id(tool_id))
        if tool is None or not await self.is_visible(tool, app):
            raise UnknownToolError(tool_id=tool_id)
        return tool

    # --- steps 1 to 4 --------------------------------------------------------------------------------------------

    async def admit(self, asked: Asked, /) -> Invocation:
        """Find the tool, parse the input, have the call authorised and named."""
        request, invocation_id = asked.request, asked.invocation_id
        try:
            tool = await self.find(request.tool_id, request.app)
        except UnknownToolError as error:
            raise annotate_error(error, _place(request.tool_id, invocation_id)) from None
        clock = asked.facts.clock
        course = Course(tool_id=tool.id, invocation_id=invocation_id, call_id=request.call_id, clock=clock)
        try:
            return await self._admitted(tool, course, asked)
        except BaseException as error:
            await self._left(course, error, asked.signal)
            raise

    async def _admitted(self, tool: AnyTool, course: Course, asked: Asked) -> Invocation:
        request, facts = asked.request, asked.facts
        value = tool.parse(request.input)
        authorization = await self._authorized(tool, value, request.app)
        if authorization.verdict == "deny":
            raise ToolDeniedError(tool_id=tool.id, reason=authorization.reason)
        fields = DiagnosticSpanFields(tool_id=tool.id, invocation_id=course.invocation_id)
        scope = asked.diagnostics.child(fields)
        trace = Trace(scope)
        context = ToolExecutionContext(
            signal=asked.signal,
            diagnostics=scope,
            invocation_id=course.invocation_id,
            run_id=facts.run_id,
            clock=facts.clock,
            ids=facts.ids,
            app=request.app,
            tool_id=tool.id,
            identity=tool.identity(request.input, value, course.invocation_id),
            call_id=request.call_id,
            ports=self.helpers(request.app) if request.ports is None else request.ports,
            reporting=trace.reporting,
            idempotency_key=facts.idempotency_key,
            fencing_token=facts.fencing_token,
        )
        if authorization.verdict in {"allow", "approve"}:
            wants = await _wants_approval(tool, value, context)
            authorization = _weighed(authorization, wants_approval=wants)
        journal = request.journal
        if journal is None and self.ports.journal is not None:
            journal = sync_result(self.ports.journal(request.app), argument="ports.journal")
        return Invocation(
            tool=tool,
            course=course,
            value=value,
            context=context,
            authorization=authorization,
            journal=journal,
            trace=trace,
            timeout=_least(tool.definition.timeout, asked.timeout),
        )

    async def _authorized(self, tool: AnyTool, value: object, app: object) -> ToolAuthorization:
        authorize = self.ports.authorize
        if authorize is None:
            return _ALLOWED
        answer: object = await resolve(authorize(tool.registered, value, app))
        if not isinstance(answer, ToolAuthorization):
            raise UsageError(f"must return a ToolAuthorization, not {type(answer).__name__}", argument="authorize")
        return answer

    def helpers(self, app: object, /) -> ToolInvocationPorts:
        """Return the helpers of an invocation for a host context.

        Raises:
            UsageError: `invocation_ports` gave something else.
        """
        make = self.ports.invocation_ports
        if make is None:
            return ToolInvocationPorts()
        made: object = sync_result(make(app), argument="ports.invocation_ports")
        if not isinstance(made, ToolInvocationPorts):
            raise UsageError(f"must give ToolInvocationPorts, not {type(made).__name__}", argument="invocation_ports")
        return made

    # --- steps 5 to 9 --------------------------------------------------------------------------------------------

    async def carry_out(self, call: Invocation, gate: Gate | None = None, /) -> ToolResult[object]:
        """Run an admitted call and settle it."""
        course, context = call.course, call.context
        try:
            output = await self._guarded(call, gate)
        except BaseException as error:
            await self._left(course, error, context.signal, call.trace)
            raise
        course.close()
        receipt = course.receipt(identity=context.identity, run_id=context.run_id)
        result = call.result = InvocationResult(output, receipt)
        with stray_ends("ports.observer"):
            await call.trace.succeed(output)
            await call.trace.finish(course)
            await self._tell(course)
        return result

    async def refuse(self, call: Invocation, error: Exception, /) -> None:
        """Settle an admitted call that will not run."""
        self.let_go(call)
        await self._left(call.course, error, call.context.signal, call.trace)

    def let_go(self, call: Invocation, /) -> None:
        """Give a slot back that a call holds and will not use."""
        if call.has_slot:
            call.has_slot = False
            self.slots.release()

    async def _guarded(self, call: Invocation, gate: Gate | None) -> object:
        try:
            if call.tool.blocking and not call.has_slot:
                await self.slots.take()
                call.has_slot = True
            if gate is not None:
                await gate.before()
            call.context.signal.raise_if_cancelled()
            await call.trace.start(call.value)
            call.course.start(call.journal, call.context.identity)
        except BaseException:
            self.let_go(call)
            raise
        output = await _bounded(call, self._blocking if call.tool.blocking else _awaited)
        call.course.settle("succeeded")
        if gate is not None:
            try:
                await gate.after()
            except BaseException as error:
                call.course.discard(error)
                raise
        return output

    async def _blocking(self, call: Invocation) -> object:
        call.has_slot = False  # the thread gives it back
        return await self.slots.run(lambda: _in_thread(call))

    async def _left(
        self, course: Course, error: BaseException, signal: CancelToken, trace: Trace | None = None
    ) -> None:
        """Settle an invocation that ends with an error, which is on its way to the caller."""
        course.fail(error, signal)
        course.close()
        if issubclass(type(error), Exception):
            annotate_error(error, _place(course.tool_id, course.invocation_id))
        with anyio.move_on_after(_OBSERVE_WITHIN, shield=True):
            with suppress(Exception), stray_ends("diagnostics"):  # the earlier failure leaves
                if trace is not None:
                    await trace.finish(course)
            with suppress(Exception), stray_ends("ports.observer"):
                await self._tell(course)

    async def _tell(self, course: Course) -> None:
        event = course.event()
        self.log.append(event)
        if self.ports.observer is not None:
            told: MaybeAwaitable[None] = self.ports.observer(event)
            await resolve(told)


def _place(tool_id: str, invocation_id: Id) -> ErrorContext:
    known = Id(tool_id) if 0 < len(tool_id) <= _LONGEST_ID else None
    return ErrorContext(operation="tool", tool_id=known, invocation_id=invocation_id)


async def _wants_approval(tool: AnyTool, value: object, context: ToolExecutionContext[Any]) -> bool:
    wants = tool.definition.needs_approval
    return wants if isinstance(wants, bool) else bool(await resolve(wants(value, context)))


def _weighed(authorization: ToolAuthorization, *, wants_approval: bool) -> ToolAuthorization:
    """Return what comes of an authorisation for a tool that does or does not want an approval."""
    if not wants_approval:
        return _ALLOWED
    return authorization if authorization.verdict == "approve" else ToolAuthorization("ask")


def _least(*limits: float | None) -> float | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _in_thread(call: Invocation) -> object:
    """Run the handlers in this thread, and fix how that ended before anybody else can."""
    definition = call.tool.definition
    try:
        output = run_steps(call.tool, call.value, call.context, definition.before, definition.after)
    except Exception as error:
        call.course.fail(error, call.context.signal)
        raise
    except BaseException as error:
        failure = UsageError("tried to end its thread, or the program", argument=call.tool.id)
        call.course.fail(failure, call.context.signal)
        raise failure from error
    call.course.settle("succeeded")
    return output


async def _awaited(call: Invocation) -> object:
    definition = call.tool.definition
    with stray_ends(call.tool.id):
        return await await_steps(call.tool, call.value, call.context, definition.before, definition.after)


async def _bounded(call: Invocation, work: Callable[[Invocation], Awaitable[object]]) -> object:
    """Run the handlers until they return, the token trips, or their time is over."""
    signal = call.context.signal
    outcome: list[object] = []
    with anyio.CancelScope() as scope, signal.bind(scope):
        if call.timeout is None:
            outcome.append(await work(call))
        else:
            outcome.append(await _timed(call, call.timeout, work))
    if outcome:
        return outcome[0]
    raise signal.error()


async def _timed(call: Invocation, seconds: float, work: Callable[[Invocation], Awaitable[T]]) -> T:
    outcome: list[T] = []
    failure: list[Exception] = []
    expiry = ToolTimeoutError(tool_id=call.tool.id, timeout=seconds)
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await call.context.clock.sleep(seconds)
            # A thread whose handler has just returned was in time.
            if call.course.settle("failed", expiry):
                tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            outcome.append(await work(call))
        except Exception as error:  # noqa: BLE001 - raised below, outside the group
            failure.append(error)
        tasks.cancel_scope.cancel()
    if failure:
        raise failure[0]
    if outcome:
        return outcome[0]
    raise expiry
