"""Random workflows with budgets, failures and cancellations: the engine beside a slow reading of its rules."""

# ruff: noqa: ANN401, ARG005 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, BudgetError, WorkflowContractError
from runlane.flow import AgentWorkflowDefinition, RequestRuntime, build_workflow_chain
from tests.flow.engines import Listener, Told, engine_of
from tests.flow.workflows import definition, node, way

_NAMES = ["a", "b", "c", "d"]


class PlannedError(Exception):
    """A failure the plan asks for."""


@dataclass(frozen=True)
class PlannedWay:
    """A route as planned: where to, which visits it matches on, and its budget."""

    target: str | None
    odd: bool | None
    budget: int | None


@dataclass(frozen=True)
class Plan:
    """A node as planned."""

    ways: tuple[PlannedWay, ...]
    recover: tuple[PlannedWay, ...]
    fails_on: frozenset[int]
    waits: bool
    max_visits: int | None


@dataclass
class Model:
    """What must happen, read off the rules one after the other."""

    plans: dict[str, Plan]
    max_rounds: int
    cancel_at: int | None
    trail: list[str] = field(default_factory=list)
    visits: dict[str, int] = field(default_factory=dict)
    taken: dict[tuple[str, str, int], int] = field(default_factory=dict)
    rounds: int = 0

    def run(self) -> str:
        """Walk the plans and name the end."""
        here: str | None = "a"
        while here is not None:
            if self.rounds >= self.max_rounds:
                return "rounds"
            self.rounds += 1
            plan = self.plans[here]
            if plan.max_visits is not None and self.visits.get(here, 0) >= plan.max_visits:
                return "visits"
            visit = self.visits[here] = self.visits.get(here, 0) + 1
            self.trail.append(here)
            if self.cancel_at == len(self.trail):
                return "cancelled"
            failed = visit in plan.fails_on
            index = self._match(here, "recovery" if failed else "normal", plan.recover if failed else plan.ways, visit)
            if index is None:
                return "failed" if failed else "unmatched_route"
            here = (plan.recover if failed else plan.ways)[index].target
        return "completed"

    def _match(self, here: str, kind: str, ways: tuple[PlannedWay, ...], visit: int) -> int | None:
        for index, planned in enumerate(ways):
            key = (here, kind, index)
            if planned.odd is not None and planned.odd != bool(visit % 2):
                continue
            if planned.budget is not None and self.taken.get(key, 0) >= planned.budget:
                continue
            self.taken[key] = self.taken.get(key, 0) + 1
            return index
        return None


# Every route has a budget, so every cycle is bounded; rounds are few enough to run out too.
_WAYS = st.tuples(st.sampled_from([*_NAMES, None]), st.sampled_from([None, True, False]), st.integers(1, 3)).map(
    lambda facts: PlannedWay(*facts)
)
_RECOVERIES = st.tuples(st.sampled_from(["c", "d", None]), st.sampled_from([None, True, False]), st.integers(1, 3)).map(
    lambda facts: PlannedWay(*facts)
)
_PLAN = st.tuples(
    st.lists(_WAYS, min_size=1, max_size=3).map(tuple),
    st.lists(_RECOVERIES, max_size=2).map(tuple),
    st.frozensets(st.integers(1, 4), max_size=2),
    st.booleans(),
    st.sampled_from([None, 1, 2, 3, 4]),
).map(lambda facts: Plan(*facts))
PLANS = st.tuples(*(_PLAN for _ in _NAMES)).map(lambda plans: dict(zip(_NAMES, plans, strict=True)))


class Machine:
    """The same plans as a workflow, with its handlers noting what is called."""

    def __init__(self, plans: dict[str, Plan], cancel_at: int | None) -> None:
        self.plans = plans
        self.cancel_at = cancel_at
        self.token = CancelToken()
        self.trail: list[str] = []
        self.open = 0

    def definition(self) -> AgentWorkflowDefinition[Any]:
        """Return the workflow."""
        return definition(
            *(
                node(
                    name,
                    *(self._route(planned) for planned in plan.ways),
                    run=self._handler,
                    recover=[self._route(planned) for planned in plan.recover],
                    max_visits=plan.max_visits,
                    failure_phase=name if name in {"c", "d"} else None,
                )
                for name, plan in self.plans.items()
            )
        )

    def _route(self, planned: PlannedWay) -> Any:
        odd = planned.odd
        when = None if odd is None else lambda context: odd == bool(context.visit % 2)
        if planned.target is None:
            return way(complete=lambda context: "value", when=when, budget=planned.budget)
        return way(planned.target, when=when, budget=planned.budget)

    async def _handler(self, context: Any) -> dict[str, object] | None:
        plan = self.plans[context.node_id]
        self.trail.append(context.node_id)
        self.open += 1
        try:
            if self.cancel_at == len(self.trail):
                self.token.cancel("cancelled")
                if plan.waits:
                    await anyio.sleep_forever()
            if plan.waits:
                await anyio.lowlevel.checkpoint()
            if context.visit in plan.fails_on:
                raise PlannedError
            return {"last": context.node_id}
        finally:
            self.open -= 1


async def _end_of(machine: Machine, max_rounds: int, **options: Any) -> str:
    engine = engine_of(machine.definition(), max_rounds=max_rounds, **options)
    try:
        await engine.run(request=RequestRuntime(signal=machine.token))
    except BudgetError as error:
        return str(error.allowance).partition(":")[0]
    except PlannedError:
        return "failed"
    except WorkflowContractError as error:
        return error.rule
    except AbortedError as error:
        return str(error.reason)
    finally:
        assert not engine.running
    return "completed"


@settings(max_examples=max(30, settings().max_examples // 3))
@given(plans=PLANS, max_rounds=st.integers(1, 12), cancel_at=st.sampled_from([None, None, *range(1, 8)]))
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_random_workflow_runs_by_the_rules(
    backend: str, plans: dict[str, Plan], max_rounds: int, cancel_at: int | None
) -> None:
    """The trail, the rounds, the end and the captured chain agree with the rules; nothing is left running."""
    model = Model(plans, max_rounds, cancel_at)
    expected = model.run()
    machine, listener, told = Machine(plans, cancel_at), Listener(), Told()

    async def main() -> str:
        return await _end_of(
            machine, max_rounds, diagnostics=listener.scope(), on_loop=told.on_loop, on_workflow=told.on_workflow
        )

    assert anyio.run(main, backend=backend) == expected
    assert machine.trail == model.trail
    assert machine.open == 0
    assert [event.round for event in told.loop if event.phase == "started"] == list(range(1, model.rounds + 1))
    assert len([event for event in told.loop if event.phase == "finished"]) == model.rounds
    _agrees(listener, model, expected)

    quiet = Machine(plans, cancel_at)

    async def untold() -> str:
        return await _end_of(quiet, max_rounds)

    assert anyio.run(untold, backend=backend) == expected
    assert quiet.trail == model.trail


def _agrees(listener: Listener, model: Model, expected: str) -> None:
    sequences = [event.sequence for event in listener.events]
    assert sequences == sorted(sequences)
    chain = build_workflow_chain(listener.events, run_id=listener.events[0].identity.run_id)
    assert [visit.node_id for visit in chain.nodes] == model.trail
    assert len(chain.transitions) == sum(model.taken.values())
    assert chain.coverage.complete
    ends = [event.payload for event in listener.named("run.finished")]
    assert [end.status for end in ends] == [  # type: ignore[union-attr]
        {"completed": "succeeded", "cancelled": "cancelled"}.get(expected, "failed")
    ]
