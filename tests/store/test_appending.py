"""What an append answers when something comes between its commit and its reading."""

import pytest
from typing_extensions import override

from runlane.errors import ConversationPurgedError
from runlane.store import EventEnvelope, MemoryStore, Purged

pytestmark = pytest.mark.anyio


class _PurgedMeanwhile(MemoryStore):
    """A store whose conversations somebody purges before an entry of theirs is read back."""

    @override
    async def find_event(self, conversation_id: str, event_id: str, /) -> EventEnvelope | None:
        assert await self.purge_conversation(conversation_id) == Purged()
        return await super().find_event(conversation_id, event_id)


async def test_an_append_that_a_purge_overtakes_says_so() -> None:
    """An entry that was purged right after its commit is answered like any late write to a purged conversation."""
    async with _PurgedMeanwhile() as store:
        with pytest.raises(ConversationPurgedError):
            await store.append_event(conversation_id="c1", kind="state/set", payload={})
