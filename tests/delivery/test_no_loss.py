"""A subscription under attack: any start, any cut, any speed, any overflow, any order of commits and publishing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.delivery import (
    DurableEvent,
    EventCursor,
    EventHub,
    Gap,
    RuntimeEvent,
    Subscription,
    TransientEvent,
    advance_event_cursor,
    fold_events,
)
from runlane.records import ConversationHead
from runlane.store import EventEnvelope, EventPage, ReadEvents, Store
from tests.delivery.telling import delta

_BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@dataclass
class Ledger:
    """The entries of one conversation, read in pages of two, with a turn for others in between."""

    entries: list[EventEnvelope] = field(default_factory=list)
    first: int = 1
    reads: int = 0

    def commit(self, kind: str) -> list[DurableEvent]:
        """Append an entry and return the events that follow it: none, one or two."""
        version = len(self.entries) + 1
        payload: dict[str, object] = {"type": "acquire", "run_id": "r", "revision": version, "state": "running"}
        if kind == "pair":
            runs = [{"run_id": run, "revision": version} for run in ("r", "s")]
            payload = {"type": "terminal", "run_id": "r", "revision": version, "absorbed": runs}
        entry = EventEnvelope(
            schema_version=1,
            event_id=f"e{version}",
            conversation_id="c",
            seq=version,
            version=version,
            kind="provider/request" if kind == "note" else "runtime/transition",
            occurred_at="2026-01-01T00:00:00.000Z",
            payload={} if kind == "note" else payload,  # type: ignore[arg-type]
        )
        self.entries.append(entry)
        return fold_events(entry)

    async def load_head(self, _: str) -> ConversationHead:
        """The newest version."""
        await anyio.lowlevel.checkpoint()
        return ConversationHead(conversation_id="c", version=len(self.entries))

    async def read_events(self, query: ReadEvents) -> EventPage:
        """A page of what is kept."""
        self.reads += 1
        await anyio.lowlevel.checkpoint()
        # Here every entry is a version of its own.
        start = max(query.from_seq or 1, (query.after_version or 0) + 1, self.first)
        items = tuple(self.entries[start - 1 : start + 1])
        more = start + 2 if len(self.entries) > start + 1 else None
        return EventPage(items=items, next_seq=more)


class Scene:
    """A conversation that is written to and listened to."""

    def __init__(self, commits: int = 0) -> None:
        self.ledger = Ledger()
        self.hub = EventHub()
        self.told: list[RuntimeEvent] = []
        self.elsewhere: list[DurableEvent] = []
        self.told_before = 0
        self.sequence = 0
        self._unpublished: list[tuple[int, list[DurableEvent]]] = []
        for _ in range(commits):
            self.told.extend(self.ledger.commit("pair"))

    def play(self, step: str) -> None:
        """Commit, publish or stream something."""
        if step == "delta":
            self.flush()
            self.sequence += 1
            self.tell(delta(self.sequence))
        elif step == "elsewhere":
            self.elsewhere.extend(self.ledger.commit("pair"))
        elif step == "look":
            self.flush()
            self.look()
        elif step == "hold":
            # Committed, and told only later.
            self._commit("one")
        else:
            self._commit(step)
            self.flush()

    def _commit(self, kind: str) -> None:
        events = self.ledger.commit(kind)
        self._unpublished.append((len(self.ledger.entries), events))

    def look(self) -> None:
        """Look for what others committed, while no commit is on its way."""
        head = len(self.ledger.entries)
        self.hub.reach("c", head, head)

    def flush(self) -> None:
        """Publish what was committed and not told yet."""
        for version, events in self._unpublished:
            self.hub.reach("c", version - 1, version)
            for event in events:
                self.tell(event)
        self._unpublished.clear()

    def tell(self, event: RuntimeEvent) -> None:
        """Publish."""
        self.told.append(event)
        self.hub.publish(event)

    def listen(self, *, after: int | EventCursor | None, capacity: int, run_id: str | None = None) -> Subscription:
        """Begin to listen."""
        store = cast("Store", self.ledger)
        return Subscription(store, self.hub, "c", after=after, capacity=capacity, run_id=run_id)


_STEPS = st.lists(
    st.sampled_from(["one", "pair", "note", "delta", "delta", "delta", "hold", "read", "turn"]), max_size=30
)


async def _attack(
    scene: Scene, steps: Sequence[str], *, after: int | EventCursor | None, capacity: int, warm: int
) -> list[RuntimeEvent | Gap]:
    """Listen while steps are played; read one event at each `read`, the rest at the end."""
    for step in steps[:warm]:
        scene.play(step)
    scene.flush()
    scene.told_before = len(scene.told)
    found: list[RuntimeEvent | Gap] = []
    ask, done = anyio.Semaphore(0), anyio.Event()

    async def read() -> None:
        async for event in subscription:
            found.append(event)
            await ask.acquire()
        done.set()

    subscription = scene.listen(after=after, capacity=capacity)
    scene.look()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for step in steps[warm:]:
            if step == "read":
                ask.release()
            if step in {"read", "turn"}:
                await anyio.lowlevel.checkpoint()
            else:
                scene.play(step)
        scene.flush()
        scene.look()
        scene.hub.close()
        for _ in range(len(scene.told) * 3 + len(scene.elsewhere) * 3 + 10):
            ask.release()
        with anyio.fail_after(10):
            await done.wait()
    return found


def _durable(events: Sequence[RuntimeEvent | Gap]) -> list[str]:
    return [event.event_id for event in events if isinstance(event, DurableEvent)]


def _check_transients(found: Sequence[RuntimeEvent | Gap]) -> None:
    """Transients are in order, none twice; between two that are apart lies a gap."""
    last, gap = None, False
    for event in found:
        if isinstance(event, Gap):
            gap = True
        elif isinstance(event, TransientEvent):
            assert last is None or event.sequence > last
            assert last is None or event.sequence == last + 1 or gap
            last, gap = event.sequence, False


@_BACKENDS
@given(steps=_STEPS, capacity=st.integers(1, 6), data=st.data())
def test_durable_events_arrive_once_in_order_and_transient_losses_are_told(
    backend: str, steps: list[str], capacity: int, data: st.DataObject
) -> None:
    """From any version, begun at any moment, at any speed, with any mailbox: no hole, no repetition, no silent loss."""
    scene = Scene()
    warm = data.draw(st.integers(0, len(steps)))
    playable = [step for step in steps[:warm] if step not in {"read", "turn"}]
    steps = [*playable, *steps[warm:]]
    commits = sum(step in {"one", "pair", "note", "hold"} for step in playable)
    after = data.draw(st.none() | st.integers(0, commits))

    async def run() -> list[RuntimeEvent | Gap]:
        return await _attack(scene, steps, after=after, capacity=capacity, warm=len(playable))

    found = anyio.run(run, backend=backend)
    begun = scene.told_before
    if after is None:
        expected = _durable(scene.told[begun:])
    else:
        expected = [
            event.event_id for event in scene.told if isinstance(event, DurableEvent) and event.snapshot_version > after
        ]
    assert _durable(found) == expected
    _check_transients(found)


_SHARED_STEPS = st.lists(
    st.sampled_from(
        ["one", "pair", "note", "delta", "delta", "hold", "elsewhere", "elsewhere", "look", "read", "turn"]
    ),
    max_size=40,
)


@_BACKENDS
@given(steps=_SHARED_STEPS, capacity=st.integers(1, 6), data=st.data())
def test_what_others_commit_arrives_once_and_in_its_place(
    backend: str, steps: list[str], capacity: int, data: st.DataObject
) -> None:
    """With commits of others anywhere among one's own, noticed sooner or later: every durable event, once, in order."""
    scene = Scene()
    warm = data.draw(st.integers(0, len(steps)))
    playable = [step for step in steps[:warm] if step not in {"read", "turn"}]
    steps = [*playable, *steps[warm:]]
    before = sum(step in {"one", "pair", "note", "hold", "elsewhere"} for step in playable)
    after = data.draw(st.none() | st.integers(0, before))

    async def run() -> list[RuntimeEvent | Gap]:
        return await _attack(scene, steps, after=after, capacity=capacity, warm=len(playable))

    found = anyio.run(run, backend=backend)
    begun = before if after is None else after
    expected = [event.event_id for entry in scene.ledger.entries[begun:] for event in fold_events(entry)]
    assert _durable(found) == expected
    _check_transients(found)


@_BACKENDS
@given(steps=_STEPS, capacity=st.integers(1, 6), data=st.data())
def test_a_listener_cut_anywhere_goes_on_from_its_cursor(
    backend: str, steps: list[str], capacity: int, data: st.DataObject
) -> None:
    """However often and wherever it is cut, between two events of one commit too: the pieces make the whole."""
    scene = Scene(commits=2)
    cuts = data.draw(st.lists(st.integers(0, 5), max_size=5))

    async def run() -> list[RuntimeEvent]:
        for step in steps:
            if step not in {"read", "turn"}:
                scene.play(step)
        scene.flush()
        cursor, kept = EventCursor(), list[RuntimeEvent]()
        for count in [*cuts, 1000]:
            if count == 1000:
                scene.hub.close()
            async with scene.listen(after=cursor, capacity=capacity) as events:
                for _ in range(min(count, len(_durable(scene.told)) - len(kept))):
                    event = await anext(events)
                    assert not isinstance(event, Gap)
                    advance = advance_event_cursor(cursor, event)
                    assert advance.status == "accepted"
                    cursor = advance.cursor
                    kept.append(event)
        return kept

    assert _durable(anyio.run(run, backend=backend)) == _durable(scene.told)


@pytest.mark.anyio
async def test_a_live_listener_that_is_slow_at_once_gets_nothing_from_before_it_began() -> None:
    """An overflow before the first durable event was read does not replay the conversation's past."""
    scene = Scene(commits=5)
    slow = scene.listen(after=None, capacity=1)
    for step in ("delta", "delta", "one"):
        scene.play(step)
    scene.hub.close()
    found = [event async for event in slow]
    assert [event.type for event in found] == ["assistant-delta", "gap", "run-state"]
    assert _durable(found) == ["r:run-state:6"]


@pytest.mark.anyio
async def test_a_loss_of_transient_events_alone_reads_nothing() -> None:
    """What the ledger never held is not looked for there."""
    scene = Scene(commits=5)
    slow = scene.listen(after=None, capacity=1)
    for _ in range(3):
        scene.play("delta")
    scene.hub.close()
    assert [event.type async for event in slow] == ["assistant-delta", "gap"]
    assert scene.ledger.reads == 0


@pytest.mark.anyio
async def test_a_cursor_older_than_what_is_kept_is_an_explicit_gap() -> None:
    """The gap says where the ledger begins; everything from there on follows."""
    scene = Scene(commits=6)
    scene.ledger.first = 4
    events = scene.listen(after=1, capacity=9)
    scene.hub.close()
    found = [event async for event in events]
    assert found[0] == Gap(conversation_id="c", reason="retention", first_available=4)
    assert _durable(found) == _durable([event for event in scene.told if event.snapshot_version >= 4])  # type: ignore[union-attr]


@pytest.mark.anyio
@pytest.mark.parametrize("ids", [None, frozenset[str](), frozenset({"x"})])
async def test_a_cursor_ahead_of_the_store_is_an_explicit_gap(ids: frozenset[str] | None) -> None:
    """A restored database knows less than the listener; both forms of a cursor say so."""
    scene = Scene(commits=2)
    after = 9 if ids is None else EventCursor(snapshot_version=9, durable_event_ids=ids)
    events = scene.listen(after=after, capacity=9)
    assert await anext(events) == Gap(conversation_id="c", reason="ahead", first_available=1)
    scene.play("one")
    scene.hub.close()
    assert _durable([event async for event in events]) == ["r:run-state:3"]


@pytest.mark.anyio
async def test_other_listeners_notice_nothing_of_a_slow_one() -> None:
    """Beside a listener that reads nothing, another gets everything without a gap."""
    scene = Scene()
    slow, quick = (scene.listen(after=None, capacity=capacity) for capacity in (1, 1000))
    for number in range(50):
        scene.play("one" if number % 5 == 0 else "delta")
    scene.hub.close()
    assert [event async for event in quick] == scene.told
    assert _durable([event async for event in slow]) == _durable(scene.told)
