"""The demo's promises are decided from what the store holds: each of them can be found broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from runlane.cli._demo_facts import Asked, Facts, Observed, checks
from runlane.cli._demo_script import FIRST, SECOND, Exchange
from runlane.records import Message, Run, TextPart
from runlane.store import EventEnvelope

_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_RUNS = {FIRST.key: "run-1", SECOND.key: "run-2"}


def _message(identity: str, role: str, text: str, run: str | None = None) -> Message:
    return Message(
        id=identity,
        conversation_id="demo",
        run_id=run,
        role=role,  # type: ignore[arg-type]
        status="committed" if run is None else "completed",
        parts=(TextPart(text=text),),
        created_at=_NOW,
        updated_at=_NOW,
    )


def _run(exchange: Exchange, *, ended: bool) -> Run:
    run = _RUNS[exchange.key]
    return Run(
        id=run,
        conversation_id="demo",
        input_message_ids=(f"question of {run}",),
        assistant_message_id=f"answer of {run}",
        state="completed" if ended else "running",
        terminal_reason="success" if ended else None,
        revision=3,
        created_at=_NOW,
        updated_at=_NOW,
    )


def _entry(seq: int, kind: str, run: str) -> EventEnvelope:
    return EventEnvelope(
        schema_version=1,
        event_id=f"e{seq}",
        conversation_id="demo",
        seq=seq,
        version=seq,
        kind="runtime/transition",
        occurred_at="2026-01-02T00:00:00.000Z",
        payload={"type": kind, "run_id": run},
    )


def _messages(exchange: Exchange, answer: str) -> tuple[Message, Message]:
    run = _RUNS[exchange.key]
    return (
        _message(f"question of {run}", "user", exchange.question),
        _message(f"answer of {run}", "assistant", answer, run),
    )


_END = Facts(
    version=4,
    runs=(_run(FIRST, ended=True), _run(SECOND, ended=True)),
    messages=(*_messages(FIRST, FIRST.answer), *_messages(SECOND, SECOND.answer)),
    ledger=tuple(
        _entry(seq, kind, run)
        for seq, (kind, run) in enumerate(
            [("accept", "run-1"), ("terminal", "run-1"), ("accept", "run-2"), ("terminal", "run-2")], start=1
        )
    ),
)
_AT_KILL = Facts(
    version=3,
    runs=(_run(FIRST, ended=True), _run(SECOND, ended=False)),
    messages=(*_messages(FIRST, FIRST.answer), *_messages(SECOND, SECOND.answer[:40])),
    ledger=_END.ledger[:3],
)
_KEPT = Observed(
    first=Asked(exchange=FIRST, run="run-1", streamed=FIRST.answer),
    second=Asked(exchange=SECOND, run="run-2", streamed=SECOND.answer[:60]),
    killed_status=-9,
    resumed=SECOND.answer,
    repeated=("run-1", "run-2"),
    requests=(3, 3),
    at_kill=_AT_KILL,
    at_recovery=_END,
    at_end=_END,
)

_BROKEN: dict[str, tuple[str, Callable[[Observed], Observed]]] = {
    "it ended by itself": ("killed in mid-stream", lambda seen: replace(seen, killed_status=0)),
    "it had already answered": ("killed in mid-stream", lambda seen: replace(seen, at_kill=_END)),
    "the input is gone": (
        "input was not lost",
        lambda seen: replace(seen, at_kill=replace(_AT_KILL, messages=_AT_KILL.messages[:2])),
    ),
    "the run is gone": ("input was not lost", lambda seen: replace(seen, at_kill=replace(_AT_KILL, runs=()))),
    "the first answer changed": (
        "first answer is intact",
        lambda seen: replace(seen, at_end=replace(_END, messages=(*_messages(FIRST, "x"), *_END.messages[2:]))),
    ),
    "the second answer was patched together": (
        "second answer is whole",
        lambda seen: replace(
            seen, at_end=replace(_END, messages=(*_END.messages[:2], *_messages(SECOND, SECOND.answer[:60] * 2)))
        ),
    ),
    "the second run never ended": (
        "second answer is whole",
        lambda seen: replace(seen, at_end=replace(_END, runs=_AT_KILL.runs)),
    ),
    "an input was answered twice": (
        "exactly one answer",
        lambda seen: replace(
            seen, at_end=replace(_END, messages=(*_END.messages, _message("b", "assistant", "again", "run-2")))
        ),
    ),
    "a run ended twice": (
        "exactly one answer",
        lambda seen: replace(seen, at_end=replace(_END, ledger=(*_END.ledger, _entry(5, "terminal", "run-1")))),
    ),
    "a key made a new run": ("same run", lambda seen: replace(seen, repeated=("run-1", "run-3"))),
    "the model was asked again": ("asked no model", lambda seen: replace(seen, requests=(3, 4))),
    "repeating wrote something": ("wrote nothing", lambda seen: replace(seen, at_recovery=replace(_END, version=3))),
    "the ledger has a hole": (
        "no hole",
        lambda seen: replace(seen, at_end=replace(_END, ledger=(*_END.ledger[:1], *_END.ledger[2:]))),
    ),
    "the ledger is empty": ("no hole", lambda seen: replace(seen, at_end=replace(_END, ledger=()))),
}


def test_a_good_demo_keeps_every_promise() -> None:
    """All checks hold for what should happen."""
    assert [check.name for check in checks(_KEPT) if not check.held] == []


@pytest.mark.parametrize(("name", "spoil"), _BROKEN.values(), ids=_BROKEN)
def test_a_broken_promise_is_found(name: str, spoil: Callable[[Observed], Observed]) -> None:
    """The check whose promise is broken says so."""
    broken = [check.name for check in checks(spoil(_KEPT)) if not check.held]
    assert any(name in found for found in broken), broken
