"""Every protocol over a real connection: the same reading, a typed failure for every refusal, no connection left."""

import gzip
import json

import pytest

from runlane.errors import ModelError, ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import ModelMessage, ModelPart, ModelProviderContext, collect
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


_DOCUMENTS: dict[str, object] = {
    "openai-chat": {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    },
    "openai-responses": {
        "id": "r",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [
            {"id": "i", "type": "message", "content": [{"type": "output_text", "text": "Hi", "annotations": []}]}
        ],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    },
    "anthropic-messages": {
        "id": "r",
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 2},
    },
    "google-generate": {
        "responseId": "r",
        "modelVersion": "m",
        "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2},
    },
}


@pytest.mark.parametrize("stream", [True, False], ids=["asked for a stream", "asked for a document"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=name_of)
async def test_an_answer_may_come_as_one_document(protocol: WireProtocol, stream: bool) -> None:  # noqa: FBT001
    """A call that does not stream asks for a document; one that comes unasked is read all the same."""
    reply = Reply(json.dumps(_DOCUMENTS[protocol.api]).encode(), headers={"Content-Type": "application/json"})
    async with ReplayServer([reply]) as server:
        provider = protocol.make("any", base_url=server.base_url, stream=stream)
        async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
            told = await collect(opened)
        await provider.aclose()
    assert (told.text, told.finish.reason) == ("Hi", "stop")
    assert told.usage is not None
    assert (told.usage.input_tokens, told.usage.output_tokens) == (3, 2)
    assert (told.info.response_id, told.info.model) == ("r", "m")
    (request,) = server.requests
    if protocol.api == "google-generate":
        assert request.path.endswith("streamGenerateContent" if stream else ":generateContent")
    else:
        asked = request.json()
        assert isinstance(asked, dict)
        assert asked["stream"] is stream
