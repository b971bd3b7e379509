"""What the core half tells of its runs, as spans: an output of diagnostics.

| core span | OpenTelemetry span | kind |
|---|---|---|
| run | `invoke_agent {agent}` | internal |
| workflow | `invoke_workflow {workflow}` | internal |
| node visit | `runlane.node {node}` | internal |
| model call | `chat {model}` | client |
| tool | `execute_tool {tool}` | internal |
| route, recovery, cache, budget, measurement, a journal that failed | event on the enclosing span | |

A round has no span: what belongs to it belongs to its run. Failed means a span of status error, with the code as
`error.type`; cancelled is no error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.trace import SpanKind, Tracer, TracerProvider, get_tracer

from runlane.contracts import InvocationStatus, ModelUsage
from runlane.diagnostics import CoreEvent, CoreEventDescriptor, DiagnosticIdentity, ErrorFacts
from runlane.observability._content import as_json
from runlane.observability._names import INSTRUMENTATION, OTHER_ERROR, SCHEMA_URL, named, provider_name
from runlane.observability._names import AttributeName as Name
from runlane.observability._run_spans import RunTracer
from runlane.observability._spans import Attribute, OpenSpan

__all__ = ["CoreTracer"]

_ROOTS: Final = 10_000
"""Root scopes whose spans may be open at the same time; the oldest ends for one more."""

_MS: Final = 1_000_000
_TOKENS: Final = (
    ("input_tokens", Name.INPUT_TOKENS),
    ("output_tokens", Name.OUTPUT_TOKENS),
    ("cache_read_tokens", Name.CACHE_READ_TOKENS),
    ("cache_write_tokens", Name.CACHE_WRITE_TOKENS),
    ("reasoning_tokens", Name.REASONING_TOKENS),
)


class _Tree:
    """The spans of one root scope.

    Attributes:
        open: By span id, those above before those below.
        parents: What an open span, or a round, stands under.
    """

    __slots__ = ("open", "parents")

    def __init__(self) -> None:
        self.open: dict[str, OpenSpan] = {}
        self.parents: dict[str, str] = {}

    def enclosing(self, span_id: str | None) -> OpenSpan | None:
        """Return the nearest open span, from a span's own outwards."""
        while span_id is not None:
            span = self.open.get(span_id)
            if span is not None:
                return span
            span_id = self.parents.get(span_id)
        return None

    def end(self, at: int) -> None:
        """End what was left open, the innermost first."""
        for span in reversed(self.open.values()):
            span.end(at)


class CoreTracer:
    """Makes OpenTelemetry spans of diagnostics; give it as `CreateDiagnosticsOptions.output`.

    It makes them at once and exports nothing itself. Content events become span events only if `capture_content` is
    set here *and* diagnostics accept content; by default no text leaves.

    Example:
        >>> options = CreateDiagnosticsOptions(output=CoreTracer())
        >>> driver = WorkflowTurnDriver(workflow, app=None, diagnostics=options)
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        agent_name: str | None = None,
        capture_content: bool = False,
        runs: RunTracer | None = None,
    ) -> None:
        """Prepare an output.

        Args:
            provider: Where spans go; the global one by default.
            agent_name: How the agent is called in spans; its id by default.
            capture_content: Whether content events become span events.
            runs: The tracer of the durable runs that workflows answer. Their spans then stand under the durable run's,
                and calls of models and tools, of which the durable run tells itself, are not told twice.
        """
        self._tracer: Tracer = get_tracer(INSTRUMENTATION, None, provider, SCHEMA_URL)
        self._agent = agent_name
        self._captures = capture_content
        self._runs = runs
        self._trees: OrderedDict[str, _Tree] = OrderedDict()

    @property
    def open_spans(self) -> int:
        """How many spans did not end yet."""
        return sum(len(tree.open) for tree in self._trees.values())

    def accepts(self, descriptor: CoreEventDescriptor, /) -> bool:
        """Every metadata event; content only if it was asked for."""
        return self._captures or not descriptor.content

    async def write(self, event: CoreEvent, /) -> None:
        """Take an event."""
        identity, at = event.identity, event.occurred_at * _MS
        tree = self._tree(event.producer_id, at)
        begin = _BEGINS.get(event.name)
        if begin is not None:
            if not self._is_told_by_run(event):
                self._begin(tree, identity, at, begin(event, self._agent))
        elif event.name in _ENDS:
            self._end(tree, event, at)
        elif event.name == "round.started":
            _pass_through(tree, identity)
        elif event.name == "round.finished":
            tree.parents.pop(identity.span_id, None)
        else:
            _happen(tree, event, at)

    def _tree(self, producer_id: str, at: int) -> _Tree:
        tree = self._trees.get(producer_id)
        if tree is None:
            tree = self._trees[producer_id] = _Tree()
            if len(self._trees) > _ROOTS:
                self._trees.popitem(last=False)[1].end(at)
        return tree

    def _is_told_by_run(self, event: CoreEvent) -> bool:
        if self._runs is None or event.name not in {"model.started", "tool.started"}:
            return False
        return self._runs.context_of(event.identity.run_id) is not None

    def _begin(self, tree: _Tree, identity: DiagnosticIdentity, at: int, opening: _Opening) -> None:
        _pass_through(tree, identity)
        above = tree.enclosing(identity.parent_span_id)
        parent = None if above is None else above.context
        if parent is None and self._runs is not None:
            parent = self._runs.context_of(identity.run_id)
        tree.open[identity.span_id] = OpenSpan(
            self._tracer, opening.name, at, parent=parent, kind=opening.kind, attributes=opening.attributes
        )

    def _end(self, tree: _Tree, event: CoreEvent, at: int) -> None:
        identity, payload = event.identity, event.payload
        span = tree.open.pop(identity.span_id, None)
        tree.parents.pop(identity.span_id, None)
        if span is not None:
            _describe_end(span, payload)
            span.end(at)
        if identity.parent_span_id is None:
            # A span that was left open ends with its root.
            tree.end(at)
        if identity.parent_span_id is None or not (tree.open or tree.parents):
            self._trees.pop(event.producer_id, None)


def _pass_through(tree: _Tree, identity: DiagnosticIdentity) -> None:
    """Remember what a span stands under, for those that stand under it."""
    if identity.parent_span_id is not None:
        tree.parents[identity.span_id] = identity.parent_span_id


def _describe_end(span: OpenSpan, payload: Any) -> None:  # noqa: ANN401 - one of the endings
    usage: ModelUsage | None = getattr(payload, "usage", None)
    if usage is not None:
        span.say(_usage(usage))
    finish: str | None = getattr(payload, "finish_reason", None)
    if finish is not None:
        span.say({Name.FINISH_REASONS: [finish]})
    _conclude(span, payload.status, payload.error)


def _happen(tree: _Tree, event: CoreEvent, at: int) -> None:
    identity = event.identity
    span = tree.enclosing(identity.span_id) or tree.enclosing(identity.parent_span_id)
    if span is not None:
        span.happen(event.name, at, _facts(event))


class _Opening:
    """A span about to be made."""

    __slots__ = ("attributes", "kind", "name")

    def __init__(
        self, name: str, attributes: Mapping[str, Attribute | None], kind: SpanKind = SpanKind.INTERNAL
    ) -> None:
        self.name = name
        self.kind = kind
        self.attributes = {key: value for key, value in attributes.items() if value is not None}


def _run(event: CoreEvent, agent: str | None) -> _Opening:
    identity = event.identity
    agent = agent or identity.agent_id
    return _Opening(
        named("invoke_agent", agent),
        {Name.OPERATION: "invoke_agent", Name.AGENT: agent, Name.RUN: identity.run_id},
    )


def _workflow(event: CoreEvent, _agent: str | None) -> _Opening:
    workflow = event.identity.workflow_id
    return _Opening(
        named("invoke_workflow", workflow),
        {Name.OPERATION: "invoke_workflow", Name.AGENT: workflow, Name.WORKFLOW: workflow},
    )


def _node(event: CoreEvent, _agent: str | None) -> _Opening:
    identity = event.identity
    return _Opening(
        f"runlane.node {identity.node_id}",
        {Name.NODE: identity.node_id, Name.VISIT: identity.visit, Name.ROUND: identity.round},
    )


def _model(event: CoreEvent, _agent: str | None) -> _Opening:
    identity, payload = event.identity, event.payload
    model: str | None = getattr(payload, "model_id", None)
    provider: str | None = getattr(payload, "provider_id", None)
    return _Opening(
        named("chat", model),
        {
            Name.OPERATION: "chat",
            Name.REQUEST_MODEL: model,
            Name.PROVIDER: None if provider is None else provider_name(provider),
            Name.STAGE: identity.stage,
            Name.TRANSPORT: getattr(payload, "transport", None),
            Name.CALL_NUMBER: getattr(payload, "call_number", None),
            Name.INVOCATION: identity.invocation_id,
        },
        SpanKind.CLIENT,
    )


def _tool(event: CoreEvent, _agent: str | None) -> _Opening:
    identity = event.identity
    return _Opening(
        named("execute_tool", identity.tool_id),
        {
            Name.OPERATION: "execute_tool",
            Name.TOOL: identity.tool_id,
            Name.TOOL_TYPE: "function",
            Name.INVOCATION: identity.invocation_id,
        },
    )


_BEGINS: Final[dict[str, Callable[[CoreEvent, str | None], _Opening]]] = {
    "run.started": _run,
    "workflow.started": _workflow,
    "node.entered": _node,
    "model.started": _model,
    "tool.started": _tool,
}
_ENDS: Final = frozenset({"run.finished", "workflow.finished", "node.finished", "model.finished", "tool.finished"})


def _conclude(span: OpenSpan, status: InvocationStatus, error: ErrorFacts | None) -> None:
    if status == "failed":
        span.fail(OTHER_ERROR if error is None else error.code)
    elif status == "cancelled":
        span.say({Name.STATUS: "cancelled"})


def _usage(usage: ModelUsage) -> dict[str, Attribute]:
    """Return the figures a provider reported; never 0 for one it did not."""
    said: dict[str, Attribute] = {
        name: value for field, name in _TOKENS if (value := getattr(usage, field)) is not None
    }
    if usage.cost is not None:
        said[Name.COST] = usage.cost
        if usage.currency is not None:
            said[Name.CURRENCY] = usage.currency
    return said


def _facts(event: CoreEvent) -> dict[str, Attribute]:
    """Return what an event says, flat: plain facts as they are, everything else as JSON."""
    said: dict[str, Attribute] = {}
    record = event.to_record()["payload"]
    for name, value in record.items() if isinstance(record, dict) else ():
        if value is None:
            continue
        said[f"runlane.{name}"] = value if isinstance(value, str | bool | int | float) else as_json(value)
    return said
