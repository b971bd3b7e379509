"""What may be checked of an input before it is written."""

from collections.abc import Callable

import anyio
import pytest

from runlane.errors import ConversationPurgedError, RuntimeClosedError, UnknownModelError, UsageError
from runlane.runtime import RunsConfig, RunTicket, RuntimeConfig, SubmittedInput
from runlane.testing import Hold, ScriptedModel
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio


def _checking(preflight: Callable[[SubmittedInput], object]) -> RuntimeConfig:
    return RuntimeConfig(runs=RunsConfig(preflight=preflight))


async def _reject(ticket: RunTicket, error: type[Exception]) -> None:
    for promise in (ticket.admission, ticket.accepted, ticket.result):
        with pytest.raises(error):
            await promise


async def test_what_a_preflight_raises_rejects_all_three_promises_and_nothing_is_written() -> None:
    """It gets the input and the raw context; the next input goes its way."""
    seen: list[object] = []

    def check(given: SubmittedInput) -> None:
        seen.append(given.context)
        if given.context == "no model":
            raise UnknownModelError("nobody serves it", model="none")

    async with opened(ScriptedModel("ok"), config=_checking(check)) as scene:
        await _reject(scene.runtime.submit(CONVERSATION, "one", context="no model"), UnknownModelError)
        assert scene.store.calls == []
        assert (await scene.runtime.submit(CONVERSATION, "two").result).reason == "success"
    assert seen == ["no model", None]


async def test_a_slow_preflight_keeps_the_order_of_submission() -> None:
    """Inputs behind one that is still being checked wait for it."""
    hold = Hold()

    async def check(given: SubmittedInput) -> None:
        if given.idempotency_key == "slow":
            await hold.stand()

    async with opened(ScriptedModel("ok"), config=_checking(check)) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, key, idempotency_key=key) for key in ("slow", "quick")]
        await hold.reached()
        await anyio.wait_all_tasks_blocked()
        assert scene.store.calls == []
        hold.release()
        versions = [(await ticket.admission).snapshot_version for ticket in tickets]
        for ticket in tickets:
            await ticket.result
    assert versions[0] < versions[1]


async def test_a_runtime_that_closed_during_a_preflight_writes_nothing() -> None:
    """Closed is checked again after it; the close waits for the check."""
    hold = Hold()

    async def check(_: SubmittedInput) -> None:
        await hold.stand()

    async with opened(ScriptedModel("ok"), config=_checking(check)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.runtime.close)
            await anyio.wait_all_tasks_blocked()
            hold.release()
        await _reject(ticket, RuntimeClosedError)
        assert scene.store.applied == []


async def test_a_conversation_that_was_purged_during_a_preflight_is_not_revived() -> None:
    """The submission rejects with the purged error and never executes."""
    hold = Hold()
    model = ScriptedModel("ok")

    async def check(_: SubmittedInput) -> None:
        await hold.stand()

    async with opened(model, config=_checking(check)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "one")
        await hold.reached()
        await scene.store.inner.purge_conversation(CONVERSATION)
        hold.release()
        await _reject(ticket, ConversationPurgedError)
    assert model.calls == []


def test_a_preflight_must_be_callable() -> None:
    """The option names itself."""
    with pytest.raises(UsageError, match=r"runs\.preflight"):
        RunsConfig(preflight="yes")  # type: ignore[arg-type]
