"""The HTTP client that the requests of a provider share."""

import anyio
import httpx2
import pytest
from typing_extensions import override

from runlane.contracts import CancelToken
from runlane.models._http import HttpClient, HttpRequest
from runlane.testing import ReplayServer, Reply

pytestmark = pytest.mark.anyio


class _Counting(HttpClient):
    made = 0

    @override
    def _make_client(self) -> httpx2.AsyncClient:
        self.made += 1
        return super()._make_client()


async def test_requests_that_come_at_once_share_one_client() -> None:
    """The first requests of many lanes: the client is made once, and all of them are answered by it."""
    client, statuses = _Counting(provider="p", secure=False), list[int]()
    async with ReplayServer(lambda _: Reply(b"ok")) as server:
        request = HttpRequest(url=server.base_url, headers={}, body=b"{}")

        async def ask() -> None:
            reply = await client.send(request, signal=CancelToken(), idle_timeout=None)
            statuses.append(reply.status)
            await reply.aclose()

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(ask)
        await client.aclose()
    assert (client.made, statuses) == (1, [200] * 10)


async def test_a_request_that_is_cancelled_while_the_client_is_made_leaves_it_to_the_others() -> None:
    """Whoever began to make the client goes away; the next request is answered all the same."""
    client, statuses = _Counting(provider="p", secure=False), list[int]()
    async with ReplayServer(lambda _: Reply(b"ok")) as server:
        request = HttpRequest(url=server.base_url, headers={}, body=b"{}")

        async def ask() -> None:
            reply = await client.send(request, signal=CancelToken(), idle_timeout=None)
            statuses.append(reply.status)
            await reply.aclose()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        await ask()
        await client.aclose()
    assert statuses[-1] == 200
