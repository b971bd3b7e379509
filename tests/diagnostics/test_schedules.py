"""Whatever tasks tell facts at once, and whoever of them is cancelled, consumers see one ascending sequence."""

from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from runlane.diagnostics import CoreEvent, CreateDiagnosticsOptions, Fact, RoundStarted, create_diagnostics
from tests.diagnostics.listening import Log, Watcher

STARTED = Fact("round.started", RoundStarted)
STEPS = st.lists(st.sampled_from(["emit", "tell", "note", "flush", "wait", "fail"]), min_size=1, max_size=6)


class Scene:
    """Tasks that tell facts of one producer, in the steps a schedule gives them."""

    def __init__(self, slow: int | None) -> None:
        self.inside = 0
        self.slow = slow or 0
        self.failing: set[int] = set()
        self.watcher = Watcher(then=self.take_now if slow is None else self.take)
        self.log = Log()
        self.root = create_diagnostics(CreateDiagnosticsOptions(observer=self.watcher, output=self.log))
        self.returned: list[int] = []
        self.errors = 0
        self.cancelled = 0

    def take_now(self, event: CoreEvent) -> None:
        """Be an observer that never waits, and that fails at some events."""
        assert self.inside == 0
        if event.sequence in self.failing:
            raise ValueError("observer")

    async def take(self, event: CoreEvent) -> None:
        """Be an observer that waits, and that fails at some events."""
        assert self.inside == 0
        self.inside += 1
        try:
            for _ in range(event.sequence % (self.slow + 1)):
                await checkpoint()
            if event.sequence in self.failing:
                raise ValueError("observer")
        finally:
            self.inside -= 1

    async def play(self, steps: Sequence[str], scope: anyio.CancelScope) -> None:
        """Go through the steps of one task."""
        with scope:
            for step in steps:
                try:
                    await self.step(step)
                except ValueError:
                    self.errors += 1
        self.cancelled += scope.cancelled_caught

    async def step(self, step: str) -> None:
        """Go one step."""
        scope = self.root.child()
        if step == "emit":
            event = await scope.emit("round.started", RoundStarted())
            assert event is not None
            self.returned.append(event.sequence)
        elif step == "tell":
            rest = scope.tell(STARTED, ())
            if rest is not None:
                await rest
        elif step == "note":
            scope.note("round.started", RoundStarted())
        elif step == "flush":
            await scope.flush()
        elif step == "fail":
            self.failing.add(len(self.watcher.events) + 1)
        else:
            await checkpoint()


async def _run(scene: Scene, plans: Sequence[Sequence[str]], cancel_after: Sequence[int]) -> None:
    scopes = [anyio.CancelScope() for _ in plans]
    async with anyio.create_task_group() as tasks:
        for plan, scope in zip(plans, scopes, strict=True):
            tasks.start_soon(scene.play, plan, scope)
        for turns, scope in zip(cancel_after, scopes, strict=False):
            for _ in range(turns):
                await checkpoint()
            scope.cancel()
    scene.failing.clear()
    await scene.root.flush()
    assert await scene.root.emit("round.started", RoundStarted()) is not None


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(st.lists(STEPS, min_size=1, max_size=5), st.lists(st.integers(0, 6), max_size=3), st.integers(0, 3) | st.none())
def test_one_ascending_sequence_under_any_schedule(
    backend: str, plans: list[list[str]], cancel_after: list[int], slow: int | None
) -> None:
    """G4, C20: no overlap, ascending numbers for both consumers, what returned was delivered, nothing is stuck."""
    scene = Scene(slow)
    anyio.run(_run, scene, plans, cancel_after, backend=backend)
    for events in (scene.watcher.events, scene.log.events):
        sequences = [event.sequence for event in events]
        assert sequences == sorted(set(sequences))
        assert set(scene.returned) <= set(sequences)
    told = sum(step in {"emit", "tell", "note"} for plan in plans for step in plan)
    if not scene.cancelled:
        assert len(scene.watcher.events) == len(scene.log.events) == told + 1
