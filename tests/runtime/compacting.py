"""What the tests of compaction share: conversations in short words, on every store."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import BaseModel

from runlane.contracts import MaybeAwaitable
from runlane.records import (
    Message,
    Part,
    TerminalReason,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
    message_status_for_terminal_reason,
)
from runlane.runtime import (
    CompactionContext,
    CompactionResult,
    StructuredCompaction,
    StructuredCompactionConfig,
    Summarised,
    SummaryRequest,
)
from runlane.store import ConversationReader, DriverStore, MemoryStore
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing import FakeClock
from runlane.testing._store_kit import Lane, applied

LONG = "a long answer that says much more than it would have to, " * 3
STORES = ("memory", "sqlite")


@asynccontextmanager
async def opened(kind: str, folder: Path, clock: FakeClock | None = None) -> AsyncIterator[DriverStore]:
    """Open a store of a kind."""
    store: DriverStore = MemoryStore(clock=clock)
    if kind == "sqlite":
        store = SqliteStore(folder / "talk.sqlite", clock=clock, options=SqliteOptions(durability="relaxed"))
    async with store:
        yield store


class Talk(Lane):
    """A conversation whose turns are `a`, `b`, ...: input `a-in`, answer `a-out`."""

    async def say_turn(
        self, *names: str, parts: Sequence[Part] = (TextPart(text=LONG),), reason: TerminalReason = "success"
    ) -> None:
        """Take inputs through whole turns with these parts as the answer."""
        for name in names:
            await self.accept(name)
            await self.start(name)
            await self.end(name, parts, reason)

    async def end(
        self, name: str, parts: Sequence[Part] = (TextPart(text=LONG),), reason: TerminalReason = "success"
    ) -> None:
        """End an acquired run with these parts."""
        status = message_status_for_terminal_reason(reason) or "completed"
        answer = self.message(f"{name}-out", "", "assistant", status, run_id=name, parts=tuple(parts))
        outcome = await self.store.commit_run_terminal(
            conversation_id=self.id,
            run_id=name,
            expected_revision=await self.revision(name),
            ownership=self._ownership[name],
            assistant=answer,
            reason=reason,
        )
        applied(outcome)

    async def consent(self, name: str, approval_id: str, *, approved: bool = True) -> None:
        """Admit the answer to an approval as an input."""
        said = self.message(
            f"{name}-in",
            "",
            "tool",
            parts=(ToolApprovalResponsePart(approval_id=approval_id, approved=approved),),
        )
        applied(await self.store.accept_input(idempotency_key=f"{name}-key", input=said, run=self.proposal(name)))

    async def everything(self) -> list[Message]:
        """Return every message ever said, compacted ones included, paged one by one from the beginning."""
        assert isinstance(self.store, DriverStore)
        reader, found, cursor = ConversationReader(self.store), list[Message](), None
        while True:
            page = await reader.messages(self.id, limit=1, direction="after", cursor=cursor, include_compacted=True)
            found.extend(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return found


class Notes(BaseModel):
    """A structured summary."""

    facts: list[str]
    mood: str = "calm"


Summarise = Callable[[SummaryRequest[str]], MaybeAwaitable[str | Summarised[str]]]


def briefly(request: SummaryRequest[str]) -> str:
    """Summarise by naming the messages, after what was summarised before."""
    before = "" if request.previous_summary is None else f"{request.previous_summary} "
    return before + " ".join(message.id for message in request.messages)


def compaction(summarize: Summarise = briefly, **options: object) -> StructuredCompaction[str]:
    """Return a compaction that is always due unless options say otherwise."""
    facts: dict[str, object] = {"due": lambda _: True, "back_off": 60.0, **options}
    return StructuredCompaction(StructuredCompactionConfig(schema=str, summarize=summarize, **facts))  # type: ignore[arg-type]


async def compact(talk: Talk, summarize: Summarise = briefly, /, **options: object) -> CompactionResult:
    """Compact a conversation once."""
    return await compaction(summarize, **options)(CompactionContext(conversation_id=talk.id, store=talk.store))


def call(call_id: str) -> ToolCallPart:
    """A call without arguments."""
    return ToolCallPart(call_id=call_id, tool_name="look", arguments="{}", input={})


def result(call_id: str, outcome: ToolOutcome = "success") -> ToolResultPart:
    """What a call gave."""
    return ToolResultPart(call_id=call_id, tool_name="look", outcome=outcome, output="ok")


def consent_wanted(approval_id: str, call_id: str) -> ToolApprovalRequestPart:
    """A call that waits for a person."""
    return ToolApprovalRequestPart(approval_id=approval_id, call_id=call_id, signature="signed")
