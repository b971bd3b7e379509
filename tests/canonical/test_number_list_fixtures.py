"""The million-line number list of the RFC 8785 reference, made anew and checked by its digest."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import pytest

from runlane.canonical import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LINES = 1_000_000
_DIGEST = "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16"
_INFINITE = 0x7FF0_0000_0000_0000


def _bits(handed: list[str]) -> Iterator[int]:
    """The doubles of the list: the handed ones, 2,000 small ones, and then those of a chain of hashes."""
    yield from (int(line.partition(",")[0], 16) for line in handed)
    yield from range(0x0010_0000_0000_0000, 0x0010_0000_0000_0000 + 2000)
    state = bytes(32)
    while True:
        state = hashlib.sha256(state).digest()
        for bits in struct.unpack("<4Q", state):
            if bits & _INFINITE != _INFINITE and bits & ~(1 << 63):
                yield bits


@pytest.mark.timeout(120)
def test_a_million_numbers_print_as_ecmascript_prints_them(fixtures_dir: Path) -> None:
    """The list made through `canonical_json` has the published digest."""
    text = (fixtures_dir / "canonical-json" / "es6-numbers-10k.txt").read_text()
    digest = hashlib.sha256()
    for _, bits in zip(range(_LINES), _bits(text.splitlines()[:168]), strict=False):
        (number,) = struct.unpack("<d", struct.pack("<Q", bits))
        digest.update(b"%x,%s\n" % (bits, canonical_json(number)))
    assert digest.hexdigest() == _DIGEST
