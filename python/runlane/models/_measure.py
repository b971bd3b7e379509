"""How much of messages a model reads as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runlane.canonical import canonical_record_json
from runlane.models._messages import AnyModelMessage, FileItem
from runlane.records import ReasoningPart, TextPart, ToolCallPart, ToolResultPart

__all__ = ["count_text_chars"]


def count_text_chars(messages: Sequence[AnyModelMessage], /) -> int:
    """Count the code points of all text: what is said and thought, call names and arguments, results, text files.

    Images and binary files count nothing: they are no text, and have limits of their own. A result that is no text
    counts as its canonical JSON.

    Example:
        >>> from runlane.models import ModelMessage
        >>> count_text_chars([ModelMessage.user("Hi"), ModelMessage.assistant("Hello")])
        7
    """
    return sum(_item_chars(item) for message in messages for item in _items(message))


def _items(message: AnyModelMessage) -> Iterable[object]:
    return message.items


def _item_chars(item: object) -> int:
    match item:
        case TextPart() | ReasoningPart():
            return len(item.text)
        case ToolCallPart():
            return len(item.tool_name) + len(item.arguments)
        case ToolResultPart():
            return _result_chars(item)
        case FileItem():
            return len(item.text or "")
        case _:
            return 0


def _result_chars(result: ToolResultPart) -> int:
    if not result.has_output:
        return 0
    if isinstance(result.output, str):
        return len(result.output)
    return len(canonical_record_json(result.output).decode())
