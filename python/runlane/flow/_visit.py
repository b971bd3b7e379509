"""One visit of a node, one round of a step, and what they reach: model, tools, caches, reports.

All of it is made when it is first asked for: most visits look at little.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import CancelToken, Id, ModelResult, ToolResult
from runlane.diagnostics import (
    CacheRead,
    CacheWritten,
    DiagnosticContext,
    DiagnosticSpanFields,
    NodeReported,
    NodeReportingContext,
    SubFlowLogger,
)
from runlane.errors import OutOfTurnError, UsageError, WorkflowContractError
from runlane.flow._bindings import ToolInvoker
from runlane.flow._branch import AgentBranch, AgentCheckpoint
from runlane.flow._cache import MISSING, AgentCacheAddress, AgentCachePort, CacheReadOptions, EngineMemory
from runlane.flow._context import WorkflowFailure, WorkflowNodeReport
from runlane.flow._definition import WorkflowNode
from runlane.flow._run_state import RunState
from runlane.ids import IdSource
from runlane.runner import ModelCallRequest, ModelPrepareRequest, PreparedModelCall
from runlane.tools import ToolInvocationRequest

if TYPE_CHECKING:
    from runlane.flow._workflow import AgentWorkflow

__all__ = ["NestedRun", "Round", "Visit"]

STEP: Final = "$step"
"""The node id under which a step keeps its cache entries."""

NestedRun = Callable[["AgentWorkflow[Any]", Mapping[str, object], "Visit"], Awaitable[object]]
"""Runs a workflow inside a visit."""


class Turn:
    """What a visit and a round have in common: a place in a run, used until its end."""

    __slots__ = ("_cache", "_invocation_id", "_scope", "ended", "round", "run")

    def __init__(self, run: RunState, number: int, scope: DiagnosticContext | None) -> None:
        self.run = run
        self.round = number
        self.ended = False
        self._scope = scope
        self._cache: Caches | None = None
        self._invocation_id: Id | None = None

    @property
    def run_id(self) -> Id:
        return self.run.run_id

    @property
    def branch(self) -> AgentBranch:
        return self.run.branch

    @property
    def app(self) -> Any:  # noqa: ANN401 - the host's own
        return self.run.app

    @property
    def signal(self) -> CancelToken:
        return self.run.token

    @property
    def clock(self) -> Clock:
        return self.run.clock

    @property
    def ids(self) -> IdSource:
        return self.run.ids

    @property
    def invocation_id(self) -> Id:
        if self._invocation_id is None:
            self._invocation_id = Id(self.run.ids.new("invocation"))
        return self._invocation_id

    @property
    def diagnostics(self) -> DiagnosticContext:
        if self._scope is None:
            self._scope = self.run.scope.child(self.span_fields())
        return self._scope

    @property
    def cache(self) -> Caches:
        if self._cache is None:
            self._cache = Caches(self)
        return self._cache

    def span_fields(self) -> DiagnosticSpanFields:
        """Return what the span says of itself."""
        return DiagnosticSpanFields(round=self.round)

    def cache_home(self) -> tuple[str, str]:
        """Return the node and the partition whose cache entries are this place's own."""
        return STEP, "default"

    def require_open(self, what: str) -> None:
        """Refuse what is used after its time."""
        if self.ended:
            raise OutOfTurnError("the visit is over", argument=what)


class Round(Turn):
    """One round of a step."""

    __slots__ = ()

    @property
    def max_rounds(self) -> int:
        return self.run.max_rounds

    @property
    def model(self) -> RunModel:
        return RunModel(self, None)

    @property
    def models(self) -> Mapping[str, RunModel]:
        slot = self.run.models
        return {} if slot is None else {name: RunModel(self, name) for name in slot.names if name is not None}

    @property
    def tools(self) -> ToolInvoker | None:
        return self.run.tools

    def checkpoint(self, data: object, /) -> AgentCheckpoint:
        return self.run.checkpoint(data, self.round)


class Visit(Turn):
    """One visit of a node: the `WorkflowContext` its handler and its predicates are given."""

    __slots__ = ("_nested", "_node", "failure", "reports", "state", "visit", "workflow_id")

    def __init__(  # noqa: PLR0913, PLR0917 - the facts of a visit; positions cost less
        self,
        run: RunState,
        number: int,
        scope: DiagnosticContext | None,
        workflow_id: str,
        node: WorkflowNode[Any],
        visit: int,
        state: Mapping[str, object],
        failure: WorkflowFailure | None,
        nested: NestedRun,
    ) -> None:
        self.run = run
        self.round = number
        self.ended = False
        self._scope = scope
        self._cache = None
        self._invocation_id = None
        self.workflow_id = workflow_id
        self._node = node
        self.visit = visit
        self.state = state
        self.failure = failure
        self._nested = nested
        self.reports: NodeReportingContext | None = None

    @property
    def node_id(self) -> str:
        return self._node.id

    @property
    def model(self) -> NodeModel:
        return NodeModel(self, self._node.model)

    @property
    def reporting(self) -> NodeReportingContext:
        if self.reports is None:
            self.reports = self.diagnostics.reporting()
            if self.ended:
                self.reports.close()
        return self.reports

    def report(self, report: WorkflowNodeReport, /) -> None:
        self.require_open("report")
        if not isinstance(report, WorkflowNodeReport):
            raise UsageError(f"must be a WorkflowNodeReport, not {type(report).__name__}", argument="report")
        reported = NodeReported(title=report.title, summary=report.summary, values=report.values, steps=report.steps)
        self.diagnostics.note("node.report", reported)

    async def run_workflow(self, workflow: AgentWorkflow[Any], state: Mapping[str, object], /) -> object:
        self.require_open("run_workflow")
        return await self._nested(workflow, state, self)

    @override
    def span_fields(self) -> DiagnosticSpanFields:
        return DiagnosticSpanFields(node_id=Id(self._node.id), visit=self.visit, round=self.round)

    @override
    def cache_home(self) -> tuple[str, str]:
        return self._node.id, self._node.cache_partition

    def close_reports(self) -> SubFlowLogger | None:
        """Let nothing more be reported; return the recorder if anything asked for it."""
        if self.reports is None:
            return None
        self.reports.close()
        return self.reports.sub_flow


class RunModel:
    """A model of the run, called under the run's token and recorded in the place's span."""

    __slots__ = ("_name", "_turn")

    def __init__(self, turn: Turn, name: str | None) -> None:
        self._turn = turn
        self._name = name

    async def prepare(
        self, request: ModelCallRequest, selection: ModelPrepareRequest | None = None, /
    ) -> PreparedModelCall[Any]:
        self._turn.require_open("model")
        runtime = self._turn.run.runtime(self._name)
        return await runtime.prepare(request, selection, options=self._turn.run.options(self._turn.diagnostics))

    async def call(
        self,
        call: ModelCallRequest | PreparedModelCall[Any],
        /,
        *,
        transport: Any = None,  # noqa: ANN401 - a key or its name
    ) -> ModelResult[Any]:
        self._turn.require_open("model")
        runtime = self._turn.run.runtime(self._name)
        self._charge()
        options = self._turn.run.options(self._turn.diagnostics)
        if transport is None:
            return await runtime.call(call, options=options)
        return await runtime.call(call, transport=transport, options=options)

    def _charge(self) -> None:
        """Spend nothing: a step's calls are its model's own affair."""


class NodeModel(RunModel):
    """The model and the tools of a node, charged to the run before anything else."""

    __slots__ = ()

    async def invoke_tool(
        self, tool_id: str, tool_input: object, /, *, call_id: str | None = None
    ) -> ToolResult[object]:
        turn = self._turn
        turn.require_open("invoke_tool")
        registry = turn.run.tools
        if registry is None:
            raise WorkflowContractError("the engine has no tools; bind a registry before the run", rule="no_tools")
        self._charge()
        request = ToolInvocationRequest(tool_id=tool_id, input=tool_input, call_id=call_id, app=turn.app)
        return await registry.invoke(request, turn.run.options(turn.diagnostics))

    @override
    def _charge(self) -> None:
        self._turn.run.take_call(self._turn.diagnostics)


class Caches:
    """Both caches, as one visit sees them."""

    __slots__ = ("_turn", "memory", "persistent")

    def __init__(self, turn: Turn) -> None:
        home = turn.cache_home()
        self._turn = turn
        self.memory = MemoryView(turn, home)
        self.persistent = PersistentView(turn, home)


class MemoryView:
    """A visit's view of the engine's memory."""

    __slots__ = ("_node_id", "_partition", "_turn")

    def __init__(self, turn: Turn, home: tuple[str, str]) -> None:
        self._turn = turn
        self._node_id, self._partition = home

    def get(self, key: str, default: object = None, /, *, read: CacheReadOptions | None = None) -> object:
        found = self._read(key, read)
        return default if found is MISSING else found

    def has(self, key: str, /, *, read: CacheReadOptions | None = None) -> bool:
        return self._read(key, read) is not MISSING

    def set(self, key: str, value: object, /) -> None:
        self._memory("set").set(self._node_id, self._partition, _key(key), value)
        _note_written(self._turn, "memory", self._partition)

    def delete(self, key: str, /) -> bool:
        return self._memory("delete").delete(self._node_id, self._partition, _key(key))

    def clear(self) -> int:
        return self._memory("clear").clear(self._node_id, self._partition)

    def _read(self, key: str, read: CacheReadOptions | None) -> object:
        node_id, partition = _place(read, self._node_id, self._partition)
        found = self._memory("get").get(node_id, partition, _key(key))
        _note_read(self._turn, "memory", partition, hit=found is not MISSING)
        return found

    def _memory(self, method: str) -> EngineMemory:
        self._turn.require_open(f"cache.memory.{method}")
        return self._turn.run.memory


class PersistentView:
    """A visit's view of the host's cache."""

    __slots__ = ("_address", "_node_id", "_partition", "_turn")

    def __init__(self, turn: Turn, home: tuple[str, str]) -> None:
        self._turn = turn
        self._node_id, self._partition = home
        self._address: AgentCacheAddress | None = None

    async def get(self, key: str, default: object = None, /, *, read: CacheReadOptions | None = None) -> object:
        found = await self._read(key, read)
        return default if found is MISSING else found

    async def has(self, key: str, /, *, read: CacheReadOptions | None = None) -> bool:
        return await self._read(key, read) is not MISSING

    async def set(self, key: str, value: object, /) -> None:
        await self._port("set").set(self._own(), _key(key), value)
        _note_written(self._turn, "persistent", self._partition)

    async def delete(self, key: str, /) -> bool:
        return await self._port("delete").delete(self._own(), _key(key))

    async def clear(self) -> int:
        return await self._port("clear").clear(self._own())

    async def _read(self, key: str, read: CacheReadOptions | None) -> object:
        port = self._port("get")
        node_id, partition = _place(read, self._node_id, self._partition)
        own = (node_id, partition) == (self._node_id, self._partition)
        found = await port.get(self._own() if own else self._at(node_id, partition), _key(key))
        _note_read(self._turn, "persistent", partition, hit=found is not MISSING)
        return found

    def _port(self, method: str) -> AgentCachePort:
        self._turn.require_open(f"cache.persistent.{method}")
        port = self._turn.run.persistent
        if port is None:
            text = "the engine has no persistent cache; give it one in its cache options"
            raise WorkflowContractError(text, rule="no_persistent_cache", node_id=self._node_id)
        return port

    def _own(self) -> AgentCacheAddress:
        """Return the visit's address: one object for all its calls."""
        if self._address is None:
            self._address = self._at(self._node_id, self._partition)
        return self._address

    def _at(self, node_id: str, partition: str) -> AgentCacheAddress:
        branch = self._turn.run.branch
        return AgentCacheAddress(
            agent_id=branch.agent_id,
            thread_id=branch.thread_id,
            branch_id=branch.branch_id,
            node_id=node_id,
            partition=partition,
            signal=self._turn.run.token,
        )


def _place(read: CacheReadOptions | None, node_id: str, partition: str) -> tuple[str, str]:
    if read is None:
        return node_id, partition
    return (
        node_id if read.node_id is None else read.node_id,
        partition if read.partition is None else read.partition,
    )


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise UsageError(f"a key is text, not {type(key).__name__}", argument="key")
    return key


def _note_read(turn: Turn, tier: Any, partition: str, *, hit: bool) -> None:  # noqa: ANN401 - a literal
    if turn.run.scope.enabled:
        turn.diagnostics.note("cache.read", CacheRead(tier=tier, partition=partition, hit=hit))


def _note_written(turn: Turn, tier: Any, partition: str) -> None:  # noqa: ANN401 - a literal
    if turn.run.scope.enabled:
        turn.diagnostics.note("cache.written", CacheWritten(tier=tier, partition=partition))
