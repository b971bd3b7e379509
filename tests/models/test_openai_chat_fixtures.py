"""The recorded OpenAI chat streams give what their index says a full reading gives."""

import pytest

from runlane.errors import ProviderError
from runlane.models import FinishReport, ModelMessage, ModelPart, ModelProviderContext
from runlane.models.openai_chat import OpenAIChat
from runlane.testing import ReplayServer, Reply
from tests.models.replay import Recorded, decode, expected_reading, handed_streams, name_of, pieces, reading


@pytest.mark.parametrize("size", [1, 7, 37, 1024, 0])
@pytest.mark.parametrize("stream", handed_streams(), ids=name_of)
def test_a_recorded_stream_gives_what_its_index_says(stream: Recorded, size: int) -> None:
    """Text, reasoning, calls, finish, usage and identity of every recorded stream are right, however it is cut."""
    parts, decoder = decode(pieces(stream.body, size))
    assert reading(parts) == expected_reading(stream)
    assert (decoder.failure is not None) == stream.fails
    assert isinstance(parts[-1], FinishReport) == (not stream.fails)


# A chunk of HTTP for every byte of a stream this long takes seconds, so one event loop has to do.
_LONG = 3_500

_OVER_HTTP = [
    pytest.param(stream, size, id=f"{name_of(stream)}-{size}")
    for stream in handed_streams()
    for size in (1, 7, 1024, None)
    if size != 1 or len(stream.body) < _LONG
]

_BYTE_BY_BYTE = [stream for stream in handed_streams() if len(stream.body) >= _LONG]


@pytest.mark.anyio
@pytest.mark.parametrize(("stream", "size"), _OVER_HTTP)
async def test_a_recorded_stream_over_http_gives_what_its_index_says(stream: Recorded, size: int | None) -> None:
    """The same over a real connection, whatever the size of the pieces on the wire."""
    await _read_over_http(stream, size)


@pytest.mark.anyio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("stream", _BYTE_BY_BYTE, ids=name_of)
async def test_a_long_recorded_stream_over_http_may_come_byte_by_byte(stream: Recorded) -> None:
    """The same for the long streams when every byte is a chunk of its own."""
    await _read_over_http(stream, 1)


async def _read_over_http(stream: Recorded, size: int | None) -> None:
    """Replay a stream over HTTP and compare the reading with the index."""
    parts: list[ModelPart] = []
    failures: list[ProviderError] = []
    async with ReplayServer([Reply(stream.body, chunk_size=size)]) as server:
        provider = OpenAIChat("any", base_url=server.base_url)
        try:
            async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
                async for part in opened:
                    parts.append(part)  # noqa: PERF401 - what came before a failure is kept
        except ProviderError as error:
            failures.append(error)
        await provider.aclose()
    assert reading(parts) == expected_reading(stream)
    assert bool(failures) == stream.fails
