"""Durable runs as spans: a fold of delivery events and operator events.

| what happened | span | kind | parent |
|---|---|---|---|
| an execution of a run | `invoke_agent {agent}` | internal | what the admission was traced under |
| a step | `runlane.step` | internal | the run |
| a call of a model | `chat {model}` | client | the step |
| a tool call | `execute_tool {tool}` | internal | the step, or the run before the first |
| a compaction | `runlane.compact` | internal | the run |
| a withdrawn attempt, a request to stop | event on the run's span | | |

Delivery events alone make all of these. Operator events add what only they know: usage and identity of each response,
queue wait, codes of failures, and the end of executions that lost their run. Where they are told too, they decide when
a span ends; which of the two comes first makes no difference.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer, TracerProvider, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from runlane.delivery import (
    AdmissionEvent,
    AttemptResetEvent,
    DurableEvent,
    RunOperationEvent,
    RunStateEvent,
    RuntimeEvent,
    TerminalEvent,
    ToolStatusEvent,
    TransientEvent,
)
from runlane.observability._content import as_json, messages_json
from runlane.observability._events import RunEvent, RunStartedEvent, RunTerminalEvent, StepFinishedEvent
from runlane.observability._names import INSTRUMENTATION, OTHER_ERROR, SCHEMA_URL, is_failure, named, provider_name
from runlane.observability._names import AttributeName as Name
from runlane.observability._spans import Attribute, OpenSpan, nanoseconds, usage_attributes
from runlane.records import Run, TerminalReason

__all__ = ["ParentOf", "RunTracer"]

ParentOf: TypeAlias = Callable[[Run], Context | None]
"""Says under which trace a run belongs, or None for a trace of its own."""

_Key: TypeAlias = tuple[str, str]

_ENDS: Final = frozenset({"completed", "failed", "cancelled"})
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def parent_in_request(run: Run, /) -> Context | None:
    """Return the W3C trace context that the run's `request` carries as `traceparent`, if it does."""
    request = run.request or {}
    carrier = {name: value for name in ("traceparent", "tracestate") if isinstance(value := request.get(name), str)}
    return _PROPAGATOR.extract(carrier, Context()) if "traceparent" in carrier else None


class _Admitted:
    """What is kept of a run between its admission and its execution."""

    __slots__ = ("echo", "input_json", "parent")

    def __init__(self, parent: Context | None, input_json: str | None, echo: int | None) -> None:
        self.parent = parent
        self.input_json = input_json
        self.echo = echo


class _Call:
    """A call of a model: its step's span and its own."""

    __slots__ = ("chat", "ended_at", "first_at", "index", "is_described", "step")

    def __init__(self, index: int, step: OpenSpan, chat: OpenSpan) -> None:
        self.index = index
        self.step = step
        self.chat = chat
        self.ended_at: int | None = None
        self.first_at: int | None = None
        self.is_described = False


class _Execution:
    """The spans of one execution."""

    __slots__ = ("call", "compactions", "expects_operators", "run", "step", "tools")

    def __init__(self, run: OpenSpan) -> None:
        self.run = run
        self.step: OpenSpan | None = None
        self.call: _Call | None = None
        self.tools: dict[str, OpenSpan] = {}
        self.compactions: dict[str, OpenSpan] = {}
        self.expects_operators = False


class RunTracer:
    """Makes OpenTelemetry spans of the runs of a runtime.

    It is a publisher and an observer at once; give it as both, or as the publisher alone. It takes what it is told at
    once and exports nothing itself: with a batching span processor a slow exporter costs a run nothing. What people,
    models and tools say stays out of the spans unless `capture_content` is set.

    Example:
        >>> tracer = RunTracer(agent_name="support")
        >>> config = RuntimeConfig(delivery=DeliveryConfig(publisher=tracer.publish), observers=(tracer,))
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        agent_name: str | None = None,
        capture_content: bool = False,
        parent_of: ParentOf = parent_in_request,
        max_open: int = 10_000,
    ) -> None:
        """Prepare a tracer.

        Args:
            provider: Where spans go; the global one by default.
            agent_name: How the agent is called in spans.
            capture_content: Whether inputs, answers, and arguments and results of tools become attributes.
            parent_of: Under which trace a run belongs; by default under the `traceparent` in its `request`.
            max_open: Executions whose spans may be open at the same time; the oldest ends for one more. Only ends that
                this tracer was not told of come that far.
        """
        self._tracer: Tracer = get_tracer(INSTRUMENTATION, None, provider, SCHEMA_URL)
        self._agent = agent_name
        self._captures = capture_content
        self._parent_of = parent_of
        self._max_open = max_open
        self._admitted: OrderedDict[_Key, _Admitted] = OrderedDict()
        self._open: OrderedDict[_Key, _Execution] = OrderedDict()

    @property
    def open_runs(self) -> int:
        """How many executions have spans that did not end yet."""
        return len(self._open)

    def context_of(self, run_id: str, /) -> Context | None:
        """Return where the spans of somebody who works inside a run begin, while the run has an open span."""
        for (_, known), execution in self._open.items():
            if known == run_id:
                return (execution.step or execution.run).context
        return None

    # --- what delivery tells -------------------------------------------------------------------------------------

    def publish(self, event: RuntimeEvent, /) -> None:
        """Take a delivery event; a `DeliveryConfig.publisher`."""
        key = (event.conversation_id, event.run_id)
        match event:
            case AdmissionEvent():
                self._admit(key, event)
            case RunStateEvent():
                self._enter_state(key, event)
            case RunOperationEvent():
                self._operate(key, event)
            case TerminalEvent():
                self._conclude(key, event)
            case ToolStatusEvent():
                self._use_tool(key, event)
            case AttemptResetEvent():
                self._note(key, event, Name.ATTEMPT_RESET, {Name.ATTEMPT: event.attempt})
            case _:
                pass

    def _admit(self, key: _Key, event: AdmissionEvent) -> None:
        if key in self._open or key in self._admitted or not event.run.is_active:
            return
        said = messages_json(event.input) if self._captures else None
        # A repeated key tells of a run that executes elsewhere; the state that is told with it begins nothing here.
        echo = None if event.run.state == "queued" else event.snapshot_version
        self._admitted[key] = _Admitted(self._parent_of(event.run), said, echo)
        if len(self._admitted) > self._max_open:
            self._admitted.popitem(last=False)

    def _enter_state(self, key: _Key, event: RunStateEvent) -> None:
        at = nanoseconds(event.emitted_at)
        admitted = self._admitted.get(key)
        if admitted is not None and admitted.echo == event.snapshot_version:
            del self._admitted[key]
        elif event.state == "running":
            self._execution(key, at)
        elif event.state == "interrupt_requested":
            self._note(key, event, Name.INTERRUPT, {})
        elif event.state in {"abandoned", "superseded"}:
            self._admitted.pop(key, None)
            execution = self._open.get(key)
            if execution is not None and not execution.expects_operators:
                reason: TerminalReason = "abandoned" if event.state == "abandoned" else "superseded"
                self._describe_end(execution, reason, None)
                self._end(key, at)
        elif event.state == "queued" and key in self._open:
            # Taken from whoever executed it.
            self._open[key].run.say({Name.RUN_STATE: "queued"})
            self._end(key, at)

    def _operate(self, key: _Key, event: RunOperationEvent) -> None:
        execution = self._open.get(key)
        if execution is None:
            return
        operation = event.operation
        at = nanoseconds(operation.finished_at or operation.first_output_at or operation.started_at)
        if operation.kind == "compaction":
            self._compact(execution, event, at)
        elif operation.phase == "started":
            self._begin_call(execution, operation.step or 0, at, operation.operation_id)
        elif execution.call is not None and execution.call.index == operation.step:
            self._go_on(execution, execution.call, event, at)

    def _begin_call(self, execution: _Execution, index: int, at: int, operation_id: str) -> None:
        self._end_step(execution, at)
        execution.step = OpenSpan(
            self._tracer, "runlane.step", at, parent=execution.run.context, attributes={Name.STEP: index}
        )
        chat = OpenSpan(
            self._tracer,
            named("chat", None),
            at,
            parent=execution.step.context,
            kind=SpanKind.CLIENT,
            attributes={Name.OPERATION: "chat", Name.STREAM: True, Name.OPERATION_ID: operation_id},
        )
        execution.call = _Call(index, execution.step, chat)

    def _go_on(self, execution: _Execution, call: _Call, event: RunOperationEvent, at: int) -> None:
        """A call has put something out, or is over."""
        operation = event.operation
        if operation.first_output_at is not None and call.first_at is None:
            call.first_at = nanoseconds(operation.first_output_at)
            waited = max(0, call.first_at - nanoseconds(operation.started_at))
            call.chat.say({Name.FIRST_CHUNK: waited / 1e9})
        if operation.phase not in _ENDS or call.ended_at is not None:
            return
        call.ended_at = at
        if operation.phase == "cancelled" and not call.is_described:
            call.chat.say({Name.STATUS: "cancelled"})
        elif operation.phase == "failed" and not call.is_described:
            call.chat.fail(OTHER_ERROR)
        if call.is_described or not execution.expects_operators:
            self._end_call(execution)

    def _compact(self, execution: _Execution, event: RunOperationEvent, at: int) -> None:
        operation = event.operation
        span = execution.compactions.pop(operation.operation_id, None)
        if span is None and operation.phase == "started":
            attributes: dict[str, Attribute] = {Name.OPERATION_ID: operation.operation_id}
            parent = execution.run.context
            span = OpenSpan(self._tracer, "runlane.compact", at, parent=parent, attributes=attributes)
            execution.compactions[operation.operation_id] = span
        elif span is not None:
            if operation.code is not None:
                span.say({Name.OPERATION_CODE: operation.code})
            if operation.phase == "failed":
                span.fail(operation.code or OTHER_ERROR)
            elif operation.phase == "cancelled":
                span.say({Name.STATUS: "cancelled"})
            span.end(at)

    def _use_tool(self, key: _Key, event: ToolStatusEvent) -> None:
        execution = self._open.get(key)
        if execution is None:
            return
        at = nanoseconds(event.emitted_at)
        span = execution.tools.pop(event.call_id, None)
        if event.status == "started":
            if span is not None:
                span.end(at)
            execution.tools[event.call_id] = self._begin_tool(execution, event, at)
        elif span is not None:
            _describe_result(span, event, captures=self._captures)
            span.end(at)

    def _begin_tool(self, execution: _Execution, event: ToolStatusEvent, at: int) -> OpenSpan:
        attributes: dict[str, Attribute] = {
            Name.OPERATION: "execute_tool",
            Name.TOOL: event.tool_name,
            Name.TOOL_CALL: event.call_id,
            Name.TOOL_TYPE: "function",
        }
        if self._captures:
            attributes[Name.TOOL_ARGUMENTS] = as_json(event.input)
        parent = (execution.step or execution.run).context
        name = named("execute_tool", event.tool_name)
        return OpenSpan(self._tracer, name, at, parent=parent, attributes=attributes)

    def _conclude(self, key: _Key, event: TerminalEvent) -> None:
        self._admitted.pop(key, None)
        execution = self._open.get(key)
        if execution is None:
            return
        self._describe_end(execution, event.reason, event.policy_name)
        execution.run.say(usage_attributes(event.metrics.usage))
        if self._captures:
            execution.run.say({Name.OUTPUT_MESSAGES: messages_json(event.message, event.reason)})
        if not execution.expects_operators:
            self._end(key, nanoseconds(event.emitted_at))

    def _note(
        self, key: _Key, event: DurableEvent | TransientEvent, name: str, attributes: dict[str, Attribute]
    ) -> None:
        execution = self._open.get(key)
        if execution is not None:
            execution.run.happen(name, nanoseconds(event.emitted_at), attributes)

    # --- what operators are told ---------------------------------------------------------------------------------

    def emit(self, event: RunEvent, /) -> None:
        """Take an operator event; this makes a tracer one of `RuntimeConfig.observers`."""
        key = (event.conversation_id, event.run_id)
        match event:
            case RunStartedEvent():
                self._begin(key, event)
            case StepFinishedEvent():
                self._describe_step(key, event)
            case RunTerminalEvent():
                self._terminate(key, event)

    def _begin(self, key: _Key, event: RunStartedEvent) -> None:
        execution = self._execution(key, nanoseconds(event.emitted_at))
        execution.expects_operators = True
        if event.queue_wait_ms is not None:
            execution.run.say({Name.QUEUE_WAIT: event.queue_wait_ms})
        if event.model_id is not None:
            execution.run.say({Name.REQUEST_MODEL: event.model_id})

    def _describe_step(self, key: _Key, event: StepFinishedEvent) -> None:
        execution = self._open.get(key)
        call = None if execution is None else execution.call
        if execution is None or call is None or call.index != event.step or call.is_described:
            return
        call.is_described = True
        call.step.say({Name.ATTEMPT: event.attempt})
        _describe_response(call.chat, event)
        if event.outcome == "failed":
            call.chat.fail(event.error_code or OTHER_ERROR)
        elif event.outcome == "cancelled":
            call.chat.say({Name.STATUS: "cancelled"})
        if call.ended_at is None:
            # When exactly it ended is known here; the durable record of it comes with the next commit.
            call.ended_at = nanoseconds(event.emitted_at)
        self._end_call(execution)

    def _terminate(self, key: _Key, event: RunTerminalEvent) -> None:
        self._admitted.pop(key, None)
        execution = self._open.get(key)
        if execution is None:
            return
        self._describe_end(execution, event.terminal_reason, event.policy_name, event.error_code)
        execution.run.say({Name.RUN_WINNER: event.is_winner, **usage_attributes(event.usage)})
        self._end(key, nanoseconds(event.emitted_at))

    # --- beginnings and ends -------------------------------------------------------------------------------------

    def _execution(self, key: _Key, at: int) -> _Execution:
        known = self._open.get(key)
        if known is not None:
            return known
        admitted = self._admitted.pop(key, None)
        attributes: dict[str, Attribute] = {
            Name.OPERATION: "invoke_agent",
            Name.CONVERSATION: key[0],
            Name.RUN: key[1],
        }
        if self._agent is not None:
            attributes[Name.AGENT] = self._agent
        if admitted is not None and admitted.input_json is not None:
            attributes[Name.INPUT_MESSAGES] = admitted.input_json
        parent = None if admitted is None else admitted.parent
        span = OpenSpan(self._tracer, named("invoke_agent", self._agent), at, parent=parent, attributes=attributes)
        execution = self._open[key] = _Execution(span)
        if len(self._open) > self._max_open:
            self._end(next(iter(self._open)), at)
        return execution

    @staticmethod
    def _describe_end(
        execution: _Execution, reason: TerminalReason, policy: str | None, error_code: str | None = None
    ) -> None:
        execution.run.say({Name.REASON: reason})
        if policy is not None:
            execution.run.say({Name.POLICY: policy})
        if is_failure(reason):
            execution.run.fail(error_code or reason)
        elif reason in {"interrupted", "superseded", "cancelled", "shutdown"}:
            execution.run.say({Name.STATUS: "cancelled"})

    def _end_call(self, execution: _Execution) -> None:
        call, execution.call = execution.call, None
        if call is not None and call.ended_at is not None:
            call.chat.end(call.ended_at)

    def _end_step(self, execution: _Execution, at: int) -> None:
        call, execution.call = execution.call, None
        if call is not None:
            call.chat.end(at if call.ended_at is None else call.ended_at)
        for span in execution.tools.values():
            span.say({Name.STATUS: "cancelled"})
            span.end(at)
        execution.tools.clear()
        if execution.step is not None:
            execution.step.end(at)
            execution.step = None

    def _end(self, key: _Key, at: int) -> None:
        execution = self._open.pop(key)
        self._end_step(execution, at)
        for span in execution.compactions.values():
            span.end(at)
        execution.run.end(at)

    def close(self, at: int, /) -> None:
        """End what is open, at a time in Unix nanoseconds; for a process that ends before its runs do."""
        for key in list(self._open):
            self._end(key, at)
        self._admitted.clear()


def _describe_response(span: OpenSpan, event: StepFinishedEvent) -> None:
    response = event.response
    said: dict[str, str | None] = {
        Name.REQUEST_MODEL: event.model_id,
        Name.PROVIDER: None if event.provider_id is None else provider_name(event.provider_id),
        Name.RESPONSE_ID: response.response_id,
        Name.RESPONSE_MODEL: response.model,
    }
    span.say({name: text for name, text in said.items() if text})
    span.say(usage_attributes(event.usage))
    if response.finish_reason is not None:
        span.say({Name.FINISH_REASONS: [response.finish_reason]})
    if event.ttft_ms is not None:
        span.say({Name.FIRST_CHUNK: event.ttft_ms / 1000})
    if event.model_id is not None:
        span.span.update_name(named("chat", event.model_id))


def _describe_result(span: OpenSpan, event: ToolStatusEvent, *, captures: bool) -> None:
    if captures:
        span.say({Name.TOOL_RESULT: as_json(event.output)})
    if event.status == "failed":
        output = event.output
        code = output.get("error") if isinstance(output, dict) else None
        span.fail(code if isinstance(code, str) and _is_code(code) else OTHER_ERROR)
    elif event.status == "interrupted":
        span.say({Name.STATUS: "cancelled"})


def _is_code(text: str) -> bool:
    """Whether a text is a code; anything else could be something that somebody said."""
    return len(text) <= 100 and all(part.isidentifier() and part.isascii() for part in text.split("."))  # noqa: PLR2004
