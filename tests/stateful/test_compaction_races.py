"""Whatever happens to a conversation while a summary is made, nothing said is lost, doubled or moved."""

import anyio
from hypothesis import given
from hypothesis import strategies as st

from runlane.records import Message
from runlane.runtime import CompactionResult, SummaryRequest
from runlane.store import MemoryStore
from runlane.testing._store_kit import Lane
from tests.runtime.compacting import Talk, briefly, compact

STEPS = st.lists(
    st.sampled_from(["turn", "accept", "start", "end", "fail", "supersede", "other summary", "read"]), max_size=5
)


class Busy:
    """A conversation to which things happen; every message said is noted in order."""

    def __init__(self, store: MemoryStore) -> None:
        self.talk = Talk(store)
        self.waiting: list[str] = []
        self.running: str | None = None
        self.count = 0

    async def do(self, step: str) -> None:
        """Let one thing happen, if it can."""
        if step == "turn":
            await self.finish("success")
            await self.talk.say_turn(self.name())
        elif step == "accept":
            name = self.name()
            await self.talk.accept(name)
            self.waiting.append(name)
        elif step == "start" and self.running is None and self.waiting:
            self.running = self.waiting.pop(0)
            await self.talk.start(self.running)
        elif step == "other summary":
            ids = await self.talk.message_ids()
            if len(ids) > 1 and not self.waiting and self.running is None:
                await self.talk.try_compact(*ids[:1], summary=f"other{self.name()}")
        elif step in {"end", "fail", "supersede"}:
            await self.end({"end": "success", "fail": "provider_failure", "supersede": "superseded"}[step])
        else:
            await self.talk.version()

    async def end(self, reason: str) -> None:
        """End what runs."""
        if self.running is not None:
            name, self.running = self.running, None
            await self.talk.end(name, reason=reason)  # type: ignore[arg-type]

    async def finish(self, reason: str) -> None:
        """End what runs and everything that waits."""
        await self.end(reason)
        while self.waiting:
            await self.do("start")
            await self.end(reason)

    def name(self) -> str:
        """Return a new name; names sort in the order they were given."""
        self.count += 1
        return f"{self.count:03}"


def said(messages: list[Message]) -> list[str]:
    """Return the ids of what was said, summaries apart."""
    return [message.id for message in messages if message.role != "summary"]


async def _race(before: list[str], rounds: list[list[str]], keep: int) -> None:
    async with MemoryStore() as store:
        busy = Busy(store)
        for step in before:
            await busy.do(step)
        left = iter(rounds)

        async def summarize(request: SummaryRequest[str]) -> str:
            for step in next(left, []):
                await busy.do(step)
            return f"#{len(briefly(request))}"

        found = await compact(busy.talk, summarize, keep_recent_turns=keep, max_attempts=len(rounds) + 1)
        await _holds(busy.talk, found)
        await busy.finish("success")
        everything = said(await busy.talk.everything())
        assert everything == sorted(everything, key=lambda message_id: (message_id[:3], message_id.endswith("out")))
        assert (
            len(everything)
            == len(set(everything))
            == 2 * sum(1 for message_id in everything if message_id.endswith("-in"))
        )


async def _holds(talk: Lane, found: CompactionResult) -> None:
    """Hold a result against the store."""
    assert isinstance(talk, Talk)
    snapshot = await talk.store.load_snapshot(talk.id)
    active = [message.id for message in snapshot.messages]
    assert found.outcome in {"applied", "conflict", "nothing_eligible", "refused"}
    if found.outcome == "applied":
        assert found.snapshot == snapshot
        assert found.summary is not None
        assert active.count(found.summary.id) == 1
        assert not set(found.replaced) & set(active)
    gone = {message.id for message in await talk.everything()} - set(active)
    assert gone >= set(found.replaced)
    assert not {run.assistant_message_id for run in snapshot.runs if run.is_active} & gone


@given(
    before=st.lists(st.sampled_from(["turn", "turn", "turn", "accept", "fail"]), max_size=6),
    keep=st.integers(1, 2),
    rounds=st.lists(STEPS, max_size=3),
)
def test_a_race_loses_nothing(before: list[str], rounds: list[list[str]], keep: int) -> None:
    """Every input and answer is still there for people, in its order, and the active history holds the rest."""
    anyio.run(_race, before, rounds, keep)
