"""What only Anthropic's messages say, read by the rules of the port."""

import json
from typing import Any

import pytest

from runlane.errors import ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import FinishReport, ModelPart, ReasoningDelta, SourceOutput, StreamNote, UsageReport
from runlane.models.anthropic import AnthropicDecoder
from tests.models.protocols import ANTHROPIC, opaque_of, own_streams, reading, text_of

_STREAMS = {stream.path.stem: stream for stream in own_streams("anthropic-messages")}


def own(name: str) -> tuple[list[ModelPart], Any]:
    """Decode one of the repository's own streams."""
    return ANTHROPIC.decode([_STREAMS[name].body])


def test_usage_is_replaced_and_never_added() -> None:
    """Input 25, cache 10, output 1 and then 25, 10, 15 is 25, 10, 15."""
    parts, _ = own("text-with-cumulative-usage")
    usages = [part.usage for part in parts if isinstance(part, UsageReport)]
    assert [(usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) for usage in usages] == [
        (25, 10, 1),
        (25, 10, 15),
    ]


def test_a_figure_the_end_leaves_out_keeps_its_value() -> None:
    """An end with the output alone leaves input and cache reads as they began; what nobody said is unknown."""
    usage = [part.usage for part in own("usage-that-ends-with-output-only")[0] if isinstance(part, UsageReport)][-1]
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (25, 10, 15)
    assert usage.cache_write_tokens is None
    assert usage.reasoning_tokens is None


def test_a_cut_stream_keeps_the_figures_it_began_with() -> None:
    """Without an end the first report stands, and the stream is cut."""
    body = _STREAMS["text-with-cumulative-usage"].body
    parts, decoder = ANTHROPIC.decode([body[: body.index(b"event: message_delta")]])
    usage = [part.usage for part in parts if isinstance(part, UsageReport)][-1]
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (25, 10, 1)
    assert isinstance(decoder.failure, ProviderStreamCutError)


def test_reasoning_ends_with_its_signature() -> None:
    """A thinking block is one block of reasoning, and its end carries what the provider wants to see again."""
    block = [part for part in own("thinking-and-parallel-calls")[0] if isinstance(part, ReasoningDelta)]
    assert [part.phase for part in block] == ["start", "delta", "delta", "end"]
    assert block[-1].provider_options == {"signature": "c2lnbmVk"}


def test_redacted_thinking_is_reasoning_without_text() -> None:
    """Each redacted block is kept whole for the provider and shows nothing."""
    block = [part for part in own("redacted-thinking")[0] if isinstance(part, ReasoningDelta)]
    assert [(part.phase, part.text) for part in block] == [("start", ""), ("end", "")] * 2
    assert block[1].provider_options == {"type": "redacted_thinking", "data": "b3BhcXVl"}


def test_a_tool_the_provider_ran_is_kept_whole() -> None:
    """Its call with the streamed input, and what it gave, are opaque; the pages it cites are sources, once each."""
    parts, _ = own("provider-run-search")
    call, result, cited = opaque_of(parts)
    assert call == {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {"query": "parrots"},
    }
    assert (result["type"], result["content"][0]["encrypted_content"]) == ("web_search_tool_result", "ZW5j")
    assert [part for part in parts if isinstance(part, SourceOutput)] == [
        SourceOutput("https://birds.example/parrot", "https://birds.example/parrot", "Parrots"),
        SourceOutput("Guide", None, "Guide"),
    ]
    assert (cited["type"], cited["length"], [one["encrypted_index"] for one in cited["citations"]]) == (
        "text",
        len("They talk."),
        ["aWR4"],
    )


def test_the_container_is_told_once() -> None:
    """Whichever event names it, for the next request."""
    container = {"id": "cntr_1", "expires_at": "2026-01-02T03:04:05Z"}
    parts, _ = ANTHROPIC.feed(
        {"type": "message_start", "message": {"id": "r", "model": "m", "container": container}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "container": container}},
        {"type": "message_stop"},
    )
    assert opaque_of(parts) == [{"type": "message", "container": container}]


def test_a_compaction_is_kept_whole() -> None:
    """What its delta brings is part of the block."""
    assert opaque_of(own("compaction")[0]) == [
        {"type": "compaction", "content": "They met a parrot.", "encrypted_content": "ZW5j"}
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("refusal", "content-filter"),
        ("limit-within-a-call", "length"),
        ("paused", "other"),
        ("stop-alone", "stop"),
        ("no-stop-event", "stop"),
        ("interleaved-calls", "tool-calls"),
    ],
)
def test_a_stop_reason_has_its_neutral_word(name: str, reason: str) -> None:
    """The neutral reason says what happened; the provider's own word is kept beside it."""
    finish = own(name)[0][-1]
    assert finish == FinishReport(reason, _STREAMS[name].expected["finish_reason"])  # type: ignore[arg-type]


def test_an_error_alone_fails_the_response_after_what_came_before() -> None:
    """Text before the error is delivered; the error keeps the provider's type and can be tried again."""
    parts, decoder = own("overloaded")
    failure = decoder.failure
    assert isinstance(failure, ProviderError)
    assert text_of(parts) == "A half"
    assert (failure.provider_code, failure.reason, failure.retryable) == ("overloaded_error", "stream-error", True)


def test_an_error_after_the_stop_reason_is_a_note() -> None:
    """The answer stays complete."""
    parts, decoder = own("error-after-finish")
    assert parts[-1] == FinishReport("stop", "end_turn")
    assert [note.kind for note in decoder.notes] == ["error-after-finish"]


def test_a_broken_character_is_repaired_once_and_noted() -> None:
    """A pair split over two events is one character; a lone half becomes U+FFFD, and the repair is noted."""
    parts, decoder = own("odds-and-ends")
    assert text_of(parts) == "fox 🦊 and \ufffd."
    assert [note.kind for note in decoder.notes] == ["text-repaired"]
    assert isinstance(decoder.notes[0], StreamNote)


def test_unknown_kinds_stop_nothing() -> None:
    """An unknown event or delta says nothing; an unknown block is passed on as it is."""
    assert opaque_of(own("odds-and-ends")[0]) == [
        {"type": "brand_new_block", "thing": {"a": 1}},
        {"type": "container_upload", "file_id": "file_1"},
    ]


def test_a_stop_without_a_reason_while_a_call_is_open_is_a_cut() -> None:
    """A half call is never taken for whole."""
    _, decoder = ANTHROPIC.feed(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "f"}},
        {"type": "message_stop"},
    )
    assert isinstance(decoder.failure, ProviderStreamCutError)


def test_a_call_that_brings_its_input_at_the_start_has_it() -> None:
    """Endpoints that do not stream arguments give them with the block."""
    block = {"type": "tool_use", "name": "f", "input": {"a": [1]}}
    parts, decoder = ANTHROPIC.feed(
        {"type": "message_start", "message": {"id": "m", "model": "n"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    )
    parts += decoder.close()
    assert reading(parts)["tool_calls"] == [{"id": "call-1", "name": "f", "arguments": '{"a": [1]}'}]
    assert parts[-1] == FinishReport("tool-calls", "end_turn")


def test_text_without_a_start_is_text() -> None:
    """A delta whose block was never announced begins it."""
    parts, _ = ANTHROPIC.feed(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
    )
    assert text_of(parts) == "Hi"


@pytest.mark.parametrize(
    "event",
    [
        "{",
        [],
        {"type": "message_start", "message": 1},
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "content_block": {"type": "text"}},
        {"type": "content_block_delta", "index": 7, "delta": {"type": "input_json_delta", "partial_json": "{"}},
        {"type": "content_block_delta", "index": 0, "delta": 1},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": 1}},
    ],
)
def test_what_no_event_can_be_is_a_protocol_error(event: object) -> None:
    """The error names the provider and the event, and gives no text of it."""
    _, decoder = ANTHROPIC.feed(event)
    assert isinstance(decoder.failure, ModelProtocolError)
    assert "anthropic" in str(decoder.failure)


_DOCUMENT = {
    "type": "message",
    "id": "msg_1",
    "model": "parrot-4",
    "content": [
        {"type": "thinking", "thinking": "So.", "signature": "c2ln"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 2},
}


def test_a_whole_document_reads_like_its_stream() -> None:
    """A response that did not stream gives the same parts."""
    parts = AnthropicDecoder().feed_document(json.dumps(_DOCUMENT))
    assert reading(parts) == {
        "text": "Hi",
        "reasoning": "So.",
        "tool_calls": [{"id": "t", "name": "f", "arguments": "{}"}],
        "finish_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 2},
        "model": "parrot-4",
        "response_id": "msg_1",
    }


def test_a_document_with_an_error_fails() -> None:
    """An error that came with status 200 is an error."""
    decoder = AnthropicDecoder(secrets=("sk-1",))
    decoder.feed_document('{"type":"error","error":{"type":"rate_limit_error","message":"slow, sk-1"}}')
    assert isinstance(decoder.failure, ProviderError)
    assert decoder.failure.reason == "rate-limited"
    assert "sk-1" not in str(decoder.failure)


def test_a_document_without_an_end_fails() -> None:
    """What does not say how the answer ended is not taken for an answer."""
    decoder = AnthropicDecoder()
    decoder.feed_document(json.dumps({**_DOCUMENT, "stop_reason": None}))
    assert isinstance(decoder.failure, ModelProtocolError)


def test_a_delta_without_a_type_is_malformed() -> None:
    """An unknown type may be passed over, but text nobody can find must not go missing."""
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    _, decoder = ANTHROPIC.feed(block, {"type": "content_block_delta", "index": 0, "delta": {"text": "lost"}})
    assert isinstance(decoder.failure, ModelProtocolError)
    parts, decoder = ANTHROPIC.feed(block, {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta"}})
    assert decoder.failure is None
    assert text_of(parts) == ""
