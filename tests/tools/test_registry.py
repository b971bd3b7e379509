"""The registry: grows until it is sealed, and only says what its ports say."""

import pytest

from runlane.contracts import ExecutionOptions
from runlane.errors import DuplicateRegistrationError, MissingEntryError, RegistrySealedError, UnknownToolError
from runlane.tools import RegisteredTool, ToolInvocationRequest, ToolRegistryPorts, tool
from tests.hostile import untouchable
from tests.tools.scenes import add, asking, double, registry_of

pytestmark = pytest.mark.anyio


async def test_l4_it_is_mutable_until_it_is_sealed_and_invoking_does_not_seal() -> None:
    """Tools may follow after a call; once sealed every registration is refused, and reading goes on."""
    registry = registry_of(add)
    await registry.invoke(asking("add", left=1))
    registry.register(double)
    with pytest.raises(DuplicateRegistrationError):
        registry.register(add)
    catalog = registry.seal()
    assert (registry.sealed, registry.seal()) == (True, catalog)

    @tool
    async def late() -> None:
        """Come late."""

    with pytest.raises(RegistrySealedError):
        registry.register(late)
    assert [entry.id for entry in registry] == ["add", "double"]
    assert [entry.id for entry in catalog.list()] == ["add", "double"]
    assert ("add" in registry, "late" in registry, len(registry)) == (True, False, 2)
    assert registry.get("late") is None
    with pytest.raises(MissingEntryError):
        registry.require("late")


async def test_l5_without_ports_every_tool_is_visible_and_allowed() -> None:
    """The registry is mechanism: it hides and forbids nothing by itself."""
    registry = registry_of(add, double)
    assert [entry.id for entry in await registry.list_visible(None)] == ["add", "double"]
    assert (await registry.invoke(asking("add", left=1))).value == 2


def test_l5_metadata_is_only_kept() -> None:
    """What a host writes on a tool comes back as it is, and nothing callable with it."""

    @tool(metadata={"colour": "red"}, title="Marked")
    async def marked() -> None:
        """Do nothing."""

    entry = registry_of(marked).require("marked")
    assert (dict(entry.metadata), entry.title) == ({"colour": "red"}, "Marked")
    assert not any(callable(getattr(entry, name)) for name in RegisteredTool.__slots__)


async def test_l7_conditions_and_visibility_are_asked_at_every_call() -> None:
    """A tool that is switched off or invisible is not listed, and listed again once that changes."""
    on, seen = {"conditional": False}, {"hidden": False}
    asked: list[tuple[str, object]] = []

    async def condition(app: object) -> bool:
        asked.append(("condition", app))
        return on["conditional"]

    def visible(entry: RegisteredTool, app: object) -> bool:
        asked.append((entry.id, app))
        return seen.get(entry.id, True)

    @tool(condition=condition)
    async def conditional() -> None:
        """Come and go."""

    @tool
    async def hidden() -> None:
        """Hide."""

    registry = registry_of(conditional, hidden, add, ports=ToolRegistryPorts(visible=visible))
    host = object()
    assert [entry.id for entry in await registry.list_visible(host)] == ["add"]
    on["conditional"] = seen["hidden"] = True
    assert [entry.id for entry in await registry.list_visible(host)] == ["conditional", "hidden", "add"]
    assert {app for _, app in asked} == {host}


async def test_m32_a_condition_is_independent_of_intents() -> None:
    """A tool that is off may still be an intent, one that is on may be none; the host's value comes as it is."""
    app, given = untouchable(), []

    def condition(value: object) -> bool:
        given.append(value)
        return False

    @tool(condition=condition, as_intent=True)
    async def off() -> None:
        """Be off."""

    registry = registry_of(off, add)
    assert [(entry.id, bool(entry.as_intent)) for entry in registry.list()] == [("off", True), ("add", False)]
    assert [entry.id for entry in await registry.list_visible(app)] == ["add"]
    assert given[0] is app


@pytest.mark.parametrize("tool_id", ["missing", "off", "invisible", ""])
async def test_step_1_unknown_inactive_and_invisible_tools_look_the_same(tool_id: str) -> None:
    """The same error, whatever the cause; nothing is logged."""

    @tool(condition=lambda _: False)
    async def off() -> None:
        """Be off."""

    @tool
    async def invisible() -> None:
        """Be invisible."""

    ports: ToolRegistryPorts[object] = ToolRegistryPorts(visible=lambda entry, _: entry.id != "invisible")
    registry = registry_of(off, invisible, ports=ports)
    with pytest.raises(UnknownToolError) as refused:
        await registry.invoke(ToolInvocationRequest(tool_id=tool_id, input={}))
    assert (refused.value.code, refused.value.tool_id) == ("tool.unknown", tool_id)
    assert registry.call_log == ()


async def test_l9_the_call_log_is_the_registrys_own_and_bounded() -> None:
    """Every settled invocation, newest last; the oldest fall out; another registry has its own."""

    @tool
    async def fail() -> None:
        """Fail."""
        raise KeyError("no")

    one, other = registry_of(add, fail, log=2), registry_of(add)
    await one.invoke(asking("add", left=1))
    with pytest.raises(KeyError):
        await one.invoke(asking("fail"))
    await one.invoke(asking("add", left=2))
    assert [(event.tool_id, event.status) for event in one.call_log] == [("fail", "failed"), ("add", "succeeded")]
    assert other.call_log == ()


async def test_c8_listing_takes_options() -> None:
    """A tripped token ends a listing as it ends a call."""
    registry = registry_of(add)
    assert [entry.id for entry in await registry.list_visible(None, ExecutionOptions())] == ["add"]
