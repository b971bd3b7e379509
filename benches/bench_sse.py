"""Event streams: decoding, reading an async body, and encoding."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from benches._harness import Peer, Row, Work, at_least, at_most, bench, optional
from runlane.sse import SseDecoder, encode_sse, read_sse

WORDS = ("Hello", " world", "!", " the", " quick", " brown")


def openai_body(events: int = 400) -> bytes:
    """Return a stream in the shape of OpenAI's chat completions, about 300 bytes an event."""
    frames = []
    for number in range(events):
        delta = {"content": WORDS[number % len(WORDS)]}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        chunk = {
            "id": "chatcmpl-AbCdEf0123456789",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": "gpt-4o-2024-08-06",
            "service_tier": "default",
            "system_fingerprint": "fp_0123456789",
            "choices": [choice],
            "obfuscation": "abcdef",
        }
        frames.append(f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n")
    return "".join([*frames, "data: [DONE]\n\n"]).encode()


BODY = openai_body()


def pieces(body: bytes, size: int) -> list[bytes]:
    """Cut a body into chunks."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def decode(chunks: list[bytes], limit: int = 1 << 20) -> None:
    """Decode chunks with runlane; every event is made, with its text."""
    decoder = SseDecoder(limit, limit)
    feed = decoder.feed
    for chunk in chunks:
        feed(chunk)
    decoder.close()


def httpx_sse(chunks: list[bytes]) -> Work | None:
    """Decode as httpx-sse does: text decoder, line decoder, event decoder."""
    decoders, httpx = optional("httpx_sse._decoders"), optional("httpx._decoders")
    if decoders is None or httpx is None:
        return None

    def work() -> None:
        texts, lines, events = httpx.TextDecoder(), decoders.SSELineDecoder(), decoders.SSEDecoder()
        for chunk in chunks:
            text = texts.decode(chunk)
            if text:
                for line in lines.decode(text):
                    events.decode(line)

    return work


def generator_peer(module: str, chunks: list[bytes]) -> Work | None:
    """Decode with the decoder of a provider's client, drained as fast as a generator can be."""
    streaming = optional(f"{module}._streaming")
    if streaming is None:
        return None
    return lambda: deque(streaming.SSEDecoder().iter_bytes(iter(chunks)), maxlen=0)


def decoding(size: int, *peers: Peer) -> Row:
    """Return a row of decoding in chunks of one size."""
    chunks = pieces(BODY, size)
    return Row(ours=lambda: decode(chunks), peers=peers)


@bench
def bench_decode_16k() -> Row:
    """SSE decode, OpenAI-shaped, chunks of 16 KiB."""
    chunks = pieces(BODY, 16_384)
    return decoding(
        16_384,
        Peer("httpx-sse", httpx_sse(chunks), at_least(8)),
        Peer("anthropic", generator_peer("anthropic", chunks), at_least(14)),
        Peer("openai", generator_peer("openai", chunks), at_least(28)),
        Peer("bytes.splitlines, whole body", BODY.splitlines, at_most(0.9)),
    )


@bench
def bench_decode_64k() -> Row:
    """SSE decode, OpenAI-shaped, chunks of 64 KiB."""
    chunks = pieces(BODY, 65_536)
    return decoding(
        65_536,
        Peer("httpx-sse", httpx_sse(chunks), at_least(8)),
        Peer("anthropic", generator_peer("anthropic", chunks), at_least(14)),
        Peer("openai", generator_peer("openai", chunks), at_least(28)),
        Peer("bytes.splitlines, whole body", BODY.splitlines, at_most(0.9)),
    )


@bench
def bench_decode_1k() -> Row:
    """SSE decode, OpenAI-shaped, chunks of 1 KiB."""
    chunks = pieces(BODY, 1024)
    return decoding(
        1024,
        Peer("httpx-sse", httpx_sse(chunks), at_least(6)),
        Peer("bytes.splitlines, whole body", BODY.splitlines, at_most(1.4)),
    )


@bench
def bench_decode_37() -> Row:
    """SSE decode, OpenAI-shaped, chunks of 37 B."""
    chunks = pieces(BODY, 37)
    return decoding(37, Peer("anthropic", generator_peer("anthropic", chunks), at_least(5)))


@bench
def bench_decode_1() -> Row:
    """SSE decode, OpenAI-shaped, chunks of 1 B."""
    chunks = pieces(BODY[:30_000], 1)
    return Row(
        ours=lambda: decode(chunks),
        peers=[Peer("anthropic", generator_peer("anthropic", chunks), at_least(8))],
    )


@bench
def bench_one_long_line() -> Row:
    """One line of 1 MiB, chunks of 1 KiB."""
    body = b"data: " + b"x" * (1 << 20) + b"\n\n"
    small, large = pieces(body, 1024), pieces(body, 65_536)
    return Row(
        ours=lambda: decode(small, 2 << 20),
        peers=[Peer("itself, chunks of 64 KiB", lambda: decode(large, 2 << 20), at_most(3))],
    )


async def _body(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _read(chunks: list[bytes], options: dict[str, object] | None) -> None:
    async with read_sse(_body(chunks), options) as events:
        async for _ in events:
            pass


def _httpx_sse_reader(chunks: list[bytes]) -> Callable[[], Any] | None:
    httpx, client = optional("httpx"), optional("httpx_sse")
    if httpx is None or client is None:
        return None

    class Stream(httpx.AsyncByteStream):  # type: ignore[misc,name-defined]  # loaded by name
        def __aiter__(self) -> AsyncIterator[bytes]:
            return _body(chunks)

    async def read() -> None:
        headers = {"content-type": "text/event-stream"}
        response = httpx.Response(200, headers=headers, stream=Stream())
        async for _ in client.EventSource(response).aiter_sse():
            pass

    return read


@bench
def bench_read_sse() -> Row:
    """read_sse over an async byte stream, chunks of 16 KiB."""
    chunks = pieces(openai_body(4_000), 16_384)
    runner = asyncio.Runner()
    peer = _httpx_sse_reader(chunks)
    return Row(
        ours=lambda: runner.run(_read(chunks, None)),
        peers=[Peer("httpx-sse", None if peer is None else lambda: runner.run(peer()), at_least(5))],
        clean=runner.close,
    )


@bench
def bench_read_sse_guarded() -> Row:
    """read_sse with an idle timeout, chunks of 16 KiB."""
    chunks = pieces(openai_body(4_000), 16_384)
    runner = asyncio.Runner()
    return Row(
        ours=lambda: runner.run(_read(chunks, {"idle_timeout": 60.0})),
        peers=[
            Peer("itself without", lambda: runner.run(_read(chunks, None)), at_most(2)),
        ],
        clean=runner.close,
    )


PAYLOAD = json.dumps({"type": "delta", "text": "x" * 250})


def f_string(data: str) -> bytes:
    """Encode with the least that is safe: an f-string behind a newline check."""
    if "\n" in data or "\r" in data:
        raise ValueError(data)
    return f"data: {data}\n\n".encode()


def _sse_starlette() -> Work | None:
    module = optional("sse_starlette")
    if module is None:
        return None
    return lambda: module.ServerSentEvent(data=PAYLOAD).encode()


def _fastapi() -> Work | None:
    module = optional("fastapi.sse")
    if module is None:
        return None
    return lambda: module.format_sse_event(data_str=PAYLOAD)


@bench
def bench_encode() -> Row:
    """SSE encode, one data line of 280 B."""
    return Row(
        ours=lambda: encode_sse(PAYLOAD),
        peers=[
            Peer("sse-starlette", _sse_starlette(), at_least(20)),
            Peer("fastapi", _fastapi(), at_least(6)),
            Peer("f-string with a newline check", lambda: f_string(PAYLOAD), at_most(1.2)),
        ],
    )
