"""The repository's own streams of every protocol are read right, however they are cut and wherever they end."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import ModelError, ProviderError, ProviderStreamCutError
from runlane.models import FinishReport, ResponseInfo
from tests.models.protocols import (
    PROTOCOLS,
    Stream,
    WireProtocol,
    assert_reads_as_expected,
    name_of,
    own_streams,
    pieces,
)

# The chat streams have tests of the same kind beside their decoder.
_OWN = own_streams("anthropic-messages", "openai-responses", "google-generate")
_OTHERS = PROTOCOLS[1:]


@pytest.mark.parametrize("size", [1, 37, 0])
@pytest.mark.parametrize("stream", _OWN, ids=name_of)
def test_a_stream_gives_what_its_index_says(stream: Stream, size: int) -> None:
    """Text, reasoning, calls, finish, usage and identity are right at every size of the pieces."""
    parts, decoder = stream.protocol.decode(pieces(stream.body, size))
    assert_reads_as_expected(stream, parts)
    assert isinstance(decoder.failure, ProviderError) == stream.fails


@pytest.mark.parametrize("stream", _OWN, ids=name_of)
def test_a_finish_report_is_the_last_part_and_the_only_one(stream: Stream) -> None:
    """One finish report ends a complete answer, and who answered is said exactly once."""
    parts, _ = stream.protocol.decode([stream.body])
    finishes = [part for part in parts if isinstance(part, FinishReport)]
    assert finishes == ([] if stream.fails else [parts[-1]])
    assert sum(isinstance(part, ResponseInfo) for part in parts) == 1


@pytest.mark.parametrize("stream", _OWN, ids=name_of)
def test_a_stream_cut_anywhere_is_never_taken_for_whole(stream: Stream) -> None:
    """Ending at any byte before the finish evidence gives what arrived, no finish report, and a typed failure."""
    whole, _ = stream.protocol.decode([stream.body])
    told = [part for part in whole if not isinstance(part, ResponseInfo | FinishReport)]
    for end in range(0, len(stream.body), 3):
        prefix = stream.body[:end]
        parts, decoder = stream.protocol.decode([prefix])
        if stream.protocol.shows_the_end(prefix):
            assert isinstance(parts[-1], FinishReport), end
        else:
            assert not any(isinstance(part, FinishReport) for part in parts), end
            assert isinstance(decoder.failure, ProviderStreamCutError | ProviderError), end
            kept = [part for part in parts if not isinstance(part, ResponseInfo)]
            assert kept == told[: len(kept)], end


@given(data=st.data())
def test_any_split_gives_the_same_parts(data: st.DataObject) -> None:
    """Where the network cuts a body is invisible."""
    stream = data.draw(st.sampled_from(_OWN))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream.body)), max_size=20)))
    chunks = [stream.body[start:end] for start, end in pairwise([0, *cuts, len(stream.body)])]
    assert stream.protocol.decode(chunks)[0] == stream.protocol.decode([stream.body])[0]


_WORDS = sorted(
    {word for stream in _OWN for word in stream.body.decode().replace(":", '"').split('"') if word.isidentifier()}
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 4) | st.floats() | st.text(max_size=5) | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def _bent_events(draw: st.DrawFn) -> tuple[WireProtocol, list[str]]:
    """Events of a real stream, some with a value somewhere inside replaced by another."""
    stream = draw(st.sampled_from(_OWN))
    lines = [line[5:].strip() for line in stream.body.decode().splitlines() if line.startswith("data:")]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    for _ in range(draw(st.integers(1, 3))):
        holder = draw(st.sampled_from(events))
        for _ in range(draw(st.integers(0, 4))):
            inner = [value for value in (holder.values() if isinstance(holder, dict) else holder) if value]
            inner = [value for value in inner if isinstance(value, dict | list)]
            if not inner:
                break
            holder = draw(st.sampled_from(inner))
        if holder:
            key = draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
            holder[key] = draw(_VALUES)
    return stream.protocol, [json.dumps(event) for event in events]


@given(bent=_bent_events())
def test_a_bent_stream_never_crashes_the_decoder(bent: tuple[WireProtocol, list[str]]) -> None:
    """Whatever a provider sends in place of a value, there are parts or a typed failure, never a crash."""
    protocol, events = bent
    decoder = protocol.new_decoder()
    parts = [part for event in events for part in decoder.feed(event, "message")] + decoder.close()
    assert decoder.ended
    finished = bool(parts) and isinstance(parts[-1], FinishReport)
    assert finished != isinstance(decoder.failure, ModelError)


@given(garbage=st.lists(st.text() | _VALUES.map(json.dumps), max_size=5), event=st.sampled_from([*_WORDS, "message"]))
def test_garbage_never_crashes_a_decoder(garbage: list[str], event: str) -> None:
    """The same for what was never a stream, and for documents."""
    for protocol in _OTHERS:
        decoder = protocol.new_decoder()
        parts = [part for data in garbage for part in decoder.feed(data, event)] + decoder.close()
        assert (bool(parts) and isinstance(parts[-1], FinishReport)) != isinstance(decoder.failure, ModelError)
        for data in garbage:
            decoder = protocol.new_decoder()
            parts = decoder.feed_document(data)
            assert (bool(parts) and isinstance(parts[-1], FinishReport)) != isinstance(decoder.failure, ModelError)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("[" * 3_000 + "]" * 3_000, "nested too deeply"),
        ('{"usage": {"cost": Infinity}}', "Infinity is not JSON"),
        ('{"usage": ' + "9" * 5_000 + "}", "a number has too many digits"),
        ('{"usage": secret}', "Expecting value"),
    ],
)
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=name_of)
def test_what_is_wrong_with_json_is_said_without_its_text(protocol: WireProtocol, document: str, words: str) -> None:
    """The error says what is wrong in words of people, not of the interpreter, and repeats nothing."""
    _, decoder = protocol.feed(document)
    assert isinstance(decoder.failure, ModelError)
    assert words in str(decoder.failure)
    assert "secret" not in str(decoder.failure)
