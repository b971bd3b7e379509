"""The tool-call collector makes whole calls of fragments, and refuses what would make a wrong one."""

import json
from itertools import pairwise
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import ModelProtocolError
from runlane.models import (
    FunctionCallDelta,
    NativeFunctionCall,
    ToolCallCollector,
    create_tool_call_collector,
    parse_arguments,
)


def collected(*deltas: FunctionCallDelta) -> ToolCallCollector:
    """A collector that took some fragments."""
    collector = create_tool_call_collector()
    for delta in deltas:
        collector.add(delta)
    return collector


def test_m14_fragments_of_one_index_are_one_call() -> None:
    """Arguments are joined as they arrive, without a separator; the text stays as streamed."""
    (call,) = collected(
        FunctionCallDelta(0, id="c", name="f", arguments='{"a":'), FunctionCallDelta(0, arguments=" 1 }")
    ).finish()
    assert (call.call_id, call.tool_name, call.arguments, call.input) == ("c", "f", '{"a": 1 }', {"a": 1})


def test_m15_calls_come_in_the_order_of_their_index() -> None:
    """Arrival order and gaps in the numbering do not matter."""
    deltas = [FunctionCallDelta(index, id=f"c{index}", name="f") for index in (2, 0, 7)]
    assert [call.call_id for call in collected(*deltas).finish()] == ["c0", "c2", "c7"]


def test_m16_id_and_name_may_come_late_and_twice() -> None:
    """The first that is not empty counts, and an equal repeat is harmless."""
    call = collected(
        FunctionCallDelta(0, arguments="{}"),
        FunctionCallDelta(0, id="", name=""),
        FunctionCallDelta(0, id="c", name="f"),
        FunctionCallDelta(0, id="c", name="f"),
    ).finish()[0]
    assert (call.call_id, call.tool_name) == ("c", "f")


@pytest.mark.parametrize(
    "deltas",
    [
        [FunctionCallDelta(0, id="a", name="f"), FunctionCallDelta(0, id="b")],
        [FunctionCallDelta(0, id="a", name="f"), FunctionCallDelta(0, name="g")],
        [FunctionCallDelta(-1, id="a", name="f")],
        [FunctionCallDelta(index, id=f"c{index}", name="f") for index in range(65)],
        [FunctionCallDelta(0, id="a", name="f", arguments="x" * 1_048_577)],
        [FunctionCallDelta(0, id="a", name="f", arguments="é" * 524_289)],
    ],
)
def test_m19_a_violation_while_adding_ends_the_collector(deltas: list[FunctionCallDelta]) -> None:
    """A changed id or name, a negative index, too many calls and too long arguments are refused, for good."""
    collector = create_tool_call_collector()
    with pytest.raises(ModelProtocolError) as first:
        for delta in deltas:
            collector.add(delta)
    with pytest.raises(ModelProtocolError, match=first.value.detail[:20]):
        collector.add(FunctionCallDelta(0, id="a", name="f"))
    with pytest.raises(ModelProtocolError):
        collector.finish()


@pytest.mark.parametrize(
    "deltas",
    [
        [FunctionCallDelta(0, name="f")],
        [FunctionCallDelta(0, id="a")],
        [FunctionCallDelta(0, id="a", name="f"), FunctionCallDelta(1, id="a", name="f")],
        [FunctionCallDelta(0, id="a" * 513, name="f")],
    ],
)
def test_m17_a_call_that_cannot_be_answered_is_refused_at_the_end(deltas: list[FunctionCallDelta]) -> None:
    """A call without id or name, two with one id, and an id too long to record are violations."""
    with pytest.raises(ModelProtocolError):
        collected(*deltas).finish()


def test_m19_a_finished_collector_takes_nothing_more() -> None:
    """One collector serves one response."""
    collector = collected(FunctionCallDelta(0, id="a", name="f"))
    collector.finish()
    with pytest.raises(ModelProtocolError):
        collector.add(FunctionCallDelta(1, id="b", name="f"))


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ('{"a": "\ud835\udc00"}', {"a": "\U0001d400"}),
        ('{"\ud800": ["\udc00"]}', {"\ufffd": ["\ufffd"]}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ("-0.0", -0.0),
    ],
)
def test_arguments_are_read_whatever_halves_of_characters_they_hold(arguments: str, found: object) -> None:
    """Lone surrogates become U+FFFD, escaped or not, and halves that belong together become their character."""
    assert repr(parse_arguments(arguments)) == repr(found)


def test_m20_the_caller_decides_the_class_of_the_error() -> None:
    """What `fail` raises is seen; if it returns, the collector raises its own error all the same."""
    told: list[tuple[str, str]] = []

    def raising(code: str, detail: str) -> NoReturn:
        raise KeyError(code, detail)

    def returning(code: str, detail: str) -> None:
        told.append((code, detail))

    with pytest.raises(KeyError):
        create_tool_call_collector(raising).add(FunctionCallDelta(-1))
    with pytest.raises(ModelProtocolError):
        create_tool_call_collector(returning).add(FunctionCallDelta(-1))  # type: ignore[arg-type]  # it breaks its promise
    assert told == [("model.protocol", "a call has the negative index -1")]


@pytest.mark.parametrize("arguments", ["", " ", "\n\t"])
def test_m17_blank_arguments_mean_an_empty_object(arguments: str) -> None:
    """The text stays as streamed, the input is `{}`."""
    (call,) = collected(FunctionCallDelta(0, id="c", name="f", arguments=arguments)).finish()
    assert (call.arguments, call.input, call.has_input) == (arguments, {}, True)


@pytest.mark.parametrize("arguments", ['{"a":', "NaN", '{"a": Infinity}', "1e400", "[" * 5_000, "9" * 5_000, "{} {}"])
def test_m18_arguments_that_are_not_json_have_no_input(arguments: str) -> None:
    """The call is recorded with its text; that it has no input keeps any tool from running."""
    (call,) = collected(FunctionCallDelta(0, id="c", name="f", arguments=arguments)).finish()
    assert (call.arguments, call.has_input) == (arguments, False)


def test_null_is_an_input() -> None:
    """`null` is valid JSON and is told apart from no input."""
    (call,) = collected(FunctionCallDelta(0, id="c", name="f", arguments="null")).finish()
    assert (call.input, call.has_input) == (None, True)


def test_big_integers_are_exact() -> None:
    """Nineteen digits reach the tool as they were written."""
    assert parse_arguments('{"id":2512292042121000001}') == {"id": 2512292042121000001}


def test_a_lone_surrogate_in_arguments_is_repaired_in_the_input_only() -> None:
    """The text is sent back as it came; what the tool gets is text, keys included."""
    text = r'{"\ud835":"a\ud835","b":["\ud83d\ude00"]}'
    (call,) = collected(FunctionCallDelta(0, id="c", name="f", arguments=text)).finish()
    assert call.arguments == text
    assert call.input == {"\ufffd": "a\ufffd", "b": ["😀"]}


def test_arguments_that_are_no_text_are_repaired_once() -> None:
    """A lone surrogate that a provider let through, of an own protocol for instance, becomes U+FFFD in the text too."""
    halves = (
        FunctionCallDelta(0, id="c", name="f", arguments='{"a":"\ud83d'),
        FunctionCallDelta(0, arguments='\ude00\ud800"}'),
    )
    (call,) = collected(*halves).finish()
    assert (call.arguments, call.input) == ('{"a":"\U0001f600\ufffd"}', {"a": "\U0001f600\ufffd"})


def test_what_the_provider_attached_is_kept_for_it() -> None:
    """Extras of any fragment end up in the envelope under the provider's key; without a provider they are left out."""
    delta = FunctionCallDelta(0, id="c", name="f", provider_options={"extra_content": {"sig": "x"}})
    collector = create_tool_call_collector(provider="openai-chat")
    collector.add(delta)
    (call,) = collector.finish()
    assert call.provider is not None
    assert (call.provider.provider, call.provider.data) == ("openai-chat", {"extra_content": {"sig": "x"}})
    assert collected(delta).finish()[0].provider is None


def test_open_buffers_can_be_looked_at() -> None:
    """What is there so far may lack anything."""
    collector = collected(FunctionCallDelta(1, name="g"), FunctionCallDelta(0, arguments="{"))
    assert collector.calls == (NativeFunctionCall(0, None, None, "{"), NativeFunctionCall(1, None, "g", ""))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=_JSON, cuts=st.lists(st.integers(0, 200), max_size=5))
def test_any_arguments_survive_any_fragmentation(value: object, cuts: list[int]) -> None:
    """However the text is cut, the call's text and input are those of the whole."""
    text = json.dumps(value)
    bounds = sorted({0, len(text), *(cut for cut in cuts if cut <= len(text))})
    collector = collected(FunctionCallDelta(0, id="c", name="f"))
    for start, end in pairwise(bounds):
        collector.add(FunctionCallDelta(0, arguments=text[start:end]))
    (call,) = collector.finish()
    assert call.arguments == text
    assert call.input == value
