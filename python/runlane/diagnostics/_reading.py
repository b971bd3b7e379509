"""Reading events back. What was stored is not trusted: each breach is one typed error, whatever the object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast

from pydantic import JsonValue, ValidationError

from runlane.contracts import Id, Issue, TimestampMs
from runlane.diagnostics._bounds import DiagnosticLimits, is_bounded
from runlane.diagnostics._catalog import CORE_EVENT_CATALOG, CoreEventName
from runlane.diagnostics._events import ENVELOPE, VERSION, DiagnosticIdentity
from runlane.diagnostics._plain import MAX_DEPTH, MAX_NODES
from runlane.diagnostics._steps import StoredSubStep
from runlane.errors import CheckFailedError

__all__ = ["CoreDiagnosticRecord", "normalize_diagnostic_event"]

_LARGEST: Final = 2**53 - 1
_MAX_ID: Final = 512
_LIMITS: Final = DiagnosticLimits()
_ENVELOPE: Final = frozenset(ENVELOPE)
_IDENTITY: Final = frozenset(DiagnosticIdentity._fields)
_NUMBERS: Final = ("visit", "round")

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreDiagnosticRecord:
    """An event as it was stored: the envelope is checked, the payload is not interpreted.

    Attributes:
        payload: Any JSON, with fields this version may not know or may miss.
        sub_steps: As recorded; older records lack some of what a recorder gives.
    """

    version: Literal[1]
    event_id: Id
    name: CoreEventName
    producer_id: Id
    sequence: int
    occurred_at: TimestampMs
    identity: DiagnosticIdentity
    payload: JsonValue
    sub_steps: tuple[StoredSubStep, ...] | None = None
    sub_steps_dropped: int | None = None
    sub_steps_truncated: int | None = None


def normalize_diagnostic_event(record: object, /) -> CoreDiagnosticRecord:
    """Check a stored event and return it as a value that shares nothing with what was given.

    Args:
        record: JSON of exact built-in types, as `CoreEvent.to_record` gives it. No code of the object's own runs.

    Raises:
        CheckFailedError: Anything else, with the path of what is wrong; nothing else is ever raised.
    """
    envelope = _object(record, _ENVELOPE, ())
    name = envelope.get("name")
    if type(name) is not str or name not in CORE_EVENT_CATALOG:
        _refuse("is no known event", ("name",))
    if type(envelope.get("version")) is not int or envelope["version"] != VERSION:
        _refuse(f"must be exactly {VERSION}", ("version",))
    if "payload" not in envelope:
        _refuse("is missing", ("payload",))
    return CoreDiagnosticRecord(
        version=VERSION,
        event_id=_id(envelope, "event_id", ()),
        name=cast("CoreEventName", name),
        producer_id=_id(envelope, "producer_id", ()),
        sequence=_number(envelope.get("sequence"), 1, ("sequence",)),
        occurred_at=TimestampMs(_number(envelope.get("occurred_at"), 0, ("occurred_at",))),
        identity=_identity(envelope.get("identity")),
        payload=_copy(envelope["payload"], ("payload",)),
        sub_steps=_sub_steps(envelope.get("sub_steps")),
        sub_steps_dropped=_count(envelope, "sub_steps_dropped"),
        sub_steps_truncated=_count(envelope, "sub_steps_truncated"),
    )


def _object(value: object, known: frozenset[str], path: Path) -> dict[str, Any]:
    """Return a copy of an exact dict whose keys are exact texts and known; only then is it safe to look up in."""
    if type(value) is not dict:
        _refuse("must be an object", path)
    members: dict[str, Any] = {}
    for key, member in cast("dict[object, object]", value).items():
        if type(key) is not str:
            _refuse("has a key that is no text", path)
        if key not in known:
            _refuse("has an unknown field", (*path, key[:_MAX_ID]))
        if member is not None:
            members[key] = member
        elif key == "payload":
            members[key] = None
    return members


def _identity(value: object) -> DiagnosticIdentity:
    path = ("identity",)
    members = _object(value, _IDENTITY, path)
    facts: dict[str, Any] = {
        name: _number(members[name], 1, (*path, name)) if name in _NUMBERS else _id(members, name, path)
        for name in members
    }
    for name in ("run_id", "span_id"):
        if name not in facts:
            _refuse("is missing", (*path, name))
    return DiagnosticIdentity(**facts)


def _id(members: dict[str, Any], name: str, path: Path) -> Id:
    value = members.get(name)
    if type(value) is not str or not 1 <= len(value) <= _MAX_ID:
        _refuse(f"must be an id of 1 to {_MAX_ID} characters", (*path, name))
    return Id(value)


def _number(value: object, least: int, path: Path) -> int:
    if type(value) is not int or not least <= value <= _LARGEST:
        _refuse(f"must be an integer of at least {least}", path)
    return value


def _count(members: dict[str, Any], name: str) -> int | None:
    value = members.get(name)
    return None if value is None else _number(value, 1, (name,))


def _sub_steps(value: object) -> tuple[StoredSubStep, ...] | None:
    if value is None:
        return None
    path = ("sub_steps",)
    if type(value) is not list or len(value) > _LIMITS.entries:
        _refuse(f"must be a list of at most {_LIMITS.entries} entries", path)
    steps: list[StoredSubStep] = []
    last = 0
    for index, item in enumerate(cast("list[object]", _copy(value, path))):
        step = _sub_step(item, (*path, index))
        if step.sequence is not None:
            if step.sequence <= last:
                _refuse("must ascend", (*path, index, "sequence"))
            last = step.sequence
        steps.append(step)
    return tuple(steps)


def _sub_step(item: object, path: Path) -> StoredSubStep:
    try:
        step = StoredSubStep.model_validate(item)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        _refuse(first["msg"], (*path, *first["loc"]))
    for name in ("title", "kind", "group", "detail"):
        if not is_bounded(getattr(step, name)):
            _refuse("is larger than what is ever recorded", (*path, name))
    return step


def _copy(value: object, path: Path) -> JsonValue:
    """Return a copy of JSON made of exact built-in types."""
    return _Copy().copy(value, path, 0)


class _Copy:
    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes = 0

    def copy(self, value: Any, path: Path, level: int) -> JsonValue:  # noqa: ANN401 - any object may come
        self._nodes += 1
        if self._nodes > MAX_NODES:
            _refuse(f"has more than {MAX_NODES} values", path[:1])
        kind = type(value)
        if value is None or kind is str or kind is int or kind is bool:
            return cast("JsonValue", value)
        if kind is float:
            if not math.isfinite(value):
                _refuse("is not a finite number", path)
            return cast("JsonValue", value)
        if kind is not dict and kind is not list:
            _refuse("is not JSON", path)
        if level >= MAX_DEPTH:
            _refuse(f"is nested deeper than {MAX_DEPTH}, or inside itself", path[:1])
        return self._container(value, path, level + 1)

    def _container(self, value: Any, path: Path, level: int) -> JsonValue:  # noqa: ANN401 - a dict or a list
        if type(value) is list:
            return [self.copy(item, (*path, index), level) for index, item in enumerate(value)]
        members: dict[str, JsonValue] = {}
        for key, member in value.items():
            if type(key) is not str:
                _refuse("has a key that is no text", path)
            members[key] = self.copy(member, (*path, key), level)
        return members


def _refuse(message: str, path: Path) -> NoReturn:
    where = ".".join(str(step) for step in path) or "the event"
    raise CheckFailedError(issues=[Issue(code="diagnostics.record", message=f"{where} {message}", path=path or None)])
