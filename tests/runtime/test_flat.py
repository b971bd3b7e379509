"""What a runtime holds does not grow with the runs it has answered."""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import pytest

from runlane.models import FinishReport, TextDelta
from runlane.runtime import AgentRuntime, HistoryConfig, RunsConfig, RuntimeConfig
from runlane.store import MemoryStore
from runlane.testing import Hold, ScriptedCall, ScriptedModel, ScriptedStep

pytestmark = pytest.mark.anyio

_RUNS = 50_000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 240
_PER_CONVERSATION = 4
_OF_THE_LOOP = 3000
"""Deadlines that passed unneeded, which an event loop forgets only once there are a thousand or so."""
_CONFIG = RuntimeConfig(runs=RunsConfig(coalesce_pending=True), history=HistoryConfig(max_idle_lanes=0))


class _Standing:
    """A model that stands while it answers `first`, until the test has submitted the rest."""

    def __init__(self) -> None:
        self.hold = Hold()
        self.model = ScriptedModel(self._reply)

    def _reply(self, call: ScriptedCall) -> list[ScriptedStep]:
        self.model.calls.clear()
        is_first = getattr(call.messages[-1], "text", "") == "first"
        return [TextDelta("word"), *([self.hold] if is_first else []), FinishReport("stop")]


async def _converse(runtime: AgentRuntime, standing: _Standing, conversation_id: str) -> None:
    """A run that is superseded, one that two inputs share, one that was injected too late, and one by its key."""
    standing.hold = Hold()
    tickets = [runtime.submit(conversation_id, "first")]
    async with runtime.subscribe(conversation_id) as events:
        await standing.hold.reached()
        tickets.append(runtime.submit(conversation_id, "second", idempotency_key="k"))
        tickets.append(runtime.submit(conversation_id, "third", policy="supersede"))
        tickets.append(runtime.submit(conversation_id, "fourth", policy="interrupt-next"))
        for ticket in tickets:
            await ticket.result
        await runtime.submit(conversation_id, "fifth", policy="inject").result
        await runtime.submit(conversation_id, "second", idempotency_key="k").result
        await anext(events)


def _held(runtime: AgentRuntime) -> list[int]:
    """Return the sizes of every table that a run passes through."""
    core, submissions = runtime._core, runtime._submissions
    tables: list[Callable[[], int]] = [
        lambda: len(core.here),
        lambda: len(core.spoken),
        lambda: len(core.recovering),
        lambda: len(core.conversations._entries),
        lambda: len(core.lanes._lanes),
        lambda: len(submissions._tickets),
        lambda: len(submissions._doors),
        lambda: len(runtime._hub._mailboxes),
        lambda: len(runtime._lanes),
    ]
    return [size() for size in tables]


@dataclass(frozen=True)
class _Measured:
    """What there is at a moment.

    Attributes:
        tasks: But for the watches, of which there is one or none, and which sleep on for a moment.
        own: Objects of this project's classes.
        objects: All of them.
    """

    tasks: int
    own: int
    objects: int


def _measure() -> _Measured:
    gc.collect()
    objects = gc.get_objects()
    return _Measured(
        tasks=sum(not (task.name or "").endswith(" watch") for task in anyio.get_running_tasks()),
        own=sum(str(type(found).__module__).startswith("runlane") for found in objects),
        objects=len(objects),
    )


@pytest.mark.timeout(7200)
async def test_objects_and_tasks_are_flat_over_many_runs() -> None:
    """After a first batch as a measure, many more runs leave no object, task or table entry behind."""
    standing = _Standing()
    store = MemoryStore()
    rounds = _RUNS // _PER_CONVERSATION
    async with store, AgentRuntime(store, model=standing.model, config=_CONFIG) as runtime:
        measured: list[_Measured] = []
        for number in range(rounds + 1):
            conversation_id = f"c{number}"
            await _converse(runtime, standing, conversation_id)
            await anyio.wait_all_tasks_blocked()
            del store.driver.conversations[conversation_id]  # type: ignore[attr-defined]
            if number in {rounds // 4, rounds}:
                assert _held(runtime) == [0] * 9
                measured.append(_measure())
    first, last = measured
    assert last.tasks == first.tasks
    assert last.own <= first.own + 5
    assert last.objects <= first.objects + _OF_THE_LOOP
