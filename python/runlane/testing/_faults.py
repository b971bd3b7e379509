"""Ways in which a provider answers or fails, in the form of whichever wire protocol it is asked in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pydantic import JsonValue
from typing_extensions import override

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError
from runlane.records import JsonObject
from runlane.testing._replies import ReceivedRequest, Reply

__all__ = [
    "Answer",
    "BadJson",
    "ConnectionRefused",
    "HttpFailure",
    "ProviderStep",
    "SlowAnswer",
    "StreamCut",
    "TimeoutBeforeFirstByte",
    "answer_events",
    "in_turn",
]

_HEADERS: Final = {"Content-Type": "text/event-stream"}
_FAILURES: Final = range(400, 600)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of one input token and one output token.

    Attributes:
        text: What it says.
        usage: Whether it says what it cost.
    """

    text: str = "ok"
    usage: bool = True

    def reply(self, request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        return Reply(b"".join(answer_events(request, [self.text], usage=self.usage)), headers=_HEADERS)


@dataclass(frozen=True, slots=True)
class SlowAnswer:
    """A whole answer that comes word by word.

    Attributes:
        text: What it says.
        tokens_per_second: How many words come in a second.

    Raises:
        InvalidValueError: The pace is not a positive finite number.
    """

    text: str
    tokens_per_second: float

    def __post_init__(self) -> None:
        """Refuse a pace that never ends or never begins."""
        require_kind(self.text, str, argument="text")
        require_kind(self.tokens_per_second, int | float, argument="tokens_per_second")
        if not 0 < self.tokens_per_second < float("inf"):
            raise InvalidValueError("must be a positive finite number", argument="tokens_per_second")

    def reply(self, request: ReceivedRequest) -> Reply:
        """Return the answer to a request; each event is one piece of it."""
        words = self.text.split(" ")
        events = answer_events(request, [f"{word} " for word in words[:-1]] + words[-1:], usage=True)
        size = max(map(len, events)) + 2
        # A comment in front makes all events equally long, so that pieces of one size are events.
        body = b"".join(b":" + b" " * (size - len(event) - 2) + b"\n" + event for event in events)
        return Reply(body, headers=_HEADERS, chunk_size=size, delay=1 / self.tokens_per_second)


@dataclass(frozen=True, slots=True)
class ConnectionRefused:
    """The connection is reset as soon as the request is there: no byte of an answer comes.

    A port where nothing listens could not tell which request it refused.
    """

    def reply(self, _request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        return Reply(send_head=False, cut_at=0, cut="reset")


@dataclass(frozen=True, slots=True)
class TimeoutBeforeFirstByte:
    """Nothing comes for a while; then the connection ends without an answer.

    Attributes:
        seconds: How long.
    """

    seconds: float

    def reply(self, _request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        return Reply(send_head=False, cut_at=0, first_delay=self.seconds)


@dataclass(frozen=True, slots=True)
class StreamCut:
    """The connection is reset within the first event of the answer.

    Attributes:
        after_bytes: How much of that event is sent, at most.

    Raises:
        InvalidValueError: It is negative.
    """

    after_bytes: int

    def __post_init__(self) -> None:
        """Refuse a negative length."""
        if require_kind(self.after_bytes, int, argument="after_bytes") < 0:
            raise InvalidValueError("must be 0 or more", argument="after_bytes")

    def reply(self, request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        (first, *_) = events = answer_events(request, ["ok"], usage=True)
        cut_at = min(self.after_bytes, len(first))
        return Reply(b"".join(events), headers=_HEADERS, cut_at=cut_at, cut="reset")


@dataclass(frozen=True, slots=True)
class HttpFailure:
    """The request is refused.

    Attributes:
        status: 400 to 599.

    Raises:
        InvalidValueError: The status is no failure.
    """

    status: int

    def __post_init__(self) -> None:
        """Refuse a status that is no failure."""
        if require_kind(self.status, int, argument="status") not in _FAILURES:
            raise InvalidValueError(f"{self.status} is no failure (400 to 599)", argument="status")

    def reply(self, _request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        body = json.dumps({"error": {"message": f"the plan says {self.status}"}}).encode()
        return Reply(body, status=self.status, headers={"Content-Type": "application/json"})


@dataclass(frozen=True, slots=True)
class BadJson:
    """The answer is a stream whose first event is not JSON."""

    def reply(self, _request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        return Reply(b'data: {"choices": [\n\n', headers=_HEADERS)


ProviderStep: TypeAlias = (
    Answer | SlowAnswer | ConnectionRefused | TimeoutBeforeFirstByte | StreamCut | HttpFailure | BadJson
)
"""What a provider does with one request."""


def in_turn(plan: Sequence[ProviderStep]) -> Callable[[ReceivedRequest], Reply]:
    """Return a function that answers the n-th request by the n-th step, and any later one by the last."""
    return _Plan(tuple(plan))


class _Plan:
    def __init__(self, steps: tuple[ProviderStep, ...]) -> None:
        self._steps = steps
        self._next = 0

    def __call__(self, request: ReceivedRequest, /) -> Reply:
        step = self._steps[self._next]
        self._next = min(self._next + 1, len(self._steps) - 1)
        return step.reply(request)

    @override
    def __repr__(self) -> str:
        return f"in_turn({list(self._steps)!r})"


def answer_events(request: ReceivedRequest, texts: Sequence[str], *, usage: bool) -> list[bytes]:
    """Return the events of an answer in the protocol whose address was asked."""
    path = request.path
    if path.endswith("/messages"):
        return _named(_anthropic(texts, usage=usage))
    if path.endswith("/responses"):
        return _named(_responses(texts, usage=usage))
    if path.endswith("GenerateContent"):
        return [_data(chunk) for chunk in _google(texts, usage=usage)]
    return [*(_data(chunk) for chunk in _chat(texts, usage=usage)), b"data: [DONE]\n\n"]


def _data(value: JsonValue) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _named(events: Sequence[JsonObject]) -> list[bytes]:
    return [f"event: {event['type']}\n".encode() + _data(event) for event in events]


def _chat(texts: Sequence[str], *, usage: bool) -> list[JsonObject]:
    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {"id": "replay", "model": "replay", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    spent: JsonObject = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    told = [chunk({"content": text}) for text in texts]
    last: list[JsonObject] = [{"id": "replay", "model": "replay", "choices": [], "usage": spent}] if usage else []
    return [*told, chunk({}, "stop"), *last]


def _anthropic(texts: Sequence[str], *, usage: bool) -> list[JsonObject]:
    head: JsonObject = {"id": "replay", "type": "message", "role": "assistant", "model": "replay", "content": []}
    end: JsonObject = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    if usage:
        head["usage"] = {"input_tokens": 1, "output_tokens": 1}
        end["usage"] = {"output_tokens": 1}
    return [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(_delta(text) for text in texts),
        {"type": "content_block_stop", "index": 0},
        end,
        {"type": "message_stop"},
    ]


def _delta(text: str) -> JsonObject:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def _responses(texts: Sequence[str], *, usage: bool) -> list[JsonObject]:
    head: JsonObject = {"id": "replay", "object": "response", "model": "replay", "output": []}
    spent: JsonObject = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    place: JsonObject = {"item_id": "m", "output_index": 0, "content_index": 0}
    item: JsonObject = {"id": "m", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    piece: JsonObject = {"type": "output_text", "text": "".join(texts), "annotations": []}
    whole: JsonObject = {**item, "status": "completed", "content": [piece]}
    end: JsonObject = {**head, "status": "completed", "output": [whole], "usage": spent if usage else None}
    return [
        {"type": "response.created", "response": {**head, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *({"type": "response.output_text.delta", "delta": text, **place} for text in texts),
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": end},
    ]


def _google(texts: Sequence[str], *, usage: bool) -> list[JsonObject]:
    spent: JsonObject = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}

    def chunk(parts: list[JsonValue], **more: JsonValue) -> JsonObject:
        candidate: JsonObject = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
        return {"candidates": [candidate], "modelVersion": "replay", "responseId": "replay"}

    told = [chunk([{"text": text}]) for text in texts]
    end = chunk([], finishReason="STOP")
    return [*told, {**end, "usageMetadata": spent} if usage else end]
