"""Code of others that ends as if the program, or the task that called it, were to end."""

import inspect
import sys
import types
from collections.abc import Callable, Generator
from typing import Any

import anyio
import pytest

from runlane.contracts import stray_ends
from runlane.errors import UsageError
from runlane.models import FinishReport
from runlane.prompt import PromptSection
from runlane.runtime import (
    AgentProtocol,
    AgentRuntime,
    BlockingRuntime,
    DeliveryConfig,
    LoopConfig,
    PromptConfig,
    RunsConfig,
    RuntimeConfig,
    StopPolicy,
    ToolsConfig,
)
from runlane.store import MemoryStore
from runlane.testing import Hold, ScriptedModel
from runlane.tools import tool
from tests.runtime.scenes import CONVERSATION, opened
from tests.runtime.test_tools import called, results_of

pytestmark = pytest.mark.anyio


async def _cancelled_elsewhere(*_: object) -> Any:  # noqa: ANN401 - a callback of any kind
    """End as somebody does who awaits a task of the event loop that others cancelled."""
    raise anyio.get_cancelled_exc_class()


async def _exits(*_: object) -> Any:  # noqa: ANN401 - likewise
    sys.exit(3)


async def _leaks_a_generators_end(*_: object) -> Any:  # noqa: ANN401 - likewise
    raise GeneratorExit


async def _raises_a_group(*_: object) -> Any:  # noqa: ANN401 - likewise
    raise BaseExceptionGroup("both", [SystemExit(3), ValueError("x")])


class _OddError(BaseException):
    """What no library should raise."""


async def _raises_something_odd(*_: object) -> Any:  # noqa: ANN401 - likewise
    raise _OddError


def _exits_at_once(*_: object) -> Any:  # noqa: ANN401 - a plain callback of any kind
    sys.exit(3)


_ENDS = [_cancelled_elsewhere, _exits, _leaks_a_generators_end, _raises_a_group, _raises_something_odd]


def _exits_in_a_thread() -> str:
    sys.exit(3)


def _cancelled_in_a_thread() -> str:
    raise GeneratorExit


@pytest.mark.parametrize("ends", [*_ENDS, _exits_in_a_thread, _cancelled_in_a_thread])
async def test_a_tool_that_ends_more_than_itself_has_failed(ends: Callable[..., Any]) -> None:
    """An exit, or a cancellation nobody asked for, is a failed call: the run and its runtime go on."""

    async def call() -> str:
        return str(await ends())

    function = ends if ends.__name__.endswith("thread") else call
    model = ScriptedModel(called(("c1", "t", "{}")), "Done.")
    async with opened(model, tools=[tool(function, id="t", description="d")]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
    assert (result.reason, result.text) == ("success", "Done.")
    assert results_of(result.message.parts) == [("c1", "error", {"error": "tool.internal", "retryable": None})]


async def test_a_presentation_that_ends_the_program_is_a_failed_call() -> None:
    """Beside another call, too, where it runs in a task of its own."""
    presented = tool(lambda: "done", id="t", description="d", present=_exits_at_once)
    model = ScriptedModel(called(("c1", "t", "{}"), ("c2", "t", "{}")), "Done.")
    async with opened(model, tools=[presented]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
    failed = {"error": "tool.internal", "retryable": None}
    assert (result.reason, result.text) == ("success", "Done.")
    assert results_of(result.message.parts) == [("c1", "error", failed), ("c2", "error", failed)]


@pytest.mark.parametrize("ends", _ENDS)
@pytest.mark.parametrize("place", ["prepare_step", "stop", "acceptance", "publisher"])
async def test_a_callback_that_ends_more_than_itself_fails_its_run_at_most(
    place: str, ends: Callable[..., Any]
) -> None:
    """The run ends once, on record; a publisher does not even fail it."""
    configs = {
        "prepare_step": RuntimeConfig(loop=LoopConfig(prepare_step=ends)),
        "stop": RuntimeConfig(loop=LoopConfig(stop_policies=(StopPolicy(name="p", when=ends),))),
        "acceptance": RuntimeConfig(protocol=AgentProtocol(terminal_acceptance=ends)),
        "publisher": RuntimeConfig(delivery=DeliveryConfig(publisher=ends, on_publish_error=ends)),
    }
    model = ScriptedModel(called(("c1", "nothing", "{}")), "Done.")
    async with opened(model, config=configs[place]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
        assert await scene.store.list_active_runs(CONVERSATION) == ()
    assert (result.reason == "success") == (place == "publisher")


@pytest.mark.parametrize("ends", _ENDS)
@pytest.mark.parametrize("place", ["model", "section"])
async def test_a_preparation_that_ends_more_than_itself_fails_its_own_run(place: str, ends: Callable[..., Any]) -> None:
    """The other conversations of the runtime go on."""
    is_first = True

    async def render(*_: object) -> Any:  # noqa: ANN401 - a model, or a text
        nonlocal is_first
        if not is_first:
            return ScriptedModel("Done.") if place == "model" else "Be brief."
        is_first = False
        return await ends()

    config = RuntimeConfig(prompt=PromptConfig(sections=(PromptSection(name="p", render=render),)))
    async with (
        MemoryStore() as store,
        AgentRuntime(
            store,
            model=render if place == "model" else ScriptedModel("Done."),
            config=None if place == "model" else config,
        ) as runtime,
    ):
        failed = await runtime.submit("a", "Go.").result
        assert failed.reason == "runtime_failure"
        assert (await runtime.submit("b", "Go.").result).text == "Done."


@pytest.mark.parametrize("ends", _ENDS)
async def test_a_preflight_that_ends_more_than_itself_refuses_its_input(ends: Callable[..., Any]) -> None:
    """Nothing is written, and the ticket says so."""
    async with opened(ScriptedModel("."), config=RuntimeConfig(runs=RunsConfig(preflight=ends))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go.")
        with pytest.raises((UsageError, TypeError)):
            await ticket.result
        assert scene.store.applied == []


@pytest.mark.parametrize("place", ["runs.policy", "runs.key"])
async def test_a_choice_that_exits_refuses_its_input(place: str) -> None:
    """Whoever submits is told which callback it was, with an event loop and from a program without one."""
    runs = RunsConfig(policy=_exits_at_once) if place == "runs.policy" else RunsConfig(key=_exits_at_once)
    config = RuntimeConfig(runs=runs)
    async with opened(ScriptedModel("."), config=config) as scene:
        with pytest.raises(UsageError, match="end the program") as caught:
            scene.runtime.submit(CONVERSATION, "Go.")
        assert (caught.value.argument, scene.store.applied) == (place, [])

    def block() -> None:
        with (
            BlockingRuntime(MemoryStore(), model=ScriptedModel("."), config=config) as runtime,
            pytest.raises(UsageError, match="end the program") as caught,
        ):
            runtime.ask(CONVERSATION, "Go.")
        assert caught.value.argument == place

    await anyio.to_thread.run_sync(block)


@pytest.mark.parametrize("place", ["decide", "resolve_context"])
@pytest.mark.parametrize("ends", [*_ENDS, _exits_at_once])
async def test_a_decision_that_ends_more_than_itself_fails_its_own_run(place: str, ends: Callable[..., Any]) -> None:
    """The recovery reports it, and the runtime goes on."""
    hold = Hold()
    async with MemoryStore() as store:
        async with opened(ScriptedModel([hold, FinishReport("stop")]), store=store) as scene:
            scene.runtime.submit("a", "Go.")
            await hold.reached()
            scene.store.kill()
        async with opened(ScriptedModel("Done."), store=store) as scene:
            [outcome] = await scene.runtime.recover(**{place: ends})  # type: ignore[arg-type]
            assert outcome.action == "failed"
            # Trio lets nobody make its own cancellation.
            assert isinstance(outcome.error, UsageError | TypeError)
            assert (await scene.runtime.submit("b", "Go.").result).text == "Done."


class _ExitingSink:
    def emit(self, _: object) -> None:
        sys.exit(3)


@pytest.mark.parametrize(
    "config",
    [RuntimeConfig(observers=(_ExitingSink(),)), RuntimeConfig(tools=ToolsConfig(on_error=_exits_at_once))],
    ids=["observers", "on_error"],
)
async def test_whoever_is_only_told_ends_nothing(config: RuntimeConfig) -> None:
    """An operator's sink and the hook for failed calls are told, and that is all."""
    model = ScriptedModel(called(("c1", "nothing", "{}")), "Done.")
    async with opened(model, config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Go.").result
    assert (result.reason, result.text) == ("success", "Done.")


async def test_an_interrupt_from_the_keyboard_is_meant_for_the_program() -> None:
    """It is not made a failure."""
    with pytest.raises(KeyboardInterrupt), stray_ends("x"):
        raise KeyboardInterrupt


def test_a_coroutine_that_is_closed_without_an_event_loop_just_ends() -> None:
    """Closing it is no failure of what it waited for."""

    @types.coroutine
    def wait() -> Generator[None, None, None]:
        yield

    async def work() -> None:
        with stray_ends("x"):
            await wait()

    coroutine = work()
    coroutine.send(None)
    coroutine.close()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
