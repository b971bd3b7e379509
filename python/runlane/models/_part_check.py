"""Whether what a provider yields is a part of a response, of the types it says it has.

Parts are plain dataclasses, made once per delta: nothing is checked when they are made. Whoever takes them from a
provider written by somebody else checks them here, before a wrong type turns up where nobody knows of providers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, get_args

from runlane.contracts import ModelUsage
from runlane.models._messages import model_protocol_error
from runlane.models._stream import (
    FileOutput,
    FinishReason,
    FinishReport,
    FunctionCallDelta,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    SourceOutput,
    TextDelta,
    UsageReport,
)

__all__ = ["check_part"]

_Check: TypeAlias = tuple[str, Callable[[object], bool], str]

_PHASES: Final = frozenset({"start", "delta", "end"})
_REASONS: Final = frozenset(get_args(FinishReason))


def _text(name: str) -> _Check:
    return name, lambda value: isinstance(value, str), "a text"


def _maybe_text(name: str) -> _Check:
    return name, lambda value: value is None or isinstance(value, str), "a text or None"


def _word(name: str, words: frozenset[str]) -> _Check:
    return name, lambda value: isinstance(value, str) and value in words, f"one of {', '.join(sorted(words))}"


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


_OPTIONS: Final[_Check] = (
    "provider_options",
    lambda value: value is None or _is_object(value),
    "a mapping or None",
)

_CHECKS: Final[Mapping[type, tuple[_Check, ...]]] = {
    TextDelta: (_text("text"),),
    ReasoningDelta: (_text("text"), _word("phase", _PHASES), _OPTIONS),
    FunctionCallDelta: (
        ("index", lambda value: isinstance(value, int) and not isinstance(value, bool), "an integer"),
        _maybe_text("id"),
        _maybe_text("name"),
        _maybe_text("arguments"),
        _OPTIONS,
    ),
    SourceOutput: (_text("source_id"), _maybe_text("url"), _maybe_text("title")),
    FileOutput: (
        _text("media_type"),
        ("data", lambda value: isinstance(value, bytes), "bytes"),
        _maybe_text("filename"),
    ),
    OpaqueOutput: (_text("provider"), ("data", _is_object, "a mapping")),
    UsageReport: (("usage", lambda value: isinstance(value, ModelUsage), "a ModelUsage"),),
    ResponseInfo: (_maybe_text("response_id"), _maybe_text("model"), _maybe_text("upstream_provider")),
    FinishReport: (_word("reason", _REASONS), _maybe_text("raw_reason")),
}


def check_part(part: object, /) -> None:
    """Refuse what is no `ModelPart`, and a part with a field of another type than its own.

    Raises:
        ModelProtocolError: It names the part and the field.
    """
    checks = _CHECKS.get(type(part))
    if checks is None:
        checks = next((_CHECKS[kind] for kind in _CHECKS if isinstance(part, kind)), None)
    if checks is None:
        model_protocol_error(f"the provider yielded {type(part).__name__}, which is no part of a response")
    for name, fits, wanted in checks:
        value: object = getattr(part, name)
        if not fits(value):
            model_protocol_error(
                f"the provider yielded a {type(part).__name__} whose {name} is {type(value).__name__}, not {wanted}"
                if not isinstance(value, str)
                else f"the provider yielded a {type(part).__name__} whose {name} is {value[:64]!r}, not {wanted}"
            )
