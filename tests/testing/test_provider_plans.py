"""A server by plan answers and fails as a provider does, in every wire protocol."""

from collections.abc import Callable

import pytest

from runlane.errors import (
    InvalidValueError,
    ModelError,
    ModelIdleTimeoutError,
    ModelProtocolError,
    ProviderError,
    ProviderStreamCutError,
    UsageError,
)
from runlane.models import ModelMessage, ModelPart, ModelProviderContext, TextDelta, UsageReport
from runlane.testing import (
    Answer,
    BadJson,
    ConnectionRefused,
    HttpFailure,
    ProviderStep,
    ReceivedRequest,
    ReplayModels,
    ReplayServer,
    ScriptedModel,
    SlowAnswer,
    StreamCut,
    TimeoutBeforeFirstByte,
)
from tests.models.protocols import PROTOCOLS, WireProtocol, name_of, text_of

_EACH = pytest.mark.parametrize("protocol", PROTOCOLS, ids=name_of)


async def asked(
    protocol: WireProtocol, *plan: ProviderStep, times: int = 1, idle_timeout: float | None = None
) -> list[tuple[list[ModelPart], ModelError | None]]:
    """Ask a server by plan some times; what came before a failure is kept."""
    told: list[tuple[list[ModelPart], ModelError | None]] = []
    async with ReplayServer.by_plan(*plan) as server:
        provider = protocol.provider(server.base_url)
        for _ in range(times):
            parts: list[ModelPart] = []
            failure: ModelError | None = None
            try:
                context = ModelProviderContext(idle_timeout=idle_timeout)
                async with provider.open_stream([ModelMessage.user("Hi")], context) as stream:
                    async for part in stream:
                        parts.append(part)  # noqa: PERF401 - what came before a failure is kept
            except ModelError as error:
                failure = error
            told.append((parts, failure))
        await provider.aclose()
        assert server.calls == times
    return told


@pytest.mark.anyio
@_EACH
async def test_an_answer_costs_one_token_each_way(protocol: WireProtocol) -> None:
    """It says its text and what it cost, or, if told so, not what it cost."""
    (with_usage, without) = await asked(protocol, Answer("Hello"), Answer("Bye", usage=False), times=2)
    usages = [part.usage for part in with_usage[0] if isinstance(part, UsageReport)]
    assert text_of(with_usage[0]) == "Hello"
    assert (usages[-1].input_tokens, usages[-1].output_tokens) == (1, 1)
    assert text_of(without[0]) == "Bye"
    assert not any(isinstance(part, UsageReport) for part in without[0])


@pytest.mark.anyio
@_EACH
async def test_steps_are_taken_in_turn_and_the_last_one_again(protocol: WireProtocol) -> None:
    """The n-th request gets the n-th step; when the plan is over its end goes on."""
    told = await asked(protocol, HttpFailure(503), Answer("a"), Answer("b"), times=4)
    assert isinstance(told[0][1], ProviderError)
    assert [text_of(parts) for parts, _ in told] == ["", "a", "b", "b"]


def _refused(failure: ModelError | None) -> bool:
    return isinstance(failure, ProviderError) and failure.reason == "unreachable"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("step", "is_told"),
    [
        (ConnectionRefused(), _refused),
        (TimeoutBeforeFirstByte(60.0), lambda failure: isinstance(failure, ModelIdleTimeoutError)),
        (StreamCut(0), lambda failure: isinstance(failure, ProviderStreamCutError)),
        (StreamCut(20), lambda failure: isinstance(failure, ProviderStreamCutError)),
        (StreamCut(10**6), lambda failure: isinstance(failure, ProviderStreamCutError)),
        (HttpFailure(429), lambda failure: isinstance(failure, ProviderError) and failure.status == 429),
        (BadJson(), lambda failure: isinstance(failure, ModelProtocolError)),
    ],
    ids=lambda step: repr(step) if not callable(step) else "",
)
@_EACH
async def test_a_fault_is_told_for_what_it_is(
    protocol: WireProtocol, step: ProviderStep, is_told: Callable[[ModelError | None], bool]
) -> None:
    """Each fault reaches the caller as its own type of error."""
    silence = 0.2 if isinstance(step, TimeoutBeforeFirstByte) else None
    ((parts, failure),) = await asked(protocol, step, idle_timeout=silence)
    assert is_told(failure)
    assert text_of(parts) in ("", "ok")


@pytest.mark.anyio
@_EACH
async def test_a_slow_answer_comes_word_by_word(protocol: WireProtocol) -> None:
    """Every word is an event of its own, and the pace is that of the plan."""
    ((parts, failure),) = await asked(protocol, SlowAnswer("one two three", 1_000.0))
    assert failure is None
    assert [part.text for part in parts if isinstance(part, TextDelta)] == ["one ", "two ", "three"]


def test_a_slow_answer_waits_between_its_words() -> None:
    """Two words a second are half a second apart, and every piece on the wire is one event."""
    request = ReceivedRequest("POST", "/v1/messages", (), (), b"{}")
    reply = SlowAnswer("a b", 2.0).reply(request)
    assert reply.delay == 0.5
    assert all(piece.endswith(b"\n\n") for piece in reply.pieces())


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: HttpFailure(200), "status"),
        (lambda: HttpFailure(600), "status"),
        (lambda: SlowAnswer("x", 0.0), "tokens_per_second"),
        (lambda: SlowAnswer("x", float("inf")), "tokens_per_second"),
        (lambda: StreamCut(-1), "after_bytes"),
    ],
    ids=["status below", "status above", "no pace", "endless pace", "negative length"],
)
def test_a_step_that_makes_no_sense_is_refused_where_it_is_written(make: Callable[[], object], argument: str) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidValueError) as refused:
        make()
    assert refused.value.argument == argument


def test_a_plan_has_a_step() -> None:
    """Without one there is nothing to do."""
    with pytest.raises(UsageError):
        ReplayServer.by_plan()


def test_models_are_given_in_order_and_run_out() -> None:
    """Each id has its own list; past its end there is nothing to give."""
    models = [ScriptedModel("one"), ScriptedModel("two")]
    provider = ReplayModels({"a": models, "b": models[:1]})
    assert [provider.create("a"), provider.create("b"), provider.create("a")] == [models[0], models[0], models[1]]
    with pytest.raises(UsageError, match="'a'"):
        provider.create("a")
