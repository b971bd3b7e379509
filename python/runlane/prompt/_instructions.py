"""Instructions: what goes into a provider's own channel for them, and what the history carries into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from runlane.contracts import MaybeAwaitable
from runlane.errors import InvalidValueError, UsageError
from runlane.models import ModelMessage

__all__ = [
    "AdaptInstructions",
    "Instructions",
    "carry_into_instructions",
    "check_text",
    "checked_instructions",
    "system_messages",
]

Instructions: TypeAlias = str | ModelMessage | tuple[ModelMessage, ...]
"""Plain text, or system messages: one each for texts that a provider is to treat apart, such as for its cache."""

AdaptInstructions: TypeAlias = Callable[[str], MaybeAwaitable[Instructions]]
"""Turns the composed text into what is passed on, unchanged from there."""


def carry_into_instructions(instructions: Instructions, carried: Sequence[str], /) -> Instructions:
    """Append what the history says in the instructions channel (summaries, notes) behind the instructions.

    With nothing to carry the instructions come back as they are, in the same shape; otherwise a plain text becomes one
    system message, followed by one for each carried text.

    Example:
        >>> carry_into_instructions("Be brief.", [])
        'Be brief.'
        >>> [message.text for message in carry_into_instructions("Be brief.", ["Earlier: a greeting."])]
        ['Be brief.', 'Earlier: a greeting.']
    """
    if not carried:
        return instructions
    return (*system_messages(instructions), *(ModelMessage.system(text) for text in carried))


def system_messages(instructions: Instructions, /) -> tuple[ModelMessage, ...]:
    """Return instructions as messages; an empty text is none."""
    if isinstance(instructions, str):
        return (ModelMessage.system(instructions),) if instructions else ()
    return (instructions,) if isinstance(instructions, ModelMessage) else tuple(instructions)


def check_text(text: str, argument: str, /) -> None:
    """Refuse a text that no message can hold.

    Raises:
        InvalidValueError: It holds a lone surrogate.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(f"holds a lone surrogate at character {error.start}", argument=argument) from None


def checked_instructions(given: object, argument: str = "adapt_instructions", /) -> Instructions:
    """Refuse what is no instructions.

    Args:
        given: What an application gave.
        argument: Names where, in the error.

    Raises:
        UsageError: It is neither text nor system messages.
        InvalidValueError: It is a text that no message can hold.
    """
    if isinstance(given, str):
        check_text(given, argument)
        return given
    messages = (
        (given,) if isinstance(given, ModelMessage) else tuple(given) if isinstance(given, list | tuple) else None
    )
    if messages is None or any(
        not isinstance(message, ModelMessage) or message.role != "system" for message in messages
    ):
        raise UsageError("must give text or system messages", argument=argument)
    return given if isinstance(given, ModelMessage) else messages
