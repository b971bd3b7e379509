"""Every protocol over a real connection: the same reading, a typed failure for every refusal, no connection left."""

import gzip

import pytest

from runlane.errors import ModelError, ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import ModelMessage, ModelPart, ModelProviderContext
from runlane.testing import ReplayServer, Reply
from tests.models.protocols import (
    PROTOCOLS,
    Stream,
    WireProtocol,
    assert_reads_as_expected,
    name_of,
    own_streams,
)

pytestmark = pytest.mark.anyio

_OWN = own_streams("anthropic-messages", "openai-responses", "google-generate")
_OTHERS = PROTOCOLS[1:]
SSE = {"Content-Type": "text/event-stream"}


async def read(protocol: WireProtocol, *replies: Reply) -> tuple[list[ModelPart], ModelError | None]:
    """Read one response over HTTP; what came before a failure is kept."""
    parts: list[ModelPart] = []
    failure: ModelError | None = None
    async with ReplayServer(replies) as server:
        provider = protocol.provider(server.base_url)
        try:
            async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
                async for part in opened:
                    parts.append(part)  # noqa: PERF401 - what came before a failure is kept
        except ModelError as error:
            failure = error
        await provider.aclose()
    return parts, failure


@pytest.mark.parametrize("size", [37, None])
@pytest.mark.parametrize("stream", _OWN, ids=name_of)
async def test_a_stream_over_http_gives_what_its_index_says(stream: Stream, size: int | None) -> None:
    """The size of the pieces on the wire changes nothing."""
    parts, failure = await read(stream.protocol, Reply(stream.body, headers=SSE, chunk_size=size))
    assert_reads_as_expected(stream, parts)
    assert isinstance(failure, ProviderError) == stream.fails


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "unknown"),
        (401, "unauthorized"),
        (402, "insufficient-credits"),
        (404, "model-unavailable"),
        (413, "context-overflow"),
        (429, "rate-limited"),
        (500, "unknown"),
        (503, "unknown"),
        (529, "unknown"),
    ],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("protocol", _OTHERS, ids=name_of)
async def test_a_refusal_is_told_by_its_status(protocol: WireProtocol, status: int, reason: str) -> None:
    """A refusal names protocol, status and reason, and says whether trying again could help."""
    body = b'{"error": {"message": "No.", "details": []}}'
    parts, failure = await read(protocol, Reply(body, status=status, headers={"Content-Type": "application/json"}))
    assert parts == []
    assert isinstance(failure, ProviderError)
    assert (failure.status, failure.reason) == (status, reason)
    assert failure.retryable == (status in (402, 429, 500, 503, 529))
    assert "No." in str(failure)


@pytest.mark.parametrize("protocol", _OTHERS, ids=name_of)
async def test_a_web_page_is_no_answer(protocol: WireProtocol) -> None:
    """A page that came with status 200 fails with a hint where the fault lies, and shows no mark-up."""
    _, failure = await read(protocol, Reply(b"<html>Welcome</html>", headers={"Content-Type": "text/html"}))
    assert isinstance(failure, ProviderError)
    assert "base_url" in str(failure)
    assert "<html>" not in str(failure)


@pytest.mark.parametrize("protocol", _OTHERS, ids=name_of)
async def test_bad_json_in_a_stream_is_a_protocol_error(protocol: WireProtocol) -> None:
    """An event that is not JSON fails the response and names the provider."""
    _, failure = await read(protocol, Reply(b"data: {\n\n", headers=SSE))
    assert failure is not None
    assert failure.code == "model.protocol"


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body)


@pytest.mark.parametrize("stream", [one for one in own_streams() if not one.fails][::7], ids=name_of)
async def test_a_compressed_body_is_read_all_the_same(stream: Stream) -> None:
    """A proxy that compresses what nobody asked it to changes nothing."""
    headers = {**SSE, "Content-Encoding": "gzip"}
    parts, failure = await read(stream.protocol, Reply(_gzip(stream.body), headers=headers, chunk_size=50))
    assert failure is None
    assert_reads_as_expected(stream, parts)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("protocol", _OTHERS, ids=name_of)
async def test_a_false_label_of_a_body_is_a_protocol_error(protocol: WireProtocol, encoding: str) -> None:
    """A body that is not encoded as it says, or in a way nobody asked for, is told as that and not as a cut."""
    parts, failure = await read(protocol, Reply(b"data: {}\n\n", headers={**SSE, "Content-Encoding": encoding}))
    assert parts == []
    assert isinstance(failure, ModelProtocolError)
    assert encoding in str(failure)


@pytest.mark.parametrize("protocol", _OTHERS, ids=name_of)
async def test_a_compressed_body_that_ends_early_is_a_cut(protocol: WireProtocol) -> None:
    """The end of the bytes is not the end of the answer."""
    packed = _gzip(b": " + b"x" * 1000)[:-12]
    _, failure = await read(protocol, Reply(packed, headers={**SSE, "Content-Encoding": "gzip"}))
    assert isinstance(failure, ProviderStreamCutError)
