"""What a model says, piece by piece: the closed union `ModelPart`.

Parts are made once per delta on the hottest path of a run, so they are plain frozen dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from runlane.contracts import ModelUsage
from runlane.records import JsonObject

__all__ = [
    "FileOutput",
    "FinishReason",
    "FinishReport",
    "FunctionCallDelta",
    "ModelPart",
    "ModelUsage",
    "OpaqueOutput",
    "ReasoningDelta",
    "ResponseInfo",
    "SourceOutput",
    "StreamNote",
    "TextDelta",
    "UsageReport",
]

FinishReason: TypeAlias = Literal["stop", "length", "tool-calls", "content-filter", "other"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks; `start` and `end` may carry no text.

    Attributes:
        provider_options: What the provider attached (a signature, encrypted content); the latest one counts.
    """

    text: str = ""
    phase: Literal["start", "delta", "end"] = "delta"
    provider_options: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class FunctionCallDelta:
    """A fragment of a tool call; fragments with one `index` are one call.

    Attributes:
        id, name: Whole values, in whichever fragment the provider puts them.
        arguments: A fragment of the arguments text.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    provider_options: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class StreamNote:
    """Something odd about a stream that did not stop it: for diagnostics, never for decisions.

    Attributes:
        kind: `text-repaired` (a lone surrogate became U+FFFD), `error-after-finish`, `cut-after-finish` (the connection
            broke or went silent when the answer was already complete) or `incomplete-event` (the body ended within
            an event, which was dropped).
        detail: One sentence for people.
    """

    kind: Literal["text-repaired", "error-after-finish", "cut-after-finish", "incomplete-event"]
    detail: str


@dataclass(frozen=True, slots=True)
class SourceOutput:
    """A source the model cites."""

    source_id: str
    url: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class FileOutput:
    """A file the model made; it must be stored by the application before it can be part of a message."""

    media_type: str
    data: bytes
    filename: str | None = None


@dataclass(frozen=True, slots=True)
class OpaqueOutput:
    """Structured output with no neutral form, such as a tool the provider ran itself."""

    provider: str
    data: JsonObject


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Spend so far; a later report of the same stream replaces an earlier one, it is never added."""

    usage: ModelUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseInfo:
    """How the provider identified its response; at most one per stream."""

    response_id: str | None = None
    model: str | None = None
    upstream_provider: str | None = None


@dataclass(frozen=True, slots=True)
class FinishReport:
    """The answer is complete. Exactly one per stream, the last part; its absence means the stream was cut.

    Attributes:
        raw_reason: The provider's own word, or None if it gave none.
    """

    reason: FinishReason
    raw_reason: str | None = None


ModelPart: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | FunctionCallDelta
    | SourceOutput
    | FileOutput
    | OpaqueOutput
    | UsageReport
    | ResponseInfo
    | FinishReport
)
