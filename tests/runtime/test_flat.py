"""What a runtime holds does not grow with the runs it has answered."""

import gc
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from runlane.models import FinishReport, TextDelta
from runlane.runtime import AgentRuntime, HistoryConfig, RunsConfig, RuntimeConfig
from runlane.store import MemoryStore, Store
from runlane.store._rows import Head
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.store.sqlite._rows import CachedLane
from runlane.testing import Hold, ScriptedCall, ScriptedModel, ScriptedStep

pytestmark = pytest.mark.anyio

_RUNS = 50_000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 320
_PER_CONVERSATION = 4
_AT_ONCE = 10
_OWN = 30
"""Objects of the last commit, which a thread of the store may still hold. One for each conversation would be more."""
_OF_THE_LOOP = 3000
"""Deadlines that passed unneeded, which an event loop forgets only once there are a thousand or so."""
_BLOCKS = 10_000
"""Pieces of memory that come and go: of the loop, of caches with a bound. One for every fourth run would be more."""
_KIB = 8 * 1024
"""What the peak of the process may grow by: a few pages here and there, but not 250 bytes for each run."""
_CONFIG = RuntimeConfig(runs=RunsConfig(coalesce_pending=True), history=HistoryConfig(max_idle_lanes=0))


class _Standing:
    """A model that stands while it answers the first input of a conversation, until the test has submitted the rest."""

    def __init__(self) -> None:
        self.holds: dict[str, Hold] = {}
        self.model = ScriptedModel(self._reply)

    def _reply(self, call: ScriptedCall) -> list[ScriptedStep]:
        self.model.calls.clear()
        hold = self.holds.get(getattr(call.messages[-1], "text", ""))
        return [TextDelta("word"), *([] if hold is None else [hold]), FinishReport("stop")]


async def _converse(runtime: AgentRuntime, standing: _Standing, conversation_id: str) -> None:
    """A run that is superseded, one that two inputs share, one that was injected too late, and one by its key."""
    first = f"first of {conversation_id}"
    hold = standing.holds[first] = Hold()
    tickets = [runtime.submit(conversation_id, first)]
    async with runtime.subscribe(conversation_id) as events:
        await hold.reached()
        tickets.append(runtime.submit(conversation_id, "second", idempotency_key="k"))
        tickets.append(runtime.submit(conversation_id, "third", policy="supersede"))
        tickets.append(runtime.submit(conversation_id, "fourth", policy="interrupt-next"))
        for ticket in tickets:
            await ticket.result
        await runtime.submit(conversation_id, "fifth", policy="inject").result
        await runtime.submit(conversation_id, "second", idempotency_key="k").result
        await anext(events)
    del standing.holds[first]


async def _converse_at_once(runtime: AgentRuntime, standing: _Standing, conversation_ids: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for conversation_id in conversation_ids:
            tasks.start_soon(_converse, runtime, standing, conversation_id)
    await anyio.wait_all_tasks_blocked()


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
        own: Objects of this project's classes, but for what the SQLite writer remembers of some lanes, up to a bound.
        objects: All that the garbage collector knows.
        blocks: Pieces of memory of the interpreter, texts and bytes among them.
        peak: KiB of the process, native memory among it.
    """

    tasks: int
    own: int
    objects: int
    blocks: int
    peak: int


def _measure() -> _Measured:
    gc.collect()
    objects = gc.get_objects()
    return _Measured(
        tasks=sum(not (task.name or "").endswith(" watch") for task in anyio.get_running_tasks()),
        own=sum(
            str(type(found).__module__).startswith("runlane") and not isinstance(found, CachedLane | Head)
            for found in objects
        ),
        objects=len(objects),
        blocks=sys.getallocatedblocks(),
        peak=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def _store(kind: str, folder: Path) -> Store:
    if kind == "memory":
        return MemoryStore()
    return SqliteStore(folder / "store.db", options=SqliteOptions(durability="relaxed"))


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_memory_and_tasks_are_flat_over_many_runs(kind: str, tmp_path: Path) -> None:
    """After a first batch as a measure, many more runs leave no object, task, table entry or memory behind."""
    standing = _Standing()
    rounds = _RUNS // _PER_CONVERSATION // _AT_ONCE
    measured: list[_Measured] = []
    async with _store(kind, tmp_path) as store, AgentRuntime(store, model=standing.model, config=_CONFIG) as runtime:
        for number in range(1, rounds + 1):
            conversation_ids = [f"c{number}-{place}" for place in range(_AT_ONCE)]
            await _converse_at_once(runtime, standing, conversation_ids)
            # The last group of commits, which a thread still holds, is one of a single conversation each time.
            await _converse_at_once(runtime, standing, [alone := f"c{number}-alone"])
            if isinstance(store, MemoryStore):
                for conversation_id in [*conversation_ids, alone]:
                    del store.driver.conversations[conversation_id]  # type: ignore[attr-defined]
            if number in {rounds // 4, rounds}:
                assert _held(runtime) == [0] * 9
                measured.append(_measure())
    first, last = measured
    assert last.tasks == first.tasks
    assert last.own <= first.own + _OWN
    assert last.objects <= first.objects + _OF_THE_LOOP
    assert last.blocks <= first.blocks + _BLOCKS
    assert last.peak <= first.peak + _KIB
