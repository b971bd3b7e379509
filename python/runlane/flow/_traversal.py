"""Runs a workflow: evaluates handlers and predicates, and reports to the machine what came of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from runlane.contracts import ErrorContext, Id, annotate_error, get_error_info, sync_result
from runlane.diagnostics import DiagnosticContext, DiagnosticSpanFields
from runlane.errors import BudgetError, UsageError, WorkflowContractError
from runlane.flow._context import WorkflowFailure
from runlane.flow._definition import WorkflowNode, WorkflowRoute, require_workflow_value
from runlane.flow._machine import Traversal
from runlane.flow._rounds import RoundTelling
from runlane.flow._run_state import RunState, status_of
from runlane.flow._telling import Place, Rest, tell_end
from runlane.flow._visit import Visit

if TYPE_CHECKING:
    from runlane.flow._workflow import AgentWorkflow

__all__ = ["run_workflow"]

_GOES_ON: Final = object()
_fields: Final = DiagnosticSpanFields.trusted


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
    walk = _Walk(run, workflow, state, above)
    if not run.telling.enabled:
        return await walk.go()
    return await walk.go_told()


async def _nested(workflow: AgentWorkflow[Any], state: Mapping[str, object], visit: Visit) -> object:
    from runlane.flow._workflow import AgentWorkflow as Workflow  # noqa: PLC0415 - the check of a rare argument

    if not isinstance(workflow, Workflow):
        raise UsageError(f"must be an AgentWorkflow, not {type(workflow).__name__}", argument="workflow")
    return await run_workflow(visit.run, workflow, state, visit.diagnostics)


class _Walk:
    """One workflow under way."""

    __slots__ = (
        "_failure",
        "_machine",
        "_next_scope",
        "_place",
        "_run",
        "_state",
        "_values",
        "_view",
        "_visited",
        "_workflow",
    )

    def __init__(
        self,
        run: RunState,
        workflow: AgentWorkflow[Any],
        state: Mapping[str, object],
        above: DiagnosticContext,
    ) -> None:
        self._run = run
        self._workflow = workflow
        self._machine = Traversal(workflow.definition.start)
        self._values: dict[str, object] = dict(state)
        self._view = MappingProxyType(self._values)
        self._failure: WorkflowFailure | None = None
        branch = run.branch
        fields = DiagnosticSpanFields(workflow_id=Id(workflow.id), agent_id=branch.agent_id, branch_id=branch.branch_id)
        self._place = Place(above.child(fields) if run.telling.enabled else above, workflow.id)
        self._visited = self._place
        self._next_scope: DiagnosticContext | None = None

    async def go_told(self) -> object:
        """Run, and tell of the start and the end."""
        run, telling, place = self._run, self._run.telling, self._place
        started = run.clock.monotonic()
        rest = telling.workflow_started(place, nodes=len(self._workflow), start=self._workflow.definition.start)
        if rest is not None:
            await rest
        try:
            value = await self.go()
        except BaseException as error:
            leaving, status = error, status_of(error, run.token)
            await tell_end(lambda: telling.workflow_finished(place, self._machine, status, started, leaving))
            raise
        rest = telling.workflow_finished(place, self._machine, "succeeded", started, None)
        if rest is not None:
            await rest
        return value

    async def go(self) -> object:
        """Run, round after round."""
        machine, run = self._machine, self._run
        machine.start()
        try:
            while True:
                number = run.begin_round()
                value = await (self._told_visit(number) if run.telling.enabled else self._visit(number))
                if value is not _GOES_ON:
                    return value
        except BaseException as error:
            if machine.phase != "completed":
                end = machine.end_cancelled if status_of(error, run.token) == "cancelled" else machine.end_failed
                end()
            raise

    async def _told_visit(self, number: int) -> object:
        told = RoundTelling(self._run, number)
        rest = told.start()
        if rest is not None:
            await rest
        try:
            value = await self._visit(number)
        except BaseException as error:
            await told.fail(error)
            raise
        rest = told.finish("continue" if value is _GOES_ON else "complete")
        if rest is not None:
            await rest
        return value

    # --- one visit -----------------------------------------------------------------------------------------------

    async def _visit(self, number: int) -> object:
        """Visit the node that is next; return the workflow's value, or `_GOES_ON` if it goes on."""
        run, machine = self._run, self._machine
        node = self._workflow.require(machine.node_id)
        self._require_visits(node)
        visit = Visit(
            run, number, self._scope_of(node, number), self._workflow.id, node, machine.enter(), self._view,
            self._failure, _nested,
        )  # fmt: skip
        self._failure = None
        try:
            error = await (self._told_handler(visit, node) if run.telling.enabled else self._handler(visit, node))
            run.raise_if_cancelled()
            if error is None:
                machine.succeed()
                return await self._route(visit, node, node.routes, None)
            if not self._may_recover(error, node):
                raise error
            machine.fail()
            return await self._recover(visit, node, error)
        finally:
            visit.ended = True
            visit.close_reports()

    def _require_visits(self, node: WorkflowNode[Any]) -> None:
        if node.max_visits is not None and self._machine.visits.get(node.id, 0) >= node.max_visits:
            allowance = f"visits:{node.id}"
            self._run.refuse(self._run.scope, allowance, node.max_visits)
            text = f"node {node.id!r} was visited {node.max_visits} times, as often as it may be"
            raise BudgetError(text, allowance=allowance, limit=node.max_visits)

    async def _told_handler(self, visit: Visit, node: WorkflowNode[Any]) -> Exception | None:
        run, telling = self._run, self._run.telling
        place = self._visited = Place(visit.diagnostics, self._workflow.id, node.id, visit.visit, visit.round)
        rest = telling.node_entered(place)
        if rest is not None:
            await rest
        started = run.clock.monotonic()
        try:
            error = await self._handler(visit, node)
        except BaseException as raised:
            await self._tell_failed(visit, place, started, raised)
            raise
        if error is not None or run.token.cancelled:
            await self._tell_failed(visit, place, started, run.token.error() if error is None else error)
            return error
        visit.close_reports()
        recorded = visit.recorded
        rest = telling.node_finished(place, "succeeded", started, None, None if recorded is None else recorded.sub_flow)
        if rest is not None:
            await rest
        return None

    async def _tell_failed(self, visit: Visit, place: Place, started: float, error: BaseException) -> None:
        visit.close_reports()
        status, recorded = status_of(error, self._run.token), visit.recorded
        steps = None if recorded is None else recorded.sub_flow
        await tell_end(lambda: self._run.telling.node_finished(place, status, started, error, steps))

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

    async def _recover(self, visit: Visit, node: WorkflowNode[Any], error: Exception) -> object:
        failure = WorkflowFailure(
            phase=None, node_id=node.id, visit=visit.visit, error=error, info=get_error_info(error)
        )
        visit.failure = failure
        return await self._route(visit, node, node.recover, failure)

    async def _route(
        self,
        visit: Visit,
        node: WorkflowNode[Any],
        routes: Sequence[WorkflowRoute[Any]],
        failure: WorkflowFailure | None,
    ) -> object:
        """Take the first route that matches; return the value of one that completes."""
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
        phase = None
        if failure is None:
            machine.take(index, target)
        else:
            machine.recover(index, target)
            phase = self._enter_phase(failure, target)
        if self._run.telling.enabled:
            rest = self._tell_route(index, phase, recovers=failure is not None)
            if rest is not None:
                await rest
        return value

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

    def _tell_route(self, index: int, phase: str | None, *, recovers: bool) -> Rest:
        target = None if self._machine.phase == "completed" else self._machine.node_id
        span = None
        if target is not None:
            self._next_scope = self._place.scope.child(
                _fields(
                    {
                        "node_id": Id(target),
                        "visit": self._machine.visits.get(target, 0) + 1,
                        "round": self._run.rounds + 1,
                    }
                )
            )
            span = self._next_scope.identity.span_id
        return self._run.telling.route_taken(self._visited, index, target, span, phase, recovers=recovers)

    def _scope_of(self, node: WorkflowNode[Any], number: int) -> DiagnosticContext | None:
        """Return the span of the visit: the one its route announced, or a new one; none where nobody listens."""
        if not self._run.telling.enabled:
            return None
        scope, self._next_scope = self._next_scope, None
        if scope is not None:
            return scope
        visit = self._machine.visits.get(node.id, 0) + 1
        return self._place.scope.child(_fields({"node_id": Id(node.id), "visit": visit, "round": number}))

    def _contract(self, text: str, rule: str, node: WorkflowNode[Any]) -> WorkflowContractError:
        return WorkflowContractError(text, rule=rule, workflow_id=self._workflow.id, node_id=node.id)
