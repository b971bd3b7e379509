"""Reading events back, and errors as data."""

import copy
import itertools
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.contracts import DurationMs, ErrorContext, Id, annotate_error
from runlane.diagnostics import (
    CreateDiagnosticsOptions,
    DiagnosticSpanFields,
    ModelInput,
    NodeFinished,
    SubFlowStepFix,
    SubFlowStepInput,
    create_diagnostics,
    diagnostic_error,
    normalize_diagnostic_event,
)
from runlane.errors import BudgetError, CheckFailedError
from runlane.models import ModelImage, ModelMessage
from tests.diagnostics.listening import Watcher
from tests.hostile import broken, dead_proxy, hostile_error, hostile_object, untouchable


async def _stored() -> dict[str, Any]:
    watcher = Watcher()
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=watcher, accept_content=True))
    visit = scope.child(DiagnosticSpanFields(node_id=Id("n"), visit=1, round=1))
    steps = visit.reporting().sub_flow
    step = steps.write(SubFlowStepInput(title="x", detail={"a": [1]}, status="running"))
    steps.fix(step.step_id, SubFlowStepFix(status="succeeded"))
    await visit.emit("node.finished", NodeFinished(status="succeeded", duration_ms=DurationMs(1)), sub_steps=steps)
    record: dict[str, Any] = watcher.events[0].to_record()
    return record


def _changed(record: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(record)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def _deep(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.anyio
async def test_what_was_told_reads_back() -> None:
    """An event's record is plain JSON, and reading it gives the same envelope."""
    record = await _stored()
    assert json.loads(json.dumps(record)) == record
    back = normalize_diagnostic_event(record)
    assert (back.event_id, back.sequence, back.name) == (record["event_id"], record["sequence"], "node.finished")
    assert (back.identity.node_id, back.identity.visit) == ("n", 1)
    assert back.payload == {"status": "succeeded", "duration_ms": 1}
    assert back.sub_steps is not None
    assert [step.entry for step in back.sub_steps] == ["write", "fix"]


BREACHES: list[tuple[tuple[str | int, ...], object]] = [
    (("version",), 2),
    (("version",), True),
    (("version",), 1.0),
    (("name",), "run.exploded"),
    (("name",), ["x"]),
    (("event_id",), ""),
    (("event_id",), 7),
    (("producer_id",), "x" * 513),
    (("extra",), 1),
    (("sequence",), 0),
    (("sequence",), True),
    (("sequence",), 2**53),
    (("sequence",), 1.0),
    (("occurred_at",), -1),
    (("occurred_at",), None),
    (("identity",), []),
    (("identity", "user_id"), "u"),
    (("identity", "span_id"), None),
    (("identity", "visit"), 0),
    (("identity", "round"), "1"),
    (("sub_steps",), {}),
    (("sub_steps",), [{"entry": "write"}] * 201),
    (("sub_steps", 0, "status"), "great"),
    (("sub_steps", 0, "unknown"), 1),
    (("sub_steps", 0, "title"), "x" * 2_001),
    (("sub_steps", 0, "detail"), _deep(9)),
    (("sub_steps", 0, "recorded_at"), "5"),
    (("sub_steps", 0, "truncated"), 1),
    (("sub_steps", 0), 3),
    (("sub_steps", 1, "sequence"), 1),
    (("sub_steps", 1, "revision"), 0),
    (("sub_steps_dropped",), 0),
    (("sub_steps_truncated",), True),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("path", "value"), BREACHES, ids=lambda part: str(part)[:40])
async def test_g27_each_breach_is_refused_with_its_path(path: tuple[str | int, ...], value: object) -> None:
    """Version, name, ids, unknown keys, numbers and steps are checked, and the issue says where."""
    with pytest.raises(CheckFailedError) as caught:
        normalize_diagnostic_event(_changed(await _stored(), path, value))
    (issue,) = caught.value.issues
    assert issue.path == path


@pytest.mark.anyio
async def test_g27_older_records_lack_recorder_fields() -> None:
    """Steps without numbers, ids or times are accepted as they are; numbers ascend where they are present."""
    record = _changed(await _stored(), ("sub_steps",), [{}, {"title": "x"}, {"sequence": 5}, {}, {"sequence": 6}])
    steps = normalize_diagnostic_event(record).sub_steps
    assert steps is not None
    assert [step.sequence for step in steps] == [None, None, 5, None, 6]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "payload", [None, {}, {"new": 1}, [1, 2.5, True, None, "x"], 10**30, "\ud800", _deep(64)], ids=lambda p: str(p)[:20]
)
async def test_g28_the_payload_is_not_interpreted(payload: object) -> None:
    """Unknown and missing fields pass: it only has to be JSON."""
    assert normalize_diagnostic_event(_changed(await _stored(), ("payload",), payload)).payload == payload


HOSTILE: dict[str, Callable[[], object]] = {
    "deep": lambda: _deep(65),
    "large": lambda: [[0] * 1_000 for _ in range(100)],
    "nan": lambda: float("nan"),
    "ordered dict": lambda: OrderedDict(a=1),
    "tuple": lambda: (1,),
    "bytes": lambda: b"x",
    "number as key": lambda: {1: 1},
    "hostile key": lambda: {hostile_object(__hash__=lambda _: hash("a"), __eq__=broken): 1},
    "hostile text": lambda: type("Text", (str,), {"__str__": broken})("x"),
    "untouchable": untouchable,
    "proxy": dead_proxy,
    "model": lambda: ModelImage(media_type="image/png", url="x"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("place", ["payload", "identity", "sub_steps", "event_id", None])
async def test_g28_g30_anything_may_be_passed(make: Callable[[], object], place: str | None) -> None:
    """A subclass, a model, a cycle or a thing that raises is refused, and none of its code runs."""
    record = make() if place is None else _changed(await _stored(), (place,), 0) | {place: make()}
    with pytest.raises(CheckFailedError):
        normalize_diagnostic_event(record)


@pytest.mark.anyio
async def test_g30_a_cycle_is_refused() -> None:
    """A record inside itself ends with an error, not with a hang."""
    record = await _stored()
    for place in ("payload", "identity", "sub_steps"):
        cyclic = _changed(record, (place,), [])
        cyclic[place] = [cyclic]
        with pytest.raises(CheckFailedError):
            normalize_diagnostic_event(cyclic)


@pytest.mark.anyio
async def test_g29_the_result_shares_nothing() -> None:
    """Changing what was given changes nothing that was returned."""
    record = _changed(await _stored(), ("payload",), {"list": [1]})
    before = copy.deepcopy(record)
    back = normalize_diagnostic_event(record)
    record["payload"]["list"].append(2)
    record["sub_steps"][0]["detail"]["a"].append(2)
    assert back.payload == before["payload"]
    assert back.sub_steps is not None
    assert back.sub_steps[0].detail == before["sub_steps"][0]["detail"]
    again: Any = normalize_diagnostic_event(before)
    again.payload["list"].append(3)
    assert before["payload"] == {"list": [1]}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=20))
def test_g30_no_value_is_an_event_by_accident(value: object) -> None:
    """Nothing else than `CheckFailedError` is ever raised."""
    with pytest.raises(CheckFailedError):
        normalize_diagnostic_event(value)


@pytest.mark.anyio
async def test_m3_an_image_is_told_by_its_size() -> None:
    """The record of a content event holds the media type and the byte count of an image, never its data."""
    watcher = Watcher()
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=watcher, accept_content=True))
    image = ModelImage(media_type="image/png", data=b"MARK" * 5)
    await scope.emit("model.input", ModelInput(messages=(ModelMessage.user("look", [image]),)))
    record = json.dumps(watcher.events[0].to_record())
    assert "MARK" not in record
    assert '"media_type": "image/png"' in record
    assert '{"bytes": 20}' in record
    assert normalize_diagnostic_event(json.loads(record)).name == "model.input"


def test_g31_an_error_is_told_with_what_led_to_it() -> None:
    """Name, code, message, retryability, places, and the chain of causes."""
    outer = annotate_error(BudgetError(allowance="rounds"), ErrorContext(operation="round"))
    outer.__cause__ = OSError("inner")
    told: Any = diagnostic_error(outer)
    assert (told["name"], told["code"], told["retryable"]) == ("BudgetError", "budget.exhausted", False)
    assert told["contexts"] == [{"operation": "round"}]
    assert told["cause"]["message"] == "inner"
    assert "contexts" not in told["cause"]


def test_g31_chains_end() -> None:
    """At most five causes; each object once, so one whose cause is itself ends; a suppressed context is not told."""
    errors = [ValueError(str(number)) for number in range(9)]
    for outer, inner in itertools.pairwise(errors):
        outer.__cause__ = inner
    assert json.dumps(diagnostic_error(errors[0])).count('"cause"') == 5
    loop = ValueError("loop")
    loop.__cause__ = loop
    assert "cause" not in diagnostic_error(loop)
    quiet = ValueError("quiet")
    quiet.__context__, quiet.__suppress_context__ = KeyError("hidden"), True
    assert "cause" not in diagnostic_error(quiet)
    quiet.__suppress_context__ = False
    assert "cause" in diagnostic_error(quiet)


def test_g31_a_group_tells_its_first_ten() -> None:
    """Groups inside groups are told within a bound."""
    group = ExceptionGroup("many", [ValueError(str(number)) for number in range(12)])
    told: Any = diagnostic_error(group)
    assert [error["message"] for error in told["errors"]] == [str(number) for number in range(10)]
    nested: Exception = ValueError("leaf")
    for _ in range(20):
        nested = ExceptionGroup("nest", [nested, ValueError("side"), *(ValueError("x") for _ in range(8))])
    assert len(json.dumps(diagnostic_error(nested))) < 20_000


def _hostile_cause() -> object:
    return hostile_error(__cause__=property(broken), __context__=property(broken), __str__=broken)


def _hostile_group() -> object:
    return type("G", (ExceptionGroup,), {"exceptions": property(broken)})("g", [ValueError()])


@pytest.mark.parametrize("make", [_hostile_cause, _hostile_group, dead_proxy, untouchable])
def test_g31_it_never_raises(make: Callable[[], object]) -> None:
    """Whatever is given, a JSON object comes back."""
    assert json.loads(json.dumps(diagnostic_error(make())))["name"]
