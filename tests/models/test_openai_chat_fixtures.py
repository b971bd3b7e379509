"""The recorded OpenAI chat streams give what their index says a full reading gives."""

import pytest

from runlane.models import FinishReport
from tests.models.replay import Recorded, decode, expected_reading, handed_streams, name_of, pieces, reading


@pytest.mark.parametrize("size", [1, 7, 37, 1024, 0])
@pytest.mark.parametrize("stream", handed_streams(), ids=name_of)
def test_a_recorded_stream_gives_what_its_index_says(stream: Recorded, size: int) -> None:
    """Text, reasoning, calls, finish, usage and identity of every recorded stream are right, however it is cut."""
    parts, decoder = decode(pieces(stream.body, size))
    assert reading(parts) == expected_reading(stream)
    assert (decoder.failure is not None) == stream.fails
    assert isinstance(parts[-1], FinishReport) == (not stream.fails)
