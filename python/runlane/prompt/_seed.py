"""User-role sections as durable history: the messages that are seeded once per conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from runlane.records import Message, TextPart

__all__ = ["USER_INSTRUCTIONS_SEED", "UserInstruction", "user_instruction_messages"]

USER_INSTRUCTIONS_SEED: Final = "prompt.user-instructions"
"""The seed key under which a conversation gets them, for ever once."""


class UserInstruction(NamedTuple):
    """A user-role section that is not blank; its text is untrimmed."""

    name: str
    text: str


def user_instruction_messages(
    conversation_id: str, instructions: Sequence[UserInstruction], at: datetime, /
) -> tuple[Message, ...]:
    """Return the messages to seed, ahead of everything, under `USER_INSTRUCTIONS_SEED`.

    Their ids follow from the conversation, the key and the place alone, so that an imported conversation which already
    holds them is not seeded a second time.
    """
    return tuple(
        Message(
            id=_seed_id(conversation_id, index),
            conversation_id=conversation_id,
            role="user",
            status="committed",
            parts=(TextPart(text=instruction.text),),
            created_at=at,
            updated_at=at,
        )
        for index, instruction in enumerate(instructions)
    )


def _seed_id(conversation_id: str, index: int) -> str:
    text = f"{conversation_id}\0{USER_INSTRUCTIONS_SEED}\0{index}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
