"""The worked examples do what they say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from examples import durable_review, review_loop, router
from runlane.errors import ProviderError
from runlane.records import TextPart
from runlane.testing import ScriptedModel
from tests.fixture_files import REPOSITORY


@pytest.mark.anyio
async def test_a_draft_is_written_again_until_it_is_good() -> None:
    """The remark of the reviewer reaches the next draft, and the good one is the value."""
    model = ScriptedModel("one", "too short", "two", "good")
    assert await review_loop.main(model) == "two"
    assert "too short" in getattr(model.calls[2].messages[-1], "text", "")


@pytest.mark.anyio
async def test_after_two_more_drafts_the_last_is_good_enough() -> None:
    """The budget of the route ends the loop."""
    model = ScriptedModel("one", "no", "two", "no", "three", "no")
    assert await review_loop.main(model) == "three"
    assert len(model.calls) == 6


@pytest.mark.anyio
async def test_a_failing_model_is_recovered_from() -> None:
    """The recovery phase answers with the code of the failure."""
    model = ScriptedModel([ProviderError("out of order", provider="scripted", status=500)])
    assert await review_loop.main(model) == "The writer is not available now (provider.failure)."


@pytest.mark.anyio
async def test_a_question_is_answered_by_its_subflow_once() -> None:
    """The second time both caches answer; an unknown kind is refused without a subflow."""
    model = ScriptedModel("bill", "Refunded.", "weather")
    assert await router.main(model, "Why twice?", "Why twice?", "Rain?") == [
        "Refunded.",
        "Refunded.",
        "Nobody here knows about 'weather'.",
    ]
    assert len(model.calls) == 3


def test_a_killed_workflow_is_recovered_to_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process is killed in the middle of a real workflow on a real file; the run ends in one answer."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), *sys.path]))
    result = durable_review.main(tmp_path)
    assert result.reason == "success"
    assert [part.text for part in result.message.parts if isinstance(part, TextPart)] == [
        "The sea keeps no one's footprints."
    ]
    assert result.run.fencing_token == 2
