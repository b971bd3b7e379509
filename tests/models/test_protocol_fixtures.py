"""The recorded streams of every wire protocol give what their index says a full reading gives."""

import pytest

from runlane.models import FinishReport
from tests.models.protocols import Stream, assert_reads_as_expected, handed_streams, name_of, pieces


@pytest.mark.parametrize("size", [1, 37, 1024, 0])
@pytest.mark.parametrize("stream", handed_streams(), ids=name_of)
def test_a_recorded_stream_gives_what_its_index_says(stream: Stream, size: int) -> None:
    """Text, reasoning, calls, finish, usage and identity of every recorded stream are right, however it is cut."""
    parts, decoder = stream.protocol.decode(pieces(stream.body, size))
    assert_reads_as_expected(stream, parts)
    assert (decoder.failure is not None) == stream.fails
    assert isinstance(parts[-1], FinishReport) == (not stream.fails)
