"""A call whose process died after its tool was entered: the tool finds out what came of it, and runs no more."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from runlane.errors import RunlaneError, ToolTimeoutError, UsageError
from runlane.runtime import RunResult, RuntimeConfig, ToolsConfig
from runlane.store import MemoryStore, ReadEvents
from runlane.testing import Fault, ScriptedModel, StoreCall
from runlane.tools import (
    Reconciled,
    ToolDefinition,
    ToolExecutionContext,
    ToolInvocationPorts,
    ToolRegistry,
    ToolRegistryOptions,
    ToolRegistryPorts,
    approval_kind,
    tool,
)
from tests.runtime.scenes import CONVERSATION, Scene, opened
from tests.runtime.test_tools import called, results_of

pytestmark = pytest.mark.anyio

_Reconcile = Callable[[dict[str, Any], ToolExecutionContext[Any]], Any]


def _script() -> ScriptedModel:
    return ScriptedModel(
        lambda call: called(("c1", "pay", '{"to":"a"}')) if call.messages[-1].role == "user" else "Done."
    )


def _payer(entries: list[str], **options: Any) -> ToolDefinition[Any, Any, Any]:  # noqa: ANN401 - options of `tool`
    @tool(id="pay", **options)
    async def pay(to: str, context: ToolExecutionContext[Any]) -> str:
        """Pay."""
        entries.append(f"{to} {context.idempotency_key}")
        return f"paid {to}"

    return pay


async def _attempt(scene: Scene) -> RunResult | None:
    try:
        return await scene.runtime.submit(CONVERSATION, "Pay.", idempotency_key="only").result
    except RunlaneError:
        return None


async def _cut_off(store: MemoryStore, tools: list[ToolDefinition[Any, Any, Any]], entries: list[str]) -> None:
    """Have a process die at its first commit after the tool was entered."""

    def plan(call: StoreCall) -> Fault | None:
        return Fault(kills=True) if entries and call.method == "apply" else None

    async with opened(_script(), store=store, plan=plan, tools=tools) as scene:
        await _attempt(scene)


async def _recovered(reconcile: _Reconcile | None, config: RuntimeConfig | None = None, **options: Any) -> Any:  # noqa: ANN401
    """Return how the run ended, who was entered, and the evidence of the takeover."""
    entries: list[str] = []
    tools = [_payer(entries, reconcile=reconcile, **options)]
    async with MemoryStore() as store:
        await _cut_off(store, tools, entries)
        async with opened(_script(), store=store, tools=tools, config=config, recover_on_start=True) as scene:
            result = await _attempt(scene)
        page = await store.read_events(ReadEvents(conversation_id=CONVERSATION))
    [evidence] = [event.payload["evidence"] for event in page.items if event.payload.get("type") == "recover"]
    assert isinstance(evidence, dict)
    return result, entries, evidence["class"]


async def test_proof_is_the_result_of_the_call() -> None:
    """The tool is asked with the input and the key of the call; the model gets the output, and nothing ran again."""
    asked: list[tuple[object, object]] = []

    async def reconcile(value: dict[str, Any], context: ToolExecutionContext[Any]) -> Reconciled[str]:
        asked.append((value, context.idempotency_key))
        return Reconciled(f"paid {value['to']} before")

    result, entries, evidence = await _recovered(reconcile, present=lambda output: {"said": output})
    assert results_of(result.message.parts) == [("c1", "success", {"said": "paid a before"})]
    assert asked == [({"to": "a"}, f"{result.run.id}:c1")]
    assert (result.text, entries, evidence) == ("Done.", [f"a {result.run.id}:c1"], "E4")


async def test_a_plain_function_is_asked_in_a_thread() -> None:
    """It may block."""
    result, entries, _ = await _recovered(lambda value, _: Reconciled(anyio.from_thread.run_sync(lambda: value["to"])))
    assert results_of(result.message.parts) == [("c1", "success", "a")]
    assert len(entries) == 1


async def _raises(*_: object) -> None:
    raise LookupError("the bank is closed")


async def _exits(*_: object) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("reconcile", "told"),
    [
        (lambda *_: None, []),
        (_raises, [LookupError]),
        (_exits, [UsageError]),
        (lambda *_: "paid", [UsageError]),
    ],
)
async def test_without_proof_nobody_knows(reconcile: _Reconcile, told: list[type]) -> None:
    """The run asks a person, as for any other tool; what went wrong is told to the operator only."""
    heard: list[type] = []
    config = RuntimeConfig(tools=ToolsConfig(on_error=lambda _, error: heard.append(type(error))))
    result, entries, evidence = await _recovered(reconcile, config)
    [request] = result.approvals
    assert (result.reason, approval_kind(request), evidence) == ("provider_stop", "effect-unknown", "E4")
    assert (heard, len(entries)) == (told, 1)


async def test_without_proof_the_model_may_be_told_instead() -> None:
    """`unknown_effect="tell"` holds for it as well."""
    result, entries, _ = await _recovered(lambda *_: None, RuntimeConfig(tools=ToolsConfig(unknown_effect="tell")))
    [(_, outcome, output)] = results_of(result.message.parts)
    assert isinstance(output, dict)
    assert (result.reason, outcome, output["error"], len(entries)) == ("success", "error", "tool.outcome_unknown", 1)


async def test_a_tool_that_takes_too_long_to_find_out_does_not_know() -> None:
    """After thirty seconds the question goes to a person."""
    entries: list[str] = []
    heard: list[object] = []
    waits = anyio.Event()

    async def reconcile(*_: object) -> None:
        waits.set()
        await anyio.sleep_forever()

    tools = [_payer(entries, reconcile=reconcile)]
    config = RuntimeConfig(tools=ToolsConfig(on_error=lambda _, error: heard.append(error)))
    async with MemoryStore() as store:
        await _cut_off(store, tools, entries)
        async with opened(_script(), store=store, tools=tools, config=config, recover_on_start=True) as scene:
            await waits.wait()
            await anyio.wait_all_tasks_blocked()
            await scene.clock.advance(30.0)
            result = await _attempt(scene)
    assert result is not None
    assert (result.reason, [type(error) for error in heard]) == ("provider_stop", [ToolTimeoutError])


async def test_a_run_that_is_stopped_while_a_tool_finds_out_is_interrupted() -> None:
    """Stopping reaches it; nothing is made of the call."""
    entries: list[str] = []
    waits = anyio.Event()

    async def reconcile(*_: object) -> None:
        waits.set()
        await anyio.sleep_forever()

    tools = [_payer(entries, reconcile=reconcile)]
    async with MemoryStore() as store:
        await _cut_off(store, tools, entries)
        async with opened(_script(), store=store, tools=tools) as scene:
            [outcome] = await scene.runtime.recover()
            await waits.wait()
            assert scene.runtime.stop(CONVERSATION)
            assert outcome.result is not None
            assert (await outcome.result).reason == "interrupted"


async def test_an_idempotent_tool_is_called_again_rather_than_asked() -> None:
    """Calling again is sure; finding out may not be."""

    async def reconcile(*_: object) -> None:
        raise AssertionError

    result, entries, evidence = await _recovered(reconcile, idempotent=True)
    assert (result.text, len(entries), evidence) == ("Done.", 2, "E3")


async def test_a_tool_of_a_run_has_named_work_that_outlives_the_process() -> None:
    """The step that was recorded before the crash is not done again; the tool itself is, being idempotent."""
    done: list[str] = []

    @tool(id="pay", idempotent=True)
    async def pay(to: str, context: ToolExecutionContext[Any]) -> str:
        """Pay."""
        durability = context.ports.durability
        assert durability is not None

        async def body() -> str:
            done.append(to)
            return f"receipt {len(done)}"

        return str(await durability.step("charge", body))

    def plan(call: StoreCall) -> Fault | None:
        dies = call.method == "apply" and any("tool-result" in repr(command) for command in call.commands)
        return Fault(kills=True) if dies else None

    async with MemoryStore() as store:
        async with opened(_script(), store=store, plan=plan, tools=[pay]) as scene:
            assert await _attempt(scene) is None
        assert done == ["a"]
        async with opened(_script(), store=store, tools=[pay], recover_on_start=True) as scene:
            result = await _attempt(scene)
    assert result is not None
    assert results_of(result.message.parts) == [("c1", "success", "receipt 1")]
    assert done == ["a"]


async def test_the_hosts_own_helpers_reach_the_tools_of_a_run() -> None:
    """What the run has none of, a model or a cache, is what the registry's port gives for the host's context."""
    seen: list[ToolInvocationPorts] = []

    @tool(id="pay")
    async def pay(to: str, context: ToolExecutionContext[Any]) -> str:
        """Pay."""
        seen.append(context.ports)
        return to

    helpers = object()
    ports: ToolRegistryPorts[Any] = ToolRegistryPorts(
        invocation_ports=lambda app: ToolInvocationPorts(model=app, cache=helpers)  # type: ignore[arg-type]
    )
    registry: ToolRegistry[Any] = ToolRegistry(ToolRegistryOptions(tools=[pay], ports=ports))
    registry.seal()
    async with opened(_script(), tools=registry) as scene:
        await scene.runtime.submit(CONVERSATION, "Pay.", context="host").result
    [given] = seen
    assert [given.model, given.cache] == list[object](("host", helpers))
    assert given.durability is not None
    assert given.progress is not None


@pytest.mark.parametrize("reconcile", [5, "no"])
def test_what_cannot_be_asked_is_refused(reconcile: Any) -> None:  # noqa: ANN401 - what is wrong
    """It names the field."""

    async def pay(to: str) -> str:
        """Pay."""
        return to

    with pytest.raises(UsageError) as caught:
        tool(pay, reconcile=reconcile)
    assert caught.value.argument == "reconcile"
