"""Who answers in a world of lanes: a model whose words are let out one by one, in the managed loop or in a workflow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from typing_extensions import override

from runlane.bridge import WorkflowTurnDriver
from runlane.contracts import Id
from runlane.errors import ProviderError
from runlane.flow import AgentWorkflowDefinition, WorkflowContext, WorkflowNode, WorkflowRoute, define_workflow, route
from runlane.models import (
    AnyModelMessage,
    ChatProvider,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    ModelUsage,
    TextDelta,
    UsageReport,
)
from runlane.runner import ModelCallRequest
from runlane.runtime import (
    ManagedLoopDriver,
    StructuredCompaction,
    StructuredCompactionConfig,
    SummaryRequest,
    TurnDriver,
)

WORDS = 3
"""Words of one step of the model."""

Reuse = Literal["return", "refuse"]


@dataclass(frozen=True)
class Facts:
    """What holds in a world from its beginning.

    Attributes:
        driver: Who answers the runs.
        shares: Whether waiting inputs share a successor.
        asks: Whether some tools need consent.
        compacts: Whether runs replace old turns by a summary.
        reuse: What a repeated key with another input gets.
        past: How many inputs of each conversation were answered before anything goes wrong.
    """

    driver: str = "loop"
    shares: bool = False
    asks: bool = False
    compacts: bool = False
    reuse: Reuse = "return"
    past: int = 0


@dataclass(frozen=True)
class Asked:
    """One call of the model.

    Attributes:
        call_number: From 1, in its execution.
    """

    messages: tuple[AnyModelMessage, ...]
    call_number: int


class Tap(ChatProvider):
    """A model that says one word for each that was let out, or all of them once the tap is open.

    Every third call is the last of its run at once; others call tools first, once or twice. No two calls say the same.
    Each says first what it cost: one token more than the one before.
    """

    provider_id = "tap"
    model_id = "tap"

    def __init__(self, *, asks: bool = False) -> None:
        self._asks = asks
        self._left = 0
        self._open = False
        self._failures = 0
        self._more = anyio.Event()
        self.asked: list[Asked] = []

    def let_out(self, words: int) -> None:
        """Allow so many more words, whoever says them."""
        self._left += words
        self._wake()

    def open(self) -> None:
        """Allow everything, and fail no more."""
        self._open, self._failures = True, 0
        self._wake()

    def close(self) -> None:
        """Allow nothing any more but what is let out."""
        self._open, self._left = False, 0

    def fail(self) -> None:
        """Fail instead of saying the next word."""
        self._failures = 1

    def _wake(self) -> None:
        self._more.set()
        self._more = anyio.Event()

    async def word(self) -> None:
        """Wait until another word may be said."""
        while not self._open and self._left == 0:
            await self._more.wait()
        self._left = max(0, self._left - 1)

    @override
    @asynccontextmanager
    async def open_stream(
        self, messages: Sequence[AnyModelMessage], context: ModelProviderContext, /
    ) -> AsyncIterator[AsyncIterator[ModelPart]]:
        number = len(self.asked)
        self.asked.append(Asked(tuple(messages), context.call_number))
        # Within a workflow it is the workflow that calls tools.
        calls_a_tool = bool(context.functions) and context.call_number <= number % 3

        async def parts() -> AsyncGenerator[ModelPart, None]:
            yield UsageReport(ModelUsage(output_tokens=number + 1))
            for word in range(WORDS):
                await self.word()
                context.signal.raise_if_cancelled()
                if self._failures:
                    self._failures = 0
                    raise ProviderError("busy", provider="tap", reason="rate-limited", status=429, retryable=True)
                yield TextDelta(f"<{number}.{word}>")
            for place, name in enumerate(tools_of(number, asks=self._asks) if calls_a_tool else ()):
                yield FunctionCallDelta(place, id=f"call-{number}-{place}", name=name, arguments="{}")
            yield FinishReport("tool-calls" if calls_a_tool else "stop")

        async with aclosing(parts()) as stream:
            yield stream


def tools_of(number: int, *, asks: bool) -> tuple[str, ...]:
    """Return the tools that the call of the model with this number wants carried out, if it wants any."""
    return ("note",) if not asks else (("note",), ("send",), ("send", "note"), ("note", "send", "send"))[number % 4]


def _workflow_driver(facts: Facts) -> TurnDriver:
    """Return a driver whose workflow says what the model says, with up to two rounds of tools on the way."""

    async def talk(context: WorkflowContext[Any]) -> dict[str, object]:
        messages: Sequence[AnyModelMessage] = context.state["messages"]  # type: ignore[assignment]
        said = (await context.model.call(ModelCallRequest(stage="talk", messages=messages))).value
        number = int(said[1 : said.index(".")])
        if context.visit <= number % 3:
            for name in tools_of(number, asks=facts.asks):
                await context.model.invoke_tool(name, {})
            return {"again": True}
        return {"again": False}

    again: WorkflowRoute[Any] = route("talk", when=lambda context: bool(context.state["again"]), budget=9)
    node: WorkflowNode[Any] = WorkflowNode(id=Id("talk"), run=talk, routes=(again, route(complete=lambda _: "")))
    workflow = define_workflow(AgentWorkflowDefinition(id=Id("lanes"), start=Id("talk"), nodes=(node,)))
    return WorkflowTurnDriver(workflow, None, stream_stages=["talk"])


DRIVERS: dict[str, Callable[[Facts], TurnDriver]] = {
    "loop": lambda _: ManagedLoopDriver(),
    "workflow": _workflow_driver,
}
"""Who answers the runs of a world, by name."""


def compaction() -> StructuredCompaction[str]:
    """Return what replaces all but the last complete turn once there are more than four records."""

    def summarize(request: SummaryRequest[str]) -> str:
        return f"#{len(request.messages)}"

    return StructuredCompaction(
        StructuredCompactionConfig(schema=str, summarize=summarize, due=lambda probe: probe.records > 4, back_off=0.0)
    )
