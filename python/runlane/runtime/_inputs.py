"""Reading what an application submits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from runlane.errors import CanonicalJsonError, InvalidValueError, UsageError
from runlane.records import (
    ControlPart,
    JsonObject,
    Message,
    Part,
    RecordId,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
    stored_json,
)

__all__ = [
    "InputLike",
    "RuntimeInput",
    "check_user_parts",
    "read_id",
    "read_input",
    "read_object",
    "read_said",
    "read_text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeInput:
    """An input before it is a record.

    Attributes:
        role: `user`, or `tool` for answers to approvals.
        parts: At least one. A user neither calls a tool nor gives its result nor speaks of approvals.
        metadata: The application's own JSON object, kept with the message.
    """

    parts: tuple[Part, ...]
    role: Literal["user", "tool"] = "user"
    metadata: JsonObject | None = None


InputLike: TypeAlias = (
    str | Part | Sequence[Part | Mapping[str, object]] | Mapping[str, object] | Message | RuntimeInput
)
"""What may be submitted: a text; one part or several (as records or as their JSON); or something with `role` and
`parts`: a `RuntimeInput`, a `Message` (its role, parts and metadata count) or a mapping of these."""

_PARTS: TypeAdapter[tuple[Part, ...]] = TypeAdapter(tuple[Part, ...])
_ID: TypeAdapter[str] = TypeAdapter(RecordId)
_OBJECT: TypeAdapter[JsonObject] = TypeAdapter(dict[str, JsonValue])
_MAX_PLACE: Final = 200
_AROUND: Final = 4
"""How many containers lie around what is submitted once it is part of a stored record, at most."""
_MESSAGE: Final = 'a message is {"role": "user", "parts": [...]}, a text can be given as it is'

_PART_TYPES = get_args(get_args(Part)[0])
_PART_NAMES: Final = tuple(kind.model_fields["type"].default for kind in _PART_TYPES)
_NOT_A_USERS: Final = (ToolCallPart, ToolResultPart, ToolApprovalRequestPart, ToolApprovalResponsePart, ControlPart)


def _validated(adapter: TypeAdapter[JsonObject] | TypeAdapter[str], value: object, argument: str) -> object:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _refusal(error, argument) from None


def _refusal(error: ValidationError, argument: str) -> InvalidValueError:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return _named(first["msg"], argument, first["loc"])


def _named(problem: str, argument: str, steps: Sequence[object]) -> InvalidValueError:
    place = ".".join([argument, *map(str, steps)])
    return InvalidValueError(problem, argument=place if len(place) <= _MAX_PLACE else f"{place[:_MAX_PLACE]}...")


def _part_refusal(error: ValidationError, argument: str, parts: object) -> InvalidValueError:
    """Return what is wrong with parts, in words of parts: what was given may well be a message of some other kind."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if not first["loc"]:
        return InvalidValueError(f"must be a list of parts, not {type(parts).__name__}", argument=argument)
    index, *rest = first["loc"]
    given = parts[index] if isinstance(parts, Sequence) and isinstance(index, int) and index < len(parts) else None
    if first["type"] == "union_tag_not_found" and isinstance(given, Mapping) and given.keys() & {"content", "role"}:
        return _named(f"is a message, not a part; {_MESSAGE}", argument, [index])
    if first["type"] in {"union_tag_not_found", "union_tag_invalid"}:
        said = given.get("type") if isinstance(given, Mapping) else None
        got = "has none" if said is None else f"{str(said)[:40]!r} is none"
        return _named(f"a part has a `type`, one of {', '.join(_PART_NAMES)}; this one {got}", argument, [index])
    if len(first["loc"]) == 1:
        problem = f'must be a part or its JSON, not {type(given).__name__}; {{"type": "text", "text": ...}} is a text'
        return _named(problem, argument, [index])
    # The place names the kind of part after its number, which is no field.
    return _named(first["msg"], argument, [index, *rest[1:]])


def _check_storable(value: object, argument: str) -> None:
    """Refuse at once what the store would refuse later."""
    try:
        stored_json(value, inside=_AROUND)
    except CanonicalJsonError as error:
        place = (argument + error.path.replace("/", "."))[:_MAX_PLACE]
        raise InvalidValueError(f"cannot be stored as JSON: {error.problem}", argument=place) from None


def read_id(value: object, argument: str, /) -> str:
    """Return an identifier of 1 to 512 characters.

    Raises:
        InvalidValueError: It is not one.
    """
    return str(_validated(_ID, value, argument))


def read_text(value: object, argument: str, /) -> str:
    """Return a text that is not empty and can be stored.

    Raises:
        InvalidValueError: It is none.
    """
    if not isinstance(value, str) or not value:
        raise InvalidValueError("must be a text that is not empty", argument=argument)
    _check_storable(value, argument)
    return value


def read_object(value: object, argument: str, /) -> JsonObject | None:
    """Return a JSON object, or None.

    Raises:
        InvalidValueError: It is neither.
    """
    if value is None:
        return None
    parsed = _validated(_OBJECT, value, argument)
    if not isinstance(parsed, dict):
        raise InvalidValueError("must be a JSON object", argument=argument)
    _check_storable(parsed, argument)
    return parsed


def read_input(value: InputLike, metadata: Mapping[str, object] | None, /) -> RuntimeInput:
    """Return an input, checked.

    Args:
        value: See `InputLike`.
        metadata: What `submit` was given beside it; wins over the input's own.

    Raises:
        InvalidValueError: A part is malformed, or there is none; names the field.
        UsageError: A role that cannot be submitted, an input of role `tool` with anything but approval answers, or one
            of role `user` with a part that is not a user's.
    """
    role, read, own = read_said(value, "input")
    kept = read_object(own if metadata is None else metadata, "metadata")
    if role == "tool":
        if not all(isinstance(part, ToolApprovalResponsePart) for part in read):
            raise UsageError("an input of role tool holds answers to approvals only", argument="input.parts")
        return RuntimeInput(role="tool", parts=read, metadata=kept)
    if role != "user":
        raise UsageError(f"must be user or tool, not {role!r}", argument="input.role")
    check_user_parts(read, "input.parts")
    return RuntimeInput(parts=read, metadata=kept)


def check_user_parts(parts: Sequence[Part], argument: str, /) -> None:
    """Refuse what no user says: it would read as if a tool had been called, or a call had been consented to.

    Raises:
        UsageError: There is such a part; names it.
    """
    for index, part in enumerate(parts):
        if isinstance(part, _NOT_A_USERS):
            raise UsageError(f"a user's message holds no {part.type}", argument=f"{argument}.{index}")


def read_said(value: object, argument: str, /) -> tuple[object, tuple[Part, ...], object]:
    """Return role, parts (checked, at least one) and metadata of something said; see `InputLike`.

    Raises:
        InvalidValueError: A part is malformed, or there is none; names the field.
        UsageError: It is nothing that can be said.
    """
    role, parts, metadata = _fields(value, argument)
    place = f"{argument}.parts"
    try:
        read = _PARTS.validate_python(parts)
    except ValidationError as error:
        raise _part_refusal(error, place, parts) from None
    if not read:
        raise InvalidValueError("must have at least one part", argument=place)
    for index, part in enumerate(read):
        if not isinstance(part, TextPart):
            _check_storable(part, f"{place}.{index}")
    return role, read, metadata


def _fields(value: object, argument: str) -> tuple[object, object, object]:
    """Return role, parts and metadata of whatever was submitted."""
    if isinstance(value, str):
        return "user", ({"type": "text", "text": value},), None
    if isinstance(value, _PART_TYPES):
        return "user", (value,), None
    if isinstance(value, RuntimeInput | Message):
        return value.role, value.parts, value.metadata
    if isinstance(value, Mapping):
        if "parts" in value:
            return value.get("role", "user"), value["parts"], value.get("metadata")
        if "type" not in value:
            raise UsageError(f"has neither `parts` nor a `type`; {_MESSAGE}", argument=argument)
        return "user", (value,), None
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return "user", tuple(value), None
    raise UsageError(f"must be text, parts or a message, not {type(value).__name__}", argument=argument)
