"""Runs a workflow: evaluates handlers and predicates, and reports to the machine what came of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from typing_extensions import override

from runlane.contracts import ErrorContext, Id, annotate_error, get_error_info, sync_result
from runlane.diagnostics import DiagnosticContext, DiagnosticSpanFields, Fact, SubFlowLogger
from runlane.errors import BudgetError, UsageError, WorkflowContractError
from runlane.flow._context import WorkflowFailure
from runlane.flow._definition import WorkflowNode, WorkflowRoute, require_workflow_value
from runlane.flow._machine import Traversal
from runlane.flow._rounds import tell_round_failed
from runlane.flow._run_state import RunState, status_of
from runlane.flow._telling import (
    NODE_ENTERED,
    NODE_FINISHED,
    RECOVERY_TAKEN,
    ROUND_FINISHED,
    ROUND_STARTED,
    ROUTE_TAKEN,
    WORKFLOW_STARTED,
    tell_end,
)
from runlane.flow._visit import Visit

if TYPE_CHECKING:
    from runlane.flow._workflow import AgentWorkflow

__all__ = ["run_workflow"]

_GOES_ON: Final = object()


async def run_workflow(
    run: RunState, workflow: AgentWorkflow[Any], state: Mapping[str, object], above: DiagnosticContext
) -> object:
    """Run a workflow to its end and return its value.

    Args:
        run: Whose rounds, calls and token it shares.
        workflow: The workflow.
        state: What its state starts from; copied.
        above: The span it runs under.

    Raises:
        Exception: Whatever failed and was not recovered, the same object.
    """
    if run.models is not None:
        run.models.check(workflow.list(), workflow.id)
    if not run.telling.enabled:
        return await _Walk(run, workflow, state, above).go()
    return await _ToldWalk(run, workflow, state, above).go()


async def _nested(workflow: AgentWorkflow[Any], state: Mapping[str, object], visit: Visit) -> object:
    from runlane.flow._workflow import AgentWorkflow as Workflow  # noqa: PLC0415 - the check of a rare argument

    if not isinstance(workflow, Workflow):
        raise UsageError(f"must be an AgentWorkflow, not {type(workflow).__name__}", argument="workflow")
    return await run_workflow(visit.run, workflow, state, visit.diagnostics)


_Way: TypeAlias = tuple[int, str | None, object, str | None]
"""How a visit was left: which route of its kind, to which node, with what value, into which failure phase."""


class _Walk:
    """One workflow under way, of which nobody is told."""

    __slots__ = ("_failure", "_machine", "_run", "_scope", "_values", "_view", "_workflow")

    def __init__(
        self,
        run: RunState,
        workflow: AgentWorkflow[Any],
        state: Mapping[str, object],
        scope: DiagnosticContext,
    ) -> None:
        self._run = run
        self._workflow = workflow
        self._machine = Traversal(workflow.definition.start)
        self._values: dict[str, object] = dict(state)
        self._view = MappingProxyType(self._values)
        self._failure: WorkflowFailure | None = None
        self._scope = scope

    async def go(self) -> object:
        """Run to the end."""
        machine = self._machine
        machine.start()
        try:
            return await self._rounds()
        except BaseException as error:
            if machine.phase != "completed":
                end = machine.end_cancelled if status_of(error, self._run.token) == "cancelled" else machine.end_failed
                end()
            raise

    async def _rounds(self) -> object:
        """Run, round after round."""
        run = self._run
        while True:
            value = await self._visit(run.begin_round())
            if value is not _GOES_ON:
                return value

    # --- one visit -----------------------------------------------------------------------------------------------

    async def _visit(self, number: int) -> object:
        """Visit the node that is next; return the workflow's value, or `_GOES_ON` if it goes on."""
        node = self._workflow.require(self._machine.node_id)
        visit = self._enter(node, number, None)
        try:
            error = await self._handler(visit, node)
            self._run.raise_if_cancelled()
            return self._leave(visit, node, error)[2]
        finally:
            visit.ended = True
            visit.close_reports()

    def _enter(self, node: WorkflowNode[Any], number: int, scope: DiagnosticContext | None) -> Visit:
        self._require_visits(node)
        visit = Visit(
            self._run, number, scope, self._workflow.id, node, self._machine.enter(), self._view, self._failure, _nested
        )  # fmt: skip
        self._failure = None
        return visit

    def _require_visits(self, node: WorkflowNode[Any]) -> None:
        if node.max_visits is not None and self._machine.visits.get(node.id, 0) >= node.max_visits:
            allowance = f"visits:{node.id}"
            self._run.refuse(self._run.scope, allowance, node.max_visits)
            text = f"node {node.id!r} was visited {node.max_visits} times, as often as it may be"
            raise BudgetError(text, allowance=allowance, limit=node.max_visits)

    async def _handler(self, visit: Visit, node: WorkflowNode[Any]) -> Exception | None:
        """Call the handler and merge what it changes; return what it failed with, annotated."""
        try:
            for field in node.requires:
                require_workflow_value(self._values, field)
            result: Any = node.run(visit)
            if type(result) is not dict and result is not None and inspect.isawaitable(result):
                result = await result
            if result is not None:
                self._merge(result, node)
        except WorkflowContractError as error:
            return self._annotated(self._placed(error, node), visit)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is offered to recovery
            return self._annotated(error, visit)
        return None

    def _merge(self, result: object, node: WorkflowNode[Any]) -> None:
        if not isinstance(result, Mapping):
            with suppress(UsageError):  # closes a coroutine; what is wrong is said below
                sync_result(result, argument=node.id)
            text = f"node {node.id!r} returned {type(result).__name__}; return the fields to change, or None"
            raise self._contract(text, "node_result", node)
        if not self._run.token.cancelled:
            changes = dict(result)
            if not all(isinstance(key, str) for key in changes):
                raise self._contract(f"node {node.id!r} returned a key that is no text", "node_result", node)
            self._values.update(changes)

    def _annotated(self, error: Exception, visit: Visit) -> Exception:
        scope = visit.diagnostics if self._run.telling.enabled else None
        span = None if scope is None else scope.identity.span_id
        return annotate_error(error, ErrorContext(operation="node", node_id=Id(visit.node_id), span_id=span))

    def _placed(self, error: WorkflowContractError, node: WorkflowNode[Any]) -> WorkflowContractError:
        """Say where a field is missing; an error that names its place, or comes from elsewhere, stays as it is."""
        if error.rule != "missing_field" or error.node_id is not None:
            return error
        error.node_id, error.workflow_id = node.id, self._workflow.id
        error.args = (f"{error.args[0]} (node {node.id!r})",)
        return error

    def _may_recover(self, error: Exception, node: WorkflowNode[Any]) -> bool:
        if not node.recover or issubclass(type(error), WorkflowContractError):
            return False
        return error is not self._run.fatal

    # --- ways out ------------------------------------------------------------------------------------------------

    def _leave(self, visit: Visit, node: WorkflowNode[Any], error: Exception | None) -> _Way:
        """Take the first route, or after a failure the first recovery route, that matches."""
        machine = self._machine
        if error is None:
            machine.succeed()
            return self._take(visit, node, node.routes, None)
        if not self._may_recover(error, node):
            raise error
        machine.fail()
        failure = WorkflowFailure(
            phase=None, node_id=node.id, visit=visit.visit, error=error, info=get_error_info(error)
        )
        visit.failure = failure
        return self._take(visit, node, node.recover, failure)

    def _take(
        self,
        visit: Visit,
        node: WorkflowNode[Any],
        routes: Sequence[WorkflowRoute[Any]],
        failure: WorkflowFailure | None,
    ) -> _Way:
        machine = self._machine
        for index, way in enumerate(routes):
            if (way.when is None or self._matches(way, visit, node)) and machine.has_budget(index, way.budget):
                break
        else:
            if failure is not None:
                raise failure.error
            raise self._contract(f"no route of node {node.id!r} matches", "unmatched_route", node)
        target = way.target_node_id
        value = _GOES_ON if target is not None else self._completion(way, visit, node)
        if failure is None:
            machine.take(index, target)
            return index, target, value, None
        machine.recover(index, target)
        return index, target, value, self._enter_phase(failure, target)

    def _matches(self, way: WorkflowRoute[Any], visit: Visit, node: WorkflowNode[Any]) -> bool:
        when: Any = way.when
        answer = when(visit)
        if answer is True or answer is False:
            return answer
        return bool(self._sync(answer, node, "when"))

    def _completion(self, way: WorkflowRoute[Any], visit: Visit, node: WorkflowNode[Any]) -> object:
        complete: Any = way.complete
        if isinstance(complete, str):
            try:
                return require_workflow_value(self._values, complete)
            except WorkflowContractError as error:
                raise self._placed(error, node) from None
        return self._sync(complete(visit), node, "complete")

    def _sync(self, answer: object, node: WorkflowNode[Any], what: str) -> object:
        try:
            return sync_result(answer, argument=what)
        except UsageError:
            text = f"{what} of a route of node {node.id!r} gave an awaitable; it must be a plain function"
            raise self._contract(text, "async_predicate", node) from None

    def _enter_phase(self, failure: WorkflowFailure, target: str | None) -> str | None:
        """Let the visit that follows know what it recovers from, and only that one."""
        if target is None:
            return None
        phase = self._workflow.require(target).failure_phase
        self._failure = WorkflowFailure(
            phase=phase, node_id=failure.node_id, visit=failure.visit, error=failure.error, info=failure.info
        )
        return phase

    def _contract(self, text: str, rule: str, node: WorkflowNode[Any]) -> WorkflowContractError:
        return WorkflowContractError(text, rule=rule, workflow_id=self._workflow.id, node_id=node.id)


class _ToldWalk(_Walk):
    """One workflow under way that is told: its start and its end, and of every visit five facts in two spans."""

    __slots__ = ("_spans",)

    def __init__(
        self,
        run: RunState,
        workflow: AgentWorkflow[Any],
        state: Mapping[str, object],
        above: DiagnosticContext,
    ) -> None:
        branch = run.branch
        fields = DiagnosticSpanFields(workflow_id=Id(workflow.id), agent_id=branch.agent_id, branch_id=branch.branch_id)
        super().__init__(run, workflow, state, above.child(fields))
        self._spans: dict[str, DiagnosticSpanFields] = {}

    @override
    async def go(self) -> object:
        """Run, and tell of the start and the end."""
        run, telling, scope = self._run, self._run.telling, self._scope
        began = telling.monotonic()
        rest = telling.tell(scope, WORKFLOW_STARTED, (len(self._workflow), self._workflow.definition.start))
        if rest is not None:
            await rest
        try:
            value = await super().go()
        except BaseException as error:
            leaving, status = error, status_of(error, run.token)
            await tell_end(lambda: telling.workflow_finished(scope, self._machine, status, began, leaving))
            raise
        rest = telling.workflow_finished(scope, self._machine, "succeeded", began, None)
        if rest is not None:
            await rest
        return value

    @override
    async def _rounds(self) -> object:  # noqa: C901, PLR0912, PLR0915 - written out
        """Visit node after node and tell of it.

        Written out, down to the spans, for what is told shall not cost more than the visits themselves.
        """
        run, machine, telling = self._run, self._machine, self._run.telling
        monotonic, also, token, nodes = telling.monotonic, telling.also, run.token, self._workflow
        after: DiagnosticContext | None = None
        fact: Fact
        values: tuple[object, ...]
        while True:
            number = run.begin_round()
            around = run.scope.child(None, None, number)
            round_began = monotonic()
            rest = around.tell(ROUND_STARTED, ())
            if also is not None:
                rest = also(rest, around, ROUND_STARTED, ())
            if rest is not None:
                await rest
            try:
                node = nodes.require(machine.node_id)
                scope = self._span(node.id, number) if after is None else after
                visit = self._enter(node, number, scope)
                try:
                    rest = scope.tell(NODE_ENTERED, ())
                    if also is not None:
                        rest = also(rest, scope, NODE_ENTERED, ())
                    if rest is not None:
                        await rest
                    began = monotonic()
                    try:
                        error = await self._handler(visit, node)
                    except BaseException as raised:
                        await self._tell_finished(scope, began, raised, visit.close_reports())
                        raise
                    reported = None if visit.reports is None else visit.close_reports()
                    if error is None and reported is None and not token.cancelled:
                        values = ("succeeded", began, monotonic(), None)
                        rest = scope.tell(NODE_FINISHED, values)
                        if also is not None:
                            rest = also(rest, scope, NODE_FINISHED, values)
                        if rest is not None:
                            await rest
                    else:
                        await self._tell_finished(scope, began, error, reported)
                    if token.cancelled:
                        raise token.error()
                    index, target, value, phase = self._leave(visit, node, error)
                    after = None if target is None else self._span(target, number + 1)
                    fact, values = (
                        (ROUTE_TAKEN, (index, after)) if error is None else (RECOVERY_TAKEN, (index, after, phase))
                    )
                    rest = scope.tell(fact, values)
                    if also is not None:
                        rest = also(rest, scope, fact, values)
                    if rest is not None:
                        await rest
                finally:
                    visit.ended = True
                    visit.close_reports()
            except BaseException as error:
                await tell_round_failed(run, around, round_began, error)
                raise
            values = ("complete" if after is None else "continue", round_began, monotonic())
            rest = around.tell(ROUND_FINISHED, values)
            if also is not None:
                rest = also(rest, around, ROUND_FINISHED, values)
            if rest is not None:
                await rest
            if after is None:
                return value

    async def _tell_finished(
        self, scope: DiagnosticContext, began: float, error: BaseException | None, reported: SubFlowLogger | None
    ) -> None:
        """Tell the end of a visit that failed or was cancelled, or that reported steps."""
        run, telling = self._run, self._run.telling
        if error is None and run.token.cancelled:
            error = run.token.error()
        status = status_of(error, run.token)
        if error is not None:
            await tell_end(lambda: telling.node_finished(scope, status, began, error, reported))
            return
        rest = telling.node_finished(scope, status, began, None, reported)
        if rest is not None:
            await rest

    def _span(self, node_id: str, number: int) -> DiagnosticContext:
        """Open the span of the next visit of a node."""
        fields = self._spans.get(node_id)
        if fields is None:
            fields = self._spans[node_id] = DiagnosticSpanFields(node_id=Id(node_id))
        return self._scope.child(fields, self._machine.visits.get(node_id, 0) + 1, number)
