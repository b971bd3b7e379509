"""Canonical JSON and its hash: values of several sizes and kinds, warm and cold.

`orjson + hashlib` is the floor: orjson does not sort keys here, prints numbers its own way and refuses less. A warm
value is the same object every time; a cold one is the next of enough copies to fall out of the processor's caches.
"""

import copy
import functools
import hashlib
import itertools
import json
from collections.abc import Callable
from typing import Any

from benches._harness import Goal, Peer, Row, Work, at_least, at_most, bench, optional
from runlane.canonical import (
    canonical_document_hash,
    canonical_hash,
    canonical_json,
    canonical_record_hash,
    canonicalize,
    decode_lossless,
    encode_lossless,
)


def record(number: int) -> dict[str, Any]:
    """Return a stored message of about 300 bytes, with a tool call."""
    call = {"query": "weather in Paris", "limit": 10, "exact": False}
    return {
        "id": f"msg_{number:06d}",
        "role": "assistant",
        "created_at": 1_700_000_000 + number,
        "parts": [
            {"type": "text", "text": "The quick brown fox jumps over the lazy dog, again and again."},
            {"type": "tool_call", "name": "search", "input": call},
        ],
        "usage": {"input_tokens": 123, "output_tokens": 45},
    }


SMALL = record(1)
MEDIUM = [record(number) for number in range(13)]
LARGE = [record(number) for number in range(3_300)]
FLOATS = [{"x": number / 7, "y": [number * 1.1e-7, -number / 3.3]} for number in range(1, 700)]
NON_ASCII = [{f"ключ{place}é": place for place in range(10)} for _ in range(200)]


def peers(value: object, floor: Goal, conformant: Goal) -> list[Peer]:
    """Return who hashes a value: the floor, and the conformant packages."""
    orjson, rfc8785, jcs = optional("orjson"), optional("rfc8785"), optional("jcs")

    def with_text(write: Callable[[object], bytes]) -> Work:
        return lambda: hashlib.sha256(write(value)).hexdigest()

    return [
        Peer("orjson + hashlib", with_text(orjson.dumps) if orjson else None, floor),
        Peer("rfc8785 + hashlib", with_text(rfc8785.dumps) if rfc8785 else None, conformant),
        Peer("jcs + hashlib", with_text(jcs.canonicalize) if jcs else None, at_least(15)),
    ]


def hashing(value: object, floor: float, conformant: float) -> Row:
    """Compare `canonical_hash` of a warm value."""
    return Row(functools.partial(canonical_hash, value), peers(value, at_most(floor), at_least(conformant)))


def in_turn(work: Callable[[Any], object], values: list[Any]) -> Work:
    """Return work on the next of many values at each call."""
    turn = itertools.cycle(values)
    return lambda: work(next(turn))


def cold(value: object, copies: int, floor: float) -> Row:
    """Compare `canonical_hash` of values that no cache holds; each contender has copies of its own."""
    orjson = optional("orjson")

    def fresh() -> list[Any]:
        # A round trip: `deepcopy` would share the texts.
        text = json.dumps(value)
        return [json.loads(text) for _ in range(copies)]

    beside = in_turn(lambda one: hashlib.sha256(orjson.dumps(one)).hexdigest(), fresh()) if orjson else None
    return Row(in_turn(canonical_hash, fresh()), [Peer("orjson + hashlib", beside, at_most(floor))])


@bench
def bench_hash_300() -> Row:
    """Hash of a warm value of 300 bytes."""
    return hashing(SMALL, 1.2, 20)


@bench
def bench_hash_4k() -> Row:
    """Hash of a warm value of 4 KiB."""
    return hashing(MEDIUM, 1.15, 20)


@bench
def bench_hash_1m() -> Row:
    """Hash of a warm value of 1 MiB."""
    return hashing(LARGE, 1.25, 20)


@bench
def bench_hash_floats() -> Row:
    """Hash of a warm value of floats."""
    return hashing(FLOATS, 2.0, 25)


@bench
def bench_hash_non_ascii() -> Row:
    """Hash of a warm value with keys beyond ASCII."""
    return hashing(NON_ASCII, 2.9, 20)


@bench
def bench_hash_300_cold() -> Row:
    """Hash of a cold value of 300 bytes."""
    return cold(SMALL, 20_000, 1.2)


@bench
def bench_hash_1m_cold() -> Row:
    """Hash of a cold value of 1 MiB."""
    return cold(LARGE, 12, 1.25)


@bench
def bench_record_hash_4k() -> Row:
    """Hash of the record form of a warm value of 4 KiB."""
    work = functools.partial(canonical_record_hash, MEDIUM)
    return Row(work, peers(MEDIUM, at_most(1.15), at_least(20)))


@bench
def bench_text_4k() -> Row:
    """Text of a warm value of 4 KiB, sorted by the peer too."""
    orjson = optional("orjson")
    beside = functools.partial(orjson.dumps, MEDIUM, option=orjson.OPT_SORT_KEYS) if orjson else None
    return Row(functools.partial(canonical_json, MEDIUM), [Peer("orjson, sorted", beside, at_most(2.5))])


@bench
def bench_document() -> Row:
    """Document of 1 MiB, rewritten in canonical form."""
    document = json.dumps(LARGE, indent=1).encode()
    orjson = optional("orjson")

    def beside() -> bytes:
        assert orjson
        rewritten: bytes = orjson.dumps(orjson.loads(document), option=orjson.OPT_SORT_KEYS)
        return rewritten

    return Row(
        functools.partial(canonicalize, document),
        [Peer("orjson loads and dumps, sorted", beside if orjson else None, at_most(1.0))],
    )


@bench
def bench_document_hash() -> Row:
    """Hash of a document of 1 MiB that is canonical already."""
    document = canonical_json(LARGE)
    work = functools.partial(canonical_document_hash, document)
    beside = functools.partial(lambda: hashlib.sha256(document).hexdigest())
    return Row(work, [Peer("hashlib alone", beside, at_most(4))])


@bench
def bench_lossless() -> Row:
    """Lossless round trip of a value of 4 KiB."""

    def work() -> object:
        return decode_lossless(encode_lossless(MEDIUM))

    deep = functools.partial(copy.deepcopy, MEDIUM)
    return Row(work, [Peer("copy.deepcopy", deep, at_least(3))])
