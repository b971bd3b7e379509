"""Every way a provider can refuse or be absent ends in a typed error that says what happened and what to do."""

import json
import pickle
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
import pytest

from runlane.errors import (
    InvalidValueError,
    MissingCredentialError,
    ModelProtocolError,
    ProviderError,
    ProviderStreamCutError,
)
from runlane.models import ModelMessage, ModelPart, ModelProviderContext, classify_provider_failure
from runlane.models._http import HttpTimeouts
from runlane.models.openai_chat import OpenAIChat, openai_compatible
from runlane.testing import ReplayServer, Reply
from tests.models.replay import delta, text_of

_KEY = "sk-very-secret-key"
_HELLO = [ModelMessage.user("Hello")]


async def failure_of(provider: OpenAIChat) -> Exception:
    """The error of a call."""
    try:
        async with provider.open_stream(_HELLO, ModelProviderContext()) as stream:
            async for _ in stream:
                pass
    except Exception as error:  # noqa: BLE001 - the error is what the tests look at
        return error
    finally:
        await provider.aclose()
    pytest.fail("the call succeeded")


async def refusal(reply: Reply, **options: Any) -> ProviderError:  # noqa: ANN401 - the options of the provider
    """The error of a call that one reply refuses."""
    async with ReplayServer([reply]) as server:
        error = await failure_of(OpenAIChat("parrot-1", base_url=f"{server.base_url}/v1", api_key=_KEY, **options))
    assert isinstance(error, ProviderError)
    return error


def refused(status: int, body: object = b"", headers: Mapping[str, str] | None = None) -> Reply:
    """A reply that is no answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply(raw, status=status, headers=headers or {})


def _openai(message: str, code: str | None = None, kind: str = "invalid_request_error") -> object:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "body", "reason", "retryable"),
    [
        (400, _openai("This model's maximum context length is 8192 tokens."), "context-overflow", False),
        (400, _openai("Too long", "context_length_exceeded"), "context-overflow", False),
        (400, {"detail": "bad field"}, "unknown", False),
        (401, _openai("Incorrect API key provided"), "unauthorized", False),
        (401, b"", "unauthorized", False),
        (402, {"error": {"message": "no credit", "code": 402}}, "insufficient-credits", True),
        (403, b"Forbidden", "unauthorized", False),
        (404, {"error": "model 'parrot-1' not found"}, "model-unavailable", False),
        (404, _openai("The model does not exist", "model_not_found"), "model-unavailable", False),
        (408, b"", "timeout", True),
        (413, b"", "context-overflow", False),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "unknown", False),
        (429, _openai("Rate limit reached"), "rate-limited", True),
        (429, b"", "rate-limited", True),
        (429, _openai("You exceeded your quota", "insufficient_quota"), "insufficient-credits", True),
        (500, _openai("The server had an error", None, "server_error"), "unknown", True),
        (500, b"", "unknown", True),
        (502, b"<html><body>Bad gateway</body></html>", "unknown", True),
        (503, [{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}], "unknown", True),
        (529, b"{not json", "unknown", True),
    ],
)
async def test_a_refusal_keeps_its_status_reason_and_hope(
    status: int,
    body: object,
    reason: str,
    retryable: bool,  # noqa: FBT001 - a table
) -> None:
    """Status, then the provider's own code, then its words decide the reason; the body may have any form or none."""
    error = await refusal(refused(status, body))
    assert (error.status, error.reason, error.retryable) == (status, reason, retryable)
    assert str(error).startswith(f"openai-chat answered {status}")
    assert "<html" not in str(error)


@pytest.mark.anyio
async def test_a_refused_key_is_never_shown_and_its_variable_is_named() -> None:
    """The provider's words are kept without the key, whole or masked; the error says where the key comes from."""
    words = f"Incorrect API key provided: {_KEY}, also known as sk-ve****-key. See https://example.org"
    error = await refusal(refused(401, _openai(words, "invalid_api_key")), api_key_variable="PARROT_KEY")
    shown = f"{error}{error!r}{pickle.dumps(error)!r}"
    assert _KEY not in shown
    assert "sk-ve" not in shown
    assert "Incorrect API key provided: [redacted]" in str(error)
    assert "check the key in PARROT_KEY" in str(error)
    assert error.provider_code == "invalid_api_key"


@pytest.mark.anyio
async def test_secret_headers_are_never_shown() -> None:
    """What stands in a header that looks like a secret is cut out of the provider's words too."""
    error = await refusal(refused(400, _openai("you sent hush-hush")), headers={"X-Api-Token": "hush-hush"})
    assert "hush-hush" not in str(error)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"Retry-After": "12", "Retry-After-Ms": "1500"}, 1.5),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:29:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
async def test_the_wait_a_provider_asks_for_is_kept(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds or a date, which counts from the response's own; what is none of these is left out."""
    error = await refusal(refused(429, _openai("slow down"), headers))
    assert error.retry_after == seconds


@pytest.mark.anyio
async def test_a_long_error_body_is_shortened() -> None:
    """A megabyte of error is read in part and told in a line."""
    error = await refusal(refused(500, _openai("so sorry " * 120_000)))
    assert len(str(error)) < 1_000


@pytest.mark.anyio
async def test_an_error_body_that_never_ends_is_not_waited_for() -> None:
    """What came within the time limit is all there is."""
    body = json.dumps(_openai("half said")).encode()
    reply = Reply(body, status=500, hang_after=len(body) - 1)
    with anyio.fail_after(5):
        error = await refusal(reply, timeouts=HttpTimeouts(error_body=0.05))
    assert (error.status, error.reason) == (500, "unknown")


@pytest.mark.anyio
async def test_an_error_body_that_breaks_off_still_gives_the_status() -> None:
    """A cut within the refusal does not hide the refusal."""
    error = await refusal(Reply(b"{" * 100, status=503, chunk_size=10, cut_at=50))
    assert error.status == 503


@pytest.mark.anyio
async def test_a_redirect_is_not_followed() -> None:
    """The key goes nowhere but to the base URL; the error names the host it was sent to."""
    async with ReplayServer([]) as elsewhere:
        target = f"{elsewhere.base_url}/v1/chat/completions"
        error = await refusal(refused(307, b"", {"Location": target}))
        assert elsewhere.connections == 0
    assert "redirects to 127.0.0.1" in str(error)


@pytest.mark.anyio
async def test_a_web_page_is_no_answer() -> None:
    """A base URL without its `/v1` often gives a page with status 200; the error says so."""
    error = await refusal(Reply(b"<html>Welcome</html>", headers={"Content-Type": "text/html"}))
    assert "check base_url" in str(error)


@pytest.mark.anyio
async def test_an_error_in_a_json_answer_of_status_200_is_raised() -> None:
    """Some gateways refuse with status 200."""
    body = json.dumps({"error": {"message": "Upstream is rate limited", "code": 429}}).encode()
    error = await refusal(Reply(body, headers={"Content-Type": "application/json"}))
    assert (error.status, error.reason) == (429, "rate-limited")


@pytest.mark.anyio
async def test_malformed_json_in_a_stream_fails_after_what_came_before() -> None:
    """The parts before the broken chunk are delivered; the error names the event and quotes nothing."""
    body = f'data: {json.dumps(delta(content="Hi"))}\n\ndata: {{"secret": oops\n\n'.encode()
    parts: list[ModelPart] = []
    async with ReplayServer([Reply(body, headers={"Content-Type": "text/event-stream"})]) as server:
        provider = OpenAIChat("parrot-1", base_url=server.base_url)
        with pytest.raises(ModelProtocolError, match="malformed JSON in event 2") as caught:
            async with provider.open_stream(_HELLO, ModelProviderContext()) as stream:
                async for part in stream:
                    parts.append(part)  # noqa: PERF401 - what came before a failure is kept
        await provider.aclose()
    assert text_of(parts) == "Hi"
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
async def test_an_empty_body_is_a_cut_stream() -> None:
    """Status 200 and nothing else is no answer."""
    async with ReplayServer([Reply(b"")]) as server:
        error = await failure_of(OpenAIChat("parrot-1", base_url=server.base_url))
    assert isinstance(error, ProviderStreamCutError)


@pytest.mark.anyio
async def test_a_refused_connection_says_that_nothing_listens() -> None:
    """The error names the address, can be tried again, and holds no request."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
        error = await failure_of(OpenAIChat("parrot-1", base_url=address, api_key=_KEY))
    assert isinstance(error, ProviderError)
    assert (error.reason, error.retryable, error.status) == ("unreachable", True, None)
    assert f"nothing listens at {address}/chat/completions" in str(error)
    assert isinstance(error.__cause__, ConnectionRefusedError)
    assert _KEY not in pickle.dumps(error).decode("latin-1")


@pytest.mark.anyio
async def test_a_server_that_hangs_up_before_the_head_is_unreachable() -> None:
    """Nothing was answered, so the call can be tried again."""
    async with ReplayServer([Reply(b"", send_head=False, cut_at=0)]) as server:
        error = await failure_of(OpenAIChat("parrot-1", base_url=server.base_url))
    assert isinstance(error, ProviderError)
    assert (error.reason, error.retryable) == ("unreachable", True)


@pytest.mark.anyio
async def test_a_server_without_tls_is_no_secure_endpoint() -> None:
    """`https` to a plain server ends in an error about the connection, not in a hang."""
    async with ReplayServer([]) as server:
        error = await failure_of(OpenAIChat("parrot-1", base_url=server.base_url.replace("http:", "https:")))
    assert isinstance(error, ProviderError)
    assert error.reason == "unreachable"
    assert "secure connection" in str(error)


def _failing(error: httpx2.TransportError, cause: Exception | None) -> httpx2.AsyncBaseTransport:
    """A transport that fails as a network does."""

    def fail(request: httpx2.Request) -> httpx2.Response:
        error.request = request
        raise error from cause

    return httpx2.MockTransport(fail)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "cause", "reason", "retryable", "words"),
    [
        (httpx2.ConnectError("x"), socket.gaierror(-2, "x"), "unreachable", True, "cannot be resolved"),
        (httpx2.ConnectError("x"), ssl.SSLCertVerificationError("x"), "unreachable", False, "certificate"),
        (httpx2.ConnectError("x"), OSError(113, "no route"), "unreachable", True, "cannot be reached"),
        (httpx2.ConnectTimeout("x"), None, "timeout", True, "in time"),
        (httpx2.PoolTimeout("x"), None, "timeout", True, "in time"),
        (httpx2.WriteError("x"), BrokenPipeError(), "unreachable", True, "broke off"),
        (httpx2.ProxyError("x"), None, "unreachable", True, "broke off"),
    ],
)
async def test_a_network_fault_says_which(
    error: httpx2.TransportError,
    cause: Exception | None,
    reason: str,
    retryable: bool,  # noqa: FBT001 - a table
    words: str,
) -> None:
    """Names, certificates, routes and time limits are told apart; the request, and so the key, is not chained."""
    provider = OpenAIChat("p", base_url="https://api.example.org/v1", api_key=_KEY, transport=_failing(error, cause))
    failure = await failure_of(provider)
    assert isinstance(failure, ProviderError)
    assert (failure.reason, failure.retryable) == (reason, retryable)
    assert words in str(failure)
    assert failure.__cause__ is cause
    assert failure.__context__ is None


@pytest.mark.anyio
async def test_failures_of_runlane_classify_as_their_reason() -> None:
    """The classification of an error raised here agrees with the reason it carries."""
    error = await refusal(refused(429, _openai("You exceeded your quota", "insufficient_quota")))
    failure = classify_provider_failure(error)
    assert (failure.reason, failure.status, failure.retryable) == ("insufficient-credits", 429, True)


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.example.org/v1", "https://api.example.org/v1/chat/completions"),
        ("https://api.example.org/v1/", "https://api.example.org/v1/chat/completions"),
        ("https://api.example.org", "https://api.example.org/chat/completions"),
        (" https://api.example.org/v1/chat/completions ", "https://api.example.org/v1/chat/completions"),
        ("https://x.org/d/m?api-version=1", "https://x.org/d/m/chat/completions?api-version=1"),
    ],
)
@pytest.mark.anyio
async def test_the_endpoint_is_the_base_url_and_the_path(base_url: str, url: str) -> None:
    """As with OpenAI's own clients: the base URL includes `/v1`, a slash at its end means nothing, a query stays."""
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(str(request.url))
        return httpx2.Response(500)

    await failure_of(OpenAIChat("p", base_url=base_url, api_key="k", transport=httpx2.MockTransport(answer)))
    assert seen == [url]


@pytest.mark.parametrize("url", ["", "api.example.org", "ftp://x.org", "https://", "https://u:p@x.org", "http://[x"])
def test_a_base_url_that_cannot_be_used_is_refused(url: str) -> None:
    """The error names the argument and shows no credentials."""
    with pytest.raises(InvalidValueError) as caught:
        OpenAIChat("p", base_url=url or " ", api_key="k")
    assert caught.value.argument == "base_url"
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(("key", "argument"), [("two\nlines", "api_key"), ("schlüssel", "api_key")])
def test_a_key_that_is_none_is_refused_unseen(key: str, argument: str) -> None:
    """What cannot stand in a header is refused before anything is sent, without being shown."""
    with pytest.raises(InvalidValueError) as caught:
        OpenAIChat("p", base_url="https://x.org", api_key=key)
    assert caught.value.argument == argument
    assert key not in str(caught.value)


def test_an_empty_model_and_a_broken_header_are_refused() -> None:
    """Each names its argument."""
    with pytest.raises(InvalidValueError, match="model"):
        OpenAIChat("", base_url="https://x.org", api_key="k")
    with pytest.raises(InvalidValueError, match="headers"):
        OpenAIChat("p", base_url="https://x.org", api_key="k", headers={"x": "a\r\nb"})


def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint elsewhere needs a key; one on this machine, or one told to do without, does not."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(MissingCredentialError) as caught:
        OpenAIChat("p")
    assert caught.value.variable == "OPENAI_API_KEY"
    with pytest.raises(MissingCredentialError, match="PARROT_KEY"):
        openai_compatible("p", base_url="https://x.org", api_key_variable="PARROT_KEY")
    for url in ("http://localhost:11434/v1", "http://127.0.0.1:1", "http://[::1]:1/v1"):
        assert OpenAIChat("p", base_url=url).model_id == "p"
    assert OpenAIChat("p", base_url="https://x.org", api_key="").model_id == "p"


@pytest.mark.anyio
async def test_key_and_base_url_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`OPENAI_API_KEY` and `OPENAI_BASE_URL` mean what they mean to OpenAI's own clients."""
    async with ReplayServer([refused(500)]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", f" {_KEY}\n")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.base_url}/v1")
        await failure_of(OpenAIChat("p"))
        (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.header("authorization") == f"Bearer {_KEY}"


@pytest.mark.anyio
async def test_given_headers_win() -> None:
    """A gateway's own authorization replaces ours, in any case."""
    async with ReplayServer([refused(500)]) as server:
        provider = OpenAIChat("p", base_url=server.base_url, api_key=_KEY, headers={"Authorization": "Basic abc"})
        await failure_of(provider)
        (request,) = server.requests
    assert [value for name, value in request.headers if name == "authorization"] == ["Basic abc"]


def test_a_provider_shows_no_key() -> None:
    """Its repr is safe to log."""
    provider = OpenAIChat("p", base_url="https://x.org/v1?key=abc", api_key=_KEY)
    assert repr(provider) == "OpenAIChat('p', base_url='https://x.org/v1')"
