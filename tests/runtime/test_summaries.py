"""A model that writes summaries is told what was said, honestly, and what it spends is known."""

import pytest

from runlane.errors import ModelProtocolError, ProviderStreamCutError, UsageError
from runlane.models import FinishReport, ModelMessage, ModelUsage, TextDelta, UsageReport
from runlane.records import UsageValue
from runlane.runtime import summarize_with
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from tests.runtime.compacting import LONG, Talk, call, compact

pytestmark = pytest.mark.anyio


async def test_the_writer_is_told_the_messages_and_its_answer_is_the_summary() -> None:
    """Failures with their mark, open calls closed, the earlier summary ahead; then asked for the notes."""
    usage = ModelUsage(input_tokens=50, output_tokens=5)
    writer = ScriptedModel("first notes", [TextDelta("second notes"), UsageReport(usage), FinishReport("stop")])
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", reason="provider_failure")
        await talk.say_turn("b", parts=(call("k"),), reason="abandoned")
        await talk.say_turn("c")
        first = await compact(talk, summarize_with(writer, instructions="Keep it."))
        await talk.say_turn("d")
        second = await compact(talk, summarize_with(writer, instructions="Keep it."))
    assert (first.outcome, second.outcome) == ("applied", "applied")
    assert second.summary is not None
    assert second.summary.text == "second notes"
    told = [(message.role, getattr(message, "text", "")) for message in writer.calls[0].messages]
    assert told[0] == ("system", "Keep it.")
    assert told[1] == ("user", "hello")
    assert told[2][1].startswith(LONG)
    assert told[2][1].endswith("[failed: partial evidence from a run that did not complete successfully]")
    assert ("tool", "") in told
    assert told[-1][0] == "user"
    assert [message.text for message in writer.calls[1].messages[:2] if isinstance(message, ModelMessage)] == [
        "Keep it.",
        "Earlier notes:\n\nfirst notes",
    ]
    assert second.usage is not None
    assert second.usage.input_tokens == UsageValue(value=50, provenance="provider-reported")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ([TextDelta("half"), FinishReport("length")], ModelProtocolError),
        ([TextDelta("half"), ProviderStreamCutError()], ProviderStreamCutError),
    ],
)
async def test_a_summary_that_was_cut_off_is_none(reply: list[object], error: type[Exception]) -> None:
    """Half of the notes would be half of the memory: the history stays as it was."""
    async with MemoryStore() as store:
        talk = Talk(store)
        await talk.say_turn("a", "b")
        before = await talk.message_ids()
        with pytest.raises(error):
            await compact(talk, summarize_with(ScriptedModel(reply)))  # type: ignore[arg-type]
        assert await talk.message_ids() == before


async def test_what_is_no_model_cannot_write() -> None:
    """Found out when the configuration is made."""
    with pytest.raises(UsageError):
        summarize_with("gpt-5-mini")  # type: ignore[arg-type]
