"""Values and documents for the tests of canonical JSON."""

from __future__ import annotations

import enum
import json

from hypothesis import strategies as st


class Colour(enum.StrEnum):
    """A text by another name."""

    RED = "red"
    TAB = "a\tb"


class Level(enum.IntEnum):
    """A number by another name."""

    LOW = -7
    HIGH = 2**40


# Characters on both sides of every border that the order of keys and the escapes know.
_BORDERS = (
    '\x00\x08\t\n\x1f "/\\~\x7f\x80\u00e9e\u0301\u07ff\u0800\u2028\ud7ff\ue000\ufb33\uffff'
    "\U00010000\U0001f600\U0010ffff"
)

characters = st.one_of(st.sampled_from(_BORDERS), st.characters(exclude_categories=["Cs"]))
texts = st.one_of(
    st.text(characters, max_size=12),
    st.text("abcdefgh", max_size=40),
    st.sampled_from(["", "a" * 8, "a" * 31, "b" * 32, "c" * 33, "d" * 600, "é" * 300, '"' * 700]),
)
doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70).map(float),
    st.sampled_from([0.0, -0.0, 1e21, 1e-6, 1e-7, 5e-324, 2.0**53, 1e20, 123456789012345680000.0]),
)
safe_integers = st.one_of(st.integers(-300, 300), st.integers(-(2**53) + 1, 2**53 - 1))
integers = st.one_of(safe_integers, st.integers(), st.integers(-(2**64), 2**64), st.integers(-(10**40), 10**40))


def trees(leaves: st.SearchStrategy[object], *, tuples: bool = True) -> st.SearchStrategy[object]:
    """JSON trees over some leaves; now and then many records of one shape, or a shared part."""

    def grow(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        lists = st.lists(inner, max_size=6)
        records = st.lists(texts, min_size=1, max_size=5, unique=True).flatmap(
            lambda keys: st.lists(st.tuples(*[inner] * len(keys)), max_size=14).map(
                lambda rows: [dict(zip(keys, row, strict=True)) for row in rows]
            )
        )
        kinds = [lists, records, st.dictionaries(texts, inner, max_size=6), inner.map(lambda part: [part, part])]
        return st.one_of(*kinds, lists.map(tuple)) if tuples else st.one_of(*kinds)

    return st.recursive(leaves, grow, max_leaves=30)


scalars = st.one_of(st.none(), st.booleans(), doubles, texts)
enums = st.sampled_from([Colour.RED, Colour.TAB, Level.LOW, Level.HIGH])
interchange_values = trees(st.one_of(scalars, safe_integers, enums))
record_values = trees(st.one_of(scalars, integers, enums))
lossless_values = trees(
    st.one_of(st.none(), st.booleans(), texts, integers, doubles.map(lambda number: number or 0.0)), tuples=False
)

# What has no form, somewhere inside.
odd_values = trees(
    st.one_of(
        scalars,
        integers,
        enums,
        st.sampled_from([b"x", 1j, object, {1, 2}, float("nan"), float("inf"), "\ud835", 2**53, -(2**53)]),
        st.sampled_from([{1: 2}, {None: 1}, {"a\udc00": 1}, {True: False}]),
    )
)


def _spell(tree: object, *, indent: int | None, ascii_only: bool) -> bytes:
    return json.dumps(tree, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


documents = st.builds(
    _spell,
    trees(st.one_of(scalars, integers), tuples=False),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
)

_PIECES = [
    *rb"""{ } [ ] , : " \ \u0041 \ud83d \ude00 \n \x null true fals NaN - 0 01 1 1. .5 1e5 1E+2 e -0""".split(),
    *rb"""1e400 1e-400 9007199254740991 9007199254740992 9007199254740993 1152921504606847000 "a" "b": "a":1""".split(),
    *(b" ", b"\n", b"\x00", b"\x1f", b"\x7f", b"1" * 30, b"\xef\xbb\xbf", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80"),
]


def _with_fault(document: bytes, place: int, fault: bytes) -> bytes:
    place %= len(document) + 1
    return document[:place] + fault + document[place + 1 :]


# Nearly JSON: pieces of it in any order, and documents with one byte exchanged.
soups = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=12).map(b"".join),
    st.builds(_with_fault, documents, st.integers(0, 1000), st.sampled_from([*_PIECES, b""])),
)
