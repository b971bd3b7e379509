"""Streams of chat completions for tests: where they lie, how they are decoded, and what a reading amounts to."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    ResponseInfo,
    TextDelta,
    UsageReport,
    create_tool_call_collector,
)
from runlane.models.openai_chat import OpenAIChatDecoder
from runlane.sse import SseDecoder
from tests.fixture_files import REPOSITORY, fixtures_dir

OWN_STREAMS = REPOSITORY / "tests" / "data" / "openai_chat"


@dataclass(frozen=True)
class Recorded:
    """A stream, and what a full reading of it gives."""

    path: Path
    expected: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The bytes of the stream."""
        return self.path.read_bytes()

    @property
    def fails(self) -> bool:
        """Whether it carries an error instead of a finish."""
        return self.expected["error"] is not None


def own_streams() -> list[Recorded]:
    """The streams written for this repository."""
    return list(_indexed(OWN_STREAMS))


def handed_streams() -> list[Recorded]:
    """The recorded streams of the fixtures; none where there are no fixtures."""
    folder = fixtures_dir()
    return [] if folder is None else list(_indexed(folder / "streams"))


def _indexed(folder: Path) -> Iterator[Recorded]:
    for entry in json.loads((folder / "index.json").read_text(encoding="utf-8")):
        if entry["api"] == "openai-chat":
            yield Recorded(folder / entry["file"], entry["expected"])


def name_of(stream: Recorded) -> str:
    """A stream's name in a test id."""
    return stream.path.stem


def pieces(body: bytes, size: int) -> list[bytes]:
    """A body cut into pieces of one size; 0 leaves it whole."""
    return [body[start : start + size] for start in range(0, len(body), size)] if size else [body]


def decode(chunks: Iterable[bytes], decoder: OpenAIChatDecoder | None = None) -> tuple[list[ModelPart], Any]:
    """Decode a body; returns the parts and the decoder they came from."""
    events = SseDecoder()
    decoder = decoder or new_decoder()
    parts: list[ModelPart] = []
    for chunk in chunks:
        for event in events.feed(chunk):
            parts += decoder.feed(event.data, event.event)
    for event in events.close():
        parts += decoder.feed(event.data, event.event)
    return parts + decoder.close(), decoder


def new_decoder() -> OpenAIChatDecoder:
    """A decoder that names calls `call-1`, `call-2`, ... where the provider does not."""
    numbers = iter(range(1, 1000))
    return OpenAIChatDecoder(new_call_id=lambda: f"call-{next(numbers)}")


def feed(*chunks: object) -> tuple[list[ModelPart], OpenAIChatDecoder]:
    """Decode chunks given as JSON values or as data; returns the parts and the decoder, which stays open."""
    decoder = new_decoder()
    parts: list[ModelPart] = []
    for chunk in chunks:
        parts += decoder.feed(chunk if isinstance(chunk, str) else json.dumps(chunk))
    return parts, decoder


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    """A chunk with one choice."""
    return {"id": "r", "model": "m", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def text_of(parts: Iterable[ModelPart]) -> str:
    """The visible text."""
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


def reading(parts: list[ModelPart]) -> dict[str, Any]:
    """Say what a list of parts amounts to, in the words of an index."""
    calls = create_tool_call_collector()
    for part in parts:
        if isinstance(part, FunctionCallDelta):
            calls.add(part)
    finish = [part for part in parts if isinstance(part, FinishReport)]
    usages = [part.usage.raw for part in parts if isinstance(part, UsageReport)]
    (info,) = (part for part in parts if isinstance(part, ResponseInfo))
    return {
        "text": text_of(parts),
        "reasoning": "".join(part.text for part in parts if isinstance(part, ReasoningDelta)),
        "tool_calls": [
            {"id": call.call_id, "name": call.tool_name, "arguments": call.arguments} for call in calls.finish()
        ],
        "finish_reason": finish[0].raw_reason if finish else None,
        "usage": usages[-1] if usages else None,
        "model": info.model,
        "response_id": info.response_id,
    }


def expected_reading(stream: Recorded) -> dict[str, Any]:
    """What `reading` must give for a stream."""
    return {name: value for name, value in stream.expected.items() if name != "error"}
