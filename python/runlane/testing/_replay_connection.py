"""One connection of a replay server: HTTP/1.1 by h11 over an anyio stream.

While a reply is sent, a second task reads: that is how a client that leaves is noticed at once, also while the reply
hangs or waits. What such a client has already sent of its next request is kept for the next turn.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, Protocol

import anyio
import anyio.abc
import h11

from runlane.clock import Clock
from runlane.errors import InvalidValueError
from runlane.testing._replies import ReceivedRequest, Reply

__all__ = ["ReplayConnection", "ReplayHost"]

_READ_SIZE: Final = 65_536
_NO_CONTENT: Final = 204
# What a client may send ahead while it is being answered; past it the server stops reading until it has answered.
_READ_AHEAD: Final = 1_048_576
_GONE: Final = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class ReplayHost(Protocol):
    """What a connection asks of its server."""

    @property
    def clock(self) -> Clock:
        """Where delays come from."""
        ...

    async def answer(self, request: ReceivedRequest, /) -> Reply:
        """Record a request and choose its reply."""
        ...

    async def hold(self) -> None:
        """Wait for leave to go on."""
        ...

    async def note_disconnect(self) -> None:
        """Count a client that left in the middle."""
        ...

    def note_failure(self, error: Exception, /) -> None:
        """Keep an error of the script, to be raised where the server was opened."""
        ...


class ReplayConnection:
    """Answers the requests of one client, one after the other, until either side ends."""

    def __init__(self, stream: anyio.abc.SocketStream, host: ReplayHost) -> None:
        self._stream = stream
        self._host = host
        self._http = h11.Connection(h11.SERVER)
        self._was_cut = False
        self._left = False
        self._reset = False
        self._ending = False
        self._delivered = False

    async def serve(self) -> None:
        """Serve until the connection ends; only cancellation comes out."""
        try:
            await self._serve_requests()
        except _GONE:
            pass
        except h11.RemoteProtocolError:
            await self._refuse()
        finally:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()

    async def _serve_requests(self) -> None:
        while (request := await self._next_request()) is not None:
            reply = await self._host.answer(request)
            if not await self._exchange(reply, head_only=request.method == "HEAD"):
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _next_request(self) -> ReceivedRequest | None:
        """The next whole request; None when the client ended between two."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                await self._receive()
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return ReceivedRequest.from_wire(
                    method=head.method, target=head.target, headers=list(head.headers), body=bytes(body)
                )
            else:
                return None

    async def _receive(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            await self._write(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            data = await self._stream.receive(_READ_SIZE)
        except _GONE:
            data = b""
        self._http.receive_data(data)

    async def _refuse(self) -> None:
        """Answer what is not HTTP; a client that ended within its request counts as one that left."""
        if self._http.trailing_data[1]:
            await self._host.note_disconnect()
            return
        if self._http.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        try:
            await self._send_reply(Reply(b"this is not an HTTP/1.1 request\n", status=400), head_only=False)
        except _GONE:
            return

    async def _exchange(self, reply: Reply, *, head_only: bool) -> bool:
        """Send a reply while watching the client; returns whether the connection can go on."""
        goes_on = False
        self._ending = self._delivered = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, tasks.cancel_scope)
            try:
                goes_on = await self._send_reply(reply, head_only=head_only)
            except _GONE:
                self._left = True
            except h11.LocalProtocolError as error:
                self._was_cut = True
                self._host.note_failure(InvalidValueError(f"the reply is not HTTP/1.1: {error}", argument="headers"))
            tasks.cancel_scope.cancel()
        whole = self._delivered and not self._reset
        if self._left and not self._was_cut and not whole:
            await self._host.note_disconnect()
        return goes_on

    async def _watch(self, sending: anyio.CancelScope) -> None:
        ahead = 0
        while ahead < _READ_AHEAD:
            try:
                data = await self._stream.receive(_READ_SIZE)
            except _GONE as end:
                self._left = True
                # anyio's asyncio half lets a write return quietly when the connection is lost in it; the reset is
                # what tells. A polite end during the last write is left to that write: the client may have read all.
                self._reset = not isinstance(end, anyio.EndOfStream)
                if self._reset or not self._ending:
                    sending.cancel()
                return
            ahead += len(data)
            self._http.receive_data(data)

    async def _send_reply(self, reply: Reply, *, head_only: bool) -> bool:
        if reply.first_delay:
            await self._host.clock.sleep(reply.first_delay)
        if reply.send_head:
            await self._write(h11.Response(status_code=reply.status, headers=_framed(reply), reason=b""))
        if head_only:
            await self._write_end()
            return True
        await self._send_body(reply)
        if reply.cut_at is not None:
            await self._cut(reply)
            return False
        if not self._delivered:
            await self._write_end()
        return True

    async def _send_body(self, reply: Reply) -> None:
        position = 0
        for piece in reply.pieces():
            if position == reply.hang_after:
                await self._host.hold()
            if position and reply.delay:
                await self._host.clock.sleep(reply.delay)
            position += len(piece)
            ends = position == len(reply.body) and reply.cut_at is None and reply.hang_after != position
            if ends:
                # In one write: a client that has the whole body has the end as well, and has not left early.
                await self._write_end(h11.Data(data=piece))
            else:
                await self._write(h11.Data(data=piece))
        if position == reply.hang_after:
            await self._host.hold()

    async def _cut(self, reply: Reply) -> None:
        self._was_cut = True
        if reply.cut == "reset":
            # A linger time of zero turns the close into a reset (socket(7), SO_LINGER).
            raw = self._stream.extra(anyio.abc.SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await anyio.aclose_forcefully(self._stream)
        else:
            await self._stream.aclose()

    async def _write_end(self, *events: h11.Event) -> None:
        self._ending = True
        await self._write(*events, h11.EndOfMessage())
        self._delivered = True

    async def _write(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        if data:
            await self._stream.send(data)


def _framed(reply: Reply) -> list[tuple[str, str]]:
    headers = reply.header_list()
    names = {name.lower() for name, _ in headers}
    if names & {"content-length", "transfer-encoding"} or reply.status == _NO_CONTENT:
        return headers
    if reply.chunk_size is None:
        return [*headers, ("Content-Length", str(len(reply.body)))]
    return [*headers, ("Transfer-Encoding", "chunked")]
