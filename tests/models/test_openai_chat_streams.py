"""Every dialect in the repository's own streams is read right, however the bytes are cut and wherever they end."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import ModelError, ProviderError, ProviderStreamCutError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    ResponseInfo,
    StreamNote,
    UsageReport,
    create_tool_call_collector,
)
from runlane.models.openai_chat import OpenAIChatDecoder, _decoder
from tests.models.replay import (
    OWN_STREAMS,
    Recorded,
    decode,
    expected_reading,
    handed_streams,
    name_of,
    new_decoder,
    own_streams,
    pieces,
    reading,
)

_ALL = [*own_streams(), *handed_streams()]


def own(name: str) -> bytes:
    """The body of one of the repository's own streams."""
    return (OWN_STREAMS / f"{name}.sse").read_bytes()


@pytest.mark.parametrize("size", [1, 7, 1024, 0])
@pytest.mark.parametrize("stream", own_streams(), ids=name_of)
def test_a_stream_gives_what_its_index_says(stream: Recorded, size: int) -> None:
    """Text, reasoning, calls, finish, usage and identity are right at every size of the pieces."""
    parts, decoder = decode(pieces(stream.body, size))
    assert reading(parts) == expected_reading(stream)
    assert isinstance(decoder.failure, ProviderError) == stream.fails


@pytest.mark.parametrize("stream", own_streams(), ids=name_of)
def test_a_finish_report_is_the_last_part_and_the_only_one(stream: Recorded) -> None:
    """One finish report ends a complete answer, and who answered is said exactly once."""
    parts, _ = decode([stream.body])
    finishes = [part for part in parts if isinstance(part, FinishReport)]
    assert finishes == ([] if stream.fails else [parts[-1]])
    assert sum(isinstance(part, ResponseInfo) for part in parts) == 1


@pytest.mark.parametrize("stream", _ALL, ids=name_of)
def test_the_fast_scan_changes_nothing(stream: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same parts come out when every chunk goes through the general decoder."""
    fast, _ = decode([stream.body])
    monkeypatch.setattr(_decoder, "scan_chat_chunk", lambda _: None)
    general, _ = decode([stream.body])
    assert fast == general


def _evidence(prefix: bytes) -> bool:
    """Whether the whole events of a prefix hold a finish reason, or `[DONE]` while no call is open."""
    blocks = prefix.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")[:-1]
    chunks = [block.partition(b"data:")[2].strip() for block in blocks if b"data:" in block]
    calls = any(b'"tool_calls":[' in chunk or b'"function_call"' in chunk for chunk in chunks)
    for chunk in chunks:
        if chunk == b"[DONE]":
            return not calls
        choices = json.loads(chunk).get("choices", []) if chunk else []
        if any(choice.get("finish_reason") for choice in choices if choice.get("index") == 0):
            return True
    return False


@pytest.mark.parametrize("stream", own_streams(), ids=name_of)
def test_a_stream_cut_anywhere_is_never_taken_for_whole(stream: Recorded) -> None:
    """Ending at any byte before the finish evidence gives what arrived, no finish report, and a typed failure."""
    whole, _ = decode([stream.body])
    for end in range(len(stream.body)):
        prefix = stream.body[:end]
        parts, decoder = decode([prefix])
        if not _evidence(prefix):
            assert not any(isinstance(part, FinishReport) for part in parts), end
            assert isinstance(decoder.failure, ProviderStreamCutError | ProviderError), end
        else:
            assert isinstance(parts[-1], FinishReport), end
        kept = [part for part in parts if not isinstance(part, ResponseInfo | FinishReport)]
        assert kept == [part for part in whole if not isinstance(part, ResponseInfo | FinishReport)][: len(kept)], end


@given(data=st.data())
def test_any_split_gives_the_same_parts(data: st.DataObject) -> None:
    """Where the network cuts a body is invisible."""
    body = data.draw(st.sampled_from(own_streams())).body
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=20)))
    bounds = [0, *cuts, len(body)]
    chunks = [body[start:end] for start, end in pairwise(bounds)]
    assert decode(chunks)[0] == decode([body])[0]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
_KEYS = st.sampled_from([
    "id", "model", "provider", "object", "choices", "delta", "message", "index", "finish_reason", "content", "refusal",
    "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "function_call", "function", "name",
    "arguments", "type", "text", "thinking", "usage", "x_groq", "prompt_tokens", "completion_tokens", "cost", "error",
    "message", "code", "annotations", "url_citation", "url", "images", "image_url", "citations",
])  # fmt: skip
_CHUNKS = st.recursive(
    _JSON | st.sampled_from([0, 1, "", "stop", "tool_calls", "error", "reasoning.text", "data:image/png;base64,AA=="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=30,
)


@given(garbage=st.lists(st.text() | _CHUNKS.map(json.dumps) | st.just("[DONE]"), max_size=6), event=st.text())
def test_garbage_never_crashes_the_decoder(garbage: list[str], event: str) -> None:
    """Whatever comes, the decoder gives parts or a typed failure, never both a finish and a failure."""
    decoder = new_decoder()
    parts: list[ModelPart] = []
    for data in garbage:
        parts += decoder.feed(data, event)
    parts += decoder.close()
    assert decoder.ended
    finished = bool(parts) and isinstance(parts[-1], FinishReport)
    assert finished != isinstance(decoder.failure, ModelError)


@given(chunk=_CHUNKS)
def test_the_fast_scan_agrees_with_the_general_decoder(chunk: object) -> None:
    """For any chunk inside a stream, the decoder gives the same whether or not the fast scan may answer."""
    first = '{"id":"r","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}}]}'
    wrapped = [
        chunk,
        {"choices": [{"delta": chunk}]},
        {"choices": [{"index": 0, "delta": {"content": chunk, "reasoning": None}, "finish_reason": None}]},
        {"choices": [{"delta": {"tool_calls": [chunk]}}], "usage": None},
    ]
    for candidate in wrapped:
        data = json.dumps(candidate)
        results = []
        for event in ("message", "other"):  # the scan looks at plain messages only
            decoder = new_decoder()
            decoder.feed(first)
            results.append((decoder.feed(data, event), decoder.close(), str(decoder.failure)))
        assert results[0] == results[1]


_FRAGMENTS = st.fixed_dictionaries(
    {
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["f", "g", "", None]),
                "arguments": st.sampled_from(["", "{}", "é", None]),
            },
        )
    },
    optional={
        "index": st.sampled_from([0, 1, 2]),
        "id": st.sampled_from(["a", "b", "", None]),
        "type": st.just("function"),
        "extra": st.just({"x": 1}),
    },
)


@given(fragments=st.lists(st.lists(_FRAGMENTS, min_size=1, max_size=2), max_size=5), reasoning=st.booleans())
def test_the_fast_scan_agrees_on_calls(fragments: list[list[object]], reasoning: bool) -> None:  # noqa: FBT001
    """Whatever a provider does with the indexes, ids and names of its calls, and in the middle of a thought."""
    opening: list[dict[str, object]] = [{"reasoning": "Hm."}] if reasoning else []
    deltas = [{"content": ""}, *opening, *({"tool_calls": calls} for calls in fragments)]
    results = []
    for event in ("message", "other"):
        decoder = new_decoder()
        told = [decoder.feed(json.dumps({"choices": [{"delta": delta}]}), event) for delta in deltas]
        results.append((told, decoder.close(), str(decoder.failure)))
    assert results[0] == results[1]


def test_reasoning_is_one_block_that_ends_with_what_goes_back() -> None:
    """A block opens once, and its end carries the provider's details, fragments joined, and the field it used."""
    parts, _ = decode([own("reasoning-details")])
    block = [part for part in parts if isinstance(part, ReasoningDelta)]
    assert [part.phase for part in block] == ["start", "delta", "delta", "end"]
    assert block[-1].provider_options == {
        "field": "reasoning",
        "reasoning_details": [
            {
                "type": "reasoning.text",
                "format": "anthropic-claude-v1",
                "index": 0,
                "text": "So be it.",
                "signature": "c2lnbmVk",
            }
        ],
    }


def test_upstream_cost_and_cache_writes_are_read() -> None:
    """OpenRouter's upstream name, its cost in the endpoint's currency and its cache writes reach the parts."""
    parts, _ = decode([own("reasoning-details")], OpenAIChatDecoder(currency="USD"))
    (info,) = (part for part in parts if isinstance(part, ResponseInfo))
    (usage,) = (part.usage for part in parts if isinstance(part, UsageReport))
    assert info.upstream_provider == "Aviary"
    assert (usage.cost, usage.currency, usage.cache_write_tokens) == (0.000669, "USD", 7)


def test_usage_in_every_chunk_is_replaced_and_never_added() -> None:
    """Each report holds the figures so far; the last one is the response's."""
    parts, _ = decode([own("usage-in-every-chunk")])
    usages = [part.usage for part in parts if isinstance(part, UsageReport)]
    assert [(usage.input_tokens, usage.output_tokens) for usage in usages] == [(25, 1), (25, 2), (25, 3), (25, 15)]


def test_an_error_after_the_finish_reason_is_a_note() -> None:
    """The answer stays complete, its usage counts, and the provider's words go to diagnostics."""
    parts, decoder = decode([own("error-after-finish")])
    assert parts[-1] == FinishReport("length", "length")
    assert [note.kind for note in decoder.notes] == ["error-after-finish"]
    assert "Token limit reached" in decoder.notes[0].detail


def test_an_error_alone_fails_the_response_after_what_came_before() -> None:
    """Text before the error is delivered; the error keeps the provider's code and status."""
    parts, decoder = decode([own("error-event")])
    failure = decoder.failure
    assert isinstance(failure, ProviderError)
    assert reading(parts)["text"] == "A half"
    assert (failure.provider_code, failure.status, failure.reason) == ("tool_use_failed", 400, "stream-error")


def test_done_alone_means_stop_without_a_raw_reason() -> None:
    """`[DONE]` is finish evidence; what the provider did not say stays unsaid."""
    parts, _ = decode([own("done-alone")])
    assert parts[-1] == FinishReport("stop", None)


def test_a_stop_beside_calls_means_the_calls() -> None:
    """A provider that calls every end `stop` still gets its calls answered; its own word is kept."""
    parts, _ = decode([own("calls-all-numbered-zero")])
    assert parts[-1] == FinishReport("tool-calls", "stop")


def test_a_refusal_is_visible_and_is_no_ordinary_stop() -> None:
    """The refusal is shown as text and the reason says that content was withheld."""
    parts, _ = decode([own("refusal")])
    assert parts[-1] == FinishReport("content-filter", "stop")


def test_a_broken_character_is_repaired_once_and_noted() -> None:
    """A pair split over two chunks is one character; a lone half becomes U+FFFD, and the repair is noted."""
    parts, decoder = decode([own("odds-and-ends")])
    assert reading(parts)["text"] == "yes 🦊 and \ufffd."
    assert [note.kind for note in decoder.notes] == ["text-repaired"]
    assert isinstance(decoder.notes[0], StreamNote)


def test_nineteen_digits_survive_the_stream() -> None:
    """An integer beyond what a double holds reaches the tool digit for digit."""
    calls = create_tool_call_collector()
    for part in decode([own("big-integer")])[0]:
        if isinstance(part, FunctionCallDelta):
            calls.add(part)
    assert calls.finish()[0].input == {"id": 2512292042121000001}
