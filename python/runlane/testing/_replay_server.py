"""An HTTP server that plays a script: for tests of clients, and for demonstrations without a network.

Theory of operation: every connection is one task of the server's task group, and a task group of its own while it
answers. The server ends by cancelling them all; nothing is left behind, neither task nor socket. An error of the test
that uses the server passes through unchanged, not wrapped in a group.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Final, Self, TypeAlias

import anyio
import anyio.abc

from runlane.clock import Clock
from runlane.contracts import MaybeAwaitable, clock_or_system, require_kind, resolve
from runlane.errors import MissingDependencyError, UsageError
from runlane.testing._faults import ProviderStep, in_turn
from runlane.testing._replies import ReceivedRequest, Reply

__all__ = ["ReplayServer", "Responder"]

_LOOPBACK: Final = "127.0.0.1"

Responder: TypeAlias = Callable[[ReceivedRequest], MaybeAwaitable[Reply]]
"""Chooses the reply to a request; may be a coroutine function."""


class ReplayServer:
    r"""An HTTP/1.1 server on the loopback interface that answers by a script and records what it was asked.

    It runs while its `async with` block does, on asyncio and trio, with keep-alive and any number of connections.
    A request past the end of the script is answered with status 500 and a text that says so.

    What goes wrong in the script itself (a reply function that raises, a header that HTTP forbids) is raised at the
    end of the block, unless the block has an error of its own: then it is added to that as a note.

    Args:
        replies: Replies served in the order of the requests, or a function from a request to its reply.
        port: The TCP port; 0 takes any free one.
        clock: Where delays come from; the system's clock by default.

    Raises:
        MissingDependencyError: h11 is not installed (on entering); `pip install 'runlane[testing]'`.
        OSError: The port is taken (on entering).

    Example:
        ```python
        async with ReplayServer([Reply(b"data: hi\n\n", chunk_size=4)]) as server:
            async with httpx2.AsyncClient(base_url=server.base_url) as client:
                response = await client.post("/v1/chat/completions", json={"stream": True})
        assert server.requests[0].json() == {"stream": True}
        ```
    """

    def __init__(self, replies: Iterable[Reply] | Responder, *, port: int = 0, clock: Clock | None = None) -> None:
        respond = replies if callable(replies) else _in_order(require_kind(replies, Iterable, argument="replies"))
        self._play = _Play(respond, clock_or_system(clock))
        self._port = require_kind(port, int, argument="port")
        self._bound_port: int | None = None
        self._lifetime: AbstractAsyncContextManager[None] | None = None

    @classmethod
    def by_plan(cls, *plan: ProviderStep, port: int = 0, clock: Clock | None = None) -> Self:
        """Return a server that answers and fails as a provider does: the n-th request by the n-th step.

        The last step is repeated. Answers have the form of the wire protocol whose address is asked: chat completions,
        responses, Anthropic's messages or Google's generateContent.

        Args:
            *plan: At least one step, such as `HttpFailure(503), Answer("ok")`.
            port: The TCP port; 0 takes any free one.
            clock: Where delays come from; the system's clock by default.

        Raises:
            UsageError: There is no step.
        """
        if not plan:
            raise UsageError("needs at least one step", argument="plan")
        return cls(in_turn(plan), port=port, clock=clock)

    @property
    def base_url(self) -> str:
        """The address of the running server, such as `http://127.0.0.1:40123`, without a slash at the end.

        Raises:
            UsageError: The server has not been entered yet.
        """
        if self._bound_port is None:
            raise UsageError("the server has an address only once it is entered", argument="base_url")
        return f"http://{_LOOPBACK}:{self._bound_port}"

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The requests received whole so far, in the order of their arrival."""
        return tuple(self._play.requests)

    @property
    def calls(self) -> int:
        """How many requests have been received whole so far."""
        return len(self._play.requests)

    @property
    def disconnects(self) -> int:
        """How many clients have left within their request or before the end of its reply.

        A client that ends only its sending half counts too.
        """
        return self._play.disconnects

    @property
    def connections(self) -> int:
        """How many connections have been accepted; requests over one kept-alive connection count it once."""
        return self._play.connections

    async def wait_for_requests(self, count: int = 1, /) -> tuple[ReceivedRequest, ...]:
        """Wait until at least `count` requests have arrived whole; returns all so far."""
        await self._play.reaches(lambda: len(self._play.requests) >= count)
        return self.requests

    async def wait_for_disconnects(self, count: int = 1, /) -> int:
        """Wait until at least `count` clients have left early; returns how many so far."""
        await self._play.reaches(lambda: self._play.disconnects >= count)
        return self.disconnects

    def release(self, replies: int = 1, /) -> None:
        """Let replies that hang go on: as many as named, in the order they began to hang, now or later."""
        for _ in range(replies):
            self._play.leave.release()

    async def __aenter__(self) -> Self:
        if self._lifetime is not None:
            raise UsageError("a server is entered once; make a new one", argument="ReplayServer")
        self._lifetime = self._running()
        await self._lifetime.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> bool | None:
        if self._lifetime is None:
            raise UsageError("the server was left without having been entered", argument="ReplayServer")
        return await self._lifetime.__aexit__(kind, error, traceback)

    @asynccontextmanager
    async def _running(self) -> AsyncGenerator[None, None]:
        try:
            from runlane.testing._replay_connection import ReplayConnection  # noqa: PLC0415 - h11 is optional
        except ModuleNotFoundError as error:
            if error.name != "h11":
                raise
            raise MissingDependencyError(package="h11", extra="testing") from error

        async def serve(stream: anyio.abc.SocketStream) -> None:
            self._play.connections += 1
            await ReplayConnection(stream, self._play).serve()

        failure: Exception | None = None
        async with await anyio.create_tcp_listener(local_host=_LOOPBACK, local_port=self._port) as listener:
            self._bound_port = listener.extra(anyio.abc.SocketAttribute.local_port)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, serve)
                try:
                    yield
                except Exception as error:  # noqa: BLE001 - kept out of the group and raised again below
                    failure = error
                tasks.cancel_scope.cancel()
        self._play.end(failure)


class _Play:
    """The script being played, and what came of it so far: the host of the server's connections."""

    def __init__(self, respond: Responder, clock: Clock) -> None:
        self.clock = clock
        self.requests: list[ReceivedRequest] = []
        self.disconnects = 0
        self.connections = 0
        self.leave = anyio.Semaphore(0)
        self._respond = respond
        self._failures: list[Exception] = []
        self._changed = anyio.Condition()

    async def answer(self, request: ReceivedRequest, /) -> Reply:
        self.requests.append(request)
        await self._announce()
        try:
            return await resolve(self._respond(request))
        except Exception as error:  # noqa: BLE001 - whatever a test's function raises
            self.note_failure(error)
            return Reply(b"the reply function failed\n", status=500)

    async def hold(self) -> None:
        await self.leave.acquire()

    async def note_disconnect(self) -> None:
        self.disconnects += 1
        await self._announce()

    def note_failure(self, error: Exception, /) -> None:
        self._failures.append(error)

    async def reaches(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            while not condition():
                await self._changed.wait()

    def end(self, failure: Exception | None) -> None:
        if failure is None:
            if self._failures:
                raise self._failures[0]
            return
        for error in self._failures:
            failure.add_note(f"the replay server's script failed too: {error!r}")
        raise failure

    async def _announce(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _in_order(replies: Iterable[Reply]) -> Responder:
    script = list(replies)
    served = 0

    def respond(request: ReceivedRequest, /) -> Reply:
        nonlocal served
        served += 1
        if served <= len(script):
            return script[served - 1]
        text = f"the script has {len(script)} replies; this is request {served}: {request.method} {request.path}\n"
        return Reply(text.encode(), status=500)

    return respond
