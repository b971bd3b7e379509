"""`read_sse` and silence, on event loops whose clock jumps."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import FormatError, ModelError
from runlane.sse import SseIdleTimeoutError, SseReadOptions, read_sse
from tests.virtual_time import jumping

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both event loops, on virtual time."""
    return jumping(request.param)


async def paced(pause: float, *chunks: bytes) -> AsyncIterator[bytes]:
    """Yield chunks with a pause before each, then say nothing for ever."""
    for chunk in chunks:
        await anyio.sleep(pause)
        yield chunk
    await anyio.sleep_forever()


async def test_s5_s12_comments_keep_a_stream_alive() -> None:
    """Heartbeats every 0.2 s for 2 s under a limit of 0.5 s, then silence: 0.5 s later, an error."""
    start = anyio.current_time()
    async with read_sse(paced(0.2, *[b": hb\n\n"] * 10), {"idle_timeout": 0.5}) as reader:
        with pytest.raises(SseIdleTimeoutError) as caught:
            await anext(reader)
    assert anyio.current_time() - start == pytest.approx(2.5, abs=0.1)
    assert (caught.value.idle_timeout, caught.value.retryable) == (0.5, True)


async def test_s13_the_error_is_its_own_kind() -> None:
    """Silence is neither a TimeoutError nor a format or model error."""
    with pytest.raises(SseIdleTimeoutError) as caught:
        await anext(read_sse(paced(1), {"idle_timeout": 0.1}))
    assert not isinstance(caught.value, (TimeoutError, FormatError, ModelError))
    assert caught.value.code == "sse.idle_timeout"


async def test_s12_any_byte_counts_also_without_an_event() -> None:
    """Fragments that complete no event keep the stream alive."""
    pieces = [b"da", b"ta: {", b'"a"', b":", b"1}", b"\n", b"\n"]
    async with read_sse(paced(0.4, *pieces), {"idle_timeout": 0.5}) as reader:
        assert (await anext(reader)).data == '{"a":1}'


async def test_s12_empty_chunks_do_not_count() -> None:
    """Chunks without a byte do not keep a stream alive."""
    async with read_sse(paced(0.2, *[b""] * 50), {"idle_timeout": 0.5}) as reader:
        start = anyio.current_time()
        with pytest.raises(SseIdleTimeoutError):
            await anext(reader)
        assert anyio.current_time() - start == pytest.approx(0.5, abs=0.1)


async def test_s12_a_slow_consumer_is_not_silence() -> None:
    """The time between two steps does not count."""
    body = paced(0.1, b"data: 1\n\ndata: 2\n\n", b"data: 3\n\n")
    async with read_sse(body, {"idle_timeout": 0.5}) as reader:
        for expected in "123":
            assert (await anext(reader)).data == expected
            await anyio.sleep(2)


async def test_s12_without_a_limit_silence_may_last() -> None:
    """No limit is the default."""
    async with read_sse(paced(100_000, b"data: 1\n\n")) as reader:
        assert (await anext(reader)).data == "1"


@pytest.mark.parametrize("fails", [True, False])
async def test_a_body_that_answers_the_time_out_was_silent(fails: int) -> None:
    """An end or an error that a body makes of our cancellation is silence all the same."""

    async def body() -> AsyncIterator[bytes]:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            if fails:
                raise ConnectionError("cancelled") from None
            return
        yield b""

    with pytest.raises(SseIdleTimeoutError):
        await anext(read_sse(body(), {"idle_timeout": 0.5}))


async def test_bytes_that_came_are_not_silence() -> None:
    """A body that does not let itself be cancelled, and then has bytes, is read."""

    async def body() -> AsyncIterator[bytes]:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
        yield b"data: late\n\n"

    async with read_sse(body(), {"idle_timeout": 0.5}) as reader:
        assert (await anext(reader)).data == "late"


async def test_s15_the_reason_wins_over_silence() -> None:
    """A token that tripped before the silence was over gives its reason."""
    token, reason = CancelToken(), KeyError("why")
    seen: list[object] = []

    async def read() -> None:
        try:
            await anext(read_sse(paced(9), SseReadOptions(signal=token, idle_timeout=0.5)))
        except (KeyError, SseIdleTimeoutError) as error:
            seen.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.sleep(0.4)
        token.cancel(reason)
    assert seen == [reason]
