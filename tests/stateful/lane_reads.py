"""What is in the store of a world of lanes."""

from __future__ import annotations

from dataclasses import dataclass

from runlane.records import Message, ToolApprovalRequestPart, ToolApprovalResponsePart
from runlane.store import ConversationReader, DriverStore


@dataclass(frozen=True)
class AskedFor:
    """A request for consent in the store.

    Attributes:
        approved: The durable answer; None while there is none.
    """

    run_id: str
    request: ToolApprovalRequestPart
    approved: bool | None


async def everything(store: DriverStore, conversation_id: str) -> list[Message]:
    """Return every message ever said, those that a summary stands for included."""
    reader, found, cursor = ConversationReader(store), list[Message](), None
    while True:
        page = await reader.messages(
            conversation_id, limit=500, direction="after", cursor=cursor, include_compacted=True
        )
        found.extend(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return found


async def requests(store: DriverStore, conversation_id: str) -> list[AskedFor]:
    """Return every request for consent that ended runs made, in order, with its durable answer."""
    messages = await everything(store, conversation_id)
    given = {
        part.approval_id: part.approved
        for message in messages
        for part in message.parts
        if message.role == "tool" and isinstance(part, ToolApprovalResponsePart)
    }
    return [
        AskedFor(message.run_id, part, given.get(part.approval_id))
        for message in messages
        for part in message.parts
        if message.run_id and isinstance(part, ToolApprovalRequestPart)
    ]
