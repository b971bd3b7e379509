"""What a chat shows of the events it gets, and how an ending is put into words."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from typing import get_args

import pytest

from runlane.cli._chat_outcome import failure_of
from runlane.cli._chat_view import ChatView
from runlane.cli._exits import Exit, exit_for
from runlane.cli._terminal import Terminal
from runlane.delivery import AssistantDeltaEvent, Gap, ReasoningDeltaEvent, RunStateEvent, RuntimeEvent, TerminalEvent
from runlane.errors import ModelProtocolError, ProviderStreamCutError
from runlane.records import Message, RunMetrics, TerminalReason, TextPart, Usage

_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_WHO = {"conversation_id": "c", "run_id": "r", "emitted_at": _NOW}


def _delta(text: str, number: int) -> AssistantDeltaEvent:
    return AssistantDeltaEvent(**_WHO, runtime_epoch="e", sequence=number, text_delta=text)  # type: ignore[arg-type]


def _thought(text: str, number: int) -> ReasoningDeltaEvent:
    return ReasoningDeltaEvent(**_WHO, runtime_epoch="e", sequence=number, text_delta=text)  # type: ignore[arg-type]


def _running() -> RunStateEvent:
    return RunStateEvent(**_WHO, snapshot_version=2, state="running")  # type: ignore[arg-type]


def _ended(text: str) -> TerminalEvent:
    message = Message(
        id="a",
        conversation_id="c",
        run_id="r",
        role="assistant",
        status="completed",
        parts=(TextPart(text=text),),
        created_at=_NOW,
        updated_at=_NOW,
    )
    metrics = RunMetrics(partial=False, usage=Usage.unknown())
    return TerminalEvent(**_WHO, snapshot_version=5, reason="success", message=message, metrics=metrics)  # type: ignore[arg-type]


def _shown(monkeypatch: pytest.MonkeyPatch, *events: RuntimeEvent | Gap) -> str:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    view = ChatView(Terminal(environ={}))
    for event in events:
        view.show(event)
    return screen.getvalue()


def test_an_answer_is_shown_as_it_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas are shown one after the other, once; reasoning stands apart from the text."""
    events = (_running(), _thought("hm", 1), _delta("Good ", 2), _delta("day", 3), _ended("Good day"))
    assert _shown(monkeypatch, *events) == "hm\n\nGood day\n"


def test_after_a_gap_the_whole_answer_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """If events were lost, the answer as stored is shown whole at the end."""
    gap = Gap(conversation_id="c", reason="slow")
    assert _shown(monkeypatch, _running(), _delta("Good", 1), gap, _ended("Good day")) == "Good\nGood day\n"


def test_an_answer_that_never_streamed_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that arrived without deltas is shown when it ends."""
    assert _shown(monkeypatch, _running(), _ended("Good day")) == "Good day\n"


@pytest.mark.parametrize("reason", get_args(TerminalReason))
def test_every_ending_but_success_is_put_into_words(reason: TerminalReason) -> None:
    """Each reason has words of its own, ends with exit code 10 or is a success."""
    failure = failure_of(reason, None)
    if reason in {"success", "policy_stop"}:
        assert failure is None
    else:
        assert failure is not None
        assert failure.code == f"run.{reason}"
        assert failure.message != reason or reason == "absorbed"


def test_a_provider_failure_is_told_in_its_own_words_with_advice() -> None:
    """The error of the model's last call says what happened; advice is added where it has none."""
    cut = failure_of("provider_failure", ProviderStreamCutError())
    broken = failure_of("provider_failure", ModelProtocolError(detail="no JSON in event 3"))
    assert cut is not None
    assert broken is not None
    assert cut.code == "provider.stream_cut"
    assert "send the message again" in cut.message
    assert broken.message.startswith("no JSON in event 3; ")
    assert "--base-url" in broken.message
    assert exit_for(cut.code) is exit_for(broken.code) is Exit.NOT_SUCCESSFUL
