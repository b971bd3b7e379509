"""The recorded streams of every wire protocol give what their index says, and one that breaks off never does."""

import random
import re
import zlib

import pytest
from hypothesis import settings

from runlane.errors import ModelError, ProviderError, ProviderStreamCutError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelMessage,
    ModelPart,
    ModelProviderContext,
    ResponseInfo,
    collect,
)
from runlane.testing import ReplayServer, Reply
from tests.models.protocols import Stream, assert_reads_as_expected, handed_streams, name_of, pieces

_HELLO = [ModelMessage.user("Hi")]
_HEADERS = {"Content-Type": "text/event-stream"}
_DEEP = settings.get_current_profile_name() == "deep"
_CUTS = 20 if _DEEP else 2

# A chunk of HTTP for every byte of a long stream takes seconds: those are left to the deep profile.
_SHORT = 1_500


@pytest.mark.parametrize("size", [1, 37, 1024, 0])
@pytest.mark.parametrize("stream", handed_streams(), ids=name_of)
def test_a_recorded_stream_gives_what_its_index_says(stream: Stream, size: int) -> None:
    """Text, reasoning, calls, finish, usage and identity of every recorded stream are right, however it is cut."""
    parts, decoder = stream.protocol.decode(pieces(stream.body, size))
    assert_reads_as_expected(stream, parts)
    assert (decoder.failure is not None) == stream.fails
    assert isinstance(parts[-1], FinishReport) == (not stream.fails)


async def _read(stream: Stream, replies: list[Reply]) -> list[tuple[list[ModelPart], ModelError | None]]:
    """Read responses over HTTP one after the other; what came before a failure is kept."""
    readings: list[tuple[list[ModelPart], ModelError | None]] = []
    async with ReplayServer(replies) as server:
        provider = stream.protocol.provider(server.base_url)
        for _ in replies:
            parts: list[ModelPart] = []
            failure: ModelError | None = None
            try:
                async with provider.open_stream(_HELLO, ModelProviderContext()) as opened:
                    async for part in opened:
                        parts.append(part)  # noqa: PERF401 - what came before a failure is kept
            except ModelError as error:
                failure = error
            readings.append((parts, failure))
        await provider.aclose()
    return readings


@pytest.mark.anyio
@pytest.mark.timeout(300)
@pytest.mark.parametrize("stream", handed_streams(), ids=name_of)
async def test_a_recorded_stream_over_http_gives_what_its_index_says(stream: Stream, anyio_backend_name: str) -> None:
    """The same over a real connection, whatever the size of the chunks on the wire."""
    sizes: list[int | None] = [1024]
    if _DEEP or anyio_backend_name == "asyncio":
        sizes = [37, 1024, None] + ([1] if _DEEP or len(stream.body) < _SHORT else [])
    readings = await _read(stream, [Reply(stream.body, headers=_HEADERS, chunk_size=size) for size in sizes])
    for parts, failure in readings:
        assert_reads_as_expected(stream, parts)
        assert isinstance(failure, ProviderError) == stream.fails
        assert isinstance(parts[-1], FinishReport) == (not stream.fails)


def _cuts(stream: Stream) -> list[int]:
    """Where a stream is cut: always the same places, all before the answer is known to be complete."""
    shown = re.search(stream.protocol.evidence.encode(), stream.body)
    end = len(stream.body) if shown is None else shown.start()
    chance = random.Random(zlib.crc32(name_of(stream).encode()))  # noqa: S311 - no secret
    return [chance.randrange(end) for _ in range(_CUTS)]


@pytest.mark.anyio
@pytest.mark.parametrize("stream", handed_streams(), ids=name_of)
async def test_a_recorded_stream_that_breaks_off_is_a_cut(stream: Stream) -> None:
    """What arrived is kept, in order; nothing says that the answer is complete, and no half call is executed."""
    whole, _ = stream.protocol.decode([stream.body])
    told = [part for part in whole if not isinstance(part, ResponseInfo | FinishReport)]
    replies = [
        Reply(stream.body, headers=_HEADERS, chunk_size=512, cut_at=cut, cut="reset" if number % 2 else "close")
        for number, cut in enumerate(_cuts(stream))
    ]
    for parts, failure in await _read(stream, replies):
        kept = [part for part in parts if not isinstance(part, ResponseInfo)]
        assert kept == told[: len(kept)]
        assert isinstance(failure, ProviderStreamCutError) or (stream.fails and isinstance(failure, ProviderError))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("stream", [one for one in handed_streams() if one.expected["tool_calls"]], ids=name_of)
async def test_a_stream_cut_within_a_call_gives_no_call(stream: Stream) -> None:
    """Whoever collects such a response gets the failure and no call."""
    whole, _ = stream.protocol.decode([stream.body])
    calls = sum(isinstance(part, FunctionCallDelta) for part in whole)
    assert calls
    (cut, *_) = _cuts(stream)
    async with ReplayServer([Reply(stream.body, headers=_HEADERS, cut_at=cut)]) as server:
        provider = stream.protocol.provider(server.base_url)
        with pytest.raises(ProviderStreamCutError):
            async with provider.open_stream(_HELLO, ModelProviderContext()) as opened:
                await collect(opened)
        await provider.aclose()
