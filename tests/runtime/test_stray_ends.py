"""Code of others that ends as if the program, or the task that called it, were to end."""

import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from runlane.errors import UsageError
from runlane.prompt import PromptSection
from runlane.runtime import (
    AgentProtocol,
    AgentRuntime,
    DeliveryConfig,
    LoopConfig,
    PromptConfig,
    RunsConfig,
    RuntimeConfig,
    StopPolicy,
)
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from runlane.tools import tool
from tests.runtime.scenes import CONVERSATION, opened
from tests.runtime.test_tools import called, results_of

pytestmark = pytest.mark.anyio


async def _cancelled_elsewhere(*_: object) -> Any:  # noqa: ANN401 - a callback of any kind
    """End as somebody does who awaits a task of the event loop that others cancelled."""
    raise anyio.get_cancelled_exc_class()


async def _exits(*_: object) -> Any:  # noqa: ANN401 - likewise
    sys.exit(3)


def _exits_in_a_thread() -> str:
    sys.exit(3)


def _cancelled_in_a_thread() -> str:
    raise GeneratorExit


@pytest.mark.parametrize("ends", [_cancelled_elsewhere, _exits, _exits_in_a_thread, _cancelled_in_a_thread])
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


@pytest.mark.parametrize("ends", [_cancelled_elsewhere, _exits])
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


@pytest.mark.parametrize("ends", [_cancelled_elsewhere, _exits])
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


@pytest.mark.parametrize("ends", [_cancelled_elsewhere, _exits])
async def test_a_preflight_that_ends_more_than_itself_refuses_its_input(ends: Callable[..., Any]) -> None:
    """Nothing is written, and the ticket says so."""
    async with opened(ScriptedModel("."), config=RuntimeConfig(runs=RunsConfig(preflight=ends))) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Go.")
        with pytest.raises((UsageError, TypeError)):
            await ticket.result
        assert scene.store.applied == []
