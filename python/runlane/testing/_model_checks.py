"""The rules that every provider of a model keeps, as functions that any provider's tests can call.

Each check runs the provider against a `ReplayServer` that answers, or fails to, as the rule needs it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

import anyio

from runlane.contracts import CancelToken, require_sync
from runlane.errors import RunlaneError
from runlane.models import ChatProvider, FinishReport, ModelMessage, ModelPart, ModelProviderContext, TextDelta
from runlane.testing._faults import (
    Answer,
    BadJson,
    ConnectionRefused,
    HttpFailure,
    ProviderStep,
    StreamCut,
    answer_events,
)
from runlane.testing._replay_server import ReplayServer
from runlane.testing._replies import ReceivedRequest, Reply
from runlane.testing._store_kit import expect, same

__all__ = ["MODEL_CHECKS", "ModelCheck", "ModelMaker", "check_model"]

ModelMaker: TypeAlias = Callable[[str], ChatProvider]
"""Gives a provider that asks the server at a base address, in one of the wire protocols a `ReplayServer` answers in."""

Scenario: TypeAlias = Callable[[ModelMaker], Awaitable[None]]

_PATIENCE: Final = 10.0
"""Seconds after which a check no longer waits: far more than a rule allows, for machines are busy."""

_LEAVING: Final = 1.0
"""Seconds in which a connection has to be closed."""

_WORDS: Final = ("one ", "two ", "three")
_FAILURES: Final[tuple[ProviderStep, ...]] = (
    HttpFailure(400),
    HttpFailure(503),
    BadJson(),
    StreamCut(20),
    ConnectionRefused(),
)


class ModelCheck(Protocol):
    """One rule that every provider keeps; raises `AssertionError` if it does not."""

    __name__: str

    async def __call__(self, maker: ModelMaker, /) -> None:
        """Check the rule on providers of its own."""
        ...


async def check_model(maker: ModelMaker, /) -> None:
    """Check a provider against every rule.

    Args:
        maker: Gives a new provider for an address. Each is closed (`aclose`) behind its rule.

    Raises:
        UsageError: `maker` cannot be called.
        AssertionError: A rule is broken; the message says which.

    Example:
        >>> import anyio
        >>> from runlane.models.openai_chat import OpenAIChat
        >>> anyio.run(check_model, lambda base_url: OpenAIChat("any", base_url=base_url))
    """
    require_sync(maker, argument="maker")
    for check in MODEL_CHECKS:
        await check(maker)


# --- what the checks are written with -------------------------------------------------------------------------------


def _whole(request: ReceivedRequest) -> Reply:
    """Answer with all words at once."""
    return _spoken(request, hang_after=None)


def _one_word(request: ReceivedRequest) -> Reply:
    """Answer with the first word, and keep the rest back."""
    return _spoken(request, hang_after=0)


def _spoken(request: ReceivedRequest, *, hang_after: int | None) -> Reply:
    events = answer_events(request, _WORDS, usage=True)
    first = next(place for place, event in enumerate(events) if _WORDS[0].encode() in event)
    shown = sum(map(len, events[: first + 1])) if hang_after is not None else None
    return Reply(b"".join(events), headers={"Content-Type": "text/event-stream"}, hang_after=shown)


@asynccontextmanager
async def _asked(maker: ModelMaker, server: ReplayServer) -> AsyncGenerator[ChatProvider, None]:
    provider = maker(server.base_url)
    try:
        yield provider
    finally:
        with anyio.move_on_after(_PATIENCE, shield=True):
            await provider.aclose()


@asynccontextmanager
async def _scene(maker: ModelMaker, respond: Callable[[ReceivedRequest], Reply]) -> AsyncGenerator[_Scene, None]:
    async with ReplayServer(respond) as server, _asked(maker, server) as provider:
        yield _Scene(server, provider)


class _Scene:
    def __init__(self, server: ReplayServer, provider: ChatProvider) -> None:
        self.server = server
        self.provider = provider

    def context(self, signal: CancelToken | None = None) -> ModelProviderContext:
        return ModelProviderContext(signal=signal or CancelToken())

    async def take(self, parts: list[ModelPart], signal: CancelToken | None = None) -> Exception | None:
        """Read a response to its end; returns why it failed."""
        try:
            async with self.provider.open_stream([ModelMessage.user("Hi")], self.context(signal)) as stream:
                async for part in stream:
                    parts.append(part)  # noqa: PERF401 - what came before a failure is kept
        except Exception as error:  # noqa: BLE001 - whatever the provider raises
            return error
        return None


async def _first_text(stream: AsyncIterator[ModelPart]) -> str:
    async for part in stream:
        if isinstance(part, TextDelta):
            return part.text
    raise AssertionError("the stream ended before any text of it was delivered")


def _check(scenario: Scenario) -> ModelCheck:
    async def check(maker: ModelMaker, /) -> None:
        with anyio.move_on_after(_PATIENCE * len(_FAILURES)) as scope:
            await scenario(maker)
        expect(not scope.cancelled_caught, f"{scenario.__name__} is over within {_PATIENCE * len(_FAILURES)} seconds")

    check.__name__ = scenario.__name__
    check.__doc__ = scenario.__doc__
    return check


# --- the rules ------------------------------------------------------------------------------------------------------


@_check
async def leaving_early_closes_the_connection(maker: ModelMaker) -> None:
    """Who leaves while the answer goes on is out within a second, and the server sees the connection go."""
    async with _scene(maker, _one_word) as scene:
        opened = scene.provider.open_stream([ModelMessage.user("Hi")], scene.context())
        stream = await opened.__aenter__()
        await _first_text(stream)
        started = anyio.current_time()
        await opened.__aexit__(None, None, None)
        expect(anyio.current_time() - started <= _LEAVING, "an early exit is over within a second")
        await _is_left(scene.server)


@_check
async def a_cancelled_reader_closes_the_connection(maker: ModelMaker) -> None:
    """Cancellation goes through at once while the next part is awaited, and closes the connection."""
    async with _scene(maker, _one_word) as scene:
        reading = anyio.Event()

        async def read() -> None:
            async with scene.provider.open_stream([ModelMessage.user("Hi")], scene.context()) as stream:
                await _first_text(stream)
                reading.set()
                await _first_text(stream)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await reading.wait()
            started = anyio.current_time()
            tasks.cancel_scope.cancel()
        expect(anyio.current_time() - started <= _LEAVING, "a cancelled reader is out within a second")
        await _is_left(scene.server)


async def _is_left(server: ReplayServer) -> None:
    with anyio.move_on_after(_PATIENCE) as scope:
        await server.wait_for_disconnects()
    expect(not scope.cancelled_caught, "the server sees the connection closed")


@_check
async def a_failure_leaves_nothing_behind(maker: ModelMaker) -> None:
    """After a success or a failure of any kind the provider answers the next call."""
    for step in (Answer("first"), *_FAILURES):
        plan = iter((step, Answer("again")))
        async with _scene(maker, lambda request, plan=plan: next(plan).reply(request)) as scene:  # type: ignore[misc]
            await scene.take([])
            parts: list[ModelPart] = []
            failure = await scene.take(parts)
            expect(failure is None, f"a call after {step} is answered, not {failure!r}")
            same("".join(part.text for part in parts if isinstance(part, TextDelta)), "again", f"its text after {step}")


@_check
async def nothing_comes_after_the_signal(maker: ModelMaker) -> None:
    """Once the signal tripped, the iteration raises its error, also where more has arrived already."""
    for respond in (_whole, _one_word):
        async with _scene(maker, respond) as scene:
            signal, why = CancelToken(), RuntimeError("enough")
            after: list[ModelPart] = []
            caught: Exception | None = None
            try:
                async with scene.provider.open_stream([ModelMessage.user("Hi")], scene.context(signal)) as stream:
                    await _first_text(stream)
                    signal.cancel(why)
                    async for part in stream:
                        after.append(part)  # noqa: PERF401 - what came before a failure is kept
            except Exception as error:  # noqa: BLE001 - whatever the provider raises
                caught = error
            same(after, [], "what is delivered after the signal")
            expect(caught is why, f"the iteration raises the signal's own error, not {caught!r}")


@_check
async def the_signal_ends_a_wait(maker: ModelMaker) -> None:
    """A reader that waits for the next part is woken by the signal."""
    async with _scene(maker, _one_word) as scene:
        signal, why = CancelToken(), RuntimeError("enough")
        failures: list[Exception | None] = []

        async def read() -> None:
            failures.append(await scene.take([], signal))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await scene.server.wait_for_requests()
            await anyio.wait_all_tasks_blocked()
            signal.cancel(why)
        expect(failures == [why], f"the signal's own error ends the wait, not {failures!r}")


@_check
async def every_failure_is_raised(maker: ModelMaker) -> None:
    """A refusal, a broken connection, a cut or malformed body: an error of runlane, and never a finish."""
    for step in _FAILURES:
        async with _scene(maker, step.reply) as scene:
            parts: list[ModelPart] = []
            failure = await scene.take(parts)
            expect(isinstance(failure, RunlaneError), f"{step} is raised as an error of runlane, not {failure!r}")
            expect(not any(isinstance(part, FinishReport) for part in parts), f"{step} gives no finish")


@_check
async def the_finish_is_one_and_the_last(maker: ModelMaker) -> None:
    """A whole answer ends with exactly one finish report; one that merely stops has none."""
    async with _scene(maker, _whole) as scene:
        parts: list[ModelPart] = []
        failure = await scene.take(parts)
        expect(failure is None, f"a whole answer is read to its end, not {failure!r}")
        finishes = [place for place, part in enumerate(parts) if isinstance(part, FinishReport)]
        same(finishes, [len(parts) - 1], "the places of finish reports")
        same("".join(part.text for part in parts if isinstance(part, TextDelta)), "".join(_WORDS), "the text")

    def stops(request: ReceivedRequest) -> Reply:
        whole = _spoken(request, hang_after=0)
        return Reply(whole.body[: whole.hang_after], headers=whole.headers)

    async with _scene(maker, stops) as scene:
        parts = []
        await scene.take(parts)
        expect(not any(isinstance(part, FinishReport) for part in parts), "a body that merely stops gives no finish")


@_check
async def parts_come_as_they_arrive(maker: ModelMaker) -> None:
    """The first word is delivered while the rest of the answer is still to come."""
    async with _scene(maker, _one_word) as scene:
        opened = scene.provider.open_stream([ModelMessage.user("Hi")], scene.context())
        async with opened as stream:
            with anyio.move_on_after(_PATIENCE) as scope:
                same(await _first_text(stream), _WORDS[0], "the first text")
            expect(not scope.cancelled_caught, "the first text does not wait for the rest")
            scene.server.release()
            rest = [part async for part in stream]
        same("".join(part.text for part in rest if isinstance(part, TextDelta)), "".join(_WORDS[1:]), "the rest")


@_check
async def nothing_is_tried_again(maker: ModelMaker) -> None:
    """One call is one request, whatever becomes of it: retries and other models are for the caller to decide."""
    for step in _FAILURES:
        async with _scene(maker, step.reply) as scene:
            await scene.take([])
            same(scene.server.calls, 1, f"the requests of one call that met {step}")


@_check
async def streams_share_nothing(maker: ModelMaker) -> None:
    """One task reads two streams in turn, leaves one, and reads the other to its end."""
    async with _scene(maker, _one_word) as scene:
        async with scene.provider.open_stream([ModelMessage.user("Hi")], scene.context()) as one:
            async with scene.provider.open_stream([ModelMessage.user("Ho")], scene.context()) as two:
                same(await _first_text(one), _WORDS[0], "the first text of the first stream")
                same(await _first_text(two), _WORDS[0], "the first text of the second stream")
            await _is_left(scene.server)
            scene.server.release(2)
            rest = [part async for part in one]
        expect(isinstance(rest[-1], FinishReport), "the first stream goes on when the second is left")


MODEL_CHECKS: Final[tuple[ModelCheck, ...]] = (
    leaving_early_closes_the_connection,
    a_cancelled_reader_closes_the_connection,
    a_failure_leaves_nothing_behind,
    nothing_comes_after_the_signal,
    the_signal_ends_a_wait,
    every_failure_is_raised,
    the_finish_is_one_and_the_last,
    parts_come_as_they_arrive,
    nothing_is_tried_again,
    streams_share_nothing,
)
"""Every check; each takes a model maker, uses providers of its own, and raises `AssertionError` for a broken rule."""
