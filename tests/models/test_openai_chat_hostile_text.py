"""What an endpoint says beside its text may be hostile too: it never makes an answer that cannot be stored."""

import json

import pytest
from pydantic import JsonValue

from runlane.canonical import canonical_record_json
from runlane.models import ModelPart
from runlane.models.openai_chat import OpenAIChat, OpenAIChatDecoder
from runlane.testing import ReplayServer, Reply
from tests.models.replay import decode, delta
from tests.models.test_openai_chat_failures import failure_of

_KEY = "sk-very-secret-key"
_LONE = "\ud800"


def _events(*bodies: object) -> list[bytes]:
    return [b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies]


def _said(part: ModelPart) -> JsonValue:
    """A part as plain JSON, through its fields."""
    value: JsonValue = json.loads(json.dumps(part, default=lambda held: [getattr(held, n) for n in held.__slots__]))
    return value


@pytest.mark.parametrize(
    "chunk",
    [
        delta(None, content=_LONE),
        delta(None, reasoning_content=_LONE),
        delta(None, refusal=_LONE),
        delta(None, content=[{"type": "strange", _LONE: [_LONE]}]),
        delta(None, reasoning_details=[{"type": "reasoning.encrypted", "data": _LONE}]),
        delta(None, annotations=[{"url_citation": {"url": f"http://{_LONE}", "title": _LONE}}]),
        delta(None, images=[{"image_url": {"url": f"http://{_LONE}"}}]),
        delta(None, images=[{"image_url": {"url": f"data:image/png;base64,{_LONE}"}}]),
        delta(None, tool_calls=[{"index": 0, "id": _LONE, "function": {"name": "f", "arguments": "{}"}}]),
        delta(None, tool_calls=[{"index": 0, "id": "a", "function": {"name": _LONE, "arguments": _LONE}}]),
        delta(None, tool_calls=[{"index": 0, "id": "a", "function": {"name": "f"}, "extra": {_LONE: _LONE}}]),
        {"citations": [f"http://{_LONE}"], "choices": [{"index": 0, "delta": {}}]},
    ],
)
def test_a_lone_surrogate_anywhere_in_an_answer_is_repaired_and_noted_once(chunk: object) -> None:
    """Whatever field it is in, what leaves the decoder is text; the repair of output is a note."""
    parts, decoder = decode([*_events(chunk, delta(finish="stop")), b"data: [DONE]\n\n"])
    assert decoder.failure is None
    said = canonical_record_json([_said(part) for part in parts]).decode()
    assert "\ufffd" in said
    assert [note.kind for note in decoder.notes] == ["text-repaired"]


@pytest.mark.parametrize(
    "chunk",
    [
        {"id": f"answer {_LONE}", "model": f"parrot {_LONE}", "choices": []},
        delta(f"why {_LONE}", content="Hi"),
        {"choices": [], "usage": {"prompt_tokens": 1, _LONE: {_LONE: _LONE}}},
    ],
)
def test_a_lone_surrogate_beside_an_answer_is_repaired(chunk: object) -> None:
    """Names and figures that are kept as the provider gave them are text as well."""
    parts, _ = decode([*_events(chunk), b"data: [DONE]\n\n"])
    assert "\ufffd" in canonical_record_json([_said(part) for part in parts]).decode()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "body",
    [
        b"".join(_events(delta(content="Well"), {"error": {"message": f"no such key: {_KEY}"}})),
        b"".join(_events(delta(content="Well"), {"error": f"no such key: {_KEY}"})),
        b"event: error\n" + b"".join(_events({"message": f"no such key: {_KEY}"})),
    ],
)
async def test_an_error_within_a_stream_does_not_show_the_key_it_repeats(body: bytes) -> None:
    """The key is cut out of the provider's words there as it is from a refusal."""
    async with ReplayServer([Reply(body)]) as server:
        error = await failure_of(OpenAIChat("parrot-1", base_url=server.base_url, api_key=_KEY))
    assert "no such key: [redacted]" in str(error)
    assert _KEY not in str(error)


def test_an_error_after_the_end_does_not_show_the_key_either() -> None:
    """It only becomes a note, which is diagnostics and read by people too."""
    decoder = OpenAIChatDecoder(secrets=(_KEY,))
    decode(_events(delta("stop", content="Hi"), {"error": {"message": f"late {_KEY}"}}), decoder)
    assert [note.kind for note in decoder.notes] == ["error-after-finish"]
    assert "late [redacted]" in decoder.notes[0].detail
    assert _KEY not in decoder.notes[0].detail
