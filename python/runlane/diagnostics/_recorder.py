"""Recording the steps of one visit: every write and every fix, in order, bounded and detached.

The recorder gives each step its id and each entry its sequence. A fix is an entry of its own and never changes an
earlier one; `read` shows the steps as they stand, `entries` everything that was said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar

from runlane.clock import Clock
from runlane.contracts import (
    Id,
    TimestampMs,
    clock_or_system,
    ids_or_random,
    require_id,
    require_sync,
    sync_result,
    timestamp_ms,
)
from runlane.diagnostics._bounds import DiagnosticLimits, bound_text, bound_value
from runlane.diagnostics._steps import (
    RecordedSubStep,
    ReportedStep,
    ScopedSubFlowStepInput,
    SubFlowStepFix,
    SubFlowStepInput,
    SubStepProgress,
)
from runlane.errors import InvalidValueError, MissingEntryError, OutOfTurnError, UsageError
from runlane.ids import IdSource

__all__ = ["ScopedSubFlowLogger", "SubFlowLog", "SubFlowLogger", "SubSteps"]

Step_contra = TypeVar("Step_contra", contravariant=True)

_DEFAULT_LIMITS: Final = DiagnosticLimits()
_UNCHANGEABLE: Final = ("kind", "group", "sub_node_id")


class SubFlowLog(Protocol[Step_contra]):
    """What a recorder and its delegates have in common."""

    def write(self, step: Step_contra, /) -> RecordedSubStep:
        """Record a step."""
        ...

    def fix(self, step_id: Id, fix: SubFlowStepFix, /) -> RecordedSubStep:
        """Record a change of a step."""
        ...

    def read(self) -> tuple[RecordedSubStep, ...]:
        """Return the steps as they stand, in the order they were written."""
        ...

    def entries(self) -> tuple[RecordedSubStep, ...]:
        """Return every write and every fix, in order."""
        ...


@dataclass(frozen=True, slots=True)
class SubSteps:
    """The entries that travel with an event.

    Attributes:
        entries: The first ones, up to the limit.
        dropped: How many there were beyond it.
        truncated: How many of the carried steps had a title or a detail bounded.
    """

    entries: tuple[RecordedSubStep, ...]
    dropped: int
    truncated: int


class SubFlowLogger:
    """Records the steps of one visit.

    Args:
        limits: How much of a value is kept.
        on_progress: Told of every accepted entry, synchronously; what it raises reaches whoever wrote.
        clock: Where the time of an entry comes from.
        ids: Where the ids of steps come from.

    Example:
        >>> steps = SubFlowLogger()
        >>> step = steps.write(SubFlowStepInput(title="fetch", status="running"))
        >>> steps.fix(step.step_id, SubFlowStepFix(status="succeeded")).revision
        2
        >>> [(step.title, step.status) for step in steps.read()]
        [('fetch', 'succeeded')]
    """

    __slots__ = ("_clock", "_closed", "_entries", "_ids", "_limits", "_on_progress", "_reported", "_steps")

    def __init__(
        self,
        *,
        limits: DiagnosticLimits = _DEFAULT_LIMITS,
        on_progress: Callable[[SubStepProgress], None] | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        if on_progress is not None:
            require_sync(on_progress, argument="on_progress")
        self._limits = limits
        self._on_progress = on_progress
        self._clock = clock_or_system(clock)
        self._ids = ids_or_random(ids)
        self._entries: list[RecordedSubStep] = []
        self._steps: dict[Id, RecordedSubStep] = {}
        self._reported: dict[Id, Id] = {}
        self._closed = False

    def write(self, step: SubFlowStepInput, /) -> RecordedSubStep:
        """Record a step and return it with its id.

        Raises:
            OutOfTurnError: The visit is over.
            UsageError: It is no `SubFlowStepInput`.
        """
        _require(step, SubFlowStepInput)
        return self._write(step, step.sub_node_id, None)

    def fix(self, step_id: Id, fix: SubFlowStepFix, /) -> RecordedSubStep:
        """Record a change of a step; what was recorded before stays as it is.

        Raises:
            MissingEntryError: No step has this id; nothing is recorded. Also a `KeyError`.
            OutOfTurnError: The visit is over.
            UsageError: It is no `SubFlowStepFix`.
        """
        return self._fix(step_id, fix, None)

    def report(self, step: ReportedStep, /) -> RecordedSubStep | None:
        """Write a step by the reporter's own id, or fix the one that was reported under it.

        Returns:
            The entry, or None if the report changes nothing.

        Raises:
            InvalidValueError: Kind, group or sub-node differ from what was reported first; nothing is recorded.
            OutOfTurnError: The visit is over.
            UsageError: It is no `ReportedStep`.
        """
        _require(step, ReportedStep)
        known = self._reported.get(step.id)
        if known is None:
            return self._write(step, step.sub_node_id, step.id)
        self._check_open()
        first = self._steps[known]
        for name in _UNCHANGEABLE:
            given, _ = bound_text(getattr(step, name), self._limits)
            if given is not None and given != getattr(first, name):
                raise InvalidValueError("cannot change once it is reported", argument=f"step.{name}")
        changed = {name: value for name in _FIXABLE if (value := getattr(step, name)) is not None}
        return self._fix(known, SubFlowStepFix(**changed), None) if changed else None

    def read(self) -> tuple[RecordedSubStep, ...]:
        """Return the steps as they stand, in the order they were written, each with its latest revision."""
        return tuple(self._steps.values())

    def entries(self) -> tuple[RecordedSubStep, ...]:
        """Return every write and every fix, in order."""
        return tuple(self._entries)

    def scope(self, sub_node_id: Id, /) -> ScopedSubFlowLogger:
        """Return a delegate that writes, reads and fixes the steps of one sub-node only."""
        return ScopedSubFlowLogger(self, require_id(sub_node_id, argument="sub_node_id"))

    def close(self) -> None:
        """End the visit: from now on nothing is written. Reading goes on."""
        self._closed = True

    def for_event(self) -> SubSteps | None:
        """Return what travels with the visit's last event, or None if nothing was recorded."""
        if not self._entries:
            return None
        carried = tuple(self._entries[: self._limits.entries])
        truncated = {entry.step_id for entry in carried if entry.truncated}
        return SubSteps(carried, len(self._entries) - len(carried), len(truncated))

    def _write(
        self,
        step: SubFlowStepInput | ScopedSubFlowStepInput | ReportedStep,
        sub_node_id: Id | None,
        reported: Id | None,
    ) -> RecordedSubStep:
        self._check_open()
        kept, truncated = self._bounded(step.title, step.detail)
        kind, _ = bound_text(step.kind, self._limits)
        group, _ = bound_text(step.group, self._limits)
        entry = RecordedSubStep(
            entry="write",
            step_id=Id(self._ids.new("step")),
            sequence=len(self._entries) + 1,
            revision=1,
            recorded_at=self._now(),
            truncated=truncated,
            status=step.status,
            kind=kind,
            group=group,
            duration_ms=step.duration_ms,
            sub_node_id=sub_node_id,
            reported_id=reported,
            **kept,
        )
        if reported is not None:
            self._reported[reported] = entry.step_id
        return self._keep(entry, entry)

    def _fix(self, step_id: Id, fix: SubFlowStepFix, sub_node_id: Id | None) -> RecordedSubStep:
        _require(fix, SubFlowStepFix)
        self._check_open()
        step = self._steps.get(step_id)
        if step is None or (sub_node_id is not None and step.sub_node_id != sub_node_id):
            raise MissingEntryError(argument="step_id", key=step_id)
        kept, truncated = self._bounded(fix.title, fix.detail)
        entry = RecordedSubStep(
            entry="fix",
            step_id=step.step_id,
            sequence=len(self._entries) + 1,
            revision=step.revision + 1,
            recorded_at=self._now(),
            truncated=truncated,
            status=fix.status,
            duration_ms=fix.duration_ms,
            sub_node_id=step.sub_node_id,
            reported_id=step.reported_id,
            **kept,
        )
        changed = {name: value for name in _FIXABLE if (value := getattr(entry, name)) is not None}
        facts = {"revision": entry.revision, "recorded_at": entry.recorded_at, "truncated": truncated or step.truncated}
        return self._keep(entry, step.model_copy(update=changed | facts))

    def _keep(self, entry: RecordedSubStep, step: RecordedSubStep) -> RecordedSubStep:
        self._entries.append(entry)
        self._steps[step.step_id] = step
        if self._on_progress is not None:
            progress = SubStepProgress(
                step_id=entry.step_id,
                sequence=entry.sequence,
                entry=entry.entry,
                revision=entry.revision,
                status=entry.status,
                sub_node_id=entry.sub_node_id,
            )
            tell: Callable[[SubStepProgress], object] = self._on_progress
            sync_result(tell(progress), argument="on_progress")
        return entry

    def _bounded(self, title: str | None, detail: object) -> tuple[dict[str, Any], bool]:
        text, title_cut = bound_text(title, self._limits)
        value, detail_cut = bound_value(detail, self._limits)
        return {"title": text, "detail": value}, title_cut or detail_cut

    def _now(self) -> TimestampMs:
        return timestamp_ms(self._clock.now())

    def _check_open(self) -> None:
        if self._closed:
            raise OutOfTurnError("the visit is over; steps can only be read now", argument="sub_flow")


_FIXABLE: Final[tuple[Literal["title", "status", "detail", "duration_ms"], ...]] = (
    "title",
    "status",
    "detail",
    "duration_ms",
)


class ScopedSubFlowLogger:
    """A delegate of a recorder for one sub-node: what it writes belongs there, and it sees nothing else."""

    __slots__ = ("_logger", "_sub_node_id")

    def __init__(self, logger: SubFlowLogger, sub_node_id: Id, /) -> None:
        self._logger = logger
        self._sub_node_id = sub_node_id

    def write(self, step: ScopedSubFlowStepInput, /) -> RecordedSubStep:
        """Record a step of this sub-node.

        Raises:
            OutOfTurnError: The visit is over.
            UsageError: It is no `ScopedSubFlowStepInput`.
        """
        _require(step, ScopedSubFlowStepInput)
        return self._logger._write(step, self._sub_node_id, None)  # noqa: SLF001 - one object in two classes

    def fix(self, step_id: Id, fix: SubFlowStepFix, /) -> RecordedSubStep:
        """Record a change of a step of this sub-node.

        Raises:
            MissingEntryError: No step of this sub-node has this id. Also a `KeyError`.
            OutOfTurnError: The visit is over.
            UsageError: It is no `SubFlowStepFix`.
        """
        return self._logger._fix(step_id, fix, self._sub_node_id)  # noqa: SLF001 - likewise

    def read(self) -> tuple[RecordedSubStep, ...]:
        """Return this sub-node's steps as they stand."""
        return tuple(step for step in self._logger.read() if step.sub_node_id == self._sub_node_id)

    def entries(self) -> tuple[RecordedSubStep, ...]:
        """Return every write and every fix of this sub-node, in order."""
        return tuple(entry for entry in self._logger.entries() if entry.sub_node_id == self._sub_node_id)


def _require(value: object, kind: type) -> None:
    if type(value) is not kind:
        raise UsageError(f"must be {kind.__name__}, not {type(value).__name__}", argument="step")
