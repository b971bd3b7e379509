"""The replay server, with a real client and with bare sockets, on both event loops."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import anyio.abc
import anyio.lowlevel
import httpx2
import pytest
from typing_extensions import override

from runlane.clock import SystemClock
from runlane.errors import InvalidValueError, MissingDependencyError, UsageError
from runlane.testing import ReceivedRequest, ReplayServer, Reply

pytestmark = pytest.mark.anyio

_GET = b"GET /first HTTP/1.1\r\nHost: test\r\n\r\n"


def _client(server: ReplayServer) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=server.base_url, trust_env=False)


@asynccontextmanager
async def _socket(server: ReplayServer) -> AsyncGenerator[anyio.abc.SocketStream, None]:
    address = urlsplit(server.base_url)
    assert address.hostname is not None
    assert address.port is not None
    async with await anyio.connect_tcp(address.hostname, address.port) as stream:
        yield stream


async def _read_to_end(stream: anyio.abc.SocketStream) -> bytes:
    received = bytearray()
    while True:
        try:
            received += await stream.receive()
        except anyio.EndOfStream:
            return bytes(received)


async def _read_until(stream: anyio.abc.SocketStream, ending: bytes) -> bytes:
    received = bytearray()
    while not received.endswith(ending):
        received += await stream.receive()
    return bytes(received)


async def test_a_reply_is_served_as_written_and_the_request_recorded() -> None:
    """Status, headers and body reach the client; method, path, query, headers and body of the request are kept."""
    async with ReplayServer([Reply(b"hello", status=201, headers={"X-Kind": "greeting"})]) as server:
        async with _client(server) as client:
            response = await client.post("/v1/chat?stream=1", json={"a": 1}, headers={"Authorization": "Bearer k"})
        assert (response.status_code, response.content) == (201, b"hello")
        assert response.headers["x-kind"] == "greeting"
        assert response.headers["content-length"] == "5"
        (request,) = server.requests
    assert (request.method, request.path, request.query) == ("POST", "/v1/chat", (("stream", "1"),))
    assert request.json() == {"a": 1}
    assert request.header("authorization") == "Bearer k"
    assert server.disconnects == 0


@pytest.mark.parametrize("size", [1, 7, 1024, None])
async def test_a_body_arrives_whole_at_any_piece_size(size: int | None) -> None:
    """However small the pieces, the client puts together what was written."""
    body = bytes(range(256)) * 9
    async with ReplayServer([Reply(body, chunk_size=size)]) as server, _client(server) as client:
        response = await client.get("/")
    assert response.content == body
    assert ("transfer-encoding" in response.headers) == (size is not None)


async def test_each_piece_is_one_chunk_on_the_wire() -> None:
    """The framing shows the pieces, so a test can rely on where they end."""
    async with ReplayServer([Reply(b"abcde", chunk_size=2)]) as server, _socket(server) as stream:
        await stream.send(_GET)
        answer = await _read_until(stream, b"0\r\n\r\n")
    assert answer.partition(b"\r\n\r\n")[2] == b"2\r\nab\r\n2\r\ncd\r\n1\r\ne\r\n0\r\n\r\n"


async def test_a_large_body_is_not_truncated() -> None:
    """Eight mebibytes pass through while the client reads at its own pace."""
    body = b"0123456789abcdef" * 524_288
    async with ReplayServer([Reply(body, chunk_size=65_536), Reply(body)]) as server, _client(server) as client:
        chunked, whole = await client.get("/"), await client.get("/")
    assert chunked.content == body
    assert whole.content == body


async def test_replies_come_in_order_over_one_connection() -> None:
    """The script is served in the order of the requests, with keep-alive; past its end the server says so."""
    async with ReplayServer([Reply(b"one"), Reply(b"two", chunk_size=1)]) as server:
        async with _client(server) as client:
            answers = [await client.get(f"/{number}") for number in range(3)]
        assert server.connections == 1
        assert [request.path for request in server.requests] == ["/0", "/1", "/2"]
    assert [answer.content for answer in answers[:2]] == [b"one", b"two"]
    assert answers[2].status_code == 500
    assert answers[2].text == "the script has 2 replies; this is request 3: GET /2\n"


async def test_a_function_chooses_the_reply() -> None:
    """A plain function and a coroutine function both see the request and name the reply."""

    def plain(request: ReceivedRequest) -> Reply:
        return Reply(request.path.encode())

    async def waiting(request: ReceivedRequest) -> Reply:
        await anyio.lowlevel.checkpoint()
        return Reply(request.body)

    async with ReplayServer(plain) as first, ReplayServer(waiting) as second:
        async with _client(first) as client:
            assert (await client.get("/there")).content == b"/there"
        async with _client(second) as client:
            assert (await client.post("/", content=b"echo")).content == b"echo"


async def test_clients_are_served_side_by_side() -> None:
    """A reply that hangs keeps no other client waiting."""
    replies = [Reply(b"slow", hang_after=0), Reply(b"quick")]
    async with ReplayServer(replies) as server, _client(server) as client, anyio.create_task_group() as tasks:
        slow: list[bytes] = []

        async def fetch_slow() -> None:
            slow.append((await client.get("/slow")).content)

        tasks.start_soon(fetch_slow)
        await server.wait_for_requests(1)
        assert (await client.get("/quick")).content == b"quick"
        assert slow == []
        server.release()
    assert slow == [b"slow"]


@pytest.mark.parametrize("size", [3, None])
async def test_a_cut_ends_the_connection_at_its_byte(size: int | None) -> None:
    """A polite cut gives exactly the bytes before it, then the end of the stream and no end of the message."""
    reply = Reply(b"0123456789", chunk_size=size, cut_at=5)
    async with ReplayServer([reply, reply]) as server:
        async with _socket(server) as stream:
            await stream.send(_GET)
            received = await _read_to_end(stream)
        assert received.partition(b"\r\n\r\n")[2] == (b"01234" if size is None else b"3\r\n012\r\n2\r\n34\r\n")
        async with _client(server) as client:
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.get("/")
    assert server.disconnects == 0


async def test_a_reset_cut_is_a_broken_connection() -> None:
    """A cut by reset reaches the client as a reset, after the bytes before it."""
    async with ReplayServer([Reply(b"0123456789", cut_at=5, cut="reset")]) as server, _socket(server) as stream:
        await stream.send(_GET)
        received = bytearray()
        with pytest.raises(anyio.BrokenResourceError):
            while True:
                received += await stream.receive()
    assert b"0123456789".startswith(bytes(received).partition(b"\r\n\r\n")[2])


async def test_a_connection_can_end_before_any_answer() -> None:
    """Without a head and cut at 0, the client sees a server that closed instead of answering."""
    async with ReplayServer([Reply(send_head=False, cut_at=0)]) as server, _client(server) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")
        assert len(server.requests) == 1


async def test_a_reply_hangs_until_it_is_released() -> None:
    """Up to the place of the hang everything arrives; the rest comes after `release`."""
    server = ReplayServer([Reply(b"beforeafter", chunk_size=100, hang_after=6)])
    async with server, _client(server) as client:
        request = client.stream("GET", "/")
        async with request as response:
            parts = response.aiter_raw()
            assert await anext(parts) == b"before"
            server.release()
            assert b"".join([part async for part in parts]) == b"after"
    assert server.disconnects == 0


async def test_the_end_of_the_message_can_hang_too() -> None:
    """A hang at the length of the body holds back only the end of the message."""
    async with ReplayServer([Reply(b"all", chunk_size=3, hang_after=3)]) as server, _socket(server) as stream:
        await stream.send(_GET)
        assert (await _read_until(stream, b"all\r\n")).endswith(b"\r\n\r\n3\r\nall\r\n")
        server.release()
        assert await _read_until(stream, b"0\r\n\r\n") == b"0\r\n\r\n"


async def test_a_client_that_leaves_in_a_hang_is_noticed() -> None:
    """A client that goes away during a reply is counted at once, though nothing is being sent."""
    async with ReplayServer([Reply(b"half", chunk_size=1, hang_after=2)]) as server:
        async with _socket(server) as stream:
            await stream.send(_GET)
            await _read_until(stream, b"1\r\na\r\n")
            assert server.disconnects == 0
        assert await server.wait_for_disconnects() == 1


async def test_a_client_that_leaves_in_its_request_is_noticed() -> None:
    """Half a request and then the end of the connection counts as a client that left; nothing is recorded."""
    async with ReplayServer([Reply()]) as server:
        async with _socket(server) as stream:
            await stream.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\n123")
        assert await server.wait_for_disconnects() == 1
        assert server.requests == ()


async def test_a_client_that_vanishes_does_not_end_the_server() -> None:
    """After a client that reset its connection in the middle of a large reply, the next one is served."""
    async with ReplayServer([Reply(b"x" * 8_000_000), Reply(b"next")]) as server:
        async with _socket(server) as stream:
            await stream.send(_GET)
            await stream.receive(1)
            await anyio.aclose_forcefully(stream)
        await server.wait_for_disconnects()
        async with _client(server) as client:
            assert (await client.get("/")).content == b"next"


async def test_what_is_not_http_is_refused() -> None:
    """A client that does not speak HTTP is told so with status 400, and the server lives on."""
    async with ReplayServer([Reply(b"fine")]) as server:
        async with _socket(server) as stream:
            await stream.send(b"\x16\x03\x01 hello\r\n\r\n")
            assert (await _read_to_end(stream)).startswith(b"HTTP/1.1 400 ")
        async with _client(server) as client:
            assert (await client.get("/")).content == b"fine"
    assert len(server.requests) == 1


async def test_requests_sent_ahead_are_answered_in_turn() -> None:
    """Three requests in one write (pipelining) get three answers in their order."""
    async with ReplayServer(lambda request: Reply(request.path.encode())) as server, _socket(server) as stream:
        await stream.send(_GET + _GET.replace(b"first", b"second") + _GET.replace(b"first", b"third!"))
        received = await _read_until(stream, b"third!")
    assert [part.partition(b"\r\n\r\n")[2] for part in received.split(b"HTTP/1.1 ")[1:]] == [
        b"/first",
        b"/second",
        b"/third!",
    ]


@pytest.mark.parametrize("reply", [Reply(status=204), Reply(status=304), Reply(), Reply(chunk_size=5)])
async def test_a_reply_may_be_empty(reply: Reply) -> None:
    """A reply without a body ends at once and leaves the connection usable."""
    async with ReplayServer([reply, Reply(b"next")]) as server, _client(server) as client:
        first, second = await client.get("/"), await client.get("/")
        assert server.connections == 1
    assert (first.status_code, first.content) == (reply.status, b"")
    assert second.content == b"next"


@pytest.mark.parametrize("size", [2, None])
async def test_a_head_request_gets_no_body(size: int | None) -> None:
    """HEAD is answered with the head alone, and the connection stays in step."""
    async with ReplayServer([Reply(b"body", chunk_size=size)] * 2) as server, _client(server) as client:
        head, get = await client.head("/"), await client.get("/")
        assert server.connections == 1
    assert (head.content, get.content) == (b"", b"body")


async def test_a_client_may_ask_before_it_sends_its_body() -> None:
    """`Expect: 100-continue` is met with 100, after which the body is read."""
    async with ReplayServer(lambda request: Reply(request.body)) as server, _socket(server) as stream:
        await stream.send(b"PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert (await _read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        await stream.send(b"body")
        assert (await _read_until(stream, b"body")).startswith(b"HTTP/1.1 200 ")


class _CountingClock(SystemClock):
    """Does not wait: writes down what it was asked to wait for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    @override
    async def sleep(self, seconds: float, /) -> None:
        self.waits.append(seconds)
        await anyio.lowlevel.checkpoint()


async def test_delays_come_before_the_head_and_between_the_pieces() -> None:
    """`first_delay` is waited once, `delay` between pieces: not before the first and not after the last."""
    clock = _CountingClock()
    reply = Reply(b"abcdef", chunk_size=2, first_delay=1.5, delay=0.25)
    async with ReplayServer([reply], clock=clock) as server, _client(server) as client:
        assert (await client.get("/")).content == b"abcdef"
    assert clock.waits == [1.5, 0.25, 0.25]


async def test_the_block_ends_while_replies_hang() -> None:
    """Leaving the block ends every connection: nothing waits for a reply that would never come."""
    async with anyio.create_task_group() as tasks:
        ends: list[bytes] = []
        reading = anyio.Event()

        async def read(stream: anyio.abc.SocketStream) -> None:
            await stream.send(_GET)
            await _read_until(stream, b"\r\n\r\n")
            reading.set()
            ends.append(await _read_to_end(stream))
            await stream.aclose()

        async with ReplayServer([Reply(b"never", hang_after=0)]) as server:
            address = urlsplit(server.base_url)
            tasks.start_soon(read, await anyio.connect_tcp(str(address.hostname), address.port or 0))
            await reading.wait()
    assert ends == [b""]


async def test_the_port_is_free_again_after_the_block() -> None:
    """A server that ended leaves no socket: another can take its place at the same address."""
    async with ReplayServer([Reply(b"one")]) as first:
        port = urlsplit(first.base_url).port or 0
        async with _client(first) as client:
            await client.get("/")
    async with ReplayServer([Reply(b"two")], port=port) as second, _client(second) as client:
        assert second.base_url == first.base_url
        assert (await client.get("/")).content == b"two"


async def test_the_server_ends_when_it_is_cancelled() -> None:
    """Cancelling the task that holds the block ends the server, with a client in the middle of a reply."""
    async with ReplayServer([Reply(b"x", hang_after=0)] * 2) as outer:
        with anyio.CancelScope() as scope:
            async with ReplayServer([Reply(b"x", hang_after=0)]) as server, _socket(server) as stream:
                await stream.send(_GET)
                await server.wait_for_requests()
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert outer.connections == 0


class _Broken(Exception):  # noqa: N818 - a test's own
    pass


async def test_an_error_of_the_block_passes_through_unchanged() -> None:
    """The error that a test raises is not wrapped in a group; a failed reply function is added as a note."""

    def fail(_: ReceivedRequest) -> Reply:
        raise ValueError("no reply for you")

    with pytest.raises(_Broken) as raised:
        async with ReplayServer(fail) as server, _client(server) as client:
            assert (await client.get("/")).status_code == 500
            raise _Broken
    assert raised.value.__notes__ == ["the replay server's script failed too: ValueError('no reply for you')"]


async def test_a_failing_reply_function_fails_the_block() -> None:
    """The client gets 500, and the function's own error comes out at the end."""

    async def fail(_: ReceivedRequest) -> Reply:
        await anyio.lowlevel.checkpoint()
        raise _Broken

    with pytest.raises(_Broken):
        async with ReplayServer(fail) as server, _client(server) as client:
            assert (await client.get("/")).text == "the reply function failed\n"


@pytest.mark.parametrize("headers", [[("bad name", "x")], [("Content-Length", "2"), ("Content-Length", "3")]])
async def test_a_header_that_http_forbids_fails_the_block(headers: Sequence[tuple[str, str]]) -> None:
    """What cannot be sent is reported to the writer of the script, not only to the client."""
    with pytest.raises(InvalidValueError) as raised:
        async with ReplayServer([Reply(b"x", headers=headers)]) as server, _client(server) as client:
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.get("/")
    assert raised.value.argument == "headers"


async def test_a_body_shorter_than_its_declared_length_fails_the_block() -> None:
    """A Content-Length of the script's own is held against the body."""
    with pytest.raises(InvalidValueError):
        async with ReplayServer([Reply(b"abc", headers={"Content-Length": "9"})]) as server, _client(server) as client:
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.get("/")


async def test_a_server_is_entered_once() -> None:
    """It has no address before, and a second block needs a second server."""
    server = ReplayServer([])
    with pytest.raises(UsageError):
        _ = server.base_url
    async with server:
        assert server.base_url.startswith("http://127.0.0.1:")
    with pytest.raises(UsageError):
        await server.__aenter__()


async def test_without_h11_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entering a server without h11 says which extra brings it."""
    monkeypatch.delitem(sys.modules, "runlane.testing._replay_connection", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(MissingDependencyError) as missing:
        await ReplayServer([]).__aenter__()
    assert (missing.value.package, missing.value.extra) == ("h11", "testing")
