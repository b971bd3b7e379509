"""Keys of queries, and common beginnings."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.canonical import common_prefix_length, retrieval_query_key
from runlane.errors import CanonicalJsonError


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ({"b": 1, "a": [2, 1]}, '{"a":[2,1],"b":1}'),
        ({"a": [2, 1], "b": 1}, '{"a":[2,1],"b":1}'),
        ([1, 2], "[1,2]"),
        ([2, 1], "[2,1]"),
        ((1, 2), "[1,2]"),
        (True, "true"),
        (1, "1"),
        (None, "null"),
        (1.0, "1"),
        (-0.0, "0"),
        ("Grüße", '"Grüße"'),
    ],
)
def test_d17_equal_structures_have_equal_keys(query: object, key: str) -> None:
    """The key is the interchange form as text: keys sorted at every depth, positions in lists kept."""
    assert retrieval_query_key(query) == key


@pytest.mark.parametrize("odd", [len, int, {1}, b"x", float("nan"), 2**53, {1: 2}])
def test_d17_a_query_without_a_form_is_refused_wherever_it_hides(odd: object) -> None:
    """A value that has no key is refused at the top and deep inside, never left out."""
    for query in (odd, {"a": [odd]}):
        with pytest.raises(CanonicalJsonError):
            retrieval_query_key(query)


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20))
def test_d18_the_common_prefix_is_the_longest(prefix: str, left: str, right: str) -> None:
    """It is what the standard library finds character by character, in code points."""
    a, b = prefix + left, prefix + right
    length = common_prefix_length(a, b)
    assert length == common_prefix_length(b, a) == len(os.path.commonprefix([a, b]))  # noqa: RUF071 - no paths
    assert a[:length] == b[:length]


def test_d18_the_common_prefix_of_long_texts() -> None:
    """It is found to the last of a million characters, and there is none with an empty text."""
    text = "é" * (1 << 20)
    assert common_prefix_length(text + "a", text + "b") == 1 << 20
    assert common_prefix_length(text, text) == 1 << 20
    assert common_prefix_length(text, "") == 0
    assert common_prefix_length("\ud800x", "\ud800y") == 1
