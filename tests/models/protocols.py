"""The wire protocols side by side: their streams, their decoders, their providers, and what a reading amounts to."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runlane.models import (
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    TextDelta,
    UsageReport,
    create_tool_call_collector,
)
from runlane.models._wire import StreamDecoder
from runlane.models.anthropic import Anthropic, AnthropicDecoder
from runlane.models.google import Google, GoogleDecoder
from runlane.models.openai_chat import OpenAIChat, OpenAIChatDecoder
from runlane.models.openai_responses import OpenAIResponses, OpenAIResponsesDecoder
from runlane.sse import SseDecoder
from tests.fixture_files import REPOSITORY, fixtures_dir


@dataclass(frozen=True)
class WireProtocol:
    """One wire protocol.

    Attributes:
        api: Its name in an index.
        folder: Its own streams below `tests/data`.
        evidence: What in a whole event shows that the answer is complete.
    """

    api: str
    folder: str
    decoder: Callable[..., StreamDecoder]
    make: Callable[..., ChatProvider]
    evidence: str

    def provider(self, base_url: str) -> ChatProvider:
        """A provider for any model at an address."""
        return self.make("any", base_url=base_url)

    def shows_the_end(self, prefix: bytes) -> bool:
        """Whether the whole events of a prefix hold evidence that the answer is complete."""
        blocks = prefix.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]
        return any(re.search(self.evidence.encode(), block) for block in blocks)

    def new_decoder(self) -> StreamDecoder:
        """A decoder that names calls `call-1`, `call-2`, ... where the provider does not."""
        numbers = iter(range(1, 1000))
        return self.decoder(new_call_id=lambda: f"call-{next(numbers)}")

    def decode(self, chunks: Iterable[bytes]) -> tuple[list[ModelPart], StreamDecoder]:
        """Decode a body; returns the parts and the decoder they came from."""
        events, decoder = SseDecoder(), self.new_decoder()
        parts: list[ModelPart] = []
        for chunk in chunks:
            for event in events.feed(chunk):
                parts += decoder.feed(event.data, event.event)
        for event in events.close():
            parts += decoder.feed(event.data, event.event)
        return parts + decoder.close(), decoder

    def feed(self, *events: object) -> tuple[list[ModelPart], StreamDecoder]:
        """Decode events given as JSON values or as data; returns the parts and the decoder, which stays open."""
        decoder = self.new_decoder()
        parts: list[ModelPart] = []
        for event in events:
            parts += decoder.feed(event if isinstance(event, str) else json.dumps(event), "message")
        return parts, decoder


PROTOCOLS = [
    WireProtocol(
        "openai-chat",
        "openai_chat",
        OpenAIChatDecoder,
        OpenAIChat,
        r'"finish_reason": ?"|\[DONE\]',
    ),
    WireProtocol(
        "anthropic-messages",
        "anthropic",
        AnthropicDecoder,
        Anthropic,
        r'"stop_reason": ?"|"message_stop"',
    ),
    WireProtocol(
        "openai-responses",
        "openai_responses",
        OpenAIResponsesDecoder,
        OpenAIResponses,
        r'"response.(completed|incomplete)"',
    ),
    WireProtocol(
        "google-generate",
        "google",
        GoogleDecoder,
        Google,
        r'"(finishReason|blockReason)": ?"',
    ),
]
ANTHROPIC, RESPONSES, GOOGLE = PROTOCOLS[1:]
_BY_API = {protocol.api: protocol for protocol in PROTOCOLS}


@dataclass(frozen=True)
class Stream:
    """A recorded stream, and what a full reading of it gives."""

    protocol: WireProtocol
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


def own_streams(*apis: str) -> list[Stream]:
    """The streams written for this repository, of some protocols or of all."""
    return [
        stream
        for protocol in PROTOCOLS
        if protocol.api in (apis or _BY_API)
        for stream in _indexed(REPOSITORY / "tests" / "data" / protocol.folder)
    ]


def handed_streams() -> list[Stream]:
    """The recorded streams of the fixtures; none where there are no fixtures."""
    folder = fixtures_dir()
    return [] if folder is None else list(_indexed(folder / "streams"))


def _indexed(folder: Path) -> Iterator[Stream]:
    for entry in json.loads((folder / "index.json").read_text(encoding="utf-8")):
        if entry["api"] in _BY_API:
            yield Stream(_BY_API[entry["api"]], folder / entry["file"], entry["expected"])


def name_of(value: object) -> str:
    """A stream's or protocol's name in a test id."""
    if isinstance(value, Stream):
        return f"{value.protocol.folder}-{value.path.stem}"
    return value.api if isinstance(value, WireProtocol) else str(value)


def pieces(body: bytes, size: int) -> list[bytes]:
    """A body cut into pieces of one size; 0 leaves it whole."""
    return [body[start : start + size] for start in range(0, len(body), size)] if size else [body]


def text_of(parts: Iterable[ModelPart]) -> str:
    """The visible text."""
    return "".join(part.text for part in parts if isinstance(part, TextDelta))


def reasoning_of(parts: Iterable[ModelPart]) -> str:
    """The reasoning text."""
    return "".join(part.text for part in parts if isinstance(part, ReasoningDelta))


def opaque_of(parts: Iterable[ModelPart]) -> list[Any]:
    """What has no neutral form."""
    return [part.data for part in parts if isinstance(part, OpaqueOutput)]


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
        "reasoning": reasoning_of(parts),
        "tool_calls": [
            {"id": call.call_id, "name": call.tool_name, "arguments": call.arguments} for call in calls.finish()
        ],
        "finish_reason": finish[0].raw_reason if finish else None,
        "usage": usages[-1] if usages else None,
        "model": info.model,
        "response_id": info.response_id,
    }


def assert_reads_as_expected(stream: Stream, parts: list[ModelPart]) -> None:
    """Compare a reading with the index, field by field as far as the index goes.

    An index of another protocol than chat completions lists the plain counts of the usage only, and a call whose
    provider gave no id has any.
    """
    got, expected = reading(parts), {name: stream.expected[name] for name in stream.expected}
    if stream.protocol.api != "openai-chat" and got["usage"] is not None:
        got["usage"] = {name: count for name, count in got["usage"].items() if isinstance(count, int)}
    for mine, told in zip(got["tool_calls"], expected["tool_calls"], strict=True):
        if told["id"] is None:
            mine["id"] = None
    compared = [name for name in expected if name in got]
    assert {name: got[name] for name in compared} == {name: expected[name] for name in compared}
