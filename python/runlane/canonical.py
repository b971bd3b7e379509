"""Canonical JSON: one text for equal values, its SHA-256, and values that survive a round trip.

Two forms, both after RFC 8785 (no white space, keys in the order of their UTF-16 code units, the shortest
escapes, numbers as ECMAScript prints them):

* the **interchange** form (`canonical_json`, `canonicalize`) is RFC 8785 exactly. Every number is a double, so an
  `int` beyond ±(2**53 - 1) is refused: another reader would silently take a neighbour for it. A document's integer
  out there is refused likewise, with one exception: digits that are exactly what the double nearest to them prints
  (`9007199254740992`, `100000000000000000000`) stand for that double, lose nothing, and pass. Without it the text of
  ``canonical_json(1e20)`` could not be read back, and a canonical document would not be its own canonical form.
* the **record** form (`canonical_record_json`, `canonicalize_record`) is the same except that an `int` keeps its
  digits however many they are, up to 100,000 (their conversion takes a time that grows faster than their number), so
  a 19-digit id in a tool argument survives. runlane's own records, ledger digests and archives use it; what is stored
  keeps to narrower limits, so that every reader reads it (`runlane.records.stored_json`).

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

from runlane._native import (
    adopt_errors,
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

# The functions above are native all through: a layer of Python would cost a small value a tenth of its time.
adopt_errors({error.code: error for error in (CanonicalJsonError, InvalidValueError, UsageError)})


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
