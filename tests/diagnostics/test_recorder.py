"""Recording the steps of a visit."""

import copy
from typing import Any, get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pydantic import ValidationError

from runlane.contracts import DurationMs, Id
from runlane.diagnostics import (
    REPORTED_STEP_STATUS_CATALOG,
    REPORTED_STEP_STATUSES,
    CreateDiagnosticsOptions,
    DebugStepsOutput,
    NodeFinished,
    RecordedSubStep,
    ReportedStep,
    ReportedStepStatus,
    ScopedSubFlowStepInput,
    SubFlowLogger,
    SubFlowStepFix,
    SubFlowStepInput,
    SubStepProgress,
    create_diagnostics,
)
from runlane.errors import InvalidValueError, OutOfTurnError, UsageError
from runlane.ids import SequenceIds
from runlane.testing import FakeClock
from tests.diagnostics.listening import Log, Watcher


def _logger(**options: Any) -> SubFlowLogger:  # noqa: ANN401 - the options of a recorder
    return SubFlowLogger(clock=FakeClock(), ids=SequenceIds(), **options)


def test_c21_the_status_words_are_written_once() -> None:
    """The literal, the catalogue and the tuple have the same words in the same order, and two of them are open."""
    assert get_args(ReportedStepStatus) == REPORTED_STEP_STATUSES == tuple(REPORTED_STEP_STATUS_CATALOG)
    open_words = [word for word, facts in REPORTED_STEP_STATUS_CATALOG.items() if not facts.terminal]
    assert open_words == ["pending", "running"]


def test_g16_the_recorder_gives_ids_and_numbers() -> None:
    """A caller has no field to say them in."""
    steps = _logger()
    entries = [steps.write(SubFlowStepInput(title="a")), steps.write(SubFlowStepInput(title="b"))]
    assert [(entry.step_id, entry.sequence) for entry in entries] == [("step_1", 1), ("step_2", 2)]
    for field in ("step_id", "sequence", "id"):
        with pytest.raises(ValidationError):
            SubFlowStepInput.model_validate({"title": "a", field: "x"})


@pytest.mark.parametrize("field", ["group", "kind", "step_id", "sub_node_id"])
def test_g17_a_fix_cannot_change_what_a_step_is(field: str) -> None:
    """Identity, group and kind are no fields of a fix; a fix that changes nothing is none."""
    with pytest.raises(ValidationError):
        SubFlowStepFix.model_validate({"title": "x", field: "y"})
    with pytest.raises(ValidationError):
        SubFlowStepFix()


def test_g18_every_fix_is_an_entry_of_its_own() -> None:
    """Write, fix, fix: three entries, one step with revision 3."""
    steps = _logger()
    step = steps.write(SubFlowStepInput(title="a", status="running", kind="io", group="g"))
    steps.fix(step.step_id, SubFlowStepFix(title="b"))
    last = steps.fix(step.step_id, SubFlowStepFix(status="failed", duration_ms=DurationMs(3)))
    assert [(entry.entry, entry.sequence, entry.revision) for entry in steps.entries()] == [
        ("write", 1, 1),
        ("fix", 2, 2),
        ("fix", 3, 3),
    ]
    assert last.title is None
    assert steps.entries()[0] == step
    (now,) = steps.read()
    assert (now.title, now.status, now.kind, now.group, now.duration_ms, now.revision) == (
        "b",
        "failed",
        "io",
        "g",
        3,
        3,
    )


def test_g19_an_unknown_id_records_nothing() -> None:
    """No entry, no progress, and a KeyError."""
    told: list[SubStepProgress] = []
    steps = _logger(on_progress=told.append)
    with pytest.raises(KeyError):
        steps.fix(Id("step_9"), SubFlowStepFix(title="x"))
    assert (steps.entries(), told) == ((), [])


def test_g20_a_delegate_always_writes_its_own_sub_node() -> None:
    """It is no recorder itself, keeps two things, and its input has no field for the sub-node."""
    steps = _logger()
    delegate = steps.scope(Id("part"))
    assert not issubclass(type(delegate), SubFlowLogger)
    assert delegate.__slots__ == ("_logger", "_sub_node_id")
    assert delegate.write(ScopedSubFlowStepInput(title="x")).sub_node_id == "part"
    with pytest.raises(ValidationError):
        ScopedSubFlowStepInput.model_validate({"title": "x", "sub_node_id": "other"})
    refused: Any = SubFlowStepInput(title="x", sub_node_id=Id("other"))
    with pytest.raises(UsageError):
        delegate.write(refused)
    assert len(steps.entries()) == 1


def test_g21_a_delegate_sees_nothing_else() -> None:
    """Steps of another sub-node, or of none, are not there for it; it issues no delegates."""
    steps = _logger()
    mine, other = steps.scope(Id("mine")), steps.scope(Id("other"))
    own = mine.write(ScopedSubFlowStepInput(title="own"))
    foreign = other.write(ScopedSubFlowStepInput(title="foreign"))
    plain = steps.write(SubFlowStepInput(title="plain"))
    mine.fix(own.step_id, SubFlowStepFix(title="fixed"))
    for entry in (foreign, plain):
        with pytest.raises(KeyError):
            mine.fix(entry.step_id, SubFlowStepFix(title="x"))
    assert [step.title for step in mine.read()] == ["fixed"]
    assert [entry.entry for entry in mine.entries()] == ["write", "fix"]
    assert len(steps.entries()) == 4
    assert not hasattr(mine, "scope")


def test_g22_progress_is_told_once_per_accepted_entry() -> None:
    """Synchronously, without text; what the listener raises reaches the writer, and the entry stays."""
    told: list[SubStepProgress] = []

    def listen(progress: SubStepProgress) -> None:
        told.append(progress)
        if len(told) == 2:
            raise ValueError("listener")

    steps = _logger(on_progress=listen)
    step = steps.write(SubFlowStepInput(title="SECRET", detail="SECRET", status="running"))
    with pytest.raises(ValueError, match="listener"):
        steps.fix(step.step_id, SubFlowStepFix(title="SECRET"))
    assert [(note.entry, note.sequence, note.status) for note in told] == [("write", 1, "running"), ("fix", 2, None)]
    assert "SECRET" not in repr(told)
    assert len(steps.entries()) == 2


def test_g22_a_listener_is_synchronous() -> None:
    """A coroutine function is refused at construction; a coroutine is closed, and the writer hears of it."""

    async def later(_: SubStepProgress) -> None:
        """Never runs."""

    with pytest.raises(UsageError):
        _logger(on_progress=later)
    hidden = _logger(on_progress=lambda progress: later(progress))  # noqa: PLW0108 - hides that it is one
    with pytest.raises(UsageError):
        hidden.write(SubFlowStepInput())


def test_g22_a_listener_may_write_itself() -> None:
    """A re-entrant write takes the next number."""

    def listen(progress: SubStepProgress) -> None:
        if progress.sequence == 1:
            steps.write(SubFlowStepInput(title="inner"))

    steps = _logger(on_progress=listen)
    steps.write(SubFlowStepInput(title="outer"))
    assert [(entry.sequence, entry.title) for entry in steps.entries()] == [(1, "outer"), (2, "inner")]


def test_g23_reporting_lasts_one_visit() -> None:
    """Afterwards every writing method raises a RuntimeError and reading goes on."""
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=Watcher(), accept_content=True))
    reporting = scope.reporting()
    step = reporting.sub_flow.write(SubFlowStepInput(title="x"))
    delegate = reporting.sub_flow.scope(Id("part"))
    reporting.close()
    writes: list[Any] = [
        lambda: reporting.report(ReportedStep(id=Id("s"))),
        lambda: reporting.debug(DebugStepsOutput()),
        lambda: reporting.sub_flow.write(SubFlowStepInput()),
        lambda: reporting.sub_flow.fix(step.step_id, SubFlowStepFix(title="y")),
        lambda: delegate.write(ScopedSubFlowStepInput()),
    ]
    for write in writes:
        with pytest.raises(RuntimeError) as caught:
            write()
        assert isinstance(caught.value, OutOfTurnError)
    assert reporting.sub_flow.read() == (step,)
    late = scope.reporting()
    late.close()
    with pytest.raises(OutOfTurnError):
        late.sub_flow.write(SubFlowStepInput())


@pytest.mark.anyio
@pytest.mark.parametrize("accept_content", [False, True])
async def test_g24_c18_text_of_steps_is_content(accept_content: object) -> None:
    """The steps travel with the visit's last event; without a yes to content they carry no word of the reporter."""
    watcher = Watcher()
    log = Log(wanted=lambda descriptor: not descriptor.content)
    options = CreateDiagnosticsOptions(observer=watcher, output=log, accept_content=bool(accept_content))
    scope = create_diagnostics(options)
    reporting = scope.reporting()
    said = ReportedStep(
        id=Id("SAID"), title="SAID", detail={"SAID": 1}, kind="SAID", group="SAID", status="failed", sub_node_id=Id("p")
    )
    reporting.report(said)
    finished = NodeFinished(status="succeeded", duration_ms=DurationMs(1))
    await scope.emit("node.finished", finished, sub_steps=reporting.sub_flow)
    (watched,), (kept,) = watcher.events, log.events
    assert (watched.event_id, watched.sequence) == (kept.event_id, kept.sequence)
    assert ("SAID" in repr(watched)) is accept_content
    assert "SAID" not in repr(kept)
    assert kept.sub_steps is not None
    (step,) = kept.sub_steps
    assert (step.sequence, step.revision, step.entry, step.status, step.sub_node_id) == (1, 1, "write", "failed", "p")
    assert step.recorded_at > 0


def test_g25_reporting_again_fixes() -> None:
    """The first report of an id writes, later ones fix; the reporter's own id is kept beside the recorder's."""
    steps = _logger()
    steps.report(ReportedStep(id=Id("a"), title="x", kind="k"))
    steps.report(ReportedStep(id=Id("a"), status="running"))
    steps.report(ReportedStep(id=Id("a"), status="succeeded", kind="k"))
    assert steps.report(ReportedStep(id=Id("a"))) is None
    (now,) = steps.read()
    assert (now.title, now.status, now.kind, now.revision, now.reported_id) == ("x", "succeeded", "k", 3, "a")


@pytest.mark.parametrize("field", ["kind", "group", "sub_node_id"])
def test_g25_what_a_fix_cannot_change_must_be_equal(field: str) -> None:
    """Another kind, group or sub-node under the same id is a ValueError that names it, and nothing is recorded."""
    steps = _logger()
    steps.report(ReportedStep.model_validate({"id": "a", "title": "x", field: "one"}))
    with pytest.raises(InvalidValueError, match=field):
        steps.report(ReportedStep.model_validate({"id": "a", "title": "y", field: "two"}))
    assert len(steps.entries()) == 1


def test_g26_what_is_recorded_is_detached() -> None:
    """Later changes of a detail change nothing that was recorded."""
    steps = _logger()
    detail = {"list": [1]}
    steps.write(SubFlowStepInput(detail=detail))
    detail["list"].append(2)
    assert steps.entries()[0].detail == {"list": [1]}


@pytest.mark.anyio
async def test_g7_g26_what_was_bounded_is_counted() -> None:
    """A bounded step counts once; entries beyond the limit are counted and not carried; absent when nothing was."""
    watcher = Watcher()
    scope = create_diagnostics(CreateDiagnosticsOptions(observer=watcher))
    finished = NodeFinished(status="succeeded", duration_ms=DurationMs(1))
    many, few, none = (scope.reporting().sub_flow for _ in range(3))
    for number in range(198):
        many.write(SubFlowStepInput(title=str(number)))
    long = many.write(SubFlowStepInput(title="x" * 3_000))
    many.fix(long.step_id, SubFlowStepFix(title="y" * 3_000))
    extra = many.write(SubFlowStepInput(title="beyond"))
    assert isinstance(extra, RecordedSubStep)
    few.write(SubFlowStepInput(title="x"))
    for steps in (many, few, none):
        await scope.emit("node.finished", finished, sub_steps=steps)
    counts = [
        (event.sub_steps and len(event.sub_steps), event.sub_steps_dropped, event.sub_steps_truncated)
        for event in watcher.events
    ]
    assert counts == [(200, 1, 1), (1, None, None), (None, None, None)]
    assert len(many.entries()) == 201


class RecorderMachine(RuleBasedStateMachine):
    """A recorder, its delegates, and a list of what they should hold."""

    @initialize()
    def start(self) -> None:
        """Begin a visit."""
        self.told: list[SubStepProgress] = []
        self.steps = _logger(on_progress=self.told.append)
        self.delegates = {name: self.steps.scope(Id(name)) for name in ("left", "right")}
        self.model: dict[str, dict[str, object]] = {}
        self.history: list[tuple[str, str, int]] = []
        self.reported: dict[str, str] = {}
        self.open = True

    def _wrote(self, entry: RecordedSubStep, node: str | None) -> None:
        self.model[entry.step_id] = {"title": entry.title, "status": entry.status, "revision": 1, "node": node}
        self.history.append(("write", entry.step_id, 1))

    def _fixed(self, step_id: str, **changes: object) -> None:
        step = self.model[step_id]
        step.update(changes)
        revision = int(str(step["revision"])) + 1
        step["revision"] = revision
        self.history.append(("fix", step_id, revision))

    @precondition(lambda self: self.open)
    @rule(title=st.sampled_from(["a", "b"]), node=st.sampled_from([None, "left", "right"]))
    def write(self, title: str, node: str | None) -> None:
        """G16, G20."""
        if node is None:
            self._wrote(self.steps.write(SubFlowStepInput(title=title)), None)
        else:
            self._wrote(self.delegates[node].write(ScopedSubFlowStepInput(title=title)), node)

    @precondition(lambda self: self.open)
    @rule(number=st.integers(1, 8), via=st.sampled_from([None, "left", "right"]), title=st.sampled_from(["c", "d"]))
    def fix(self, number: int, via: str | None, title: str) -> None:
        """G18, G19, G21."""
        step_id, change = Id(f"step_{number}"), SubFlowStepFix(title=title)
        log = self.steps if via is None else self.delegates[via]
        known = self.model.get(step_id)
        if known is None or (via is not None and known["node"] != via):
            with pytest.raises(KeyError):
                log.fix(step_id, change)
        else:
            log.fix(step_id, change)
            self._fixed(step_id, title=title)

    @precondition(lambda self: self.open)
    @rule(name=st.sampled_from(["r1", "r2"]), status=st.sampled_from(REPORTED_STEP_STATUSES))
    def report(self, name: str, status: ReportedStepStatus) -> None:
        """G25."""
        entry = self.steps.report(ReportedStep(id=Id(name), status=status))
        assert entry is not None
        if name in self.reported:
            self._fixed(self.reported[name], status=status)
        else:
            self.reported[name] = entry.step_id
            self._wrote(entry, None)

    @rule()
    def end(self) -> None:
        """G23."""
        self.steps.close()
        self.open = False
        with pytest.raises(OutOfTurnError):
            self.steps.write(SubFlowStepInput())

    @invariant()
    def holds(self) -> None:
        """Entries are the history, numbered from 1; steps are the merged state; progress was told once each."""
        entries = self.steps.entries()
        assert [(entry.entry, entry.step_id, entry.revision) for entry in entries] == self.history
        assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
        assert [note.sequence for note in self.told] == [entry.sequence for entry in entries]
        now = {
            step.step_id: {
                "title": step.title,
                "status": step.status,
                "revision": step.revision,
                "node": step.sub_node_id,
            }
            for step in self.steps.read()
        }
        assert now == self.model


TestRecorderMachine = RecorderMachine.TestCase
TestRecorderMachine.settings = settings(stateful_step_count=20)


def test_a_recorded_entry_is_frozen() -> None:
    """What was said stays as it was said."""
    entry = _logger().write(SubFlowStepInput(title="x"))
    before = copy.deepcopy(entry)
    with pytest.raises(ValidationError):
        setattr(entry, "title", "y")  # noqa: B010 - what a type checker refuses already
    assert entry == before
