"""Over a real connection: what is sent, what comes back, and that the connection ends when the call does."""

import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from runlane.contracts import CancelToken
from runlane.errors import (
    AbortedError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderStreamCutError,
    SseIdleTimeoutError,
    UsageError,
)
from runlane.models import (
    FinishReport,
    ModelMessage,
    ModelPart,
    ModelProviderContext,
    ResponseInfo,
    StreamNote,
    TextDelta,
    collect,
)
from runlane.models.openai_chat import OpenAIChat
from runlane.testing import ReplayServer, Reply
from tests.models.replay import Recorded, delta, expected_reading, name_of, own_streams, reading, text_of

pytestmark = pytest.mark.anyio

_HELLO = [ModelMessage.user("Hello")]
_SSE = {"Content-Type": "text/event-stream"}


def sse(*chunks: object, done: bool = True) -> bytes:
    """A body with one event per chunk."""
    events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*events, "data: [DONE]\n\n"] if done else events).encode()


def stream_reply(body: bytes, **options: object) -> Reply:
    """A reply with an event stream."""
    return Reply(body, headers=_SSE, **options)  # type: ignore[arg-type]  # the options of the reply


_ANSWER = sse(delta(content="Hi"), delta(content=" there"), delta(finish="stop"))


@asynccontextmanager
async def provider_for(*replies: Reply) -> AsyncIterator[tuple[OpenAIChat, ReplayServer]]:
    """A provider and the server it talks to."""
    async with ReplayServer(replies) as server:
        provider = OpenAIChat("parrot-1", base_url=f"{server.base_url}/v1", api_key="sk-parrot-key")
        try:
            yield provider, server
        finally:
            await provider.aclose()


async def read(
    provider: OpenAIChat, context: ModelProviderContext | None = None, messages: Sequence[ModelMessage] = _HELLO
) -> list[ModelPart]:
    """Read a whole response."""
    async with provider.open_stream(messages, context or ModelProviderContext()) as stream:
        return [part async for part in stream]


async def read_into(parts: list[ModelPart], provider: OpenAIChat, context: ModelProviderContext) -> None:
    """Read a response, keeping what came before a failure."""
    async with provider.open_stream(_HELLO, context) as stream:
        async for part in stream:
            parts.append(part)  # noqa: PERF401 - what came before a failure is kept


_OVER_HTTP = [
    pytest.param(stream, size, id=f"{name_of(stream)}-{size}")
    for stream in own_streams()
    for size in (1, 7, 1024, None)
    # A chunk of HTTP for every byte of a longer stream takes a second and shows nothing more.
    if not stream.fails and (size != 1 or len(stream.body) < 700)
]


@pytest.mark.parametrize(("stream", "size"), _OVER_HTTP)
async def test_a_stream_over_http_gives_what_its_index_says(stream: Recorded, size: int | None) -> None:
    """The size of the pieces on the wire changes nothing."""
    async with provider_for(stream_reply(stream.body, chunk_size=size)) as (provider, _):
        got, expected = reading(await read(provider)), expected_reading(stream)
    for call in got["tool_calls"] + expected["tool_calls"]:
        if call["id"].startswith(("call-1", "call_0")):
            call["id"] = "named by us"
    assert got == expected


async def test_the_request_is_what_an_openai_client_sends() -> None:
    """A POST to `/chat/completions` below the base URL, with the key, asking for a stream and its usage."""
    async with provider_for(stream_reply(_ANSWER)) as (provider, server):
        await read(provider)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.header("authorization") == "Bearer sk-parrot-key"
    assert request.header("content-type") == "application/json"
    assert request.json() == {
        "model": "parrot-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Hello"}],
    }


async def test_a_complete_answer_leaves_its_connection_for_the_next() -> None:
    """Three calls one after the other use one connection."""
    async with provider_for(*[stream_reply(_ANSWER, chunk_size=20)] * 3) as (provider, server):
        for _ in range(3):
            assert text_of(await read(provider)) == "Hi there"
        assert (server.connections, server.disconnects) == (1, 0)


async def test_a_server_that_goes_on_after_the_end_costs_nothing() -> None:
    """After `[DONE]` nothing is waited for; the connection is closed instead."""
    body = _ANSWER + b": more\n\n" * 10
    with anyio.fail_after(5):
        async with provider_for(stream_reply(body, hang_after=len(_ANSWER))) as (provider, server):
            parts = await read(provider)
            await server.wait_for_disconnects()
    assert parts[-1] == FinishReport("stop", "stop")


async def test_two_streams_at_once_share_nothing() -> None:
    """Two responses read turn by turn each give their own text."""
    other = sse(delta(content="Other"), delta(finish="stop"))
    async with provider_for(stream_reply(_ANSWER, chunk_size=9), stream_reply(other, chunk_size=9)) as (provider, _):
        context = ModelProviderContext()
        async with provider.open_stream(_HELLO, context) as first, provider.open_stream(_HELLO, context) as second:
            texts = ["", ""]
            for turn in range(8):
                with suppress(StopAsyncIteration):
                    texts[turn % 2] += text_of([await anext((first, second)[turn % 2])])
    assert texts == ["Hi there", "Other"]


@asynccontextmanager
async def hanging_stream(token: CancelToken) -> AsyncIterator[AsyncIterator[ModelPart]]:
    """A response that says `Hi` and then nothing; after the block its connection must end within a second."""
    reply = stream_reply(_ANSWER, hang_after=len(sse(delta(content="Hi"), done=False)))
    async with provider_for(reply) as (provider, server):
        try:
            async with provider.open_stream(_HELLO, ModelProviderContext(signal=token)) as stream:
                yield stream
        finally:
            with anyio.fail_after(1, shield=True):
                await server.wait_for_disconnects()


async def test_a_tripped_token_ends_the_wait_for_the_next_part() -> None:
    """The reason is raised and the connection ends within a second."""
    token = CancelToken()
    async with anyio.create_task_group() as tasks:
        with pytest.raises(AbortedError, match="enough"):
            async with hanging_stream(token) as stream:
                async for part in stream:
                    if isinstance(part, TextDelta):
                        tasks.start_soon(_trip, token)


async def _trip(token: CancelToken) -> None:
    await anyio.lowlevel.checkpoint()
    token.cancel("enough")


async def test_a_cancelled_scope_ends_the_wait_for_the_next_part() -> None:
    """Cancellation around the caller passes untouched, and the connection ends within a second."""
    reply = stream_reply(_ANSWER, hang_after=len(sse(delta(content="Hi"), done=False)))
    async with provider_for(reply) as (provider, server):
        with anyio.CancelScope() as scope:
            async with provider.open_stream(_HELLO, ModelProviderContext()) as stream:
                async for part in stream:
                    if isinstance(part, TextDelta):
                        scope.deadline = anyio.current_time() + 0.01
        with anyio.fail_after(1):
            await server.wait_for_disconnects()
    assert scope.cancelled_caught


async def test_leaving_early_closes_the_connection() -> None:
    """A consumer that has heard enough leaves, and the connection ends within a second."""
    async with hanging_stream(CancelToken()) as stream:
        async for part in stream:
            if isinstance(part, TextDelta):
                break
        assert text_of([part]) == "Hi"


async def test_nothing_comes_after_the_token_trips() -> None:
    """Parts that already arrived are not given once the token tripped; the reason is raised."""
    token, seen = CancelToken(), 0
    async with provider_for(stream_reply(_ANSWER)) as (provider, _):
        with pytest.raises(AbortedError, match="enough"):
            async with provider.open_stream(_HELLO, ModelProviderContext(signal=token)) as stream:
                async for _ in stream:
                    seen += 1
                    token.cancel("enough")
    assert seen == 1


async def test_a_token_that_tripped_before_sends_nothing() -> None:
    """No connection is made for a call that is already cancelled."""
    token = CancelToken()
    token.cancel("never mind")
    async with provider_for() as (provider, server):
        with pytest.raises(AbortedError):
            await read(provider, ModelProviderContext(signal=token))
        assert server.connections == 0


async def test_a_token_ends_the_wait_for_the_head() -> None:
    """A provider that has not begun to answer is left at once."""
    token = CancelToken()

    async def stop(server: ReplayServer) -> None:
        await server.wait_for_requests()
        token.cancel("enough")

    silent = stream_reply(_ANSWER, send_head=False, hang_after=0)
    async with provider_for(silent) as (provider, server), anyio.create_task_group() as tasks:
        tasks.start_soon(stop, server)
        with pytest.raises(AbortedError, match="enough"):
            await read(provider, ModelProviderContext(signal=token))
        with anyio.fail_after(1):
            await server.wait_for_disconnects()


@pytest.mark.parametrize("send_head", [True, False])
async def test_silence_is_a_typed_timeout(send_head: bool) -> None:  # noqa: FBT001 - two cases of one sentence
    """Neither a late head nor a silent body is waited for longer than `idle_timeout`."""
    reply = stream_reply(_ANSWER, send_head=send_head, hang_after=0)
    async with provider_for(reply) as (provider, server):
        with pytest.raises(ModelIdleTimeoutError) as caught:
            await read(provider, ModelProviderContext(idle_timeout=0.05))
        with anyio.fail_after(1):
            await server.wait_for_disconnects()
    assert isinstance(caught.value.__cause__, SseIdleTimeoutError)
    assert (caught.value.idle_timeout, caught.value.retryable) == (0.05, True)


async def test_signs_of_life_keep_a_slow_answer_alive() -> None:
    """Comments count as bytes: a provider that thinks longer than `idle_timeout` is not given up."""
    body = b": thinking\n\n" * 12 + _ANSWER
    async with provider_for(stream_reply(body, chunk_size=12, delay=0.01)) as (provider, _):
        assert text_of(await read(provider, ModelProviderContext(idle_timeout=0.1))) == "Hi there"


async def test_who_failed_is_said_before_a_silence_is_raised() -> None:
    """What is known of the provider is delivered although its answer never ended."""
    parts: list[ModelPart] = []
    said = sse({"model": "m", "choices": [{"delta": {"content": "Hi"}}]}, done=False)
    async with provider_for(stream_reply(said + b": wait\n\n", hang_after=len(said))) as (provider, _):
        with pytest.raises(ModelIdleTimeoutError):
            await read_into(parts, provider, ModelProviderContext(idle_timeout=0.05))
    assert parts == [TextDelta("Hi"), ResponseInfo(model="m")]


@pytest.mark.parametrize("cut", ["close", "reset"])
async def test_a_broken_connection_is_a_cut_stream(cut: str) -> None:
    """What arrived is delivered, then the cut is raised; it may be tried again."""
    at = len(sse(delta(content="Hi"), done=False)) + 30
    parts: list[ModelPart] = []
    async with provider_for(stream_reply(_ANSWER, chunk_size=at, cut_at=at, cut=cut)) as (provider, _):
        with pytest.raises(ProviderStreamCutError) as caught:
            await read_into(parts, provider, ModelProviderContext())
    assert caught.value.retryable
    assert cut == "reset" or text_of(parts) == "Hi"


async def test_an_end_without_a_finish_is_a_cut_stream() -> None:
    """A body that ends politely, but without evidence that the answer did, is no success."""
    parts: list[ModelPart] = []
    async with provider_for(stream_reply(sse(delta(content="Hi"), done=False))) as (provider, _):
        with pytest.raises(ProviderStreamCutError):
            await read_into(parts, provider, ModelProviderContext())
    assert text_of(parts) == "Hi"


@pytest.mark.parametrize("trouble", ["cut", "silence", "half an event"])
async def test_trouble_after_the_finish_reason_is_a_note(trouble: str) -> None:
    """An answer with its finish reason stays complete when the connection breaks, goes silent or ends in an event."""
    body = sse(delta(content="Hi"), delta(finish="stop"), done=False)
    whole = body + b'data: {"choi'
    place = {"cut": {"chunk_size": len(body), "cut_at": len(body)}, "silence": {"hang_after": len(body)}}
    notes: list[StreamNote] = []
    context = ModelProviderContext(idle_timeout=0.05, on_note=notes.append)
    async with provider_for(stream_reply(whole, **place.get(trouble, {}))) as (provider, _):
        parts = await read(provider, context)
    assert parts[-1] == FinishReport("stop", "stop")
    assert [note.kind for note in notes] == [
        "incomplete-event" if trouble == "half an event" else "cut-after-finish",
    ]


async def test_an_event_beyond_16_mib_is_refused() -> None:
    """A line that never ends is not gathered without limit."""
    async with provider_for(stream_reply(b"data: " + b"x" * (16 * 1_048_576 + 1))) as (provider, _):
        with pytest.raises(ModelProtocolError, match="more than 16777216 bytes"):
            await read(provider)


async def test_an_event_of_2_mib_is_read() -> None:
    """A long line is no reason to refuse an answer."""
    text = "x" * 2_097_152
    async with provider_for(stream_reply(sse(delta(content=text, finish="stop")), chunk_size=1_024)) as (provider, _):
        assert text_of(await read(provider)) == text


async def test_a_server_that_does_not_stream_is_read_too() -> None:
    """One JSON document gives the same parts as a stream would."""
    document = {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    reply = Reply(json.dumps(document).encode(), headers={"Content-Type": "application/json; charset=utf-8"})
    async with provider_for(reply) as (provider, _), provider.open_stream(_HELLO, ModelProviderContext()) as stream:
        response = await collect(stream, provider=provider.provider_id)
    assert (response.text, response.finish) == ("Hi", FinishReport("stop", "stop"))
    assert response.usage is not None
    assert response.usage.input_tokens == 3


async def test_notes_of_the_decoder_reach_the_context() -> None:
    """A repaired character is told to `on_note`."""
    notes: list[StreamNote] = []
    body = sse(delta(content="\ud835"), delta(finish="stop"))
    async with provider_for(stream_reply(body)) as (provider, _):
        assert text_of(await read(provider, ModelProviderContext(on_note=notes.append))) == "\ufffd"
    assert [note.kind for note in notes] == ["text-repaired"]


async def test_a_stream_is_read_once_and_inside_its_context_only() -> None:
    """Reading outside `async with`, or entering twice, is misuse; after the end the iteration just stops."""
    async with provider_for(stream_reply(_ANSWER)) as (provider, _):
        manager = provider.open_stream(_HELLO, ModelProviderContext())
        async with manager as stream:
            async for _ in stream:
                pass
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        with pytest.raises(UsageError):
            await manager.__aenter__()


def test_one_provider_serves_one_event_loop_after_another() -> None:
    """A synchronous program that runs a loop per question can keep its provider."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    provider = OpenAIChat("parrot-1", base_url=f"http://127.0.0.1:{port}")

    async def ask() -> str:
        async with ReplayServer([stream_reply(_ANSWER)], port=port):
            try:
                return text_of(await read(provider))
            finally:
                await provider.aclose()

    assert [anyio.run(ask, backend=backend) for backend in ("asyncio", "trio", "asyncio")] == ["Hi there"] * 3
