"""Field by field: what a stored message, part and run may hold, and what is refused."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from runlane.records import Message, Part, Run
from tests.records.test_records import NOW

_PARTS: TypeAdapter[Part] = TypeAdapter(Part)
_TIME = "2026-01-01T00:00:00.000Z"
_ENVELOPE = {"schema_version": 2, "provider": "p", "data": {"a": [1]}}

_MESSAGE: dict[str, Any] = {
    "id": "m",
    "conversation_id": "c",
    "role": "assistant",
    "status": "committed",
    "parts": [],
    "created_at": NOW,
    "updated_at": NOW,
}
_RUN: dict[str, Any] = {
    "id": "r",
    "conversation_id": "c",
    "input_message_ids": ["m"],
    "assistant_message_id": "a",
    "state": "queued",
    "revision": 0,
    "created_at": NOW,
    "updated_at": NOW,
}
_STATUSES = ("committed", "streaming", "completed", "interrupted", "superseded", "failed")


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("schema_version", [1], [0, 2, "1", None, True]),
        ("id", ["m", "x" * 512], ["", "x" * 513, 1, None]),
        ("conversation_id", ["c"], ["", None, b"c"]),
        ("run_id", [None, "r"], ["", 7]),
        ("role", ["user", "assistant", "tool", "system", "summary"], ["developer", "", None]),
        ("status", list(_STATUSES), ["pending", "cancelled", None]),
        ("parts", [[], [{"type": "text", "text": ""}]], [None, "text", [{"type": "nothing"}], [None]]),
        ("metadata", [None, {}, {"a": {"b": None}}], [[], "x", {1: 2}, {"a": object()}]),
        ("created_at", [NOW, _TIME], ["2026-01-01T00:00:00", "yesterday", None]),
        ("updated_at", [NOW, _TIME], ["2026-01-01T00:00:00", "yesterday", None]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_message_takes_what_its_field_says(field: str, good: list[object], bad: list[object]) -> None:
    """Every value of the table is kept through JSON; anything else is refused by the field's name."""
    owned = {"role": "assistant", "run_id": "r"} if field == "run_id" else {}
    for value in good:
        message = Message.model_validate({**_MESSAGE, **owned, field: value})
        assert Message.model_validate_json(message.model_dump_json()) == message
    for value in bad:
        with pytest.raises(ValidationError) as caught:
            Message.model_validate({**_MESSAGE, **owned, field: value})
        assert {error["loc"][0] for error in caught.value.errors()} == {field}


@pytest.mark.parametrize(
    ("kind", "whole", "bad"),
    [
        ("text", {"text": "t"}, {"text": [None, 1, "\ud800"]}),
        ("reasoning", {"text": "t", "provider": _ENVELOPE}, {"text": [None], "provider": [{}, "p"]}),
        (
            "file",
            {"media_type": "image/png", "reference": "s3://x", "filename": "x.png"},
            {"media_type": ["", None], "reference": ["", None], "filename": [""]},
        ),
        (
            "source",
            {"source_id": "s", "url": "https://example.org/a", "title": "T"},
            {"source_id": ["", None], "url": ["no address", "", 1], "title": [1]},
        ),
        (
            "tool-call",
            {"call_id": "c", "tool_name": "t", "arguments": '{"a": 1}', "input": {"a": 1}, "provider": _ENVELOPE},
            {"call_id": ["", None], "tool_name": ["", None], "arguments": [None], "provider": ["p"]},
        ),
        (
            "tool-result",
            {"call_id": "c", "tool_name": "t", "outcome": "success", "output": {"a": None}},
            {"call_id": [""], "tool_name": [""], "outcome": ["failed", "", None], "output": [object()]},
        ),
        (
            "tool-approval-request",
            {"approval_id": "a", "call_id": "c", "is_automatic": True, "signature": "s"},
            {"approval_id": ["", None], "call_id": ["", None], "is_automatic": ["yes", 1], "signature": [""]},
        ),
        (
            "tool-approval-response",
            {"approval_id": "a", "approved": False, "reason": "no"},
            {"approval_id": ["", None], "approved": [None, "yes", 1], "reason": [""]},
        ),
        ("provider", {"envelope": _ENVELOPE}, {"envelope": [None, {}, {**_ENVELOPE, "schema_version": 0}]}),
        ("control", {"reason": "run-interrupted"}, {"reason": ["", None, "stopped"]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_part_takes_what_its_type_says(kind: str, whole: dict[str, Any], bad: dict[str, list[object]]) -> None:
    """A part with every field is kept through JSON; one wrong value, or a field of another part, is refused."""
    part = _PARTS.validate_python({"type": kind, **whole})
    assert _PARTS.validate_json(_PARTS.dump_json(part)) == part
    assert part.type == kind
    wrong = [(field, value) for field, values in bad.items() for value in values]
    for field, value in [*wrong, ("something", "else")]:
        with pytest.raises(ValidationError) as caught:
            _PARTS.validate_python({"type": kind, **whole, field: value})
        assert field in {place for error in caught.value.errors() for place in error["loc"]}


def test_control_parts_say_why_an_answer_was_cut_off() -> None:
    """There are two reasons."""
    for reason in ("run-interrupted", "stale-run"):
        assert _PARTS.validate_python({"type": "control", "reason": reason}).type == "control"


@pytest.mark.parametrize(
    ("field", "good", "bad", "rest"),
    [
        ("schema_version", [1], [0, 2, "1"], {}),
        ("id", ["r"], ["", None], {}),
        ("conversation_id", ["c"], ["", None], {}),
        ("input_message_ids", [["m"], ["m", "n"]], [[], [""], None, "m"], {}),
        ("assistant_message_id", ["a"], ["", None], {}),
        ("state", ["queued"], ["waiting", "", None], {}),
        ("revision", [0, 7], [-1, 1.5, "1", None], {}),
        ("queue_priority", [None, "interrupt-next"], ["queue", "", 1], {}),
        ("execution_sequence", [None, 3], [-1, "3", 1.5], {"state": "running", "owner_id": "o", "fencing_token": 1}),
        ("owner_id", [None, "o"], ["", 7], {"state": "running", "fencing_token": 1, "execution_sequence": 1}),
        ("fencing_token", [None, 1, 2], [0, -1, "1"], {"state": "running", "owner_id": "o", "execution_sequence": 1}),
        ("terminal_reason", ["success", "provider_stop"], ["done", ""], {"state": "completed"}),
        (
            "terminal_policy_name",
            ["max-steps"],
            ["", None],
            {"state": "completed", "terminal_reason": "policy_stop"},
        ),
        (
            "absorbed_into_run_id",
            ["other"],
            ["", None, "r"],
            {"state": "superseded", "terminal_reason": "absorbed"},
        ),
        ("usage", [None], ["none", {"input_tokens": 3}], {}),
        ("last_operation", [None], ["none", {"operation_id": "o"}], {}),
        ("created_at", [NOW, _TIME], ["2026-01-01T00:00:00", None], {}),
        ("updated_at", [NOW, _TIME], ["2026-01-01T00:00:00", None], {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_takes_what_its_field_says(
    field: str, good: list[object], bad: list[object], rest: dict[str, object]
) -> None:
    """Every value of the table is kept through JSON; anything else is refused, a contradiction included."""
    for value in good:
        run = Run.model_validate({**_RUN, **rest, field: value})
        assert Run.model_validate_json(run.model_dump_json()) == run
    for value in bad:
        with pytest.raises(ValidationError):
            Run.model_validate({**_RUN, **rest, field: value})


@pytest.mark.parametrize(
    ("phase", "kinds", "good", "bad"),
    [
        ("started", {"model-request", "compaction"}, [{}], [{"first_output_at": NOW}, {"finished_at": NOW}]),
        ("first-output", {"model-request"}, [{"first_output_at": NOW}], [{}, {"finished_at": NOW}]),
        *(
            (
                phase,
                {"model-request", "compaction"},
                [{"finished_at": NOW}],
                [{}, {"first_output_at": NOW}],
            )
            for phase in ("completed", "failed", "cancelled")
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operation_has_the_times_of_its_phase(
    phase: str, kinds: set[str], good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    """Which kinds may have it, which instants it must state; only a model request has a step and a first output."""
    run = {**_RUN, "state": "running", "owner_id": "o", "fencing_token": 1, "execution_sequence": 1}
    for kind in ("model-request", "compaction"):
        step = {"step": 0} if kind == "model-request" else {}
        known = {"operation_id": "o", "kind": kind, "phase": phase, "started_at": NOW, **step}
        for times in good:
            if kind in kinds:
                Run.model_validate({**run, "last_operation": {**known, **times}})
        refused = [*bad, *([] if kind in kinds else good)]
        for times in refused:
            with pytest.raises(ValidationError):
                Run.model_validate({**run, "last_operation": {**known, **times}})
        wrong = {**known, **good[0], "step": None if step else 0}
        with pytest.raises(ValidationError):
            Run.model_validate({**run, "last_operation": wrong})
