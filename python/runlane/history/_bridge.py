"""Where the history meets its native half: records go in as bytes, refusals come out as errors of runlane."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn

from pydantic_core import PydanticSerializationError

from runlane._native import HistoryLog, NativeError, adopt_vocabulary
from runlane.errors import InvalidValueError, ProjectionRefusedError, RecordCorruptError, RecordTooNewError, UsageError
from runlane.models import ModelAssistantToolMessage, ModelMessage, ModelToolResultMessage
from runlane.records import (
    Message,
    ProviderEnvelope,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)

__all__ = ["MAX_COUNT", "log_of", "raise_refusal", "require_count"]

MAX_COUNT: Final = 2**53 - 1
"""The largest number of tokens or turns that is taken."""

adopt_vocabulary(
    {
        "text": TextPart,
        "reasoning": ReasoningPart,
        "tool-call": ToolCallPart,
        "tool-result": ToolResultPart,
        "tool-approval-request": ToolApprovalRequestPart,
        "tool-approval-response": ToolApprovalResponsePart,
        "provider": ProviderPart,
        "envelope": ProviderEnvelope,
        "message": ModelMessage,
        "calls": ModelAssistantToolMessage,
        "results": ModelToolResultMessage,
    }
)


def raise_refusal(refusal: NativeError, /) -> NoReturn:
    """Raise the error of runlane that a refusal of the native half stands for."""
    code, message, detail = refusal.args
    if code == "store.record_corrupt":
        raise RecordCorruptError(message) from None
    if code == "store.record_too_new":
        raise RecordTooNewError(message) from None
    if code == "history.refused":
        raise ProjectionRefusedError(message, message_id=detail[0], reason=detail[1]) from None
    if code == "usage":
        raise UsageError(message, argument=detail) from None
    raise InvalidValueError(message, argument=detail) from None


def log_of(messages: Iterable[Message], /) -> HistoryLog:
    """Return messages that somebody else keeps as a handle; one id may stand in it twice.

    Raises:
        UsageError: Something is no message; says which.
        InvalidValueError: A message holds what is not JSON.
    """
    if not isinstance(messages, Iterable):
        raise UsageError(f"must be messages, not {type(messages).__name__}", argument="messages")
    log = HistoryLog(repeats=True)
    try:
        log.extend([_written(message, place) for place, message in enumerate(messages)])
    except PydanticSerializationError as error:
        raise InvalidValueError(str(error), argument="messages") from None
    except NativeError as refusal:
        raise InvalidValueError(refusal.args[1], argument="messages") from None
    return log


def _written(message: Message, place: int) -> bytes:
    if not isinstance(message, Message):
        raise UsageError(f"must be a Message, not {type(message).__name__}", argument=f"messages.{place}")
    return message.__pydantic_serializer__.to_json(message, exclude_none=True)


def require_count(value: int, argument: str, /) -> int:
    """Return a whole number from 0 to `MAX_COUNT`.

    Raises:
        UsageError: It is no int.
        InvalidValueError: It is negative or too large.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"must be an int, not {type(value).__name__}", argument=argument)
    if not 0 <= value <= MAX_COUNT:
        raise InvalidValueError("must be from 0 to 2**53 - 1", argument=argument)
    return value
