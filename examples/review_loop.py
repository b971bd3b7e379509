"""A review loop with a recovery phase: draft, review, draft again at most twice, and a fallback if the model fails.

    python -m examples.review_loop

It asks a scripted model, so it needs no key. Give `main` any `ChatProvider` to ask a real one.
"""

from __future__ import annotations

import anyio

from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineSetup,
    AgentModelBinding,
    AgentWorkflowDefinition,
    WorkflowContext,
    WorkflowNode,
    define_workflow,
    draw_mermaid,
    route,
)
from runlane.models import ChatProvider
from runlane.runner import ModelCallRequest
from runlane.testing import ScriptedModel

__all__ = ["main", "workflow"]


async def draft(context: WorkflowContext[object]) -> dict[str, object]:
    """Write a text, or write it again with what the reviewer said."""
    prompt = f"Write one sentence about: {context.state['prompt']}"
    if "remark" in context.state:
        prompt += f"\nYour last one was: {context.state['text']}\nThe reviewer says: {context.state['remark']}"
    result = await context.model.call(ModelCallRequest(stage="draft", prompt=prompt))
    return {"text": result.value}


async def review(context: WorkflowContext[object]) -> dict[str, object]:
    """Ask for a verdict; anything but `good` is a remark."""
    request = ModelCallRequest(
        stage="review", system="Answer `good`, or say what to change.", prompt=str(context.state["text"])
    )
    return {"remark": (await context.model.call(request)).value}


def apologise(context: WorkflowContext[object]) -> dict[str, object]:
    """Answer without the model; the failure says why."""
    code = "unknown" if context.failure is None else context.failure.info.code
    return {"text": f"The writer is not available now ({code})."}


workflow = define_workflow(
    AgentWorkflowDefinition[object](
        id="review-loop",
        start="draft",
        nodes=[
            WorkflowNode(
                id="draft",
                title="Write a draft",
                run=draft,
                requires=["prompt"],
                routes=[route("review")],
                recover=[route("apologise", label="the model failed")],
            ),
            WorkflowNode(
                id="review",
                title="Review it",
                run=review,
                requires=["text"],
                routes=[
                    route(complete="text", when=lambda context: context.state["remark"] == "good", label="good"),
                    route("draft", budget=2, label="once more"),
                    route(complete="text", label="good enough"),
                ],
                recover=[route("apologise", label="the model failed")],
            ),
            WorkflowNode(
                id="apologise",
                title="Apologise",
                run=apologise,
                failure_phase="no model",
                routes=[route(complete="text")],
            ),
        ],
    )
)


async def main(provider: ChatProvider, subject: str = "the sea") -> str:
    """Run the loop once and return the text it ends with."""
    engine: AgentCoreEngine[object] = AgentCoreEngine(
        AgentCoreEngineSetup[object](model=AgentModelBinding(provider=provider), workflow=workflow, app=None)
    )
    result = await engine.run(state={"prompt": subject})
    return str(result.value)


if __name__ == "__main__":
    print(draw_mermaid(workflow.graph()))  # noqa: T201 - an example shows what it does
    scripted = ScriptedModel("The sea is wet.", "too plain", "The sea keeps no one's footprints.", "good")
    print(anyio.run(main, scripted))  # noqa: T201 - an example shows what it does
