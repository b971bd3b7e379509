"""Values that survive: what a durable step may return."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from runlane.canonical import canonical_json, decode_lossless, encode_lossless
from runlane.errors import CanonicalJsonError


class _Text(str):
    __slots__ = ()


class _Kind(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"null"),
        (True, b"true"),
        (0, b"0"),
        (0.0, b"0.0"),
        (1.0, b"1.0"),
        (1e21, b"1e+21"),
        (1e16, b"10000000000000000.0"),
        (-(10**25), b"-10000000000000000000000000"),
        ({"b": 1, "a": {}}, b'{"b":1,"a":{}}'),
        ([[], [[]], "\x00"], b'[[],[[]],"\\u0000"]'),
    ],
)
def test_a_value_and_its_text(value: object, text: bytes) -> None:
    """Types and the order of keys are kept, so the text is not canonical."""
    assert encode_lossless(value) == text
    again = decode_lossless(text)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "odd", [(1,), -0.0, _Text("a"), _Kind.ONE, {_Text("a"): 1}, float("nan"), "\ud800", 1j], ids=repr
)
def test_what_would_not_come_back_the_same_is_refused(odd: object) -> None:
    """A tuple, -0.0, subclasses and enums would come back as something else."""
    with pytest.raises(CanonicalJsonError) as caught:
        encode_lossless({"value": [0, odd]})
    assert caught.value.path.startswith("/value/1")


@pytest.mark.parametrize("document", [b"-0", b"[-0.0]", b"-0e5", b'{"a":1,"a":1}', b"1e999", b"[", b'"\\ud800"'])
def test_a_text_without_a_lossless_value_is_refused(document: bytes) -> None:
    """Reading is as strict as writing."""
    with pytest.raises(CanonicalJsonError):
        decode_lossless(document)


def test_a_duplicate_is_named_by_its_path() -> None:
    """The path leads through lists and objects to the key that comes twice."""
    with pytest.raises(CanonicalJsonError) as caught:
        decode_lossless(b'{"z":1,"a":[{},{"x":[],"y":{"b":[1],"c":2,"b":3}}]}')
    assert caught.value.path == "/a/1/y/b"


def test_each_reading_is_a_copy_of_its_own() -> None:
    """A shared part comes back unshared, and changing one copy changes no other."""
    part = [1]
    text = encode_lossless({"a": part, "b": part})
    first: Any = decode_lossless(text)
    second = decode_lossless(text)
    first["a"].append(2)
    assert first == {"a": [1, 2], "b": [1]}
    assert second == {"a": [1], "b": [1]}


def test_a_hundred_levels_pass() -> None:
    """A hundred lists around a scalar pass; around a list only if it is empty."""

    def nested(levels: int, inner: object) -> object:
        for _ in range(levels):
            inner = [inner]
        return inner

    for value in (nested(100, 1), nested(100, [])):
        assert decode_lossless(encode_lossless(value)) == value
    for value in (nested(100, [1]), nested(101, [])):
        with pytest.raises(CanonicalJsonError):
            encode_lossless(value)
    with pytest.raises(CanonicalJsonError):
        decode_lossless(canonical_json(nested(101, [])))


def test_a_double_is_read_to_the_bit() -> None:
    """Halfway cases and subnormal numbers round as they must."""
    for literal, number in (
        (b"2.2250738585072011e-308", 2.2250738585072011e-308),
        (b"4.9406564584124654e-324", 5e-324),
        (b"9007199254740993.0", 9007199254740992.0),
        (b"0.1", 0.1),
        (b"123456789012345678901234567890.5e-10", 1.2345678901234567e19),
        (b"1e-400", 0.0),
    ):
        assert decode_lossless(literal) == number
