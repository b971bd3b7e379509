"""A run of the engine is stopped at every await it has: its state stays right, and it runs again."""

# ruff: noqa: ANN401, D102 - handlers take a context of any app; a cache port says nothing new

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from runlane.contracts import CancelToken, Id
from runlane.diagnostics import CoreEvent, CreateDiagnosticsOptions, create_diagnostics
from runlane.flow import (
    AgentCacheAddress,
    AgentCacheOptions,
    AgentCoreEngine,
    AgentCoreEngineSetup,
    AgentModelBinding,
    RequestRuntime,
    define_workflow,
)
from runlane.runner import ModelCallRequest
from runlane.tools import ToolRegistry, ToolRegistryOptions, tool
from tests.cancelling import at_every_await
from tests.diagnostics.listening import Log, Watcher
from tests.flow.workflows import definition, node, way
from tests.runner.speaking import Speaker, saying

pytestmark = pytest.mark.anyio


class Port:
    """A persistent cache that takes its time."""

    def __init__(self) -> None:
        self.entries: dict[str, object] = {}

    async def get(self, address: AgentCacheAddress, key: str, /) -> object:
        del address
        await checkpoint()
        return self.entries.get(key)

    async def set(self, address: AgentCacheAddress, key: str, value: object, /) -> None:
        del address
        await checkpoint()
        self.entries[key] = value

    async def delete(self, address: AgentCacheAddress, key: str, /) -> bool:
        del address
        await checkpoint()
        return self.entries.pop(key, None) is not None

    async def clear(self, address: AgentCacheAddress, /) -> int:
        del address
        await checkpoint()
        return 0


class Scene:
    """An engine with everything: a model, a tool, a cache, a nested workflow, a recovery phase, and two consumers."""

    def __init__(self) -> None:
        self.provider = Speaker(*saying("model"), after=checkpoint)
        self.entered: Counter[str] = Counter()
        self.left: Counter[str] = Counter()
        self.watcher = Watcher(then=self._take)
        self.log = Log()
        setup: AgentCoreEngineSetup[object] = AgentCoreEngineSetup(
            model=AgentModelBinding(provider=self.provider),
            tools=ToolRegistry(ToolRegistryOptions(tools=[self._tool()])),
            workflow=define_workflow(definition(*self._nodes(), max_calls=9)),
            app=None,
            caches=AgentCacheOptions(persistent=Port()),
            diagnostics=create_diagnostics(
                CreateDiagnosticsOptions(observer=self.watcher, output=self.log, accept_content=True)
            ),
        )
        self.engine: AgentCoreEngine[object] = AgentCoreEngine(setup)

    async def _take(self, event: CoreEvent) -> None:
        if event.sequence % 3 == 0:
            await checkpoint()

    def _tool(self) -> Any:
        @tool(id="double")
        async def double(value: int) -> int:
            """Double it."""
            self.entered["tool"] += 1
            try:
                await checkpoint()
                return value * 2
            finally:
                self.left["tool"] += 1

        return double

    def _nodes(self) -> list[Any]:
        inner = define_workflow(definition(node("x", run=self._inner)))

        async def ask(context: Any) -> dict[str, object]:
            said = await context.model.call(ModelCallRequest(stage=Id("s"), prompt="?"))
            await context.cache.persistent.set("said", said.value)
            return {"said": await context.cache.persistent.get("said")}

        async def act(context: Any) -> None:
            context.state["said"].index("m")
            await context.model.invoke_tool("double", {"value": 2})
            await context.run_workflow(inner, {})
            raise KeyError("recovered from")

        async def mend(context: Any) -> dict[str, object]:
            await checkpoint()
            return {"value": f"{context.state['said']} after {context.failure.error!r}"}

        return [
            node("ask", way("act"), run=ask),
            node("act", way("act", budget=1), way(complete="said"), run=act, recover=[way("mend")]),
            node("mend", run=mend, failure_phase="mending"),
        ]

    async def _inner(self, context: Any) -> dict[str, object]:
        self.entered[context.node_id] += 1
        try:
            await checkpoint()
            return {"value": 1}
        finally:
            self.left[context.node_id] += 1

    def check_told(self) -> None:
        """Whatever began has ended, in order, and once."""
        for events in (self.watcher.events, self.log.events):
            sequences = [event.sequence for event in events]
            assert sequences == sorted(set(sequences))
        assert self.entered == self.left
        assert self.provider.closed == len(self.provider.contexts)

    async def check_again(self) -> None:
        """The same engine runs once more, whole."""
        assert not self.engine.running
        self.watcher.events.clear()
        result = await self.engine.run()
        assert result.value == "model after KeyError('recovered from')"
        names = Counter(event.name for event in self.watcher.events)
        for what in ("run", "workflow", "round", "model", "tool"):
            assert names[f"{what}.started"] == names[f"{what}.finished"] > 0  # type: ignore[index]
        assert names["node.entered"] == names["node.finished"] == 4


async def test_an_engine_cancelled_at_any_await_unwinds_and_runs_again() -> None:
    """The cancellation leaves as it came, nothing is left open or running, and the next run is whole."""

    async def play(doing: Any) -> None:
        scene = Scene()
        with anyio.CancelScope() as scope:
            await doing(scene.engine.run, scope.cancel)
        if scope.cancelled_caught:
            finished = [event for event in scene.log.events if event.name == "run.finished"]
            began = [event for event in scene.log.events if event.name == "run.started"]
            assert len(finished) == len(began)
            assert [event.payload.status for event in finished] in ([], ["cancelled"])  # type: ignore[union-attr]
        scene.check_told()
        await scene.check_again()

    assert await at_every_await(play) > 20


async def test_an_engine_whose_token_trips_at_any_await_ends_with_its_reason() -> None:
    """The very reason leaves, however deep the await was; nothing is left open, and the next run is whole."""

    async def play(doing: Any) -> None:
        scene, token, reason = Scene(), CancelToken(), KeyError("why")
        request = RequestRuntime(signal=token)
        try:
            await doing(lambda: scene.engine.run(request=request), lambda: token.cancel(reason))
        except KeyError as error:
            assert error is reason  # noqa: PT017 - it may not come
            last = scene.log.events[-1]
            assert (last.name, last.payload.status) == ("run.finished", "cancelled")  # type: ignore[union-attr]
        else:
            assert not token.cancelled
        scene.check_told()
        await scene.check_again()

    assert await at_every_await(play) > 20
