"""Conversation archives: a whole conversation as one canonical JSON document.

An archive holds the ledger and, as its first projection, the runtime snapshot (`runlane.store._snapshot`), which has
the bodies that the ledger names by id and SHA-256. Spilled artefacts and other projections have their lists; until
this program has any, the lists are empty, and an archive that brings some is refused rather than cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from runlane.canonical import canonical_record_json, canonicalize_record
from runlane.errors import ArchiveInvalidError, CanonicalJsonError, FormatError, InvalidValueError
from runlane.records import JsonObject, Record, RecordId
from runlane.store._ledger import DecodedEvent, decode_event
from runlane.store._outcomes import EventEnvelope
from runlane.store._shape import check_kind

__all__ = ["ConversationArchive", "decode_archive", "encode_archive", "event_json", "first_problem"]

_FORMAT: Final = "runlane.conversation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationArchive:
    """A conversation outside a store. `encode_archive` and `decode_archive` turn it into bytes and back.

    Attributes:
        conversation_id: The conversation; it is imported under this id.
        events: The ledger, ascending. Payloads are as they are stored: a message is named by id and SHA-256.
        projections: JSON objects, each tagged by `archive_type`. The first is the runtime snapshot.
        spills: JSON objects; none is known yet.
        format, format_version: Always `runlane.conversation` and 1.
    """

    conversation_id: str
    events: tuple[EventEnvelope, ...] = ()
    projections: tuple[JsonObject, ...] = ()
    spills: tuple[JsonObject, ...] = ()
    format: Literal["runlane.conversation"] = _FORMAT
    format_version: Literal[1] = 1


class _Document(Record):
    """An archive in JSON, strictly; what stands in its lists is looked at afterwards, one by one."""

    format: Literal["runlane.conversation"]
    format_version: Annotated[int, Field(ge=1, le=1, strict=True)]
    conversation_id: RecordId
    events: tuple[dict[str, Any], ...]
    projections: tuple[dict[str, Any], ...] = ()
    spills: tuple[dict[str, Any], ...] = ()


def encode_archive(archive: ConversationArchive, /) -> bytes:
    """Write an archive as canonical JSON (`canonical_record_json`), UTF-8: equal archives give equal bytes.

    It takes a time that grows with the conversation; call it in a worker thread if others wait for the event loop.

    Raises:
        InvalidValueError: It is no archive, or holds what is not JSON.
    """
    check_kind(archive, ConversationArchive, "archive")
    document = {
        "format": archive.format,
        "format_version": archive.format_version,
        "conversation_id": archive.conversation_id,
        "events": [event_json(event) for event in archive.events],
        "projections": list(archive.projections),
        "spills": list(archive.spills),
    }
    try:
        return canonical_record_json(document)
    except CanonicalJsonError as error:
        place = f"archive{error.path.replace('/', '.')}"
        raise InvalidValueError(f"cannot be written as JSON: {error.problem}", argument=place) from None


def event_json(event: EventEnvelope, /) -> JsonObject:
    """Return a ledger entry as it stands in an archive: what has its usual value is left out."""
    value: JsonObject = {
        "schema_version": event.schema_version,
        "event_id": event.event_id,
        "conversation_id": event.conversation_id,
        "seq": event.seq,
        "version": event.version,
        "kind": event.kind,
        "occurred_at": event.occurred_at,
        "payload": event.payload,
    }
    if event.command_id not in {None, event.event_id}:
        value["command_id"] = event.command_id
    if event.ignorable:
        value["ignorable"] = True
    return value


def decode_archive(data: bytes, /) -> ConversationArchive:
    """Read an archive, and refuse what is none: each problem with its place, the first one found.

    It is checked, in this order, that the bytes are UTF-8, that they are JSON without duplicate keys, that the document
    has exactly the fields of an archive, and for each event: that it belongs to the archive's conversation, that its
    sequence is greater than the one before, that its id was not there before, and that this program knows it or may
    skip it (`decode_event`). An event that may be skipped is kept. Gaps between sequences, and whether the events and
    the snapshot agree, are looked at by the import.

    Raises:
        ArchiveInvalidError: The bytes are no archive; `field` says where.
        InvalidValueError: `data` is no `bytes`.
    """
    check_kind(data, bytes, "data")
    document = _document(data)
    events: list[EventEnvelope] = []
    seen: set[str] = set()
    for index, value in enumerate(document.events):
        event = _event(value, f"events.{index}", document.conversation_id, events[-1].seq if events else 0)
        if event.event_id in seen:
            raise ArchiveInvalidError(f"{event.event_id!r} was there before", field=f"events.{index}.event_id")
        seen.add(event.event_id)
        events.append(event)
    return ConversationArchive(
        conversation_id=document.conversation_id,
        events=tuple(events),
        projections=document.projections,
        spills=document.spills,
    )


def _document(data: bytes) -> _Document:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise ArchiveInvalidError(f"byte {error.start} is not UTF-8") from None
    try:
        canonicalize_record(data)  # the only reader here that tells a duplicate key
        value: object = from_json(data)
    except CanonicalJsonError as error:
        raise ArchiveInvalidError(error.problem, field=error.path.strip("/").replace("/", ".")) from None
    except ValueError as error:
        raise ArchiveInvalidError(f"it is not JSON: {error}") from None
    try:
        return _Document.model_validate(value)
    except ValidationError as error:
        raise first_problem(error) from None


def first_problem(error: ValidationError, /, place: str = "") -> ArchiveInvalidError:
    """Return the first thing that a validation found, as a problem of an archive."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    steps = [place] if place else []
    return ArchiveInvalidError(first["msg"], field=".".join([*steps, *(str(step) for step in first["loc"])]))


def _event(value: Mapping[str, Any], place: str, conversation_id: str, after: int) -> EventEnvelope:
    if value.get("conversation_id") != conversation_id:
        raise ArchiveInvalidError("it belongs to another conversation", field=f"{place}.conversation_id")
    seq = value.get("seq")
    if type(seq) is int and seq <= after:
        raise ArchiveInvalidError(f"{seq} does not come after {after}", field=f"{place}.seq")
    if value.get("command_id") is None:
        value = {**value, "command_id": value.get("event_id")}
    try:
        decoded = decode_event(value)
    except FormatError as error:
        raise ArchiveInvalidError(str(error), field=place) from None
    if isinstance(decoded, DecodedEvent):
        return decoded.event
    if not isinstance(value["payload"], dict):
        # An entry of a later release is kept as it is, and what a ledger keeps is an object.
        raise ArchiveInvalidError("must be an object", field=f"{place}.payload")
    return EventEnvelope(**{"version": 0, **value, "ignorable": True})
