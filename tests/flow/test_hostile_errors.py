"""Errors that make trouble when somebody looks at them go through engine, steps and tools as any other."""

# ruff: noqa: ANN401 - handlers take a context of any app

from __future__ import annotations

from typing import Any

import pytest

from runlane.contracts import CancelToken
from runlane.diagnostics import CreateDiagnosticsOptions, create_diagnostics
from runlane.durability import Effect
from runlane.errors import AbortedError, EffectUnresolvedError
from runlane.flow import EngineResult
from runlane.store import MemoryStore
from runlane.tools import ToolInvocationRequest, ToolRegistry, ToolRegistryOptions, tool
from tests.diagnostics.listening import Log, Watcher
from tests.durability.scenes import durable
from tests.flow.engines import engine_of
from tests.flow.workflows import definition, node, way
from tests.hostile import broken, hostile_error, hostile_object, untouchable

pytestmark = pytest.mark.anyio

ERRORS = {
    "text": hostile_error(__str__=broken, __repr__=broken),
    "code": hostile_error(code=property(broken), retryable=property(broken)),
    "class": hostile_error(__class__=property(broken)),
    "dict": hostile_error(__dict__=property(broken)),
    "writing": hostile_error(__setattr__=broken),
    "args": hostile_error(args=property(broken)),
    "reading": hostile_error(__getattribute__=broken),
    "comparing": hostile_error(__eq__=broken, __hash__=None, __bool__=broken, __len__=broken),
}


@pytest.fixture(params=ERRORS)
def error(request: pytest.FixtureRequest) -> Exception:
    """Each of them in turn."""
    return ERRORS[request.param]


def raising(error: Exception) -> Any:
    """Return a handler of anything that raises it."""

    def raise_it(*_: object) -> None:
        raise error

    return raise_it


async def ran(*nodes: Any, told: bool) -> EngineResult:
    """Run nodes, with everybody listening or with nobody."""
    scope = create_diagnostics(
        CreateDiagnosticsOptions(observer=Watcher(), output=Log(), accept_content=True)
        if told
        else CreateDiagnosticsOptions()
    )
    return await engine_of(definition(*nodes), diagnostics=scope).run()


@pytest.mark.parametrize("told", [True, False])
async def test_w26_a_hostile_error_leaves_as_it_is(error: Exception, told: bool) -> None:  # noqa: FBT001 - a parameter
    """The same object, also when its end is told."""
    caught: BaseException | None = None
    try:
        await ran(node("a", run=raising(error)), told=told)
    except Exception as raised:  # noqa: BLE001 - looked at below
        caught = raised
    assert caught is error


@pytest.mark.parametrize("told", [True, False])
async def test_w23_w24_a_hostile_error_is_recovered_from(error: Exception, told: bool) -> None:  # noqa: FBT001 - likewise
    """The recovery phase gets the very object, and a view that did not choke on it."""
    seen: list[bool] = []

    def mend(context: Any) -> dict[str, object]:
        seen.append(context.failure.error is error)
        return {"value": context.failure.info.code}

    nodes = [node("a", run=raising(error), recover=[way("b")]), node("b", run=mend, failure_phase="mending")]
    assert (await ran(*nodes, told=told)).value == "error.unknown"
    assert seen == [True]


async def test_a_hostile_error_of_an_observer_reaches_the_teller(error: Exception) -> None:
    """D1, G14: the same object, and the output had the event before."""
    log = Log()
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=Watcher(then=raising(error)), output=log))
    caught: BaseException | None = None
    try:
        await engine_of(definition(node("a")), diagnostics=scope).run()
    except Exception as raised:  # noqa: BLE001 - looked at below
        caught = raised
    assert caught is error
    assert log.events


async def test_a_hostile_error_of_a_durable_body_leaves_as_it_is(error: Exception) -> None:
    """Of a step the same object, of an effect as the cause; nothing is taken for done."""
    async with MemoryStore() as store:
        caught: BaseException | None = None
        try:
            await durable(store).step("s", raising(error))
        except Exception as raised:  # noqa: BLE001 - looked at below
            caught = raised
        assert caught is error
        with pytest.raises(EffectUnresolvedError) as unresolved:
            await durable(store).effect("e", Effect(run=raising(error), reconcile=raising(error)))
        assert unresolved.value.__cause__ is error
        assert not await durable(store).has_recorded_step("s")


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_hostile_error_of_a_tool_leaves_as_it_is(error: Exception, blocking: bool) -> None:  # noqa: FBT001 - a parameter
    """From the loop and from a thread: the same object, and the call is on the log as failed."""

    @tool(id="plain")
    def plain() -> None:
        """Fail."""
        raise error

    @tool(id="waiting")
    async def waiting() -> None:
        """Fail."""
        raise error

    registry: ToolRegistry[object] = ToolRegistry(ToolRegistryOptions(tools=[plain, waiting]))
    caught: BaseException | None = None
    try:
        await registry.invoke(ToolInvocationRequest(tool_id="plain" if blocking else "waiting", input={}))
    except Exception as raised:  # noqa: BLE001 - looked at below
        caught = raised
    assert caught is error
    assert [event.status for event in registry.call_log] == ["failed"]


REASONS = {
    "text": hostile_object(__str__=broken, __repr__=broken, __format__=broken),
    "class": hostile_object(__class__=property(broken)),
    "everything": untouchable(),
}


@pytest.mark.parametrize("name", REASONS)
async def test_c2_any_object_at_all_is_a_reason(name: str) -> None:
    """A reason that cannot be looked at stops work like any other, and is handed on by identity."""
    token, reason = CancelToken(), REASONS[name]
    assert token.cancel(reason)
    error = token.error()
    assert isinstance(error, AbortedError)
    assert error.reason is CancelToken.any(token).reason is reason
    assert str(error).startswith("aborted: ")
