"""A tool that takes longer than its runtime's lease: nobody takes the run away, and the tool is entered once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runlane.models import FinishReport, FunctionCallDelta
from runlane.runtime import AgentRuntime, BlockingRuntime, RecoveryOutcome
from runlane.store.sqlite import SqliteOptions, SqliteStore
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION

pytestmark = pytest.mark.anyio

_TTL = 0.5
_LONGER = 0.9


def _store(path: Path) -> SqliteStore:
    return SqliteStore(path, options=SqliteOptions(lease_ttl=_TTL, lease_beat=0.05))


@pytest.mark.parametrize("kind", ["blocks the event loop", "blocks a thread"])
async def test_a_tool_that_outlasts_the_lease_is_entered_once(kind: str, tmp_path: Path) -> None:
    """Another worker recovers in the middle of it: the lease was renewed off the tool's thread and loop."""
    path = tmp_path / "store.db"
    entered: list[str] = []
    outcomes: list[RecoveryOutcome] = []
    others: list[str] = []

    def take_long() -> None:
        entered.append(kind)
        with BlockingRuntime(_store(path), model=ScriptedModel("by the other")) as other:
            time.sleep(_LONGER)
            outcomes.extend(other.recover())
            others.append(other.ask("another lane", "Hi").text)

    async def on_the_loop() -> str:
        """Work on the event loop."""
        take_long()
        return "done"

    def in_a_thread() -> str:
        """Work in a thread."""
        take_long()
        return "done"

    tool: Callable[..., Any] = on_the_loop if kind == "blocks the event loop" else in_a_thread
    call = FunctionCallDelta(0, id="c", name=tool.__name__, arguments="{}")
    model = ScriptedModel([call, FinishReport("tool-calls")], "answered")
    async with _store(path) as store, AgentRuntime(store, model=model, tools=[tool]) as runtime:
        result = await runtime.submit(CONVERSATION, "Go").result
        # The busy worker is still who it was: it goes on with its next turn under the same lease.
        owner = runtime.owner_id
        again = await runtime.submit(CONVERSATION, "Again").result
    assert (result.reason, result.text, again.reason) == ("success", "answered", "success")
    assert entered == [kind]
    assert [(outcome.action, outcome.run_id) for outcome in outcomes] == [("skipped", result.run.id)]
    assert {result.run.owner_id, again.run.owner_id} == {owner}
    assert others == ["by the other"]
