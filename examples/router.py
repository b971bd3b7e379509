"""A router: classify a question, answer it in a subflow of its own, and remember answers in two caches.

    python -m examples.router

Classifications are kept in the engine's memory, for a minute; answers in a cache of the host's, here a dictionary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from runlane.flow import (
    MISSING,
    AgentCacheAddress,
    AgentCacheOptions,
    AgentCoreEngine,
    AgentCoreEngineSetup,
    AgentModelBinding,
    AgentWorkflow,
    AgentWorkflowDefinition,
    EngineCacheOptions,
    WorkflowContext,
    WorkflowNode,
    define_workflow,
    route,
)
from runlane.models import ChatProvider
from runlane.runner import ModelCallRequest
from runlane.testing import ScriptedModel

__all__ = ["AnswerCache", "Desk", "main", "workflow"]


@dataclass(frozen=True)
class Desk:
    """What the workflow needs of its host: a subflow for each kind of question."""

    subflows: dict[str, AgentWorkflow[Desk]]


@dataclass
class AnswerCache:
    """A cache of the host's; a real one would be a database. Addresses keep branches, nodes and partitions apart."""

    entries: dict[tuple[str, str, str], object] = field(default_factory=dict)

    async def get(self, address: AgentCacheAddress, key: str, /) -> object:
        """Return an answer, or MISSING."""
        return self.entries.get((address.node_id, address.partition, key), MISSING)

    async def set(self, address: AgentCacheAddress, key: str, value: object, /) -> None:
        """Keep an answer."""
        self.entries[address.node_id, address.partition, key] = value

    async def delete(self, address: AgentCacheAddress, key: str, /) -> bool:
        """Drop an answer."""
        return self.entries.pop((address.node_id, address.partition, key), MISSING) is not MISSING

    async def clear(self, address: AgentCacheAddress, /) -> int:
        """Drop every answer of an address."""
        mine = [place for place in self.entries if place[:2] == (address.node_id, address.partition)]
        for place in mine:
            del self.entries[place]
        return len(mine)


def _answering(kind: str, system: str) -> AgentWorkflow[Desk]:
    """Return a subflow that answers one kind of question."""

    async def answer(context: WorkflowContext[Desk]) -> dict[str, object]:
        request = ModelCallRequest(stage=kind, system=system, prompt=str(context.state["question"]))
        return {"answer": (await context.model.call(request)).value}

    node = WorkflowNode[Desk](id="answer", run=answer, requires=["question"], routes=[route(complete="answer")])
    return define_workflow(AgentWorkflowDefinition[Desk](id=kind, start="answer", nodes=[node]))


async def classify(context: WorkflowContext[Desk]) -> dict[str, object]:
    """Say what kind of question it is; the same question is not asked about twice within a minute."""
    question = str(context.state["question"])
    kind = context.cache.memory.get(question)
    if kind is None:
        request = ModelCallRequest(stage="classify", system="Say `bill` or `fault`.", prompt=question)
        kind = (await context.model.call(request)).value
        context.cache.memory.set(question, kind)
    return {"kind": kind}


async def answer(context: WorkflowContext[Desk]) -> dict[str, object]:
    """Answer in the subflow of the kind, unless the host remembers an answer."""
    question = str(context.state["question"])
    known = await context.cache.persistent.get(question)
    if known is None:
        subflow = context.app.subflows[str(context.state["kind"])]
        known = await context.run_workflow(subflow, {"question": question})
        await context.cache.persistent.set(question, known)
    return {"answer": known}


def refuse(context: WorkflowContext[Desk]) -> dict[str, object]:
    """Answer what belongs to no kind."""
    return {"answer": f"Nobody here knows about {context.state['kind']!r}."}


workflow = define_workflow(
    AgentWorkflowDefinition[Desk](
        id="router",
        start="classify",
        nodes=[
            WorkflowNode(
                id="classify",
                run=classify,
                requires=["question"],
                routes=[
                    route("answer", when=lambda context: context.state["kind"] in context.app.subflows, label="known"),
                    route("refuse", label="unknown"),
                ],
            ),
            WorkflowNode(id="answer", run=answer, cache_partition="answers", routes=[route(complete="answer")]),
            WorkflowNode(id="refuse", run=refuse, routes=[route(complete="answer")]),
        ],
    )
)

_DESK = Desk({"bill": _answering("bill", "You explain bills."), "fault": _answering("fault", "You mend machines.")})


async def main(provider: ChatProvider, *questions: str) -> list[str]:
    """Answer questions one after the other with one engine, so that its memory serves them all."""
    engine: AgentCoreEngine[Desk] = AgentCoreEngine(
        AgentCoreEngineSetup[Desk](
            model=AgentModelBinding(provider=provider),
            workflow=workflow,
            app=_DESK,
            caches=AgentCacheOptions(volatile=EngineCacheOptions(ttl=60), persistent=AnswerCache()),
        )
    )
    return [str((await engine.run(state={"question": question})).value) for question in questions]


if __name__ == "__main__":
    scripted = ScriptedModel("bill", "You were billed twice; one is refunded.", "weather")
    for text in anyio.run(main, scripted, "Why twice?", "Why twice?", "Will it rain?"):
        print(text)  # noqa: T201 - an example shows what it does
