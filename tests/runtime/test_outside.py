"""A runtime before it is entered and after it was left: every method says which, and the store is untouched."""

from collections.abc import Awaitable, Callable

import pytest

from runlane.errors import RuntimeClosedError
from runlane.runtime import AgentRuntime
from runlane.store import MemoryStore
from runlane.testing import FaultyStore, ScriptedModel
from tests.runtime.scenes import CONVERSATION

pytestmark = pytest.mark.anyio


async def _stop(runtime: AgentRuntime) -> object:
    return runtime.stop(CONVERSATION)


_CALLS: dict[str, Callable[[AgentRuntime], Awaitable[object]]] = {
    "submit": lambda runtime: runtime.submit(CONVERSATION, "Hi").result.wait(),
    "respond_to_approval": lambda runtime: runtime.respond_to_approval(
        CONVERSATION, "a", approved=True
    ).admission.wait(),
    "seed": lambda runtime: runtime.seed(CONVERSATION, ["Hi"], seed_key="k"),
    "interrupt": lambda runtime: runtime.interrupt(CONVERSATION, "r"),
    "stop": _stop,
    "cancel": lambda runtime: runtime.cancel(CONVERSATION, "r"),
    "abandon": lambda runtime: runtime.abandon(CONVERSATION, "r", expected_revision=0, stale_owner=True),
    "resume": lambda runtime: runtime.resume(CONVERSATION, "r").accepted.wait(),
    "recover": lambda runtime: runtime.recover(),
}
_FREE = {"subscribe", "close", "owner_id"}
"""What may be done at any time: to listen, to close, to ask for the name."""


def _runtime() -> tuple[FaultyStore, AgentRuntime]:
    store = FaultyStore(MemoryStore())
    return store, AgentRuntime(store, model=ScriptedModel("."))


@pytest.mark.parametrize("name", list(_CALLS))
async def test_nothing_is_done_before_a_runtime_is_entered(name: str) -> None:
    """It is not closed: it was never open, and the error says how to open it."""
    store, runtime = _runtime()
    async with store:
        with pytest.raises(RuntimeClosedError, match="enter it first: async with AgentRuntime"):
            await _CALLS[name](runtime)
    assert store.calls == []


@pytest.mark.parametrize("name", list(_CALLS))
async def test_nothing_is_done_after_a_runtime_was_left(name: str) -> None:
    """Nor after it was closed without having been entered."""
    store, runtime = _runtime()
    unentered = AgentRuntime(store, model=ScriptedModel("."))
    async with store:
        async with runtime:
            pass
        await unentered.close()
        calls = len(store.calls)
        for one in (runtime, unentered):
            with pytest.raises(RuntimeClosedError, match="is closed; open a new one"):
                await _CALLS[name](one)
    assert len(store.calls) == calls


def test_every_method_is_asked() -> None:
    """A method that is added has its place in the table, or is free."""
    assert {name for name in vars(AgentRuntime) if not name.startswith("_")} == {*_CALLS, *_FREE}
