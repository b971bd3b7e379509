"""The handed conformance cases and recorded provider streams, whole and cut everywhere."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from runlane.sse import SseDecoder
from tests.fixture_files import fixture_files
from tests.oracles.sse import read
from tests.sse.decoding import cut, decode, fields

SPLITS = 10_000_000_000 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 4_000_000
"""Up to this many bytes are read for one stream at its split positions; beyond, they are sampled."""


def cases() -> list[Any]:
    """Return the conformance cases, one parameter each."""
    return [
        pytest.param(case, id=case["name"])
        for path in fixture_files("sse/conformance.json")
        for case in json.loads(path.read_text())
    ]


@pytest.mark.parametrize("case", cases())
@pytest.mark.parametrize("size", [1, 2, 3, 1_000_000])
def test_conformance(case: dict[str, Any], size: int) -> None:
    """A conformance case gives its events and its retry time, however it is cut."""
    decoder = SseDecoder()
    events = decode(cut(case["input"].encode(), size), decoder)
    found = [{"event": event.event, "data": event.data, "last_event_id": event.last_event_id} for event in events]
    assert found == case["expected"]
    assert decoder.retry_ms == case["retry_ms"]


@pytest.mark.parametrize("path", fixture_files("streams/*/*.sse"), ids=lambda path: path.stem)
def test_recorded_stream_means_what_the_oracle_says(path: Path) -> None:
    """A recorded stream is read as the oracle reads it, byte by byte and in odd pieces too."""
    body = path.read_bytes()
    expected = read(body)
    assert expected.events
    for size in (1, 37, 1024, len(body)):
        decoder = SseDecoder()
        assert list(map(fields, decode(cut(body, size), decoder))) == expected.events
        assert (decoder.incomplete is not None) == (expected.incomplete is not None)


@pytest.mark.parametrize("path", fixture_files("streams/*/*.sse"), ids=lambda path: path.stem)
def test_recorded_stream_at_every_split(path: Path) -> None:
    """A recorded stream cut in two gives the same events wherever the cut is."""
    body = path.read_bytes()
    whole = decode([body])
    step = max(1, len(body) ** 2 // SPLITS)
    for place in range(0, len(body), step):
        assert decode([body[:place], body[place:]]) == whole, place
