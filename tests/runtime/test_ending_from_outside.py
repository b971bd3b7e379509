"""Ending a run from outside: interrupt, stop, cancel, abandon; and what happens when two ends race."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from typing_extensions import override

from runlane.delivery import RunStateEvent, RuntimeEvent, TerminalEvent
from runlane.errors import RuntimeConflictError, UsageError
from runlane.records import ControlPart
from runlane.runtime import RunResult
from runlane.store import (
    AppendEvent,
    Applied,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    Conflict,
    DraftPatch,
    MemoryStore,
    RecoverRun,
    RequestRunInterrupt,
)
from runlane.testing import Fault, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, Scene, heard, held_after, looped, opened

pytestmark = pytest.mark.anyio


async def _revision(scene: Scene, run_id: str) -> int:
    view = await scene.store.inner.load_run(CONVERSATION, run_id)
    assert view is not None
    return view.run.revision


async def test_interrupt_is_durable_first_and_keeps_the_text() -> None:
    """An interrupt writes interrupt_requested, tells it, then aborts; the run ends interrupted with what it said."""
    hold, model = held_after("Once ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "A tale")
        events = ticket.events()
        await hold.reached()
        assert isinstance(await scene.runtime.interrupt(CONVERSATION, ticket.run_id), Applied)
        result = await ticket.result
        states = [event.state for event in await heard(events) if isinstance(event, RunStateEvent)]
    assert (result.reason, result.run.state, result.text) == ("interrupted", "interrupted", "Once ")
    assert result.message.parts[-1] == ControlPart(reason="run-interrupted")
    assert states == ["queued", "running", "interrupt_requested"]


async def test_interrupt_of_a_queued_or_ended_run_is_a_conflict_and_changes_nothing() -> None:
    """Only a running run can be interrupted; an unknown one is an error."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        second = scene.runtime.submit(CONVERSATION, "second")
        await second.admission
        await hold.reached()
        assert isinstance(await scene.runtime.interrupt(CONVERSATION, second.run_id), Conflict)
        hold.release()
        await first.result
        assert (await second.result).reason == "success"
        assert isinstance(await scene.runtime.interrupt(CONVERSATION, first.run_id), Conflict)
        with pytest.raises(RuntimeConflictError, match="interrupt"):
            await scene.runtime.interrupt(CONVERSATION, "nobody")


async def test_an_interrupt_by_another_runtime_is_noticed_at_the_next_checkpoint() -> None:
    """Another runtime interrupts the run through the store; the executor stops and keeps the text."""
    hold, model = held_after("x", "x")
    async with MemoryStore() as store:
        config = looped(checkpoint_every_events=3)
        async with opened(model, store=store, config=config) as executor, opened(model, store=store) as other:
            ticket = executor.runtime.submit(CONVERSATION, "A tale")
            await hold.reached()
            assert isinstance(await other.runtime.interrupt(CONVERSATION, ticket.run_id), Applied)
            assert ticket.result.done is False
            hold.release()
            result = await ticket.result
    assert (result.reason, result.text) == ("interrupted", "xx.")


async def test_an_interrupt_by_another_runtime_is_noticed_at_the_terminal_commit() -> None:
    """An answer that was complete when the interrupt was found is recorded as interrupted, with the mark."""
    hold, model = held_after("x")
    async with MemoryStore() as store, opened(model, store=store) as executor, opened(model, store=store) as other:
        ticket = executor.runtime.submit(CONVERSATION, "A tale")
        await hold.reached()
        await other.runtime.interrupt(CONVERSATION, ticket.run_id)
        hold.release()
        result = await ticket.result
    assert (result.reason, result.text) == ("interrupted", "x.")
    assert result.message.parts[-1] == ControlPart(reason="run-interrupted")
    assert result.metrics is not None


async def test_stop_is_process_local_and_says_whether_something_executed() -> None:
    """Stop aborts what executes here without writing first; a stop of an idle conversation is False."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        assert scene.runtime.stop(CONVERSATION) is False
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        writes = len(scene.store.applied)
        assert scene.runtime.stop(CONVERSATION, reason="supersede") is True
        assert len(scene.store.applied) == writes
        result = await ticket.result
    assert (result.reason, result.run.state, result.message.status) == ("superseded", "superseded", "superseded")
    assert result.text == "one"


async def test_a_superseded_answer_is_never_shown_again() -> None:
    """Both inputs of a superseded turn reach the next prompt, its answer does not; the record keeps it."""
    hold, model = held_after("draft ")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        scene.runtime.stop(CONVERSATION, reason="supersede")
        await ticket.result
        await scene.runtime.submit(CONVERSATION, "second").result
    told = "".join(message.text for message in model.calls[1].messages)  # type: ignore[union-attr]
    assert ("first" in told, "second" in told, "draft" in told) == (True, True, False)


async def test_a_durable_interrupt_does_not_turn_a_superseded_run_into_an_interrupted_one() -> None:
    """The terminal commit of a superseded run that meets an interrupt stays superseded."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        revision = await _revision(scene, ticket.run_id)
        interrupt = RequestRunInterrupt(
            command_id="i", at=scene.clock.now(), run_id=ticket.run_id, expected_revision=revision
        )
        await scene.store.inner.apply(CONVERSATION, [interrupt])
        scene.runtime.stop(CONVERSATION, reason="supersede")
        result = await ticket.result
    assert (result.reason, result.run.state) == ("superseded", "superseded")


async def test_cancel_ends_a_queued_run_at_once_without_executing_it() -> None:
    """A cancelled queued run has an empty interrupted answer, one run-state and one terminal event, and no call."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "second")
        events = second.events()
        await second.admission
        assert isinstance(await scene.runtime.cancel(CONVERSATION, second.run_id), Applied)
        result = await second.result
        assert first.result.done is False
        told = (await heard(events))[2:]
        hold.release()
        await first.result
        third = await scene.runtime.submit(CONVERSATION, "third").result
    assert (result.reason, result.run.state) == ("cancelled", "cancelled")
    assert (result.message.status, result.message.parts) == ("interrupted", ())
    assert [event.type for event in told] == ["run-state", "terminal"]
    assert third.reason == "success"
    assert len(model.calls) == 2


async def test_cancel_of_a_running_run_interrupts_it() -> None:
    """On an executing run cancel acts like interrupt."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await hold.reached()
        assert isinstance(await scene.runtime.cancel(CONVERSATION, ticket.run_id), Applied)
        assert (await ticket.result).reason == "interrupted"
        assert isinstance(await scene.runtime.cancel(CONVERSATION, ticket.run_id), Conflict)


@pytest.mark.parametrize("claim", [False, 1, "yes"])
async def test_abandon_needs_the_literal_statement(claim: object) -> None:
    """Without `stale_owner=True` nothing is read or written."""
    async with opened(ScriptedModel("Hi")) as scene:
        with pytest.raises(UsageError, match="stale_owner"):
            await scene.runtime.abandon(CONVERSATION, "r", expected_revision=0, stale_owner=claim)  # type: ignore[arg-type]
        assert scene.store.calls == []


async def test_abandon_ends_an_orphan_and_keeps_its_parts() -> None:
    """An abandoned run has reason and state `abandoned`, its draft as a failed answer, and one run-state event."""
    hold, model = held_after(*["x"] * 3)
    async with MemoryStore() as store:
        async with opened(model, store=store, config=looped(checkpoint_every_events=2)) as scene:
            ticket = scene.runtime.submit(CONVERSATION, "Hi")
            await hold.reached()
            scene.store.kill()
        async with opened(model, store=store) as scene:
            async with scene.runtime.subscribe(CONVERSATION) as events:
                moved = await scene.runtime.abandon(CONVERSATION, ticket.run_id, expected_revision=0, stale_owner=True)
                assert isinstance(moved, Conflict)
                revision = await _revision(scene, ticket.run_id)
                await scene.runtime.abandon(CONVERSATION, ticket.run_id, expected_revision=revision, stale_owner=True)
                event = await anext(events)
            view = await store.load_run(CONVERSATION, ticket.run_id)
            assert await store.list_active_runs(CONVERSATION) == ()
    assert view is not None
    assert view.assistant is not None
    assert (view.run.terminal_reason, view.run.owner_id) == ("abandoned", None)
    assert (view.assistant.status, view.assistant.text) == ("failed", "xx")
    assert isinstance(event, RunStateEvent)
    assert event.state == "abandoned"


# --- terminal races ---------------------------------------------------------------------------------------------


class _Racer:
    """Does something to the run each time its terminal commit is about to be sent."""

    def __init__(self, *commands: Callable[[StoreCall], Command]) -> None:
        self.commands = list(commands)
        self.scene: Scene | None = None

    def plan(self, call: StoreCall) -> Fault | None:
        ends = any(isinstance(command, CommitRunTerminal) for command in call.commands)
        if not (ends and self.commands and self.scene):
            return None
        return Fault(hold=_Acting(self.scene, self.commands.pop(0)(call)))


class _Acting(Hold):
    """Instead of standing, sends a command to the real store."""

    def __init__(self, scene: Scene, command: Command) -> None:
        super().__init__()
        self._scene = scene
        self._command = command

    @override
    async def stand(self) -> None:
        await self._scene.store.inner.apply(CONVERSATION, [self._command])


def _revision_of(call: StoreCall) -> int:
    closing = next(command for command in call.commands if not isinstance(command, AppendEvent))
    return closing.expected_revision  # type: ignore[union-attr]


def _interrupting(call: StoreCall) -> Command:
    terminal = call.commands[-1]
    assert isinstance(terminal, CommitRunTerminal)
    return RequestRunInterrupt(
        command_id="interrupt", at=terminal.at, run_id=terminal.run_id, expected_revision=_revision_of(call)
    )


def _taking(action: str) -> Callable[[StoreCall], Command]:
    def take(call: StoreCall) -> Command:
        terminal = call.commands[-1]
        assert isinstance(terminal, CommitRunTerminal)
        return RecoverRun(
            command_id=f"take {action}",
            at=terminal.at,
            run_id=terminal.run_id,
            expected_revision=_revision_of(call),
            action=action,  # type: ignore[arg-type]
            replay_safe=True,
        )

    return take


def _touching(number: int) -> Callable[[StoreCall], Command]:
    """A write on the run's behalf that changes nothing but its revision."""

    def touch(call: StoreCall) -> Command:
        terminal = call.commands[-1]
        assert isinstance(terminal, CommitRunTerminal)
        return CheckpointRunAssistant(
            command_id=f"touch {number}",
            at=terminal.at,
            run_id=terminal.run_id,
            expected_revision=_revision_of(call),
            ownership=terminal.ownership,
            patch=DraftPatch(),
        )

    return touch


@dataclass
class _Raced:
    events: list[RuntimeEvent]
    result: RunResult | None = None
    error: Exception | None = None
    terminal_commits: int = 0


async def _raced(*commands: Callable[[StoreCall], Command]) -> _Raced:
    racer = _Racer(*commands)
    async with opened(ScriptedModel("Hello"), plan=racer.plan) as scene:
        racer.scene = scene
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        raced = _Raced(events=await heard(ticket))
        try:
            raced.result = await ticket.result
        except RuntimeConflictError as error:
            raced.error = error
        raced.terminal_commits = sum(
            any(isinstance(command, CommitRunTerminal) for command in call.commands) for call in scene.store.applied
        )
    return raced


async def test_the_winner_publishes_one_terminal_event_and_has_metrics() -> None:
    """Without a race: one terminal commit, one terminal event, metrics on the result."""
    raced = await _raced()
    assert sum(isinstance(event, TerminalEvent) for event in raced.events) == 1
    assert raced.result is not None
    assert raced.result.metrics is not None


async def test_a_run_that_ended_meanwhile_is_settled_from_its_record_by_the_loser() -> None:
    """The loser of a terminal race returns what the record says, has no metrics and publishes no terminal event."""
    raced = await _raced(_taking("abandon"))
    assert raced.result is not None
    assert (raced.result.reason, raced.result.metrics) == ("abandoned", None)
    assert not any(isinstance(event, TerminalEvent) for event in raced.events)


async def test_an_interrupt_that_wins_reforms_the_end_as_interrupted() -> None:
    """An interrupt between the last read and the commit: the end is re-formed, with the mark, and has metrics."""
    raced = await _raced(_interrupting)
    assert raced.result is not None
    assert (raced.result.reason, raced.result.message.parts[-1]) == (
        "interrupted",
        ControlPart(reason="run-interrupted"),
    )
    assert raced.result.metrics is not None
    assert raced.terminal_commits == 2


async def test_a_run_that_is_still_held_is_ended_with_its_new_revision() -> None:
    """A conflict while the run is still running and held here is tried again, and succeeds."""
    raced = await _raced(*(_touching(number) for number in range(5)))
    assert raced.result is not None
    assert (raced.result.reason, raced.terminal_commits) == ("success", 6)


async def test_a_run_that_was_requeued_meanwhile_is_a_conflict() -> None:
    """A run that is queued again, or held by another owner, is left alone: the result rejects."""
    raced = await _raced(_taking("requeue"))
    assert (raced.result, type(raced.error)) == (None, RuntimeConflictError)


async def test_a_run_that_keeps_changing_is_given_up_after_thirty_two_rounds() -> None:
    """A terminal commit is tried at most 32 times."""
    raced = await _raced(*(_touching(number) for number in range(40)))
    assert (type(raced.error), raced.terminal_commits) == (RuntimeConflictError, 32)
