"""What the store holds of the demo's conversation, and what must be true of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runlane.cli._demo_script import FIRST, SECOND, Exchange
from runlane.cli._text import short_id
from runlane.records import Message, Run
from runlane.store import EventEnvelope, ReadEvents
from runlane.store.sqlite import SqliteStore

__all__ = ["Asked", "Check", "Facts", "Observed", "checks", "fingerprint", "read_facts"]

_SIGKILLED = -9


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A conversation as read from its store.

    Attributes:
        ledger: All entries, ascending.
    """

    version: int
    runs: tuple[Run, ...]
    messages: tuple[Message, ...]
    ledger: tuple[EventEnvelope, ...]

    def run(self, run_id: str, /) -> Run | None:
        """Return a run of the conversation."""
        return next((run for run in self.runs if run.id == run_id), None)

    def question_of(self, run: Run, /) -> str:
        """Return the text of the inputs that a run answers."""
        return "\n".join(message.text for message in self.messages if message.id in run.input_message_ids)

    def answers_of(self, run_id: str, /) -> tuple[str, ...]:
        """Return the texts of a run's answers, of which there should be one; a draft counts."""
        return tuple(message.text for message in self.messages if message.run_id == run_id)


async def read_facts(path: Path, conversation: str, /) -> Facts:
    """Read a conversation from its file, in a store of this process's own."""
    async with SqliteStore(path) as store:
        snapshot = await store.load_snapshot(conversation)
        ledger: list[EventEnvelope] = []
        start: int | None = 1
        while start is not None:
            page = await store.read_events(ReadEvents(conversation_id=conversation, from_seq=start))
            ledger += page.items
            start = page.next_seq
    return Facts(version=snapshot.version, runs=snapshot.runs, messages=snapshot.messages, ledger=tuple(ledger))


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One exchange as a process saw it.

    Attributes:
        run: The run that its input was given.
        streamed: The answer as it arrived, piece by piece; cut short by the kill.
    """

    exchange: Exchange
    run: str
    streamed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the demo saw happen, beside what the store says.

    Attributes:
        killed_status: The killed worker's exit status.
        resumed: The second answer as the new process streamed it.
        repeated: The runs that the repeated keys were answered with.
        requests: Requests that the model got: in all, and after the keys were repeated.
        at_kill: The store right after the kill.
        at_recovery: The store once the new process had answered.
        at_end: The store in the end.
    """

    first: Asked
    second: Asked
    killed_status: int
    resumed: str
    repeated: tuple[str, ...]
    requests: tuple[int, int]
    at_kill: Facts
    at_recovery: Facts
    at_end: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise, and whether it was kept.

    Attributes:
        detail: The figures it was decided on.
    """

    name: str
    held: bool
    detail: str


def fingerprint(text: str, /) -> str:
    """Return the SHA-256 of a text, in lower-case hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def checks(seen: Observed, /) -> tuple[Check, ...]:
    """Decide every promise of the demo from what the store holds."""
    return (
        _was_killed_in_mid_stream(seen),
        _input_was_not_lost(seen),
        _first_answer_is_intact(seen),
        _second_answer_is_whole(seen),
        _answered_once(seen.at_end),
        _keys_return_their_runs(seen),
        _repeating_changed_nothing(seen),
        _ledger_has_no_hole(seen.at_end.ledger),
    )


def _was_killed_in_mid_stream(seen: Observed, /) -> Check:
    run = seen.at_kill.run(seen.second.run)
    part, whole = len(seen.second.streamed), len(SECOND.answer)
    return Check(
        name="the worker was killed in mid-stream",
        held=seen.killed_status == _SIGKILLED and 0 < part < whole and run is not None and run.state == "running",
        detail=f"exit status {seen.killed_status}, {part} of {whole} characters streamed, "
        f"run {'missing' if run is None else run.state}",
    )


def _input_was_not_lost(seen: Observed, /) -> Check:
    run = seen.at_kill.run(seen.second.run)
    kept = run is not None and seen.at_kill.question_of(run) == SECOND.question
    return Check(
        name="the accepted input was not lost",
        held=kept,
        detail=f"the question is {'in' if kept else 'NOT in'} the store after the kill",
    )


def _first_answer_is_intact(seen: Observed, /) -> Check:
    before, after = fingerprint(seen.first.streamed), [*map(fingerprint, seen.at_end.answers_of(seen.first.run))]
    return Check(
        name="the first answer is intact",
        held=seen.first.streamed == FIRST.answer and after == [before],
        detail=f"sha256 {before[:12]} before, {', '.join(digest[:12] for digest in after) or 'nothing'} after",
    )


def _second_answer_is_whole(seen: Observed, /) -> Check:
    run = seen.at_end.run(seen.second.run)
    ended = run is not None and run.terminal_reason == "success"
    whole = seen.at_end.answers_of(seen.second.run) == (SECOND.answer,) and seen.resumed == SECOND.answer
    return Check(
        name="the second answer is whole, in the same run",
        held=ended and whole,
        detail=f"reason {'none' if run is None else run.terminal_reason}, text {'equal' if whole else 'DIFFERENT'}",
    )


def _answered_once(end: Facts, /) -> Check:
    ends = Counter(entry.payload.get("run_id") for entry in end.ledger if entry.payload.get("type") == "terminal")
    answers = [len(end.answers_of(run.id)) for run in end.runs]
    return Check(
        name="every input has exactly one answer",
        held=answers == [1, 1] and [ends[run.id] for run in end.runs] == [1, 1],
        detail=f"{len(end.runs)} runs, {sum(answers)} answers, {ends.total()} terminal entries",
    )


def _keys_return_their_runs(seen: Observed, /) -> Check:
    first = (seen.first.run, seen.second.run)
    return Check(
        name="a repeated idempotency key returns the same run",
        held=seen.repeated == first,
        detail=", ".join(
            f"{short_id(run)} again" if run == old else f"{run}, NOT {old}"
            for run, old in zip(seen.repeated, first, strict=True)
        ),
    )


def _repeating_changed_nothing(seen: Observed, /) -> Check:
    before, after = seen.requests
    versions = seen.at_recovery.version, seen.at_end.version
    return Check(
        name="repeating asked no model and wrote nothing",
        held=before == after and versions[0] == versions[1],
        detail=f"{after} model requests in all, {after - before} by repeating; version {versions[0]} and {versions[1]}",
    )


def _ledger_has_no_hole(ledger: Sequence[EventEnvelope], /) -> Check:
    return Check(
        name="the ledger has no hole",
        held=len(ledger) > 0 and [entry.seq for entry in ledger] == list(range(1, len(ledger) + 1)),
        detail=f"{len(ledger)} entries",
    )
