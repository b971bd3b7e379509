"""User instructions as durable history: seeded once for ever, then read back like anything else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from runlane.prompt import USER_INSTRUCTIONS_SEED, UserInstruction, user_instruction_messages
from runlane.store import Applied, Outcome, SeedConversation

__all__ = ["inserted_by", "seed_command"]


def seed_command(
    *, command_id: str, at: datetime, conversation_id: str, instructions: Sequence[UserInstruction]
) -> SeedConversation:
    """Return the command that puts user instructions ahead of a conversation; there must be at least one."""
    return SeedConversation(
        command_id=command_id,
        at=at,
        seed_key=USER_INSTRUCTIONS_SEED,
        inputs=user_instruction_messages(conversation_id, instructions, at),
    )


def inserted_by(outcome: Outcome, /) -> bool:
    """Whether the seed came into the history just now: what `ComposedPrompt.finalize_seed` is told.

    A repetition is applied too, without a change: what it would have inserted is counted with the history already, or
    was replaced by a summary and does not come back.
    """
    return isinstance(outcome, Applied) and bool(outcome.delta.messages)
