"""What has no canonical form, and the limits: always the typed error, always with the place."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections import OrderedDict, namedtuple
from typing import TYPE_CHECKING, Any

import pytest

from runlane.canonical import (
    canonical_document_hash,
    canonical_hash,
    canonical_json,
    canonical_record_document_hash,
    canonical_record_hash,
    canonical_record_json,
    canonicalize,
    canonicalize_record,
    decode_lossless,
    encode_lossless,
)
from runlane.errors import CanonicalJsonError, InvalidValueError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

WRITERS = [canonical_json, canonical_record_json, canonical_hash, canonical_record_hash, encode_lossless]
READERS = [
    canonicalize,
    canonicalize_record,
    canonical_document_hash,
    canonical_record_document_hash,
    decode_lossless,
]


@dataclasses.dataclass
class _Data:
    number: int = 1


class _Plain(enum.Enum):
    RED = "red"


class _Real(float, enum.Enum):
    HALF = 0.5


_Pair = namedtuple("_Pair", "left right")  # noqa: PYI024 - the untyped kind is meant


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    "odd",
    [
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        uuid.UUID(int=1),
        decimal.Decimal(1),
        pathlib.PurePosixPath("/x"),
        b"bytes",
        bytearray(b"bytes"),
        {1, 2},
        frozenset({1}),
        1j,
        pytest.param(object(), id="object()"),
        int,
        len,
        ...,
        range(3),
        pytest.param(iter([]), id="iter([])"),
        _Data(),
        _Plain.RED,
        _Real.HALF,
        _Pair(1, 2),
        OrderedDict(a=1),
        float("nan"),
        float("inf"),
        -float("inf"),
        "\ud835",
        "ok \udfff",
    ],
    ids=repr,
)
def test_an_odd_value_is_refused_with_its_path(write: Callable[[object], object], odd: object) -> None:
    """Every writer names the place of a value that is no plain JSON; nothing is converted, nothing dropped."""
    with pytest.raises(CanonicalJsonError) as caught:
        write({"a~/b": [1, {"": odd}], "z": object()})
    assert caught.value.path == "/a~0~1b/1/"
    assert caught.value.code == "canonical.refused"
    assert caught.value.problem


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("key", [1, 1.5, None, True, b"k", ("k",), _Plain.RED, "a\ud800"], ids=repr)
def test_a_key_that_is_no_text_is_refused_with_its_object(write: Callable[[object], object], key: object) -> None:
    """The path of a faulty key is that of its object, because a pointer could not name the key."""
    with pytest.raises(CanonicalJsonError) as caught:
        write([{"x": {"good": 1, key: 2}}])
    assert caught.value.path == "/0/x"


def test_the_type_is_named() -> None:
    """The problem says which type was met."""
    with pytest.raises(CanonicalJsonError, match="Decimal"):
        canonical_json(decimal.Decimal(1))
    with pytest.raises(CanonicalJsonError, match="bytes"):
        canonical_json({b"k": 1})


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    ("document", "path"),
    [
        (b"", ""),
        (b"  ", ""),
        (b"\xef\xbb\xbf1", ""),
        (b"1 2", ""),
        (b"[1,]", "/1"),
        (b'{"a":[0,{"b":tru}]}', "/a/1/b"),
        (b'{"a":1,}', ""),
        (b'{"x":{"a":1,"b":2,"a":3}}', "/x/a"),
        (b'{"a":1,"\\u0061":2}', "/a"),
        (b'[{"a~/b":1e400}]', "/0/a~0~1b"),
        (b"[NaN]", "/0"),
        (b"[-Infinity]", "/0"),
        (b'["\\ud800"]', "/0"),
        (b'["\\udc00\\ud800"]', "/0"),
        (b'{"k":{"\\ud800":1}}', "/k"),
        (b'"\xff"', ""),
        (b'"\xed\xa0\x80"', ""),
        (b'"\x01"', ""),
        (b"01", ""),
        (b"[1.]", "/0"),
        (b"'a'", ""),
        (b"[1 // one\n]", ""),
    ],
)
def test_a_faulty_document_is_refused_with_its_path(
    read: Callable[[bytes], object], document: bytes, path: str
) -> None:
    """Every reader names the place of what is not JSON, twice there, or out of range."""
    with pytest.raises(CanonicalJsonError) as caught:
        read(document)
    assert caught.value.path == path


def _nested(levels: int, inner: object) -> object:
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("write", "depth"),
    [(canonical_json, 128), (canonical_hash, 128), (canonical_record_json, 512), (encode_lossless, 100)],
)
def test_the_depth_of_a_value_counts_from_zero(write: Callable[[object], object], depth: int) -> None:
    """A scalar inside `depth` lists passes, one more list only if it is empty; then no more."""
    write(_nested(depth, 1))
    write(_nested(depth, []))
    for inner in (_nested(1, 1), _nested(2, []), {"k": None}):
        with pytest.raises(CanonicalJsonError) as caught:
            write(_nested(depth, inner))
        assert caught.value.path.startswith("/0" * depth)


@pytest.mark.parametrize(
    ("read", "depth"),
    [(canonicalize, 128), (canonical_document_hash, 128), (canonicalize_record, 512), (decode_lossless, 100)],
)
def test_the_depth_of_a_document_counts_alike(read: Callable[[bytes], object], depth: int) -> None:
    """The depth rule of documents is that of values."""
    read(b"[" * depth + b"1" + b"]" * depth)
    read(b"[" * (depth + 1) + b"]" * (depth + 1))
    for inner in (b"[1]", b"[[]]", b'{"k":null}'):
        with pytest.raises(CanonicalJsonError) as caught:
            read(b"[" * depth + inner + b"]" * depth)
        assert caught.value.path.startswith("/0" * depth)


def test_a_limit_may_be_raised_beyond_what_a_stack_would_bear() -> None:
    """Nothing recurses: half a million levels are a matter of memory."""
    levels = 500_000
    text = b"[" * levels + b"]" * levels
    assert canonicalize(text, max_depth=levels) == text
    assert canonical_json(_nested(levels - 1, []), max_depth=levels) == text


def test_nodes_are_counted_exactly() -> None:
    """Containers and scalars count, keys do not, a shared part counts each time."""
    part = [1, 2]
    value = {"a": part, "b": part}
    assert canonical_json(value, max_nodes=7)
    assert canonicalize(b'{"a":[1,2],"b":[1,2]}', max_nodes=7)
    with pytest.raises(CanonicalJsonError) as caught:
        canonical_json(value, max_nodes=6)
    assert caught.value.path == "/b/1"
    with pytest.raises(CanonicalJsonError) as caught:
        canonicalize(b'{"a":[1,2],"b":[1,2]}', max_nodes=6)
    assert caught.value.path == "/b/1"


@pytest.mark.parametrize("length", [0, 1, 500, 1000, 1022, 1023, 1024, 5000])
def test_bytes_are_counted_exactly(length: int) -> None:
    """The byte limit is that of the text, escapes included, and of a document as it stands."""
    for text, size in (("x" * length, length), ("\x01" * length, 6 * length), ("é" * length, 2 * length)):
        expected = canonical_json([text])
        assert len(expected) == size + 4
        assert canonical_json([text], max_bytes=size + 4) == expected
        assert canonical_hash([text], max_bytes=size + 4) == canonical_document_hash(expected, max_bytes=size + 4)
        for refused in (canonical_json, canonical_hash):
            with pytest.raises(CanonicalJsonError):
                refused([text], max_bytes=size + 3)
        with pytest.raises(CanonicalJsonError):
            canonicalize(expected, max_bytes=size + 3)


@pytest.mark.parametrize("function", [*WRITERS, *READERS])
@pytest.mark.parametrize("name", ["max_depth", "max_nodes", "max_bytes"])
def test_a_limit_that_is_none_is_refused(function: Callable[..., object], name: str) -> None:
    """A negative or absurd limit is a bad value, another type is misuse; both name the limit."""
    subject: Any = b"1" if function in READERS else 1
    for absurd in (-1, 2**63, 10**40):
        with pytest.raises(InvalidValueError) as invalid:
            function(subject, **{name: absurd})
        assert invalid.value.argument == name
    for other in (True, "1", 1.0, None):
        with pytest.raises(UsageError) as misuse:
            function(subject, **{name: other})
        assert misuse.value.argument == name


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("document", ["{}", bytearray(b"{}"), memoryview(b"{}"), None, {}])
def test_a_document_is_bytes(read: Callable[[Any], object], document: object) -> None:
    """Text, mutable buffers and values are no documents."""
    with pytest.raises(UsageError):
        read(document)
