"""Reading lines without holding up the event loop."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.cli._flow import Flow
from runlane.cli._lines import read_lines, whole_text


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    try:
        yield reader, writer
    finally:
        os.close(reader)


@pytest.mark.anyio
async def test_lines_come_one_by_one_and_the_last_needs_no_end() -> None:
    """A pipe's lines come without their ends, CRLF included, and what follows the last end is a line too."""
    with _pipe() as (reader, writer):
        os.write(writer, "one\ntwo\r\n\nfür".encode())
        os.close(writer)
        assert [line async for line in read_lines(reader)] == ["one", "two", "", "für"]


@pytest.mark.anyio
async def test_bad_bytes_become_replacement_characters() -> None:
    """Bytes that are no UTF-8 are replaced; the line is not lost."""
    with _pipe() as (reader, writer):
        os.write(writer, b"a\xffb\n")
        os.close(writer)
        assert [line async for line in read_lines(reader)] == ["a\N{REPLACEMENT CHARACTER}b"]


@pytest.mark.anyio
async def test_a_regular_file_and_the_null_device_can_be_read(tmp_path: Path) -> None:
    """What is always ready, and what no event loop can wait for, is read to its end."""
    file = tmp_path / "lines"
    file.write_text("one\ntwo")
    for path, lines in ((file, ["one", "two"]), (Path(os.devnull), [])):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            assert [line async for line in read_lines(descriptor)] == lines
        finally:
            os.close(descriptor)


@given(st.text(st.characters(), max_size=20))
def test_text_without_lone_surrogates_is_left_as_it_is(text: str) -> None:
    """Text that can be stored is not touched; text with lone surrogates becomes storable."""
    whole = whole_text(text)
    assert whole.encode().decode() == whole
    assert whole == text or any("\ud800" <= character <= "\udfff" for character in text)


@given(st.text(st.sampled_from("ab \n"), max_size=80), st.lists(st.integers(0, 80), max_size=6))
def test_a_text_is_laid_out_the_same_however_it_arrives(text: str, cuts: list[int]) -> None:
    """A streamed text keeps its words in order, fits its width, and does not depend on where the pieces part."""

    def laid_out(*pieces: str) -> str:
        written: list[str] = []
        flow = Flow(written.append, width=24, indent="  ")
        for piece in pieces:
            flow.write(piece)
        flow.end()
        return "".join(written)

    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(borders)]
    whole = laid_out(text)
    assert laid_out(*pieces) == whole
    assert whole.split() == text.split()
    assert all(len(line) <= 24 or " " not in line.strip() for line in whole.split("\n"))
