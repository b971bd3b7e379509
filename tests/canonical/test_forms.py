"""The written rule for each pair of values that readers of JSON disagree about."""

from __future__ import annotations

import enum

import pytest

from runlane.canonical import (
    canonical_hash,
    canonical_json,
    canonical_record_hash,
    canonical_record_json,
    canonicalize,
    canonicalize_record,
    decode_lossless,
    encode_lossless,
)
from runlane.errors import CanonicalJsonError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (1e6, "1000000"),
        (1_000_000, "1000000"),
        (0, "0"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (-1.5e300, "-1.5e+300"),
        (5e-324, "5e-324"),
        (2**53 - 1, "9007199254740991"),
        (-(2**53) + 1, "-9007199254740991"),
        (2.0**53, "9007199254740992"),
        ("", '""'),
        ('\b\t\n\f\r"\\/\x00\x1f\x7f\u2028', '"\\b\\t\\n\\f\\r\\"\\\\/\\u0000\\u001f\x7f\u2028"'),
        ([], "[]"),
        ({}, "{}"),
        ((1, (2,), []), "[1,[2],[]]"),
        ({"10": 1, "9": 2, "": 3, "A": 4, "a": 5}, '{"":3,"10":1,"9":2,"A":4,"a":5}'),
    ],
)
def test_a_value_has_one_text(value: object, text: str) -> None:
    """Both forms write these values as RFC 8785 does, and the text reads back as itself."""
    expected = text.encode()
    assert canonical_json(value) == expected
    assert canonical_record_json(value) == expected
    assert canonicalize(expected) == expected


def test_true_is_not_one() -> None:
    """A boolean and the integer that equals it have different texts and hashes."""
    assert canonical_hash([True, False]) != canonical_hash([1, 0])


def test_a_record_keeps_the_digits_of_a_long_integer() -> None:
    """A 19-digit id in a record survives to its last digit, from a value and from text, and its hash tells it apart."""
    value = {"id": 2512292042121000001}
    assert canonical_record_json(value) == b'{"id":2512292042121000001}'
    assert canonicalize_record(b'{ "id": 2512292042121000001 }') == b'{"id":2512292042121000001}'
    assert canonical_record_hash(value) != canonical_record_hash({"id": 2512292042121000000})
    with pytest.raises(CanonicalJsonError) as caught:
        canonical_json(value)
    assert caught.value.path == "/id"
    with pytest.raises(CanonicalJsonError) as caught:
        canonicalize(b'{"id":2512292042121000001}')
    assert caught.value.path == "/id"


@pytest.mark.parametrize("integer", [2**53, -(2**53), 2**63, -(2**63) - 1, 10**30])
def test_the_interchange_form_refuses_an_integer_beyond_a_double(integer: int) -> None:
    """An integer beyond ±(2**53 - 1) is refused even where a double could hold it; the record form writes it."""
    with pytest.raises(CanonicalJsonError) as caught:
        canonical_json([0, integer])
    assert caught.value.path == "/1"
    assert canonical_record_json(integer) == str(integer).encode()


def test_a_large_double_stays_a_fixed_point() -> None:
    """What a double prints is accepted from text, though no integer of that size is; its neighbours are not."""
    assert canonicalize(canonical_json(2.0**60)) == b"1152921504606847000"
    for literal in (b"1152921504606846976", b"1152921504606847001", b"9007199254740993"):
        with pytest.raises(CanonicalJsonError):
            canonicalize(literal)


def test_an_integer_of_any_size_is_written_whatever_the_interpreter_allows() -> None:
    """The interpreter's limit on the digits of integers does not reach the record form."""
    assert canonical_record_json(-(10**6000)) == b"-1" + b"0" * 6000
    assert canonicalize_record(b"7" * 6000) == b"7" * 6000


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_integer_has_at_most_a_hundred_thousand_digits(sign: str) -> None:
    """The longest integer is written and read back; one digit more, or a million, is refused at once and by path."""
    longest = (sign + "9" * 100_000).encode()
    value = -(10**100_000 - 1) if sign else 10**100_000 - 1
    assert canonical_record_json([value]) == canonicalize_record(b"[%b]" % longest) == b"[%b]" % longest
    assert decode_lossless(encode_lossless([value])) == [value]
    excess = value - 1 if sign else value + 1
    huge = -(1 << 4_000_000) if sign else 1 << 4_000_000
    for refused in (
        lambda: canonical_record_json([excess]),
        lambda: canonical_record_hash([huge]),
        lambda: encode_lossless([excess]),
        lambda: canonicalize_record(b"[%b0]" % longest),
        lambda: decode_lossless(b"[%b0]" % longest),
    ):
        with pytest.raises(CanonicalJsonError, match="an integer of more than 100000 digits") as caught:
            refused()
        assert caught.value.path == "/0"


@pytest.mark.parametrize("literal", [b"9007199254740992", b"-9007199254740994", b"100000000000000000000"])
def test_a_documents_integer_out_of_range_passes_if_it_is_what_a_double_prints(literal: bytes) -> None:
    """Digits that a double prints lose nothing; so every canonical document is its own canonical form."""
    assert canonicalize(literal) == canonical_json(float(literal)) == literal


def test_keys_stand_in_the_order_of_utf16() -> None:
    """A key above U+FFFF stands before one in U+E000 to U+FFFF, whichever came first: RFC 8785, not code points."""
    expected = '{"\U0001f600":1,"\ufb33":2}'.encode()
    assert canonical_json({"\ufb33": 2, "\U0001f600": 1}) == expected
    assert canonical_json({"\U0001f600": 1, "\ufb33": 2}) == expected
    assert canonicalize(b'{"\\ufb33":2,"\\ud83d\\ude00":1}') == expected


def test_nothing_is_normalised() -> None:
    """Composed and decomposed characters stay different, in values and as keys."""
    assert canonical_hash("\u00e9") != canonical_hash("e\u0301")
    assert canonical_json({"\u00e9": 1, "e\u0301": 2}) == '{"e\u0301":2,"\u00e9":1}'.encode()


def test_an_enum_of_text_or_integers_is_its_value() -> None:
    """A `StrEnum` and an `IntEnum` count by what they store, as values and as keys."""

    class Role(enum.StrEnum):
        USER = "user"

    class Level(enum.IntEnum):
        HIGH = 3

    assert canonical_json({Role.USER: [Role.USER, Level.HIGH]}) == b'{"user":["user",3]}'


def test_many_records_of_one_shape_and_of_others_come_out_right() -> None:
    """The order of keys is right for each record, also for equal keys that are other objects or stand otherwise."""
    names = ["zeta", "alpha", "mid", "\U0001f600", "\ufb33"]
    rows = [{"".join(list(name)): index for name in (names if index % 3 else names[::-1])} for index in range(50)]
    expected = ",".join(f'{{"alpha":{i},"mid":{i},"zeta":{i},"\U0001f600":{i},"\ufb33":{i}}}' for i in range(50))
    assert canonical_json(rows).decode() == f"[{expected}]"
    fixed = [dict.fromkeys(names, index) for index in range(50)]
    assert canonical_json(fixed).decode() == f"[{expected}]"


def test_a_shared_part_is_written_each_time() -> None:
    """A list reached twice is no cycle."""
    part = [1]
    assert canonical_json({"a": part, "b": {"c": part}}) == b'{"a":[1],"b":{"c":[1]}}'
