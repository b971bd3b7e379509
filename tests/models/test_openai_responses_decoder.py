"""What only OpenAI's responses say, read by the rules of the port."""

import json

import pytest

from runlane.errors import ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import (
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    SourceOutput,
    UsageReport,
)
from runlane.models._wire import StreamDecoder
from runlane.models.openai_responses import OpenAIResponsesDecoder
from tests.models.protocols import RESPONSES, opaque_of, own_streams, reading, text_of

_STREAMS = {stream.path.stem: stream for stream in own_streams("openai-responses")}


def own(name: str) -> tuple[list[ModelPart], StreamDecoder]:
    """Decode one of the repository's own streams."""
    return RESPONSES.decode([_STREAMS[name].body])


def test_each_part_of_a_summary_is_a_thought_and_the_last_carries_the_item() -> None:
    """The item that completes the reasoning, not the one that began it, is what goes back."""
    blocks = [part for part in own("reasoning-and-calls")[0] if isinstance(part, ReasoningDelta)]
    assert [part.phase for part in blocks] == ["start", "delta", "delta", "end", "start", "delta", "end"]
    assert blocks[3].provider_options is None
    assert blocks[-1].provider_options == {
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
        "encrypted_content": "ZW5j",
    }


def test_what_the_provider_attached_to_a_call_stays_with_it() -> None:
    """A namespace comes with the item that completes the call."""
    attached = [part.provider_options for part in own("reasoning-and-calls")[0] if isinstance(part, FunctionCallDelta)]
    assert [options for options in attached if options] == [{"namespace": "clock"}]


def test_usage_has_its_neutral_figures() -> None:
    """Cache reads and reasoning stand beside the totals they are part of."""
    (usage,) = (part.usage for part in own("text")[0] if isinstance(part, UsageReport))
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (9, 2, None)
    assert (usage.output_tokens, usage.reasoning_tokens) == (4, 1)


def test_a_tool_the_provider_ran_is_kept_whole() -> None:
    """Each item of its own tools is opaque, once, as it was when complete; what it cites is a source."""
    parts, _ = own("provider-run-tools")
    assert [item["type"] for item in opaque_of(parts)] == ["web_search_call", "code_interpreter_call", "mcp_call"]
    assert opaque_of(parts)[1]["outputs"] == [{"type": "logs", "logs": "2"}]
    assert [part for part in parts if isinstance(part, SourceOutput)] == [
        SourceOutput("https://birds.example/parrot", "https://birds.example/parrot", "Parrots"),
        SourceOutput("file_1", None, "birds.txt"),
    ]


def test_an_image_is_a_file() -> None:
    """The data leave the item, which keeps the rest."""
    parts, _ = own("image")
    assert [part for part in parts if isinstance(part, FileOutput)] == [FileOutput("image/webp", b"RIFF")]
    assert opaque_of(parts)[0]["result"] is None


def test_a_call_with_free_text_says_so() -> None:
    """The text is kept as it came, and the provider gets it back in its own form."""
    first = next(part for part in own("custom-tool")[0] if isinstance(part, FunctionCallDelta))
    assert first.provider_options == {"type": "custom_tool_call"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("text", "stop"),
        ("reasoning-and-calls", "tool-calls"),
        ("refusal", "content-filter"),
        ("limit-within-a-call", "length"),
        ("filtered", "content-filter"),
    ],
)
def test_an_end_has_its_neutral_word(name: str, reason: str) -> None:
    """The neutral reason says what happened; the status is kept beside it."""
    assert own(name)[0][-1] == FinishReport(reason, _STREAMS[name].expected["finish_reason"])  # type: ignore[arg-type]


def test_an_unknown_reason_to_stop_early_is_other() -> None:
    """What is incomplete for a reason nobody named is not taken for a whole answer."""
    end = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "steered"}}}
    assert RESPONSES.feed(end)[0][-1] == FinishReport("other", "incomplete")


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("failed", "server_error", "stream-error"),
        ("error-event", "rate_limit_exceeded", "rate-limited"),
        ("error-nested", "server_error", "stream-error"),
    ],
)
def test_an_error_fails_the_response_after_what_came_before(name: str, code: str, reason: str) -> None:
    """Text before the error is delivered; the error keeps the provider's code and can be tried again."""
    parts, decoder = own(name)
    failure = decoder.failure
    assert isinstance(failure, ProviderError)
    assert text_of(parts) == "A half"
    assert (failure.provider_code, failure.reason, failure.retryable) == (code, reason, True)


def test_a_cancelled_response_is_a_failure() -> None:
    """A response that somebody cancelled at the provider is not an answer."""
    _, decoder = RESPONSES.feed({"type": "response.cancelled", "response": {"status": "cancelled"}})
    assert isinstance(decoder.failure, ProviderError)


def test_done_is_no_evidence() -> None:
    """`[DONE]` says nothing in this protocol."""
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"}
    _, decoder = RESPONSES.feed(delta, "[DONE]")
    assert isinstance(decoder.failure, ProviderStreamCutError)


def test_fragments_that_contradict_the_whole_arguments_fail() -> None:
    """A call whose arguments are in doubt is never executed."""
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": ""}
    _, decoder = RESPONSES.feed(
        {"type": "response.output_item.added", "output_index": 0, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a":2'},
        {"type": "response.output_item.done", "output_index": 0, "item": {**call, "arguments": '{"a":1}'}},
    )
    assert isinstance(decoder.failure, ModelProtocolError)


def test_a_missing_fragment_is_filled_in() -> None:
    """What no delta told comes from the item as a whole."""
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}
    parts, _ = RESPONSES.feed(
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    )
    assert text_of(parts) == "Hello"


def test_unknown_kinds_stop_nothing() -> None:
    """An unknown event says nothing; an unknown item or piece of a message is passed on as it is."""
    assert [item["type"] for item in opaque_of(own("odds-and-ends")[0])] == [
        "message_piece",
        "brand_new_item",
        "compaction",
    ]


@pytest.mark.parametrize(
    "event",
    [
        "{",
        [],
        {"type": "response.output_item.added", "output_index": 0},
        {"type": "response.output_text.delta", "output_index": 0, "delta": 1},
        {"type": "response.completed"},
    ],
)
def test_what_no_event_can_be_is_a_protocol_error(event: object) -> None:
    """The error names the provider."""
    _, decoder = RESPONSES.feed(event)
    assert isinstance(decoder.failure, ModelProtocolError)
    assert "openai-responses" in str(decoder.failure)


def test_a_whole_document_reads_like_its_stream() -> None:
    """A response that did not stream gives the same parts."""
    stream = _STREAMS["response-only"]
    (line,) = (line for line in stream.body.decode().splitlines() if line.startswith("data:"))
    parts = OpenAIResponsesDecoder().feed_document(json.dumps(json.loads(line[5:])["response"]))
    assert parts == own("response-only")[0]
    assert reading(parts)["text"] == "All in the end."


@pytest.mark.parametrize("document", ['{"error":{"message":"No."}}', '{"status":"failed","error":{"message":"No."}}'])
def test_a_document_with_an_error_fails(document: str) -> None:
    """An error that came with status 200 is an error."""
    decoder = OpenAIResponsesDecoder()
    decoder.feed_document(document)
    assert isinstance(decoder.failure, ProviderError)


def test_a_document_of_a_response_in_progress_is_no_answer() -> None:
    """What does not say how the answer ended is not taken for an answer."""
    decoder = OpenAIResponsesDecoder()
    decoder.feed_document('{"id":"r","model":"m","status":"queued","output":[]}')
    assert isinstance(decoder.failure, ModelProtocolError)


def test_the_phase_of_a_message_is_told_behind_its_text() -> None:
    """With the length of the text, for the record may join it to what was said before; text without one has none."""
    parts, _ = RESPONSES.feed(
        *(
            {
                "type": "response.output_item.done",
                "output_index": place,
                "item": {"type": "message", "phase": phase, "content": [{"type": "output_text", "text": text}]},
            }
            for place, (phase, text) in enumerate(
                [("commentary", "I look\ud83d\ude00"), (None, "Hm."), ("final_answer", "")]
            )
        )
    )
    assert opaque_of(parts) == [{"type": "message", "phase": "commentary", "length": 7}]
