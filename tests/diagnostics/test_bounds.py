"""Recording never fails because of a value."""

import enum
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.diagnostics import DiagnosticLimits, SubFlowLogger, SubFlowStepInput
from runlane.diagnostics._bounds import bound_value, is_bounded
from runlane.errors import InvalidValueError
from tests.hostile import broken, dead_proxy, hostile_object, untouchable

LIMITS = DiagnosticLimits()


def _nested(depth: int) -> Any:  # noqa: ANN401 - a list in a list in a list
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    return value


def _bound(value: object) -> object:
    return bound_value(value, LIMITS)[0]


def test_depth_8_is_the_deepest_container() -> None:
    """Eight containers inside each other stay; the ninth becomes a mark."""
    assert _bound(_nested(8)) == _nested(8)
    kept: Any = _bound(_nested(9))
    for _ in range(8):
        (kept,) = kept
    assert kept == "[truncated]"


def test_a_container_keeps_100_members() -> None:
    """The rest is dropped."""
    assert _bound(list(range(101))) == list(range(100))
    assert len(json.dumps(_bound({str(number): number for number in range(101)}))) == len(
        json.dumps({str(number): number for number in range(100)})
    )


def test_texts_and_keys_are_cut() -> None:
    """2,000 characters of a text, 128 of a key; of two keys that become one the first stays."""
    assert _bound("x" * 2_001) == "x" * 2_000
    assert _bound({"k" * 129: 1, "k" * 130: 2}) == {"k" * 128: 1}


def test_beyond_1000_values_the_rest_is_a_mark() -> None:
    """Values are counted over the whole value, containers included."""
    bounded: Any = _bound([[0] * 99 for _ in range(20)])
    assert bounded[:9] == [[0] * 99] * 9
    assert bounded[9] == [*[0] * 98, "[truncated]"]
    assert bounded[10:] == ["[truncated]"] * 10


def test_a_value_of_more_than_16_kib_is_a_mark_as_a_whole() -> None:
    """Bytes are counted as JSON text in UTF-8."""
    assert _bound(["é" * 2_000] * 4) == ["é" * 2_000] * 4
    assert _bound(["é" * 2_000] * 5) == "[truncated]"


NO_JSON: dict[str, Callable[[], object]] = {
    "object": object,
    "set": lambda: {1},
    "bytes": lambda: b"x",
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "function": lambda: len,
    "endless integer": lambda: 10**5_000,
    "proxy": dead_proxy,
    "untouchable": untouchable,
}


@pytest.mark.parametrize("make", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_is_named_so(make: Callable[[], object]) -> None:
    """Objects, sets, bytes, numbers without a form and functions become a mark, in any place."""
    value = make()
    assert _bound(value) == "[unsupported]"
    assert _bound([value, {"x": value}]) == ["[unsupported]", {"x": "[unsupported]"}]


def test_a_hostile_value_runs_no_code() -> None:
    """Neither what raises on every look nor a container that overrides its own methods is asked anything."""
    hostile: Any = type("HostileDict", (dict,), dict.fromkeys(("items", "__iter__", "__len__", "get"), broken))(a=1)
    text: Any = type("HostileText", (str,), dict.fromkeys(("__str__", "__len__", "__eq__", "__getitem__"), broken))("x")
    assert _bound([hostile, text, untouchable(), dead_proxy(), hostile_object(__class__=property(broken))]) == [
        {"a": 1},
        "x",
        *["[unsupported]"] * 3,
    ]


def test_subclasses_count_by_what_they_store() -> None:
    """An enum of text is its text, an ordered dict a dict, True stays True."""

    class Colour(enum.StrEnum):
        RED = "red"

    class Number(enum.IntEnum):
        ONE = 1

    value = OrderedDict(colour=Colour.RED, number=Number.ONE, flag=True, pair=(1, 2))
    bounded: Any = _bound(value)
    assert bounded == {"colour": "red", "number": 1, "flag": True, "pair": [1, 2]}
    assert [type(member) for member in bounded.values()] == [str, int, bool, list]


def test_a_cycle_ends_at_the_depth_bound() -> None:
    """A container inside itself is no danger."""
    cycle: list[object] = []
    cycle.extend([cycle, cycle])
    assert "[truncated]" in json.dumps(_bound(cycle))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just(object()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
        max_leaves=60,
    )
)
def test_a_bounded_value_is_json_within_the_bounds(value: object) -> None:
    """Whatever comes in, what comes out is bounded, JSON, and stays as it is when bounded again."""
    bounded = _bound(value)
    json.dumps(bounded, allow_nan=False).encode()
    assert is_bounded(bounded)


@pytest.mark.parametrize("limit", [{"depth": 0}, {"depth": 9}, {"entries": 201}, {"items": True}])
def test_limits_can_be_lowered_only(limit: dict[str, int]) -> None:
    """Whoever reads back relies on the bounds."""
    with pytest.raises(InvalidValueError, match="limits"):
        DiagnosticLimits(**limit)
    steps = SubFlowLogger(limits=DiagnosticLimits(string_chars=3))
    assert steps.write(SubFlowStepInput(title="abcdef")).title == "abc"


def test_lone_surrogates_are_repaired() -> None:
    """A text or a key that no store could keep is recorded with replacement characters."""
    assert _bound({"\ud800": "\udfff"}) == {"\ufffd": "\ufffd"}
