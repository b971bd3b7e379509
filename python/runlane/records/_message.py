"""Messages: what was said in a conversation."""

from __future__ import annotations

from typing import Literal, TypeAlias

from runlane.records._base import JsonObject, RecordId, SchemaVersion, Timestamp
from runlane.records._parts import Part, TextPart

__all__ = ["AssistantPlaceholder", "Message", "MessageRole", "MessageStatus"]

MessageRole: TypeAlias = Literal["user", "assistant", "tool", "system", "summary"]

MessageStatus: TypeAlias = Literal["committed", "streaming", "completed", "interrupted", "superseded", "failed"]


class Message(SchemaVersion):
    """One message of a conversation.

    Attributes:
        run_id: Only on an assistant message that is the reserved answer of that run.
        role: `tool` is for answers to approvals, `summary` replaces compacted history.
        parts: In order; may be empty.
        metadata: The application's own JSON object.
    """

    id: RecordId
    conversation_id: RecordId
    run_id: RecordId | None = None
    role: MessageRole
    status: MessageStatus
    parts: tuple[Part, ...]
    metadata: JsonObject | None = None
    created_at: Timestamp
    updated_at: Timestamp

    @property
    def text(self) -> str:
        """The text parts, joined without a separator."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


class AssistantPlaceholder(SchemaVersion):
    """Stands for an answer that does not exist yet; never stored."""

    id: RecordId
    conversation_id: RecordId
    run_id: RecordId
    status: Literal["pending"] = "pending"
    created_at: Timestamp
    updated_at: Timestamp
