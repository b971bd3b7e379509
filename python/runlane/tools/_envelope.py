"""What a model and the record get of a call: JSON, and of a failure nothing but what its tool meant to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from runlane.contracts import stray_ends, sync_result
from runlane.errors import CanonicalJsonError, ToolError
from runlane.models import repair_value
from runlane.records import JsonObject, stored_json

__all__ = ["INTERNAL_ERROR", "TOO_LARGE", "as_json", "error_envelope"]

INTERNAL_ERROR: Final = "tool.internal"
"""The code of a failure that its tool did not mean for the model."""

TOO_LARGE: Final = "tool.output_too_large"
"""The code of a call whose tool returned more than may be kept."""

_AROUND: Final = 6
"""How many containers lie around an output in a stored record, at most."""

_MAX_CODE: Final = 128


def as_json(
    value: object, present: Callable[[Any], JsonValue] | None = None, /, *, max_bytes: int | None = None
) -> JsonValue:
    """Return an output as JSON: models, dataclasses, dates and the like by their usual form.

    Lone surrogates become U+FFFD. What has no JSON form, or is nested deeper than a record may be, becomes a
    placeholder object.

    Args:
        value: What the tool returned.
        present: Makes the JSON instead; what it raises is raised.
        max_bytes: How large the JSON may be, in canonical form; None for any size.

    Raises:
        ToolError: It is larger (`tool.output_too_large`); the tool has run all the same, which its hint says.
    """
    found: Any = value
    if present is not None:
        with stray_ends("present"):
            found = sync_result(present(value), argument="present")
    try:
        body = _json_of(found)
        made, body = (_copied(found), body) if body is not None else _mended(found)
    except (CanonicalJsonError, ValueError, TypeError, RecursionError):
        return {"message": "Non-JSON tool output omitted"}
    if max_bytes is not None and len(body) > max_bytes:
        raise ToolError(
            TOO_LARGE,
            retryable=False,
            details={"bytes": len(body), "max_bytes": max_bytes},
            hint="The tool has run, but its output is too large to be kept or shown. Ask it for less.",
        )
    return made


def _json_of(value: object) -> bytes | None:
    """Return the canonical form of what is plain JSON already, as most outputs are."""
    try:
        return stored_json(value, inside=_AROUND)
    except CanonicalJsonError:
        return None


def _copied(value: object) -> JsonValue:
    made: JsonValue = to_jsonable_python(value)
    return made


def _mended(value: Any) -> tuple[JsonValue, bytes]:  # noqa: ANN401 - whatever a tool returned
    """Return the JSON of what is not plain JSON yet: keys mended first, for they cannot be converted otherwise."""
    made = repair_value(_copied(repair_value(value)))
    return made, stored_json(made, inside=_AROUND)


def error_envelope(error: BaseException, /, *, max_bytes: int | None = None) -> JsonObject:
    """Return what a model is told of a failed call.

    A `ToolError` shows its code, `retryable`, details and hint. Of anything else it learns only that the tool failed:
    no type, no message, no cause.

    Args:
        error: The failure.
        max_bytes: How large the envelope may be; a larger one loses its details, then its hint.

    Example:
        >>> error_envelope(RuntimeError("password=hunter2"))
        {'error': 'tool.internal', 'retryable': None}
    """
    try:
        return (
            _within(_typed(cast("ToolError", error)), max_bytes) if issubclass(type(error), ToolError) else _internal()
        )
    except Exception:  # noqa: BLE001 - a foreign subclass may do anything when it is looked at
        return _internal()


def _within(envelope: JsonObject, max_bytes: int | None) -> JsonObject:
    for name in ("details", "_hint"):
        if max_bytes is not None and len(stored_json(envelope, inside=_AROUND)) > max_bytes:
            envelope.pop(name, None)
    return envelope


def _internal() -> JsonObject:
    return {"error": INTERNAL_ERROR, "retryable": None}


def _typed(error: ToolError) -> JsonObject:
    code: object = error.code
    if not isinstance(code, str) or not 0 < len(code) <= _MAX_CODE:
        return _internal()
    retryable: object = error.retryable
    envelope: JsonObject = {"error": code, "retryable": retryable if isinstance(retryable, bool) else None}
    if error.details is not None:
        details = as_json(error.details)
        if isinstance(details, dict):
            envelope["details"] = details
    if isinstance(error.hint, str) and error.hint:
        envelope["_hint"] = error.hint
    repaired = repair_value(envelope)
    return repaired if isinstance(repaired, dict) else _internal()
