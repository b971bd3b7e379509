"""Several threads at once."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from runlane.canonical import (
    canonical_document_hash,
    canonical_hash,
    canonical_json,
    canonicalize,
    decode_lossless,
)
from runlane.errors import CanonicalJsonError

_VALUE: Any = [{"id": n, "text": "é" * (n % 50), "nested": {"b": [n / 7], "a": None}} for n in range(2_000)]


def test_threads_that_read_the_same_value_agree() -> None:
    """Values and long documents, read while detached, give every thread the same bytes."""
    text = canonical_json(_VALUE)
    digest = hashlib.sha256(text).hexdigest()
    assert len(text) > 64 * 1024

    def work(_: int) -> bool:
        return (
            canonical_json(_VALUE) == text
            and canonical_hash(_VALUE) == digest
            and canonicalize(text) == text
            and canonical_document_hash(text) == digest
            and decode_lossless(text) is not None
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(24)))


def test_a_value_that_another_thread_changes_never_breaks_the_walk() -> None:
    """While one thread adds and removes members, each walk sees some state of them or refuses it, and nothing else."""
    value: dict[str, Any] = {f"key {n}": [n] for n in range(100)}
    done = threading.Event()

    def change() -> None:
        step = 0
        while not done.is_set():
            step += 1
            value[f"more {step % 50}"] = [step, "\ud800" if step % 3 == 0 else "x"]
            value.pop(f"more {(step + 25) % 50}", None)
            value["key 1"].append(step)
            del value["key 1"][:-3]

    def read(_: int) -> str:
        try:
            return canonical_hash(value)
        except CanonicalJsonError as error:
            return error.path

    changer = threading.Thread(target=change)
    changer.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(read, range(300)))
    finally:
        done.set()
        changer.join()
    assert all(len(result) == 64 or result.startswith("/more ") for result in results)
