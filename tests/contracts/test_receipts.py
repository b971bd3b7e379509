"""Receipts, contexts and search hits."""

import copy
from dataclasses import FrozenInstanceError

import pytest
from pydantic import ValidationError

from runlane.clock import SystemClock
from runlane.contracts import (
    CancelToken,
    DurationMs,
    ExecutionOptions,
    Id,
    InvocationResult,
    ModelCallRecord,
    ModelUsage,
    OperationContext,
    RecordingScope,
    SearchHit,
    TimestampMs,
    ToolCallRecord,
)
from runlane.errors import InvalidValueError, UsageError
from runlane.ids import SequenceIds
from tests.hostile import untouchable

MODEL_CALL = ModelCallRecord(
    invocation_id=Id("i1"),
    started_at=TimestampMs(1),
    duration_ms=DurationMs(2),
    stage=Id("draft"),
    transport="core:plain-text",
    call_number=1,
    input_chars=3,
    output_chars=4,
    usage=ModelUsage(input_tokens=5),
)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
@pytest.mark.parametrize("kind", [ModelCallRecord, ToolCallRecord])
def test_d10_a_receipt_exists_only_for_what_returned(kind: type[ModelCallRecord | ToolCallRecord], status: str) -> None:
    """Either receipt with another status than succeeded is refused."""
    fields = MODEL_CALL.model_dump() | {"tool_id": "t", "identity": "x", "status": status}
    known = {name: value for name, value in fields.items() if name in kind.model_fields}
    with pytest.raises(ValidationError, match="status"):
        kind.model_validate(known)
    assert kind.model_validate(known | {"status": "succeeded"}).status == "succeeded"


def test_a_receipt_leaves_out_what_is_unknown() -> None:
    """An optional fact that nobody knows is absent from the dump."""
    dumped = MODEL_CALL.to_json()
    assert {"model_id", "finish_reason", "span_id", "run_id"} & set(dumped) == set()
    assert ModelCallRecord.model_validate(dumped) == MODEL_CALL


@pytest.mark.parametrize(
    ("field", "value"),
    [("duration_ms", -1), ("duration_ms", 1.5), ("call_number", 0), ("invocation_id", ""), ("input_chars", True)],
)
def test_a_receipt_states_possible_facts(field: str, value: object) -> None:
    """Negative durations, numbers from 0 and empty ids are refused."""
    with pytest.raises(ValidationError, match=field):
        ModelCallRecord.model_validate(MODEL_CALL.model_dump() | {field: value})


def test_a_result_is_a_value_with_its_receipt() -> None:
    """The pair is frozen and typed by its two halves."""
    result = InvocationResult("text", MODEL_CALL)
    assert (result.value, result.receipt) == ("text", MODEL_CALL)
    with pytest.raises(FrozenInstanceError):
        result.value = "other"  # type: ignore[misc]


class _Nowhere:
    """A scope that records nothing."""

    enabled = False

    @property
    def identity(self) -> "_Span":
        """One span."""
        return _Span()


class _Span:
    run_id = Id("r")
    span_id = Id("s")


def test_d12_the_host_object_is_handed_through_untouched() -> None:
    """A context is printed, compared, hashed and copied without looking at the host's object."""
    scope: RecordingScope = _Nowhere()
    app, signal, clock, ids = untouchable(), CancelToken(), SystemClock(), SequenceIds()
    first, second = (
        OperationContext(
            signal=signal,
            diagnostics=scope,
            invocation_id=Id("i"),
            run_id=Id("r"),
            clock=clock,
            ids=ids,
            app=app,
        )
        for _ in range(2)
    )
    assert "app" not in repr(first)
    assert first == second == copy.copy(first)
    assert hash(first) == hash(second)
    assert first.app is app


def test_a_timeout_is_a_number_of_seconds() -> None:
    """Options are checked where they are made."""
    assert ExecutionOptions(timeout=1.5).timeout == 1.5
    with pytest.raises(InvalidValueError, match=r"options\.timeout"):
        ExecutionOptions(timeout=-1)


def test_d16_a_hit_keeps_the_producers_score() -> None:
    """A negative distance is as good as a similarity; NaN and what is no number are refused."""
    assert SearchHit(Id("d"), -3.5, {"title": "x"}).score == -3.5
    with pytest.raises(InvalidValueError):
        SearchHit(Id("d"), float("nan"), None)
    with pytest.raises(UsageError):
        SearchHit(Id("d"), "high", None)  # type: ignore[arg-type]
