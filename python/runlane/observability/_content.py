"""What people, models and tools said, as the conventions write it. Nothing here is used unless it was asked for."""

from __future__ import annotations

import json

from pydantic import JsonValue

from runlane.records import FilePart, Message, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["as_json", "messages_json"]


def as_json(value: JsonValue, /) -> str:
    """Return a value as JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def messages_json(message: Message, /, finish_reason: str | None = None) -> str:
    """Return a message as the list of one that the conventions' message attributes hold."""
    said: dict[str, JsonValue] = {"role": message.role, "parts": [_part(part) for part in message.parts]}
    if finish_reason is not None:
        said["finish_reason"] = finish_reason
    return as_json([said])


def _part(part: Part) -> JsonValue:
    match part:
        case TextPart():
            return {"type": "text", "content": part.text}
        case ReasoningPart():
            return {"type": "reasoning", "content": part.text}
        case ToolCallPart():
            return {"type": "tool_call", "id": part.call_id, "name": part.tool_name, "arguments": part.input}
        case ToolResultPart():
            return {"type": "tool_call_response", "id": part.call_id, "response": part.output}
        case FilePart():
            return {"type": "file", "mime_type": part.media_type, "file_id": part.reference}
        case _:
            return {"type": part.type}
