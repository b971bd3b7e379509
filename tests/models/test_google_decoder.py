"""What only Google's generateContent says, read by the rules of the port."""

import json

import pytest
from pydantic import JsonValue

from runlane.errors import ModelProtocolError, ProviderError
from runlane.models import (
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    SourceOutput,
    UsageReport,
    create_tool_call_collector,
)
from runlane.models._wire import StreamDecoder
from runlane.models.google import GoogleDecoder
from tests.models.protocols import GOOGLE, opaque_of, own_streams, reading, text_of

_STREAMS = {stream.path.stem: stream for stream in own_streams("google-generate")}


def own(name: str) -> tuple[list[ModelPart], StreamDecoder]:
    """Decode one of the repository's own streams."""
    return GOOGLE.decode([_STREAMS[name].body])


def chunk(*parts: JsonValue, finish: str | None = None) -> dict[str, JsonValue]:
    """An event with the next parts."""
    return {"candidates": [{"content": {"parts": [*parts], "role": "model"}, "finishReason": finish}]}


def test_usage_is_replaced_and_never_added() -> None:
    """Each event holds the figures so far; the last ones are the response's."""
    usages = [part.usage for part in own("text-with-cumulative-usage")[0] if isinstance(part, UsageReport)]
    assert [(usage.input_tokens, usage.output_tokens) for usage in usages] == [(9, 1), (9, 3), (9, 4)]
    assert (usages[-1].cache_read_tokens, usages[-1].reasoning_tokens) == (2, None)


def test_a_signature_of_text_is_reasoning_without_text_behind_it() -> None:
    """Thoughts are a block of their own; the signature of the visible text follows it and shows nothing."""
    parts, _ = own("thoughts-and-signature")
    blocks = [part for part in parts if isinstance(part, ReasoningDelta)]
    assert [(part.phase, part.text) for part in blocks] == [
        ("start", ""),
        ("delta", "I add"),
        ("delta", " them."),
        ("end", ""),
        ("start", ""),
        ("end", ""),
    ]
    assert blocks[3].provider_options is None
    assert blocks[5].provider_options == {"thoughtSignature": "c2lnbmVk"}


def test_signatures_stay_with_thoughts_and_calls() -> None:
    """What the provider attached to a thought or a call is kept for it."""
    parts, _ = own("signed-parallel-calls")
    end = next(part for part in parts if isinstance(part, ReasoningDelta) and part.phase == "end")
    heads = [part for part in parts if isinstance(part, FunctionCallDelta) and part.name]
    assert end.provider_options == {"thoughtSignature": "dGg=", "thought": True}
    assert [head.provider_options for head in heads] == [
        {"id": "call_a", "thoughtSignature": "c2ln"},
        {"id": "call_b"},
    ]


def test_a_call_without_an_id_is_given_one() -> None:
    """Two calls of one function are two calls."""
    assert [call["id"] for call in reading(own("calls-without-ids")[0])["tool_calls"]] == ["call-1", "call-2"]


def test_a_call_that_never_ended_has_no_input() -> None:
    """What arrived of it is kept as text that is not JSON, so that nothing runs on it."""
    collector = create_tool_call_collector()
    for part in own("limit-within-a-call")[0]:
        if isinstance(part, FunctionCallDelta):
            collector.add(part)
    (call,) = collector.finish()
    assert (call.arguments, call.has_input) == ('{"text": "On"', False)


def test_code_the_provider_ran_is_kept_whole() -> None:
    """Code with its signature, and what it gave."""
    assert opaque_of(own("code-the-provider-ran")[0]) == [
        {"executableCode": {"language": "PYTHON", "code": "print(1+1)"}, "thoughtSignature": "c2ln"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n"}},
    ]


def test_what_an_answer_rests_on_is_told() -> None:
    """Sources once each; the grounds as the provider gave them, at the end."""
    parts, _ = own("grounded")
    assert [part for part in parts if isinstance(part, SourceOutput)] == [
        SourceOutput("https://birds.example/parrot", "https://birds.example/parrot", "Parrots"),
        SourceOutput("fileSearchStores/s"),
        SourceOutput("https://maps.example/1", "https://maps.example/1", "Zoo"),
    ]
    call, response, grounds = opaque_of(parts)
    assert ("toolCall" in call, "toolResponse" in response) == (True, True)
    assert sorted(grounds) == ["groundingMetadata", "urlContextMetadata"]


def test_an_image_is_a_file() -> None:
    """Data that cannot be read is passed on as it came."""
    parts, _ = own("image")
    assert [part for part in parts if isinstance(part, FileOutput)] == [FileOutput("image/png", b"\x89")]
    assert opaque_of(parts) == [{"inlineData": {"mimeType": "image/png", "data": "not base64!"}}]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("text-with-cumulative-usage", "stop"),
        ("calls-without-ids", "tool-calls"),
        ("limit-within-a-call", "length"),
        ("filtered", "content-filter"),
        ("blocked-prompt", "content-filter"),
        ("malformed-call", "other"),
    ],
)
def test_a_finish_reason_has_its_neutral_word(name: str, reason: str) -> None:
    """The neutral reason says what happened; the provider's own word is kept beside it."""
    assert own(name)[0][-1] == FinishReport(reason, _STREAMS[name].expected["finish_reason"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "code", "reason", "wait"),
    [("overloaded", "UNAVAILABLE", "stream-error", None), ("quota-within", "RESOURCE_EXHAUSTED", "rate-limited", 34.5)],
)
def test_an_error_fails_the_response_after_what_came_before(
    name: str, code: str, reason: str, wait: float | None
) -> None:
    """Text before the error is delivered; code, and how long to wait, are kept; it can be tried again."""
    parts, decoder = own(name)
    failure = decoder.failure
    assert isinstance(failure, ProviderError)
    assert text_of(parts) == "A half"
    assert (failure.provider_code, failure.reason, failure.retry_after) == (code, reason, wait)
    assert failure.retryable


def test_an_error_after_the_finish_reason_is_a_note() -> None:
    """The answer stays complete."""
    parts, decoder = GOOGLE.feed(chunk({"text": "Hi"}, finish="STOP"), {"error": {"code": 500, "message": "Late."}})
    assert (parts + decoder.close())[-1] == FinishReport("stop", "STOP")
    assert [note.kind for note in decoder.notes] == ["error-after-finish"]


def test_unknown_kinds_stop_nothing() -> None:
    """Another candidate says nothing, an unknown part is passed on, and the first candidate's text is whole."""
    parts, decoder = own("odds-and-ends")
    assert opaque_of(parts) == [{"brandNew": {"a": 1}}]
    assert [note.kind for note in decoder.notes] == ["text-repaired"]


def test_a_wrapped_response_is_read() -> None:
    """Some endpoints of Google put the response below a key."""
    parts, _ = GOOGLE.feed({"response": chunk({"text": "Hi"})})
    assert text_of(parts) == "Hi"


@pytest.mark.parametrize(
    "event",
    [
        "{",
        [],
        {"candidates": {"a": 1}},
        {"candidates": [1]},
        {"candidates": [{"content": {"parts": {}}}]},
        {"candidates": [{"content": {"parts": [1]}}]},
        {"candidates": [{"finishReason": 1, "x": 1, "y": 1}]},
        chunk({"functionCall": {"args": {}}}),
        chunk({"functionCall": {"name": "f", "args": []}}),
        chunk({"functionCall": {"name": "f", "partialArgs": [1]}}),
        chunk({"functionCall": {"name": "f", "partialArgs": [{"stringValue": "x"}]}}),
        chunk({"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "a", "stringValue": "x"}]}}),
        chunk({"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$[0]", "stringValue": "x"}]}}),
        chunk({"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$.a[999999]", "stringValue": "x"}]}}),
        chunk({"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$" + ".a" * 99, "boolValue": True}]}}),
    ],
)
def test_what_no_event_can_be_is_a_protocol_error(event: object) -> None:
    """The error says what is wrong and shows no text of the event."""
    _, decoder = GOOGLE.feed(event)
    assert isinstance(decoder.failure, ModelProtocolError)


def test_a_whole_document_reads_like_its_stream() -> None:
    """One response, and a list of them (a stream asked for without events), give the same parts."""
    (line, *_), finish = [chunk({"text": "Hi"})], chunk({"functionCall": {"name": "f", "id": "a"}}, finish="STOP")
    streamed, decoder = GOOGLE.feed(line, finish)
    streamed += decoder.close()
    whole = chunk({"text": "Hi"}, {"functionCall": {"name": "f", "id": "a"}}, finish="STOP")
    assert GoogleDecoder().feed_document(json.dumps([line, finish])) == streamed
    assert GoogleDecoder().feed_document(json.dumps(whole)) == streamed
    assert reading(streamed)["tool_calls"] == [{"id": "a", "name": "f", "arguments": "{}"}]


def test_a_document_without_an_end_fails() -> None:
    """What does not say how the answer ended is not taken for an answer."""
    decoder = GoogleDecoder()
    decoder.feed_document(json.dumps(chunk({"text": "Hi"})))
    assert isinstance(decoder.failure, ModelProtocolError)


def test_the_first_candidate_alone_is_the_answer() -> None:
    """Also where no candidate says its index, and where one comes alone."""

    def candidate(text: str, **more: object) -> dict[str, object]:
        return {"content": {"parts": [{"text": text}]}, **more}

    parts, _ = GOOGLE.feed(
        {"candidates": [candidate("A"), candidate("B")]},
        {"candidates": [candidate("C", index=1), candidate("D", index=0)]},
        {"candidates": [candidate("E", index=1)]},
        {"candidates": [candidate("F", finishReason="STOP")]},
    )
    assert text_of(parts) == "ADF"


def test_a_part_whose_text_is_null_says_nothing() -> None:
    """It is no output of an unknown kind."""
    parts, _ = GOOGLE.feed({"candidates": [{"content": {"parts": [{"text": None}]}, "finishReason": "STOP"}]})
    assert opaque_of(parts) == []


def test_an_error_in_a_list_is_that_error() -> None:
    """As the server wraps it where it does not stream."""
    _, decoder = GOOGLE.feed([{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}])
    assert isinstance(decoder.failure, ProviderError)
    assert decoder.failure.reason == "rate-limited"
