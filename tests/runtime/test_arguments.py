"""Ids and numbers given to a runtime are checked at once, by name, and nothing is read or written for a bad one."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runlane.errors import InvalidValueError, RunlaneError, UsageError
from runlane.runtime import AgentRuntime
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_BAD_IDS = [5, "", None, b"c", "x" * 513]
_CALLS: dict[str, Callable[[AgentRuntime, Any, Any], Awaitable[object]]] = {
    "interrupt": lambda runtime, conversation, run: runtime.interrupt(conversation, run),
    "cancel": lambda runtime, conversation, run: runtime.cancel(conversation, run),
    "abandon": lambda runtime, conversation, run: runtime.abandon(
        conversation, run, expected_revision=0, stale_owner=True
    ),
}


@pytest.mark.parametrize("bad", _BAD_IDS)
@pytest.mark.parametrize("name", list(_CALLS))
async def test_a_bad_id_is_refused_by_name(name: str, bad: object) -> None:
    """Conversation and run alike."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="conversation_id"):
            await _CALLS[name](scene.runtime, bad, "r")
        with pytest.raises(InvalidValueError, match="run_id"):
            await _CALLS[name](scene.runtime, CONVERSATION, bad)
        assert scene.store.calls == []


@pytest.mark.parametrize("bad", _BAD_IDS)
async def test_a_bad_id_to_resume_is_refused_at_once(bad: Any) -> None:  # noqa: ANN401 - anything is given
    """`resume` raises itself, instead of rejecting later."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="conversation_id"):
            scene.runtime.resume(bad, "r")
        with pytest.raises(InvalidValueError, match="run_id"):
            scene.runtime.resume(CONVERSATION, bad)
        assert scene.store.calls == []


@pytest.mark.parametrize("bad", [bad for bad in _BAD_IDS if bad is not None])
async def test_a_bad_id_to_subscribe_or_recover_is_refused_at_once(bad: Any) -> None:  # noqa: ANN401 - as above
    """A subscription to a run that cannot exist is refused, as is a recovery of such a conversation."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="run_id"):
            scene.runtime.subscribe(CONVERSATION, run_id=bad)
        with pytest.raises(InvalidValueError, match="conversation_id"):
            scene.runtime.subscribe(bad)
        with pytest.raises(InvalidValueError, match="conversation_id"):
            await scene.runtime.recover(conversation_id=bad)
        assert scene.store.calls == []


@pytest.mark.parametrize("revision", [True, 1.0, "1", None])
async def test_a_revision_that_is_no_integer_is_refused(revision: Any) -> None:  # noqa: ANN401 - as above
    """`abandon` names `expected_revision`."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(UsageError, match="expected_revision"):
            await scene.runtime.abandon(CONVERSATION, "r", expected_revision=revision, stale_owner=True)
        assert scene.store.calls == []


@pytest.mark.parametrize("after", [True, -1, 1.5, "1"])
async def test_a_cursor_that_is_no_version_is_refused(after: Any) -> None:  # noqa: ANN401 - as above
    """`subscribe` names `after`."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(RunlaneError, match="after"):
            scene.runtime.subscribe(CONVERSATION, after=after)


async def test_a_malformed_stop_is_refused() -> None:
    """A lane that is no text, and a reason nobody knows."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(UsageError, match="conversation_id"):
            scene.runtime.stop(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match="reason"):
            scene.runtime.stop(CONVERSATION, reason="because")  # type: ignore[arg-type]
