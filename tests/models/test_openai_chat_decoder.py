"""Single chunks and single rules of the chat-completions decoder."""

import json

import pytest
from pydantic import JsonValue

from runlane.errors import ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import (
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    SourceOutput,
    TextDelta,
    UsageReport,
    create_tool_call_collector,
)
from runlane.models.openai_chat import OpenAIChatDecoder
from runlane.records import JsonObject, ToolCallPart
from tests.models.protocols import PROTOCOLS
from tests.models.replay import delta, feed, new_decoder, text_of


def output(*deltas: dict[str, object]) -> list[ModelPart]:
    """The parts of some deltas, without the identity."""
    parts, _ = feed(*(delta(None, **fields) for fields in deltas))
    return [part for part in parts if not isinstance(part, ResponseInfo)]


def calls(*entries: object) -> tuple[ToolCallPart, ...]:
    """The whole calls of a stream whose chunks each hold one entry of `tool_calls`."""
    parts, _ = feed(*(delta(None, tool_calls=[entry]) for entry in entries), delta(finish="tool_calls"), "[DONE]")
    collector = create_tool_call_collector(provider="openai-chat")
    for part in parts:
        if isinstance(part, FunctionCallDelta):
            collector.add(part)
    return collector.finish()


def entry(arguments: object = None, **fields: object) -> dict[str, object]:
    """An entry of `tool_calls`."""
    function = {} if arguments is None else {"arguments": arguments}
    name = fields.pop("name", None)
    return {**fields, "function": function if name is None else {"name": name, **function}}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("model_length", "length"),
        ("tool_calls", "tool-calls"),
        ("function_call", "tool-calls"),
        ("content_filter", "content-filter"),
        ("sensitive", "content-filter"),
        ("insufficient_system_resource", "other"),
        ("something new", "other"),
    ],
)
def test_finish_reasons_are_read_and_kept(raw: str, reason: str) -> None:
    """The neutral reason is one of five; the provider's own word is always beside it."""
    parts, _ = feed(delta(content="x"), delta(finish=raw), "[DONE]")
    assert parts[-1] == FinishReport(reason, raw)  # type: ignore[arg-type]  # the table holds the literals


def test_the_end_of_the_body_is_enough_after_a_finish_reason() -> None:
    """Not every server says `[DONE]`."""
    parts, decoder = feed(delta(content="x", finish="stop"))
    assert decoder.has_finish
    assert decoder.close() == [FinishReport("stop", "stop")]
    assert text_of(parts) == "x"


def test_done_with_an_open_call_is_a_cut() -> None:
    """Even when the call looks whole: nothing says that it is."""
    parts, decoder = feed(delta(tool_calls=[entry("{}", index=0, id="c", name="f")]), "[DONE]")
    assert isinstance(decoder.failure, ProviderStreamCutError)
    assert not any(isinstance(part, FinishReport) for part in parts)


def test_what_follows_the_end_is_ignored() -> None:
    """After `[DONE]`, after a failure and after closing, nothing changes."""
    for end in ("[DONE]", " [DONE] ", {"error": "x"}, "not json"):
        _, decoder = feed(delta(content="x"), end)
        failure = decoder.failure
        assert decoder.ended
        assert decoder.feed(json.dumps(delta(content="more"))) == []
        assert decoder.feed_document("{}") == []
        assert decoder.close() == []
        assert decoder.failure is failure


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "boom", "code": "server_error"}},
        {"error": "boom"},
        {"error": {"detail": "boom"}, "choices": []},
        {"object": "error", "message": "boom", "code": 500},
        {"choices": [{"index": 0, "delta": {}, "error": {"message": "boom"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}], "error": {"message": "boom"}},
        {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "boom"}}},
    ],
)
def test_an_error_in_any_place_fails_the_response(error: object) -> None:
    """The words are kept and what came before is delivered; the reason is `stream-error` unless more is said."""
    parts, decoder = feed(delta(content="Hi"), error)
    assert isinstance(decoder.failure, ProviderError)
    assert "boom" in str(decoder.failure)
    assert decoder.failure.reason == "stream-error"
    assert text_of(parts) == "Hi"


def test_an_event_named_error_is_one() -> None:
    """Even if its data does not say so."""
    decoder = new_decoder()
    decoder.feed('{"message": "Rate limit reached", "type": "tokens"}', "error")
    assert isinstance(decoder.failure, ProviderError)
    assert decoder.failure.reason == "rate-limited"


def test_the_finish_reason_error_alone_fails() -> None:
    """A provider that says `error` and nothing else has failed all the same."""
    _, decoder = feed(delta(content="Hi"), delta(finish="error"))
    assert isinstance(decoder.failure, ProviderError)


def test_text_of_the_chunk_with_the_error_is_delivered() -> None:
    """The error is looked at last."""
    chunk = {**delta(content="last words"), "error": {"message": "boom"}, "usage": {"prompt_tokens": 3}}
    parts, decoder = feed(chunk)
    assert text_of(parts) == "last words"
    assert any(isinstance(part, UsageReport) for part in parts)
    assert decoder.failure is not None


@pytest.mark.parametrize(
    "chunk",
    [
        "[]",
        '"text"',
        "{",
        "{'a': 1}",
        "NaN",
        "[" * 5_000,
        {"choices": {"a": 1}},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": [{"delta": {"content": [5]}}]},
        {"choices": [{"delta": {}, "finish_reason": 5}]},
        {"choices": [{"delta": {"tool_calls": {"a": 1}}}]},
        {"choices": [{"delta": {"tool_calls": ["x"]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": -1}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": True}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": 5}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": "x"}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": 5}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": "x"}}]}}]},
    ],
)
def test_a_malformed_chunk_fails_and_is_named_by_its_place(chunk: object) -> None:
    """Parts before it are delivered; the error says which event is wrong."""
    parts, decoder = feed(delta(content="Hi"), chunk, delta(content="never"))
    assert isinstance(decoder.failure, ModelProtocolError)
    assert "in event 2 of its stream" in str(decoder.failure)
    assert text_of(parts) == "Hi"


def test_who_answers_is_said_as_soon_as_it_is_known() -> None:
    """Before the first text if id and model are there, else at the end, with what was learnt."""
    parts, _ = feed({"id": "", "model": "", "choices": []}, delta(content="x"))
    assert parts[0] == ResponseInfo(response_id="r", model="m")
    late, _ = feed(
        {"model": "m", "choices": [{"delta": {"content": "x"}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    )  # fmt: skip
    assert late[-2:] == [ResponseInfo(model="m"), FinishReport("stop", "stop")]
    nobody, _ = feed({"choices": [{"delta": {"content": "x"}}]}, "[DONE]")
    assert nobody[-2:] == [ResponseInfo(), FinishReport("stop")]


def test_a_failed_response_says_who_failed_if_it_knows() -> None:
    """What the provider said of itself is delivered before the failure."""
    assert feed({"model": "m", "choices": []}, "oops")[0] == [ResponseInfo(model="m")]
    assert feed("oops")[0] == []


def test_reasoning_ends_before_the_answer_begins() -> None:
    """The block opens and closes once; a server that says the same in two fields is heard once."""
    assert output({"reasoning_content": "a", "reasoning": "a"}, {"content": "b"}) == [
        ReasoningDelta(phase="start"),
        ReasoningDelta("a"),
        ReasoningDelta(phase="end", provider_options={"field": "reasoning_content"}),
        TextDelta("b"),
    ]


def test_reasoning_after_the_answer_is_a_block_of_its_own() -> None:
    """Each block carries its own details; details without text are kept for the provider and not shown."""
    details: list[JsonValue] = [{"type": "reasoning.encrypted", "data": "x", "index": 0}]
    assert output({"reasoning": "a"}, {"content": "b"}, {"reasoning_details": details}, {"content": "c"}) == [
        ReasoningDelta(phase="start"),
        ReasoningDelta("a"),
        ReasoningDelta(phase="end", provider_options={"field": "reasoning"}),
        TextDelta("b"),
        ReasoningDelta(phase="start"),
        ReasoningDelta(phase="end", provider_options={"reasoning_details": details}),
        TextDelta("c"),
    ]


def test_details_are_joined_only_with_their_own_kind() -> None:
    """Fragments of one index and type are one; encrypted data is never joined, odd entries are kept."""
    fragments: list[JsonValue] = [
        {"type": "reasoning.summary", "index": 0, "summary": "a"},
        {"type": "reasoning.summary", "index": 0, "summary": "b", "id": "i"},
        {"type": "reasoning.summary", "index": 1, "summary": "c"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x"},
        {"type": "reasoning.encrypted", "index": 1, "data": "y"},
        "odd",
    ]
    chunks: list[dict[str, object]] = [{"reasoning_details": [fragment]} for fragment in fragments]
    parts = output(*chunks, {"content": "."})
    (end,) = (part for part in parts if isinstance(part, ReasoningDelta) and part.phase == "end")
    assert end.provider_options == {
        "reasoning_details": [
            {"type": "reasoning.summary", "index": 0, "summary": "ab", "id": "i"},
            {"type": "reasoning.summary", "index": 1, "summary": "c"},
            {"type": "reasoning.encrypted", "index": 1, "data": "x"},
            {"type": "reasoning.encrypted", "index": 1, "data": "y"},
            "odd",
        ]
    }


def test_pieces_of_content_are_read_by_their_type() -> None:
    """Text in two spellings, a refusal, plain text in the list; what has no neutral form is kept as it is."""
    reference: JsonObject = {"type": "reference", "reference_ids": [1]}
    pieces = [
        {"type": "text", "text": "a"}, {"type": "output_text", "text": "b"}, "c", reference,
        {"type": "thinking", "thinking": "hm"}, {"type": "thinking", "thinking": 5},
        {"type": "refusal", "refusal": "no"},
    ]  # fmt: skip
    assert output({"content": pieces}) == [
        TextDelta("a"),
        TextDelta("b"),
        TextDelta("c"),
        OpaqueOutput("openai-chat", reference),
        ReasoningDelta(phase="start"),
        ReasoningDelta("hm"),
        ReasoningDelta(phase="end"),
        TextDelta("no"),
    ]


def test_sources_are_said_once() -> None:
    """Citations of the answer and the list that some repeat in every chunk."""
    annotation = {"type": "url_citation", "url_citation": {"url": "https://a.org", "title": "A"}}
    chunk = {**delta(content="x", annotations=[annotation, {"type": "file"}]), "citations": ["https://b.org", 5]}
    parts, _ = feed(chunk, chunk)
    assert [part for part in parts if isinstance(part, SourceOutput)] == [
        SourceOutput("https://a.org", "https://a.org", "A"),
        SourceOutput("https://b.org", "https://b.org"),
    ]


def test_images_a_model_makes_are_files() -> None:
    """A data URL becomes bytes; any other address is passed on as it is."""
    images: list[object] = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}},
        {"type": "image_url", "image_url": {"url": "https://a.org/x.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,???"}},
        "odd",
    ]
    assert output({"images": images}) == [
        FileOutput("image/png", b"\x00\x01"),
        OpaqueOutput("openai-chat", images[1]),  # type: ignore[arg-type]  # it is an object
        OpaqueOutput("openai-chat", images[2]),  # type: ignore[arg-type]  # it is an object
    ]


def test_an_index_continues_its_call_under_a_changing_id() -> None:
    """Some servers put a new id on each fragment; the first is the call's."""
    (call,) = calls(entry('{"a"', index=0, id="one", name="f"), entry(":1}", index=0, id="two"))
    assert (call.call_id, call.arguments) == ("one", '{"a":1}')


def test_a_known_id_continues_its_call_without_an_index() -> None:
    """Fragments find their call by id, and without one the last call goes on."""
    first, second = calls(
        entry("{", id="one", name="f"),
        entry("[", id="two", name="g"),
        entry("}", id="one"),
        entry("", id="two"),
        entry("]"),
    )
    assert (first.arguments, second.arguments) == ("{}", "[]")


def test_a_call_without_an_id_is_given_one() -> None:
    """Two whole calls without index and id are two calls, each with a name of its own."""
    first, second = calls(entry("{}", name="f"), entry("{}", name="g"))
    assert (first.call_id, first.tool_name, second.call_id, second.tool_name) == ("call-1", "f", "call-2", "g")


def test_a_name_that_changes_is_refused_and_not_joined() -> None:
    """Half of one name and half of another make no call."""
    with pytest.raises(ModelProtocolError, match="name of call 0 changes"):
        calls(entry("", index=0, id="c", name="get_"), entry("", index=0, name="weather"))


def test_gaps_and_reused_numbers_do_not_collide() -> None:
    """A number that is used again moves behind all others."""
    made = calls(
        entry("{}", index=1, id="a", name="f"),
        entry("{}", index=0, id="b", name="f"),
        entry("{}", index=1, id="c", name="f"),
    )
    assert [call.call_id for call in made] == ["b", "a", "c"]


def test_arguments_given_as_an_object_are_written_out() -> None:
    """A server that parsed them already loses nothing."""
    (call,) = calls(entry({"q": "ü", "id": 2**63}, index=0, id="c", name="f"))
    assert call.input == {"q": "ü", "id": 2**63}


def test_what_stands_beside_a_call_is_kept_for_the_provider() -> None:
    """A thought signature travels in the call's envelope."""
    extra = {"google": {"thought_signature": "s"}}
    (call,) = calls(entry("{}", index=0, id="c", name="f", type="function", extra_content=extra))
    assert call.provider is not None
    assert call.provider.data == {"extra_content": extra}


def test_half_a_character_in_arguments_is_joined_or_repaired() -> None:
    """A pair split over two fragments is one character; a half left at the end becomes U+FFFD."""
    first = (
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"\\ud83e"}}]}}]}'
    )
    second = '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\udd8a\\ud83e"}}]}}]}'
    parts, decoder = feed(first, second, delta(finish="tool_calls"), "[DONE]")
    assert "".join(part.arguments or "" for part in parts if isinstance(part, FunctionCallDelta)) == "🦊\ufffd"
    assert [note.kind for note in decoder.notes] == ["text-repaired"]


def test_usage_is_read_from_where_each_provider_puts_it() -> None:
    """Missing, fractional and negative figures are unknown; the provider's own object is kept."""
    raw = {
        "prompt_tokens": 9.0,
        "completion_tokens": -1,
        "prompt_tokens_details": None,
        "completion_tokens_details": {"reasoning_tokens": 2.5},
        "prompt_cache_hit_tokens": 4,
        "cost": "free",
    }
    parts, _ = feed({"choices": [], "usage": raw})
    (report,) = parts
    assert isinstance(report, UsageReport)
    usage = report.usage
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cache_read_tokens) == (
        9,
        None,
        None,
        4,
    )
    assert (usage.cost, usage.currency, usage.raw) == (None, None, raw)


def test_the_same_usage_again_is_not_said_again() -> None:
    """A report is news, not a heartbeat."""
    chunk = {"choices": [], "usage": {"prompt_tokens": 1}}
    parts, _ = feed(chunk, chunk)
    assert len(parts) == 1


def test_a_whole_document_is_read_like_a_stream() -> None:
    """Text, calls without an index, usage and finish of a response that did not stream."""
    document = {
        "id": "r",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "reasoning_content": "hm",
                    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 1},
    }
    decoder = OpenAIChatDecoder()
    kinds = [type(part).__name__ for part in decoder.feed_document(json.dumps(document))]
    assert kinds == [
        "ResponseInfo", "ReasoningDelta", "ReasoningDelta", "ReasoningDelta", "TextDelta", "FunctionCallDelta",
        "UsageReport", "FinishReport",
    ]  # fmt: skip
    assert (decoder.ended, decoder.failure) == (True, None)


@pytest.mark.parametrize("document", ["{}", "[]", "", '{"choices":[{"message":{"content":"Hi"}}]}'])
def test_a_document_without_a_finish_reason_is_no_answer(document: str) -> None:
    """There is no later event that could give it."""
    decoder = OpenAIChatDecoder()
    decoder.feed_document(document)
    assert isinstance(decoder.failure, ModelProtocolError)


def test_a_stream_of_one_whole_message_is_read() -> None:
    """Some endpoints answer so where they cannot stream; a message at the end of other chunks repeats them."""

    def chunk(**choice: object) -> dict[str, object]:
        return {"id": "r", "model": "m", "choices": [{"index": 0, **choice}]}

    whole = chunk(message={"role": "assistant", "content": "Hi"}, finish_reason="stop")
    chat = PROTOCOLS[0]
    assert text_of(chat.feed(whole)[0]) == "Hi"
    assert text_of(chat.feed(chunk(delta={"content": "H"}), chunk(delta={"content": "i"}), whole)[0]) == "Hi"
