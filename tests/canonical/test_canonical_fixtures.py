"""The RFC 8785 vectors and number lines that are handed to the project."""

import hashlib
import json
import struct
from pathlib import Path

import pytest

from runlane.canonical import (
    canonical_document_hash,
    canonical_hash,
    canonical_json,
    canonical_record_json,
    canonicalize,
    canonicalize_record,
)
from tests.fixture_files import fixture_files


@pytest.mark.parametrize("path", fixture_files("canonical-json/input/*.json"), ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    """Document and value of each vector give its output, in both forms, and the output gives itself."""
    document = path.read_bytes()
    value = json.loads(document)
    expected = (path.parent.parent / "output" / path.name).read_bytes()
    assert canonicalize(document) == expected
    assert canonicalize_record(document) == expected
    assert canonicalize(expected) == expected
    assert canonical_json(value) == expected
    assert canonical_record_json(value) == expected
    digest = hashlib.sha256(expected).hexdigest()
    assert canonical_hash(value) == digest
    assert canonical_document_hash(document) == digest


def test_number_lines(fixtures_dir: Path) -> None:
    """Every double of the list prints as ECMAScript prints it, and its text is read back as the same."""
    lines = (fixtures_dir / "canonical-json" / "es6-numbers-10k.txt").read_text().split()
    assert len(lines) == 10_000
    for line in lines:
        bits, expected = line.split(",")
        (number,) = struct.unpack(">d", bytes.fromhex(bits.zfill(16)))
        assert canonical_json(number) == expected.encode()
        assert canonicalize(expected.encode()) == expected.encode()
