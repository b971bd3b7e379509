"""What an application puts into a conversation without a run: an exchange from elsewhere, standing instructions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from runlane.errors import InvalidValueError, UsageError
from runlane.records import Message, MessageStatus
from runlane.runtime._inputs import InputLike, check_user_parts, read_id, read_object, read_said

__all__ = ["SeedPlacement", "seed_messages"]

SeedPlacement: TypeAlias = Literal["lead", "after-settled"]
"""Ahead of everything, or after the settled history and before the first message of any run that is active."""

_STATUS: Final[dict[object, MessageStatus]] = {"user": "committed", "assistant": "completed"}


def seed_messages(
    conversation_id: str, seed_key: str, said: Sequence[InputLike | Mapping[str, object]], at: datetime, /
) -> tuple[Message, ...]:
    """Return the records of a seed; their ids follow from conversation, key and place, so that a replay is known.

    Raises:
        InvalidValueError: One of them is malformed, or there is none; names the field.
        UsageError: One has a role other than user or assistant, or is a user's and holds a part that is not a user's.
    """
    read_id(seed_key, "seed_key")
    if isinstance(said, str | Mapping) or not isinstance(said, Sequence):
        raise UsageError("must be a sequence of messages", argument="messages")
    if not said:
        raise InvalidValueError("must hold at least one message", argument="messages")
    return tuple(_message(conversation_id, seed_key, index, one, at) for index, one in enumerate(said))


def _message(conversation_id: str, seed_key: str, index: int, one: object, at: datetime) -> Message:
    place = f"messages.{index}"
    role, parts, metadata = read_said(one, place)
    if role not in {"user", "assistant"}:
        raise UsageError(f"must be user or assistant, not {role!r}", argument=f"{place}.role")
    if role == "user":
        check_user_parts(parts, f"{place}.parts")
    text = f"{conversation_id}\0{seed_key}\0{index}"
    return Message(
        id=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        conversation_id=conversation_id,
        role="user" if role == "user" else "assistant",
        status=_STATUS[role],
        parts=parts,
        metadata=read_object(metadata, f"{place}.metadata"),
        created_at=at,
        updated_at=at,
    )
