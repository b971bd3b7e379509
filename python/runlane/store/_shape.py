"""What commands must look like before they are worth a transaction.

Commands are plain data and are not validated when they are made, so whatever would be stored without passing a
record's own checks is checked here: a bad value must be refused before it is written, since a read would refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias, get_args

from runlane.errors import InvalidValueError, UsageError
from runlane.records import (
    Message,
    Ownership,
    Part,
    ProviderEnvelope,
    Run,
    RunMetrics,
    RunOperation,
    TerminalReason,
    Usage,
)
from runlane.store._commands import (
    Absorption,
    AcceptInput,
    AcquireRun,
    AppendEvent,
    CancelRun,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    DraftPatch,
    GrownPart,
    RecordRunOperation,
    RecoverRun,
    ReplaceCompactedRange,
    RequestRunInterrupt,
    SeedConversation,
)
from runlane.store._step import moment

__all__ = ["MAX_ID_CHARACTERS", "check_commands", "check_id", "check_kind", "check_text", "listed"]

MAX_ID_CHARACTERS: Final = 512
Check: TypeAlias = Callable[[object, str], None]


def check_id(value: object, argument: str, /) -> None:
    """Refuse what cannot be an identifier.

    Raises:
        InvalidValueError: It is no text, empty, longer than 512 characters, or holds a lone surrogate.
    """
    if type(value) is str and 0 < len(value) <= MAX_ID_CHARACTERS and value.isascii():
        return
    text = check_text(value, argument)
    if not text:
        raise InvalidValueError("is empty", argument=argument)
    if len(text) > MAX_ID_CHARACTERS:
        raise InvalidValueError(f"has more than {MAX_ID_CHARACTERS} characters", argument=argument)


def check_text(value: object, argument: str, /) -> str:
    """Return a text that a database can hold, or refuse.

    Raises:
        InvalidValueError: It is no text, or holds a lone surrogate.
    """
    if type(value) is not str:
        raise InvalidValueError(f"must be a text, not {type(value).__name__}", argument=argument)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidValueError("holds a lone surrogate", argument=argument) from None
    return value


def _integer(value: object, argument: str) -> None:
    if type(value) is not int:
        raise InvalidValueError(f"must be an integer, not {type(value).__name__}", argument=argument)


def _revision(value: object, argument: str) -> None:
    if type(value) is not int or value < 0:
        raise InvalidValueError("must be an integer of at least 0", argument=argument)


def check_kind(value: object, kind: type | tuple[type, ...], argument: str, /) -> None:
    """Refuse what is no instance of a class, or of one of several.

    Raises:
        InvalidValueError: It is something else.
    """
    if not isinstance(value, kind):
        names = " or ".join(one.__name__ for one in (kind if isinstance(kind, tuple) else (kind,)))
        raise InvalidValueError(f"must be a {names}, not {type(value).__name__}", argument=argument)


def listed(values: object, argument: str, /) -> tuple[Any, ...]:
    """Return a sequence as a tuple; a text, a mapping or a set is none that its caller can have meant.

    Raises:
        InvalidValueError: It is something else.
    """
    if not isinstance(values, Sequence) or isinstance(values, str | bytes | bytearray):
        raise InvalidValueError(f"must be a list or a tuple, not {type(values).__name__}", argument=argument)
    return tuple(values)


def _is_a(*kinds: type) -> Check:
    def check_kinds(value: object, argument: str) -> None:
        if not isinstance(value, kinds):
            check_kind(value, kinds, argument)

    return check_kinds


def _instant(value: object, argument: str) -> None:
    if not isinstance(value, datetime):
        check_kind(value, datetime, argument)
    elif value.tzinfo is not UTC:
        moment(value, argument=argument)


def _flag(value: object, argument: str) -> None:
    if type(value) is not bool:
        raise InvalidValueError(f"must be True or False, not {type(value).__name__}", argument=argument)


class _OrNone(NamedTuple):
    """A check of a field that may be left out."""

    check: Check


def _each(check: Check) -> Check:
    def check_each(value: object, argument: str) -> None:
        if not isinstance(value, tuple):
            raise InvalidValueError(f"must be a tuple, not {type(value).__name__}", argument=argument)
        for index, item in enumerate(value):
            check(item, f"{argument}.{index}")

    return check_each


def _one_of(*words: str) -> Check:
    def check(value: object, argument: str) -> None:
        if type(value) is not str or value not in words:
            raise InvalidValueError(f"must be one of {', '.join(words)}", argument=argument)

    return check


def _fields(**checks: Check | _OrNone) -> Check:
    """Return what checks the fields of plain data that is no record, and so was not checked when it was made.

    Args:
        checks: For each field what it must be.
    """
    plan = [
        (name, check.check, True) if isinstance(check, _OrNone) else (name, check, False)
        for name, check in checks.items()
    ]

    def check_fields(value: object, prefix: str) -> None:
        for name, check, optional in plan:
            item = getattr(value, name)
            if item is not None or not optional:
                check(item, prefix + name)

    return check_fields


def _made_of(kind: type, **checks: Check | _OrNone) -> Check:
    is_one, check_fields = _is_a(kind), _fields(**checks)

    def check(value: object, argument: str) -> None:
        is_one(value, argument)
        check_fields(value, f"{argument}.")

    return check


_GROWN: Final = _made_of(GrownPart, index=_integer, suffix=_is_a(str), provider=_OrNone(_is_a(ProviderEnvelope)))
_PATCH: Final = _made_of(
    DraftPatch, keep=_integer, grown=_each(_GROWN), added=_each(_is_a(*get_args(get_args(Part)[0])))
)
_ABSORPTION: Final = _made_of(Absorption, run_id=check_id, input_message_ids=_each(check_id))
_USAGE: Final = _OrNone(_is_a(Usage))

_ANY: Final[dict[str, Check | _OrNone]] = {"command_id": check_id, "at": _instant}
_ON_RUN: Final[dict[str, Check | _OrNone]] = {**_ANY, "run_id": check_id, "expected_revision": _revision}
_OWNED: Final[dict[str, Check | _OrNone]] = {**_ON_RUN, "ownership": _is_a(Ownership)}
_COMMANDS: Final[dict[type[Command], Check]] = {
    kind: _fields(**checks)
    for kind, checks in {
        AcceptInput: {
            **_ANY,
            "idempotency_key": check_id,
            "input": _is_a(Message),
            "run": _is_a(Run),
            "expected_version": _OrNone(_revision),
            "coalesce_into_run_id": _OrNone(check_id),
        },
        AcquireRun: {**_ON_RUN, "owner_id": check_id},
        CheckpointRunAssistant: {**_OWNED, "patch": _PATCH, "usage": _USAGE},
        RecordRunOperation: {**_OWNED, "operation": _is_a(RunOperation)},
        RequestRunInterrupt: _ON_RUN,
        CancelRun: _ON_RUN,
        RecoverRun: {
            **_ON_RUN,
            "action": _one_of("requeue", "abandon"),
            "replay_safe": _flag,
            "evidence": _OrNone(_is_a(dict)),
        },
        CommitRunTerminal: {
            **_OWNED,
            "assistant": _is_a(Message),
            "reason": _one_of(*get_args(TerminalReason)),
            "policy_name": _OrNone(check_id),
            "usage": _USAGE,
            "metrics": _OrNone(_is_a(RunMetrics)),
            "absorb": _each(_ABSORPTION),
        },
        ReplaceCompactedRange: {
            **_ANY,
            "expected_version": _revision,
            "replaced_message_ids": _each(check_id),
            "summary": _is_a(Message),
        },
        SeedConversation: {
            **_ANY,
            "seed_key": check_id,
            "inputs": _each(_is_a(Message)),
            "placement": _one_of("lead", "after-settled"),
        },
        AppendEvent: {
            **_ANY,
            "kind": check_id,
            "payload": _is_a(dict),
            "occurred_at": _OrNone(_instant),
            "ignorable": _flag,
            "event_id": _OrNone(check_id),
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
        check = _COMMANDS.get(type(command))
        if check is None:
            raise UsageError(f"{type(command).__name__} is no command", argument="commands")
        check(command, "")
    if len(commands) > 1:
        _check_together(commands)


def _check_together(commands: Sequence[Command]) -> None:
    ids: list[str] = []
    keys: list[str] = []
    entries: list[str] = []
    moved = late = False
    for command in commands:
        ids.append(command.command_id)
        if isinstance(command, AppendEvent):
            entries.append(command.event_id or command.command_id)
        elif isinstance(command, AcceptInput):
            keys.append(command.idempotency_key)
        elif isinstance(command, ReplaceCompactedRange):
            late = late or moved
        moved = moved or type(command) not in _KEEPS_PLACES
    _refuse_twice(ids, "command_id")
    _refuse_twice(keys, "idempotency_key")
    _refuse_twice(entries, "event_id")
    if late:
        # What stands between the messages is read once, before the first command.
        raise UsageError("must come before the commands that give messages their place", argument="commands")


def _refuse_twice(ids: Sequence[str], argument: str) -> None:
    if len(set(ids)) != len(ids):
        raise UsageError("is used by two commands of one transaction", argument=argument)
