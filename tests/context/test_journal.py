"""A journal is a projection of receipts."""

from typing import Any

import pytest

from runlane.context import ContextFragment, ContextJournal, ContextRecord, ModelCallContext, ToolResultContext
from runlane.contracts import DurationMs, Id, InvocationResult, ModelCallRecord, TimestampMs, ToolCallRecord
from runlane.errors import InvalidValueError, UsageError
from tests.hostile import untouchable

MODEL_CALL = ModelCallRecord(
    invocation_id=Id("m"),
    started_at=TimestampMs(1),
    duration_ms=DurationMs(1),
    stage=Id("s"),
    transport="core:plain-text",
    call_number=1,
    input_chars=1,
    output_chars=1,
)


def _receipt(name: str, tool: str = "search") -> ToolCallRecord:
    return ToolCallRecord(
        invocation_id=Id(name),
        started_at=TimestampMs(1),
        duration_ms=DurationMs(1),
        tool_id=Id(tool),
        identity="x",
    )


def test_x14_a_failed_tool_is_a_request_without_a_result() -> None:
    """Results enter with a receipt only; order of recording is kept."""
    journal = ContextJournal()
    journal.record_tool_request(Id("failed"), Id("search"), {})
    journal.record_model(InvocationResult("text", MODEL_CALL))
    journal.record_tool_request(Id("good"), Id("search"), {})
    journal.record_tool_result(InvocationResult("found", _receipt("good")))
    assert [record.type for record in journal.records] == ["tool_request", "model_call", "tool_request", "tool_result"]


def test_x15_values_are_the_hosts() -> None:
    """They are handed through: not read, compared, printed or copied."""
    journal = ContextJournal()
    value = untouchable()
    journal.record_tool_request(Id("i"), Id("search"), value)
    journal.record_tool_result(InvocationResult(value, _receipt("i")))
    model = journal.record_model(InvocationResult(value, MODEL_CALL))
    assert "value" not in repr(journal.records)
    assert model == ModelCallContext(receipt=MODEL_CALL, value=None)
    seen: list[ContextRecord] = []

    def render(record: ContextRecord) -> None:
        seen.append(record)

    assert journal.fragments(render) == ()
    assert isinstance(seen[1], ToolResultContext)
    assert seen[1].value is value


def test_x16_a_result_belongs_to_one_request() -> None:
    """Never requested, requested of another tool, answered twice, requested twice: refused, nothing recorded."""
    journal = ContextJournal()
    journal.record_tool_request(Id("i"), Id("search"), {})
    journal.record_tool_result(InvocationResult(1, _receipt("i")))
    before = journal.records
    for name, tool in (("other", "search"), ("i", "search"), ("i", "delete")):
        with pytest.raises(InvalidValueError):
            journal.record_tool_result(InvocationResult(1, _receipt(name, tool)))
    with pytest.raises(InvalidValueError):
        journal.record_tool_request(Id("i"), Id("search"), {})
    wrong: Any = InvocationResult(1, MODEL_CALL)
    with pytest.raises(UsageError):
        journal.record_tool_result(wrong)
    assert journal.records == before


def test_x16_records_are_a_snapshot() -> None:
    """What was read does not grow."""
    journal = ContextJournal()
    before = journal.records
    journal.record_tool_request(Id("i"), Id("search"), {})
    assert before == ()
    assert len(journal.records) == 1


def test_x17_rendering_keeps_order_and_distrusts() -> None:
    """None leaves a record out; a fragment that says nothing of its trust is external, one that does keeps it."""
    journal = ContextJournal()
    journal.record_tool_request(Id("i"), Id("search"), {})
    journal.record_tool_result(InvocationResult("found", _receipt("i")))
    journal.record_model(InvocationResult("text", MODEL_CALL))

    def render(record: ContextRecord) -> ContextFragment | None:
        match record:
            case ToolResultContext():
                return ContextFragment(id=record.receipt.invocation_id, content=str(record.value))
            case ModelCallContext():
                return ContextFragment(id=Id("m"), content=str(record.value), trust="application")
            case _:
                return None

    first, second = journal.fragments(render)
    assert (first.content, first.trust, second.trust) == ("found", "external", "application")


def test_x17_render_is_synchronous() -> None:
    """A coroutine function is refused, a coroutine is closed, and anything else is no fragment."""
    journal = ContextJournal()
    journal.record_tool_request(Id("i"), Id("search"), {})

    async def later(_: ContextRecord) -> None:
        """Never runs."""

    refused: Any = later
    wrong: list[Any] = [refused, lambda record: refused(record), lambda _: "text", 3]  # noqa: PLW0108 - hides it
    for render in wrong:
        with pytest.raises(UsageError):
            journal.fragments(render)
