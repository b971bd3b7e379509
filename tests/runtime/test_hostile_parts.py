"""Whatever a provider makes of the port, a run ends: no answer is kept that could not be stored."""

import pytest
from pydantic import JsonValue

from runlane.errors import InvalidValueError
from runlane.models import (
    FinishReport,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    SourceOutput,
    TextDelta,
)
from runlane.records import JsonObject, Part, ProviderPart, ReasoningPart, SourcePart, TextPart
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_LONE = "\ud800"
_REPAIRED = "\ufffd"


def _nested(depth: int) -> JsonValue:
    value: JsonValue = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (TextDelta(f"a{_LONE}"), TextPart(text=f"a{_REPAIRED}")),
        (ReasoningDelta(f"a{_LONE}"), ReasoningPart(text=f"a{_REPAIRED}")),
        (OpaqueOutput("p", {_LONE: [_LONE]}), {_REPAIRED: [_REPAIRED]}),
        (SourceOutput(_LONE, None, _LONE), SourcePart(source_id=_REPAIRED, title=_REPAIRED)),
        (SourceOutput("example.com", "example.com", "T"), SourcePart(source_id="example.com", title="T")),
        (SourceOutput("s", "https://e.org/", ""), SourcePart(source_id="s", url="https://e.org/")),
    ],
)
async def test_what_can_be_kept_is_kept(said: ModelPart, kept: Part | JsonObject) -> None:
    """A lone surrogate becomes U+FFFD wherever it is, and an address that is no URL costs only the link."""
    async with opened(ScriptedModel([said, FinishReport("stop")])) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert result.reason == "success"
        (part,) = result.message.parts
        assert (part.envelope.data if isinstance(part, ProviderPart) else part) == kept


@pytest.mark.parametrize(
    "said",
    [
        OpaqueOutput("p", {"x": float("nan")}),
        OpaqueOutput("p", {"x": _nested(505)}),
        OpaqueOutput("", {"x": 1}),
        ReasoningDelta("", phase="end", provider_options={"x": float("inf")}),
        SourceOutput(""),
    ],
)
async def test_what_has_no_stored_form_ends_the_run_with_the_text_before_it(said: ModelPart) -> None:
    """The run fails, keeps its text, and the conversation goes on: it is never left running with nobody to end it."""
    model = ScriptedModel([TextDelta("Well"), said, FinishReport("stop")], "Next answer")
    async with opened(model) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
        assert (result.reason, result.text) == ("runtime_failure", "Well")
        assert isinstance(result.error, InvalidValueError)
        assert await scene.store.list_active_runs(CONVERSATION) == ()
        following = await scene.runtime.submit(CONVERSATION, "And now?").result
    assert (following.reason, following.text) == ("success", "Next answer")
