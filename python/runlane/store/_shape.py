"""What commands must look like before they are worth a transaction.

Commands are plain data and are not validated when they are made, so whatever would be stored without passing a
record's own checks is checked here: a bad value must be refused before it is written, since a read would refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from runlane.errors import InvalidValueError, UsageError
from runlane.records import Message, Ownership, Run
from runlane.store._commands import (
    AcceptInput,
    AcquireRun,
    AppendEvent,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
)

__all__ = ["MAX_ID_CHARACTERS", "check_commands", "check_id"]

MAX_ID_CHARACTERS: Final = 512
Check: TypeAlias = Callable[[object, str], None]


def check_id(value: object, argument: str, /) -> None:
    """Refuse what cannot be an identifier.

    Raises:
        InvalidValueError: It is no text, empty, longer than 512 characters, or holds a lone surrogate.
    """
    if type(value) is not str:
        raise InvalidValueError(f"must be a text, not {type(value).__name__}", argument=argument)
    if not value:
        raise InvalidValueError("is empty", argument=argument)
    if len(value) > MAX_ID_CHARACTERS:
        raise InvalidValueError(f"has more than {MAX_ID_CHARACTERS} characters", argument=argument)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidValueError("holds a lone surrogate", argument=argument) from None


def _revision(value: object, argument: str) -> None:
    if type(value) is not int or value < 0:
        raise InvalidValueError("must be an integer of at least 0", argument=argument)


def _is_a(kind: type) -> Check:
    def check(value: object, argument: str) -> None:
        if not isinstance(value, kind):
            raise InvalidValueError(f"must be a {kind.__name__}, not {type(value).__name__}", argument=argument)

    return check


def _or_none(check: Check) -> Check:
    def check_or_none(value: object, argument: str) -> None:
        if value is not None:
            check(value, argument)

    return check_or_none


def _each(check: Check) -> Check:
    def check_each(value: object, argument: str) -> None:
        if not isinstance(value, tuple):
            raise InvalidValueError(f"must be a tuple, not {type(value).__name__}", argument=argument)
        for index, item in enumerate(value):
            check(item, f"{argument}.{index}")

    return check_each


def _one_of(*words: str) -> Check:
    def check(value: object, argument: str) -> None:
        if value not in words:
            raise InvalidValueError(f"must be one of {', '.join(words)}", argument=argument)

    return check


_ON_RUN: Final[dict[str, Check]] = {"command_id": check_id, "run_id": check_id, "expected_revision": _revision}
_OWNED: Final[dict[str, Check]] = {**_ON_RUN, "ownership": _is_a(Ownership)}
_FIELDS: Final[dict[type[Command], tuple[tuple[str, Check], ...]]] = {
    kind: tuple(checks.items())
    for kind, checks in {
        AcceptInput: {
            "command_id": check_id,
            "idempotency_key": check_id,
            "input": _is_a(Message),
            "run": _is_a(Run),
            "expected_version": _or_none(_revision),
            "coalesce_into_run_id": _or_none(check_id),
        },
        AcquireRun: {**_ON_RUN, "owner_id": check_id},
        CheckpointRunAssistant: _OWNED,
        RecordRunOperation: _OWNED,
        RequestRunInterrupt: _ON_RUN,
        CancelRun: _ON_RUN,
        RecoverRun: {**_ON_RUN, "action": _one_of("requeue", "abandon"), "evidence": _or_none(_is_a(dict))},
        CommitRunTerminal: {**_OWNED, "assistant": _is_a(Message), "policy_name": _or_none(check_id)},
        ReplaceCompactedRange: {
            "command_id": check_id,
            "expected_version": _revision,
            "replaced_message_ids": _each(check_id),
            "summary": _is_a(Message),
        },
        SeedConversation: {
            "command_id": check_id,
            "seed_key": check_id,
            "inputs": _each(_is_a(Message)),
            "placement": _one_of("lead", "after-settled"),
        },
        AppendEvent: {
            "command_id": check_id,
            "kind": check_id,
            "payload": _is_a(dict),
            "event_id": _or_none(check_id),
        },
    }.items()
}

_KEEPS_PLACES: Final = frozenset({CheckpointRunAssistant, RecordRunOperation, RequestRunInterrupt, AppendEvent})
"""Commands that give no message a place."""


def check_commands(commands: Sequence[Command], /) -> None:
    """Refuse commands that could not be decided, or not together.

    Raises:
        UsageError: There are none, something is no command, two of them share an identity, or a compaction stands
            behind a command that moves messages.
        InvalidValueError: A field has a value that no record may have.
    """
    if not commands:
        raise UsageError("needs at least one command", argument="commands")
    for command in commands:
        fields = _FIELDS.get(type(command))
        if fields is None:
            raise UsageError(f"{type(command).__name__} is no command", argument="commands")
        for name, check in fields:
            check(getattr(command, name), name)
    if len(commands) > 1:
        _check_together(commands)


def _check_together(commands: Sequence[Command]) -> None:
    _refuse_twice([command.command_id for command in commands], "command_id")
    keys = [command.idempotency_key for command in commands if isinstance(command, AcceptInput)]
    _refuse_twice(keys, "idempotency_key")
    entries = [command for command in commands if isinstance(command, AppendEvent)]
    _refuse_twice([command.event_id or command.command_id for command in entries], "event_id")
    moved = False
    for command in commands:
        if moved and isinstance(command, ReplaceCompactedRange):
            # What stands between the messages is read once, before the first command.
            raise UsageError("must come before the commands that give messages their place", argument="commands")
        moved = moved or type(command) not in _KEEPS_PLACES


def _refuse_twice(ids: Sequence[str], argument: str) -> None:
    if len(set(ids)) != len(ids):
        raise UsageError("is used by two commands of one transaction", argument=argument)
