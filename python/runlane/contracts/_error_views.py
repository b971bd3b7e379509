"""What can safely be said of an error: where it passed through, and a view that is only data."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar, cast

from runlane.contracts._record import Record
from runlane.contracts._scalars import IdField

__all__ = ["ErrorContext", "ErrorInfo", "annotate_error", "error_contexts", "get_error_info"]

ErrorT = TypeVar("ErrorT", bound=BaseException)

MAX_CONTEXTS: Final = 16
MAX_MESSAGE_CHARACTERS: Final = 2_000

_KEY: Final = "_runlane_contexts"
_UNKNOWN: Final = "error.unknown"
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_OWN_DICT: Final[Any] = BaseException.__dict__["__dict__"]
"""How `BaseException` itself finds an instance's dictionary; no subclass can stand in between."""


class ErrorContext(Record):
    """A place a failure passed through; never the failure itself.

    Attributes:
        operation: What was being done, such as `model`, `tool`, `node` or `round`.
    """

    operation: str
    stage: IdField | None = None
    node_id: IdField | None = None
    tool_id: IdField | None = None
    transport: str | None = None
    invocation_id: IdField | None = None
    span_id: IdField | None = None


class ErrorInfo(Record):
    """A failure as data: no reference to the exception, its traceback or its arguments.

    Attributes:
        code: The error's own dotted code, or `error.unknown`.
        name: The name of its type.
        message: At most 2,000 characters.
        retryable: None when nobody knows, and then left out when dumped.
        contexts: Where it passed through, innermost first.
    """

    code: str
    name: str
    message: str
    retryable: bool | None = None
    contexts: tuple[ErrorContext, ...] = ()


_UNINSPECTABLE: Final = ErrorInfo(code=_UNKNOWN, name="UnknownError", message="error could not be inspected")


def annotate_error(error: ErrorT, context: ErrorContext, /) -> ErrorT:
    """Note on an error where it passed through, and return the same error.

    Its type, arguments, message, cause and text stay as they are. At most 16 places are kept, the innermost ones; the
    same place twice in a row is kept once. An error that cannot be written on is returned as it is.
    """
    try:
        notes = _OWN_DICT.__get__(error)
        known = notes.get(_KEY, ())
        if type(known) is not tuple:
            known = ()
        if len(known) < MAX_CONTEXTS and (not known or known[-1] != context):
            notes[_KEY] = (*known, context)
    except Exception:  # noqa: BLE001, S110 - nothing about a note may replace the error it is about
        pass
    return error


def error_contexts(error: object, /) -> tuple[ErrorContext, ...]:
    """Return the places an error passed through, innermost first; nothing for what is no exception."""
    if not issubclass(type(error), BaseException):
        return ()
    known = _OWN_DICT.__get__(error).get(_KEY, ())
    if type(known) is not tuple:
        return ()
    return tuple(context for context in known if type(context) is ErrorContext)


def get_error_info(value: object, /) -> ErrorInfo:
    """Return a view of any object that was raised or stands for a failure. Never raises.

    If looking at it raises at any point, the whole view says that it could not be inspected; nothing half read is
    passed on. Only `KeyboardInterrupt` passes through.

    Args:
        value: Usually an exception. Text is its own message; anything else is named by its type only.

    Example:
        >>> get_error_info(KeyError("name")).name
        'KeyError'
    """
    try:
        return _view(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a hostile object raises, an exit included
        return _UNINSPECTABLE


def _view(value: object) -> ErrorInfo:
    getattr(value, "__class__")  # noqa: B009 - a throwing one marks the object as hostile
    code = getattr(value, "code", None)
    retryable = getattr(value, "retryable", None)
    return ErrorInfo(
        code=_code(code),
        name=_plain(type(value).__name__),
        message=_plain(_message(value))[:MAX_MESSAGE_CHARACTERS],
        retryable=retryable if retryable is True or retryable is False else None,
        contexts=error_contexts(value),
    )


def _code(value: object) -> str:
    if not issubclass(type(value), str):
        return _UNKNOWN
    text = _plain(cast("str", value))
    return text if _CODE.fullmatch(text) else _UNKNOWN


def _message(value: object) -> str:
    if issubclass(type(value), BaseException | str):
        return str(value)
    return "not an exception"


def _plain(text: str) -> str:
    """Return text as an exact `str` without lone surrogates; what a subclass overrides is not asked."""
    text = str.__str__(text)
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)
