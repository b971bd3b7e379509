"""What a model and the record get of a call: JSON, and of a failure nothing but what its tool meant to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from runlane.canonical import canonical_record_json
from runlane.contracts import sync_result
from runlane.errors import CanonicalJsonError, ToolError
from runlane.models import repair_value
from runlane.records import JsonObject

__all__ = ["INTERNAL_ERROR", "as_json", "error_envelope"]

INTERNAL_ERROR: Final = "tool.internal"
"""The code of a failure that its tool did not mean for the model."""

_DEEPEST: Final = 480
_MAX_CODE: Final = 128


def as_json(value: object, present: Callable[[Any], JsonValue] | None = None, /) -> JsonValue:
    """Return an output as JSON: models, dataclasses, dates and the like by their usual form.

    Lone surrogates become U+FFFD. What has no JSON form, or is nested deeper than a record may be, becomes a
    placeholder object.

    Args:
        value: What the tool returned.
        present: Makes the JSON instead; what it raises is raised.
    """
    found: Any = value if present is None else sync_result(present(value), argument="present")
    try:
        return _mended(found) if _is_json(found) is None else _copied(found)
    except (CanonicalJsonError, ValueError, TypeError, RecursionError):
        return {"message": "Non-JSON tool output omitted"}


def _is_json(value: object) -> bytes | None:
    """Return the canonical form of what is plain JSON already, as most outputs are."""
    try:
        return canonical_record_json(value, max_depth=_DEEPEST)
    except CanonicalJsonError:
        return None


def _copied(value: object) -> JsonValue:
    made: JsonValue = to_jsonable_python(value)
    return made


def _mended(value: Any) -> JsonValue:  # noqa: ANN401 - whatever a tool returned
    """Return the JSON of what is not plain JSON yet: keys mended first, for they cannot be converted otherwise."""
    made = repair_value(_copied(repair_value(value)))
    canonical_record_json(made, max_depth=_DEEPEST)
    return made


def error_envelope(error: BaseException, /) -> JsonObject:
    """Return what a model is told of a failed call.

    A `ToolError` shows its code, `retryable`, details and hint. Of anything else it learns only that the tool failed:
    no type, no message, no cause.

    Example:
        >>> error_envelope(RuntimeError("password=hunter2"))
        {'error': 'tool.internal', 'retryable': None}
    """
    try:
        return _typed(error) if isinstance(error, ToolError) else _internal()
    except Exception:  # noqa: BLE001 - a foreign subclass may do anything when it is looked at
        return _internal()


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
