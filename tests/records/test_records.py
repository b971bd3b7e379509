"""Records are frozen, strict, and refuse to contradict themselves."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter, ValidationError

from runlane.errors import InvalidValueError
from runlane.records import (
    ACTIVE_RUN_STATES,
    ConversationHead,
    Message,
    Part,
    ProviderEnvelope,
    Run,
    RunOperation,
    RunState,
    StoredRun,
    TerminalReason,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    UsageValue,
    format_timestamp,
    message_status_for_terminal_reason,
    run_state_for_terminal_reason,
    validated,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
PARTS: TypeAdapter[Part] = TypeAdapter(Part)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def run_fields(**changes: object) -> dict[str, Any]:
    """Return the fields of a plain queued run, with some changed; None removes one."""
    fields: dict[str, Any] = {
        "id": "run_1",
        "conversation_id": "c",
        "input_message_ids": ("m1",),
        "assistant_message_id": "a1",
        "state": "queued",
        "revision": 0,
        "created_at": NOW,
        "updated_at": NOW,
    }
    return fields | changes


@pytest.mark.parametrize(
    ("reason", "state", "status"),
    [
        ("success", "completed", "completed"),
        ("policy_stop", "completed", "completed"),
        ("provider_stop", "completed", "completed"),
        ("interrupted", "interrupted", "interrupted"),
        ("superseded", "superseded", "superseded"),
        ("absorbed", "superseded", None),
        ("cancelled", "cancelled", "interrupted"),
        ("shutdown", "cancelled", "interrupted"),
        ("timeout", "cancelled", "failed"),
        ("abandoned", "abandoned", "failed"),
        ("provider_failure", "failed", "failed"),
        ("context_overflow", "failed", "failed"),
        ("storage_conflict", "failed", "failed"),
        ("runtime_failure", "failed", "failed"),
        ("output_rejected", "failed", "failed"),
    ],
)
def test_a_reason_decides_state_and_status(reason: TerminalReason, state: str, status: str | None) -> None:
    """Each terminal reason maps to one run state and one status of the answer."""
    assert run_state_for_terminal_reason(reason) == state
    assert message_status_for_terminal_reason(reason) == status


def test_the_table_of_reasons_is_complete() -> None:
    """No reason is left without a mapping, and none maps to an active state."""
    for reason in get_args(TerminalReason):
        assert run_state_for_terminal_reason(reason) not in ACTIVE_RUN_STATES


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "completed"},
        {"state": "failed", "terminal_reason": "success"},
        {"state": "queued", "terminal_reason": "interrupted"},
        {"state": "completed", "terminal_reason": "policy_stop"},
        {"state": "completed", "terminal_reason": "success", "terminal_policy_name": "max-steps"},
        {"state": "superseded", "terminal_reason": "absorbed"},
        {"state": "superseded", "terminal_reason": "absorbed", "absorbed_into_run_id": "run_1"},
        {"state": "completed", "terminal_reason": "success", "absorbed_into_run_id": "run_2"},
        {"revision": -1},
        {"revision": True},
        {"input_message_ids": ()},
        {"id": ""},
        {"fencing_token": 0},
        {"schema_version": 2},
        {"surprise": 1},
    ],
    ids=str,
)
def test_a_run_that_contradicts_itself_is_refused(changes: dict[str, object]) -> None:
    """A stored row like this fails loudly instead of being believed."""
    with pytest.raises(ValidationError):
        Run.model_validate(run_fields(**changes))


@given(state=st.sampled_from(get_args(RunState)), reason=st.none() | st.sampled_from(get_args(TerminalReason)))
def test_state_and_reason_agree_or_are_refused(state: RunState, reason: TerminalReason | None) -> None:
    """Over every pair of state and reason, exactly the agreeing ones are runs."""
    fields = run_fields(state=state, terminal_reason=reason)
    if reason == "policy_stop":
        fields["terminal_policy_name"] = "max-steps"
    if reason == "absorbed":
        fields["absorbed_into_run_id"] = "run_2"
    expected = state in ACTIVE_RUN_STATES if reason is None else run_state_for_terminal_reason(reason) == state
    try:
        Run.model_validate(fields)
    except ValidationError:
        assert not expected
    else:
        assert expected


def test_a_retained_answer_is_the_run_s_own() -> None:
    """A stored run refuses an answer while it is active, and one with another id."""
    answer = Message(
        id="other", conversation_id="c", role="assistant", status="completed", parts=(), created_at=NOW, updated_at=NOW
    )
    ended = Run.model_validate(run_fields(state="completed", terminal_reason="success"))
    for run in (ended, Run.model_validate(run_fields())):
        with pytest.raises(ValidationError):
            StoredRun(run=run, terminal_assistant=answer)
    own = answer.model_copy(update={"id": "a1"})
    assert StoredRun(run=ended, terminal_assistant=own).terminal_assistant is own


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "done"},
        {"revision": "1"},
        {"owner_id": ""},
        {"created_at": NOW.replace(tzinfo=None)},
        {"input_message_ids": ()},
        {"terminal_reason": "success"},
        {"colour": "red"},
    ],
)
def test_a_copy_cannot_be_what_no_record_is(changes: dict[str, object]) -> None:
    """A changed copy is validated like a new record: what no read would take back never gets as far as a store."""
    run = Run.model_validate(run_fields())
    with pytest.raises(ValidationError):
        run.model_copy(update=changes)


def test_a_copy_keeps_what_it_does_not_change() -> None:
    """A copy differs in what was changed alone, also in which fields were given at all; its parts are the same ones."""
    run = Run.model_validate(run_fields(request={"a": [1]}))
    changed = run.model_copy(update={"revision": 7})
    assert changed == Run.model_validate(run_fields(request={"a": [1]}, revision=7))
    assert changed.model_fields_set == run.model_fields_set
    assert run.model_copy() == run
    call = ToolCallPart(call_id="c", tool_name="t", arguments="[")
    assert not call.model_copy(update={"call_id": "d"}).has_input
    deep = run.model_copy(update={"revision": 7}, deep=True)
    assert deep.request == run.request
    assert deep.request is not run.request


@given(value=json_values)
def test_json_in_a_part_survives_being_stored(value: Any) -> None:  # noqa: ANN401 - any JSON
    """Input and output round-trip exactly: nulls inside, empty objects, integers of any size."""
    for part in (
        ToolCallPart(call_id="c", tool_name="t", arguments="?", input=value),
        ToolResultPart(call_id="c", tool_name="t", outcome="success", output=value),
    ):
        again = PARTS.validate_json(TypeAdapter(type(part)).dump_json(part, exclude_none=True))
        assert again == part
        assert again.has_input if isinstance(again, ToolCallPart) else getattr(again, "has_output", False)


def test_null_and_absent_are_told_apart() -> None:
    """A call whose arguments are `null` has an input; one whose arguments are not JSON has none."""
    null = ToolCallPart(call_id="c", tool_name="t", arguments="null", input=None)
    broken = ToolCallPart(call_id="c", tool_name="t", arguments="{")
    assert (null.has_input, broken.has_input) == (True, False)
    assert null.to_json()["input"] is None
    assert "input" not in broken.to_json()
    silent = ToolResultPart(call_id="c", tool_name="t", outcome="interrupted")
    assert "output" not in silent.to_json()


@given(
    moment=st.datetimes(
        min_value=datetime(1, 1, 2),  # noqa: DTZ001 - hypothesis wants it naive
        max_value=datetime(9999, 12, 30),  # noqa: DTZ001
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-9))]),
    )
)
def test_times_are_kept_in_utc_with_milliseconds(moment: datetime) -> None:
    """An instant given with any offset is stored as UTC with `Z`, and reads back equal."""
    message = Message(
        id="m", conversation_id="c", role="user", status="committed", parts=(), created_at=moment, updated_at=moment
    )
    text = message.to_json()["created_at"]
    assert isinstance(text, str)
    assert text.endswith("Z")
    assert len(text) == len("2026-01-02T03:04:05.678Z")
    assert Message.model_validate(message.to_json()) == message
    assert abs(message.created_at - moment) < timedelta(milliseconds=1)
    assert format_timestamp(message.created_at) == text


def test_an_hour_that_comes_twice_is_written_as_two_instants() -> None:
    """Times that look alike on the clock of a place, before and after it was put back, stay apart."""
    summer = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    winter = summer.replace(fold=1)
    assert summer == winter  # as Python compares times of one place
    assert format_timestamp(summer) == "2026-10-25T00:30:00.000Z"
    assert format_timestamp(winter) == "2026-10-25T01:30:00.000Z"


def test_a_time_without_an_offset_is_refused() -> None:
    """Nobody guesses a time zone."""
    with pytest.raises(ValidationError):
        Message.model_validate(
            {
                "id": "m",
                "conversation_id": "c",
                "role": "user",
                "status": "committed",
                "parts": [],
                "created_at": "2026-01-02T03:04:05",
                "updated_at": "2026-01-02T03:04:05Z",
            }
        )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "surprise"},
        {"type": "text"},
        {"type": "text", "text": 1},
        {"type": "text", "text": "x", "more": 1},
        {"type": "text", "text": "\ud835"},
        {"type": "file", "media_type": "", "reference": "r"},
        {"type": "source", "source_id": "s", "url": "not a url"},
        {"type": "tool-call", "call_id": "", "tool_name": "t", "arguments": "{}"},
        {"type": "tool-result", "call_id": "c", "tool_name": "t", "outcome": "maybe"},
        {"type": "control", "reason": "bored"},
        {"type": "provider", "envelope": {"provider": "p", "data": []}},
    ],
    ids=str,
)
def test_a_part_outside_the_union_is_refused(part: dict[str, object]) -> None:
    """Unknown types and fields, empty names and lone surrogates never become records."""
    with pytest.raises(ValidationError):
        PARTS.validate_python(part)


@pytest.mark.parametrize("name", ["", "x" * 513, "a\ud800", 7, None, b"a"])
def test_an_identifier_is_a_short_text(name: object) -> None:
    """Nothing but a text of 1 to 512 characters that can be written is an identifier."""
    with pytest.raises(ValidationError):
        ConversationHead.model_validate({"conversation_id": name, "version": 0})


@pytest.mark.parametrize(
    "figure",
    [{"value": 3, "provenance": "unavailable"}, {"provenance": "computed"}, {"value": -1, "provenance": "computed"}],
)
def test_unknown_is_never_a_number(figure: dict[str, object]) -> None:
    """A figure has a value exactly when somebody knows it, and it is never negative."""
    with pytest.raises(ValidationError):
        UsageValue.model_validate(figure)


def test_unknown_usage_states_every_field() -> None:
    """All six figures are written, and all say that nobody knows."""
    dumped = Usage.unknown().to_json()
    assert len(dumped) == 6
    assert all(figure == {"provenance": "unavailable"} for figure in dumped.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "compaction", "step": 0},
        {"step": None},
        {"phase": "started", "first_output_at": NOW},
        {"phase": "first-output"},
        {"phase": "completed"},
        {"finished_at": NOW},
    ],
    ids=str,
)
def test_an_operation_s_times_fit_its_phase(changes: dict[str, object]) -> None:
    """First output and end are there exactly when the phase says so."""
    fields: dict[str, object] = {
        "operation_id": "o",
        "kind": "model-request",
        "phase": "started",
        "step": 0,
        "started_at": NOW,
    }
    assert RunOperation.model_validate(fields).step == 0
    with pytest.raises(ValidationError):
        RunOperation.model_validate(fields | changes)


def test_bad_public_input_names_its_field() -> None:
    """A failed validation leaves as an error of ours, with the path and without pydantic's."""
    with pytest.raises(InvalidValueError, match=r"^input\.parts\.0\.text\.text: ") as caught:
        validated(
            Message,
            {
                "id": "m",
                "conversation_id": "c",
                "role": "user",
                "status": "committed",
                "parts": [{"type": "text", "text": None}],
                "created_at": NOW,
                "updated_at": NOW,
            },
            argument="input",
        )
    assert caught.value.__cause__ is None
    part = TextPart(text="x")
    assert validated(TextPart, part, argument="part") is part


def _python_calls(work: Callable[[], object]) -> int:
    """Count the Python functions that are entered."""
    entered = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal entered
        entered += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return entered


def test_json_in_a_record_is_dumped_as_it_is_without_a_call_for_each_value() -> None:
    """An output with a thousand values is written by a handful of calls, nulls within it kept."""
    rows: list[JsonValue] = [{"id": 2**70 + number, "none": None, "x": [-0.0, True]} for number in range(250)]
    part = ToolResultPart(call_id="c", tool_name="t", outcome="success", output=rows)
    dumped = part.to_json()["output"]
    assert repr(dumped) == repr(rows)
    assert dumped is not part.output
    envelope = ProviderEnvelope(provider="google", data={"rows": rows})
    assert max(_python_calls(part.to_json), _python_calls(envelope.to_json)) < 50
