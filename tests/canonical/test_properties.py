"""What holds of every value and document, and agrees with the oracle."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from runlane.errors import CanonicalJsonError
from tests.canonical import strategies as some
from tests.oracles import canonical as oracle

if TYPE_CHECKING:
    from collections.abc import Callable


@given(some.interchange_values)
def test_the_interchange_form_is_that_of_the_oracle(value: object) -> None:
    """A value with an interchange form gets the text the oracle writes, and its hash is that of the text."""
    text = canonical_json(value)
    assert text.decode() == oracle.write(value, "interchange")
    assert canonical_hash(value) == hashlib.sha256(text).hexdigest()


@given(some.record_values)
def test_the_record_form_is_that_of_the_oracle(value: object) -> None:
    """A value with a record form gets the text the oracle writes, and its hash is that of the text."""
    text = canonical_record_json(value)
    assert text.decode() == oracle.write(value, "record")
    assert canonical_record_hash(value) == hashlib.sha256(text).hexdigest()


@given(some.interchange_values)
def test_a_form_is_a_fixed_point(value: object) -> None:
    """Reading a canonical text gives the same text, in both forms, and the same hashes."""
    text = canonical_json(value)
    assert canonicalize(text) == text
    assert canonicalize_record(text) == text
    assert canonical_document_hash(text) == canonical_hash(value)
    assert canonical_record_document_hash(text) == canonical_hash(value)


@given(some.record_values)
def test_the_record_form_is_a_fixed_point(value: object) -> None:
    """Reading a text of the record form gives the same text, and its hash is that of the value."""
    text = canonical_record_json(value)
    assert canonicalize_record(text) == text
    assert canonical_record_document_hash(text) == canonical_record_hash(value)


def _reordered(value: object, order: Callable[[list[str]], list[str]]) -> object:
    if type(value) is dict:
        return {key: _reordered(value[key], order) for key in order(list(value))}
    if type(value) is list or type(value) is tuple:
        return [_reordered(item, order) for item in value]
    return value


@given(some.record_values, st.randoms(use_true_random=False))
def test_insertion_order_and_sharing_do_not_matter(value: object, chance: st.DrawFn) -> None:
    """The same members in another order, in copies, with lists for tuples, give the same text."""
    shuffled = _reordered(value, lambda keys: chance.sample(keys, len(keys)))  # type: ignore[attr-defined]
    assert canonical_record_json(shuffled) == canonical_record_json(value)
    assert canonical_record_hash(_reordered(value, lambda keys: keys[::-1])) == canonical_record_hash(value)


def _fault(value: object, form: oracle.Form) -> str | None:
    """Where the oracle finds that a value has no form."""
    try:
        oracle.write(value, form)
    except oracle.Refused as refused:
        return refused.path
    return None


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("interchange", canonical_json),
        ("interchange", canonical_hash),
        ("record", canonical_record_json),
        ("record", canonical_record_hash),
        ("lossless", encode_lossless),
    ],
)
@given(value=some.odd_values)
def test_a_refusal_names_the_first_place(
    form: oracle.Form, write: Callable[[object], bytes | str], value: object
) -> None:
    """The path of a refusal is where the oracle finds the first fault; what has none is written."""
    fault = _fault(value, form)
    if fault is None:
        assert write(value)
        return
    with pytest.raises(CanonicalJsonError) as caught:
        write(value)
    assert caught.value.path == fault


@given(st.one_of(some.documents, some.soups))
def test_documents_are_read_as_the_oracle_reads_them(document: bytes) -> None:
    """A document gives the text that the oracle gives, or both refuse it."""
    for form, rewrite, digest in (
        ("interchange", canonicalize, canonical_document_hash),
        ("record", canonicalize_record, canonical_record_document_hash),
    ):
        try:
            expected = oracle.rewrite(document, form).encode()  # type: ignore[arg-type]
        except oracle.Refused:
            with pytest.raises(CanonicalJsonError):
                rewrite(document)
            with pytest.raises(CanonicalJsonError):
                digest(document)
        else:
            assert rewrite(document) == expected
            assert digest(document) == hashlib.sha256(expected).hexdigest()


def _same(left: object, right: object) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right


@given(some.lossless_values)
def test_a_lossless_value_comes_back_the_same(value: object) -> None:
    """Types, order of keys, exact integers and doubles survive, and the text is the oracle's."""
    text = encode_lossless(value)
    assert text.decode() == oracle.write(value, "lossless")
    assert _same(decode_lossless(text), value)


@given(st.binary(min_size=8, max_size=8))
def test_every_double_prints_as_the_oracle_prints_it(bits: bytes) -> None:
    """Any finite double, by its bits, prints as ECMAScript prints it and reads back to the same bits."""
    (number,) = struct.unpack("<d", bits)
    if not math.isfinite(number):
        with pytest.raises(CanonicalJsonError):
            canonical_json(number)
        return
    text = canonical_json(number).decode()
    assert text == oracle.ecmascript(number)
    assert float(text) == number
