"""Canonical JSON: one text for equal values, its SHA-256, and values that survive a round trip.

Two forms, both after RFC 8785 (no white space, keys in the order of their UTF-16 code units, the shortest
escapes, numbers as ECMAScript prints them):

* the **interchange** form (`canonical_json`, `canonicalize`) is RFC 8785 exactly. Every number is a double, so an
  `int` beyond ±(2**53 - 1) is refused: another reader would silently take a neighbour for it.
* the **record** form (`canonical_record_json`, `canonicalize_record`) is the same except that an `int` of any size
  keeps its digits, so a 19-digit id in a tool argument survives. runlane's own records, ledger digests and archives
  use it.

What is equal: `1`, `1.0` and `1e0` give `1`; `0`, `-0.0` and `-0` give `0`; a tuple and a list are one array; a
`str` or `int` subclass counts by the text or number it stores, whatever it overrides, so a `StrEnum` is its value.
`True` is never `1`. Composed and decomposed characters stay different: nothing is normalised.

What has no form, and is refused with its place rather than dropped or guessed at: NaN and infinities, lone
surrogates, keys that are no text, bytes, sets, dates, decimals, UUIDs, dataclasses and models, subclasses of `dict`,
`list`, `tuple` and `float`, and a container inside itself. Converting these is the caller's decision. In a document
also: duplicate keys, numbers beyond the range of a double, bytes that are not UTF-8, anything behind the value.

Limits: ``max_depth`` is the greatest depth of a value (the root has depth 0), ``max_nodes`` the greatest number of
values (containers count, keys do not), ``max_bytes`` the greatest length of the text and of a document. A value that
is reached twice is written, and counted, twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from runlane import _native
from runlane.errors import CanonicalJsonError, InvalidValueError, UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

__all__ = [
    "canonical_document_hash",
    "canonical_hash",
    "canonical_json",
    "canonical_record_document_hash",
    "canonical_record_hash",
    "canonical_record_json",
    "canonicalize",
    "canonicalize_record",
    "common_prefix_length",
    "decode_lossless",
    "encode_lossless",
    "retrieval_query_key",
]

# The numbers of the forms, as the native half knows them.
_INTERCHANGE: Final = 0
_RECORD: Final = 1
_LOSSLESS: Final = 2

_DEPTH: Final = 128
_NODES: Final = 1_000_000
_BYTES: Final = 64 * 1024 * 1024

_RECORD_DEPTH: Final = 512
_RECORD_NODES: Final = 2**31 - 1
_RECORD_BYTES: Final = 2**31 - 1

# Durable steps nest less deep than this; the precedent is their codec in the systems that replay them.
_LOSSLESS_DEPTH: Final = 100

# What the native half raises: a refusal, or an argument it cannot take.
_FAULTS: Final = (_native.NativeError, TypeError, OverflowError)


def canonical_json(
    value: object,
    /,
    *,
    max_depth: int = _DEPTH,
    max_nodes: int = _NODES,
    max_bytes: int = _BYTES,
) -> bytes:
    """Write a value in the interchange form, as UTF-8.

    Example:
        >>> canonical_json({"b": 1.0, "a": (True, None)})
        b'{"a":[true,null],"b":1}'

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """
    try:
        return _native.canonical_text(value, _INTERCHANGE, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonical_record_json(
    value: object,
    /,
    *,
    max_depth: int = _RECORD_DEPTH,
    max_nodes: int = _RECORD_NODES,
    max_bytes: int = _RECORD_BYTES,
) -> bytes:
    """Write a value in the record form, as UTF-8: like `canonical_json`, with exact integers of any size.

    Example:
        >>> canonical_record_json({"id": 2512292042121000001})
        b'{"id":2512292042121000001}'

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """
    try:
        return _native.canonical_text(value, _RECORD, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonical_hash(
    value: object,
    /,
    *,
    max_depth: int = _DEPTH,
    max_nodes: int = _NODES,
    max_bytes: int = _BYTES,
) -> str:
    """Hash a value: the SHA-256 of its interchange form, as 64 lower-case hexadecimal digits.

    The text is hashed as it is written, so a large value costs no memory.

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """
    try:
        return _native.canonical_digest(value, _INTERCHANGE, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonical_record_hash(
    value: object,
    /,
    *,
    max_depth: int = _RECORD_DEPTH,
    max_nodes: int = _RECORD_NODES,
    max_bytes: int = _RECORD_BYTES,
) -> str:
    """Hash a value: the SHA-256 of its record form, as 64 lower-case hexadecimal digits.

    Raises:
        CanonicalJsonError: The value has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """
    try:
        return _native.canonical_digest(value, _RECORD, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonicalize(
    document: bytes,
    /,
    *,
    max_depth: int = _DEPTH,
    max_nodes: int = _NODES,
    max_bytes: int = _BYTES,
) -> bytes:
    """Rewrite a JSON document in the interchange form.

    An integer literal beyond ±(2**53 - 1) is refused, unless its digits are exactly what the double it stands for
    prints: then nothing is lost, and the form of a document is a fixed point, also where a large `float` was written.

    Args:
        document: JSON text in UTF-8, without a byte-order mark.
        max_depth: The greatest depth of a value.
        max_nodes: The greatest number of values.
        max_bytes: The greatest length of the document, and of the result.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """
    try:
        return _native.document_text(document, _INTERCHANGE, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonicalize_record(
    document: bytes,
    /,
    *,
    max_depth: int = _RECORD_DEPTH,
    max_nodes: int = _RECORD_NODES,
    max_bytes: int = _RECORD_BYTES,
) -> bytes:
    """Rewrite a JSON document in the record form: integer literals keep their digits.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """
    try:
        return _native.document_text(document, _RECORD, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonical_document_hash(
    document: bytes,
    /,
    *,
    max_depth: int = _DEPTH,
    max_nodes: int = _NODES,
    max_bytes: int = _BYTES,
) -> str:
    """Hash a JSON document: the SHA-256 of its interchange form, as lower-case hexadecimal digits.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """
    try:
        return _native.document_digest(document, _INTERCHANGE, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def canonical_record_document_hash(
    document: bytes,
    /,
    *,
    max_depth: int = _RECORD_DEPTH,
    max_nodes: int = _RECORD_NODES,
    max_bytes: int = _RECORD_BYTES,
) -> str:
    """Hash a JSON document: the SHA-256 of its record form, as lower-case hexadecimal digits.

    Raises:
        CanonicalJsonError: The document is not JSON, has no such form, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """
    try:
        return _native.document_digest(document, _RECORD, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def encode_lossless(
    value: object,
    /,
    *,
    max_depth: int = _LOSSLESS_DEPTH,
    max_nodes: int = _NODES,
    max_bytes: int = _BYTES,
) -> bytes:
    """Write a value so that `decode_lossless` gives back the same, or refuse it.

    For what a durable step, effect or delivery returns: a replay must not see another value than the first caller.
    Taken are None, `bool`, `int` of any size, finite `float` but -0.0, `str` without lone surrogates, `list`, and
    `dict` with `str` keys: exactly these types, because a subclass, a tuple or an enum would come back as another.
    The text is compact JSON and not canonical: keys keep their order, and `1.0` keeps its point.

    Raises:
        CanonicalJsonError: The value would not come back the same, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
    """
    try:
        return _native.canonical_text(value, _LOSSLESS, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def decode_lossless(
    document: bytes,
    /,
    *,
    max_depth: int = _LOSSLESS_DEPTH,
    max_nodes: int = _NODES,
    max_bytes: int = _BYTES,
) -> JsonValue:
    """Read what `encode_lossless` wrote: a value of its own at each call, shared with nobody.

    Any JSON text is read, under the same rules: an integer literal is an `int`, one with a point or an exponent a
    `float`; -0, duplicate keys and what overflows are refused.

    Raises:
        CanonicalJsonError: The document is not JSON, has no lossless value, or is beyond a limit.
        InvalidValueError: A limit is negative or too large.
        UsageError: The document is not `bytes`.
    """
    try:
        return _native.lossless_value(document, max_depth, max_nodes, max_bytes)
    except _FAULTS as fault:
        _refuse(fault)


def retrieval_query_key(query: object, /) -> str:
    """Give a query a key: its interchange form as text, so equal structures have equal keys.

    Example:
        >>> retrieval_query_key({"b": 1, "a": [2, 1]})
        '{"a":[2,1],"b":1}'

    Raises:
        CanonicalJsonError: Something in the query, at any depth, has no canonical form.
    """
    return canonical_json(query).decode()


def common_prefix_length(a: str, b: str, /) -> int:
    """Count the code points that two texts share from their start.

    The largest n with ``a[:n] == b[:n]``, found by halving over comparisons of slices: linear, and no loop over
    characters.
    """
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _refuse(fault: Exception) -> NoReturn:
    """Raise what a fault of the native half means here."""
    if isinstance(fault, _native.NativeError):
        _, problem, path = fault.args
        raise CanonicalJsonError(path=path, problem=problem) from None
    if isinstance(fault, OverflowError):
        message = "a whole number from 0 to 2**63 - 1 is needed"
        raise InvalidValueError(message, argument="limit") from None
    raise UsageError(str(fault), argument="canonical") from None
