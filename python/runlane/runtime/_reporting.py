"""What operators are told of one execution of a run, whether it ends the run or not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypedDict

from runlane.clock import Clock
from runlane.contracts import get_error_info, stray_ends
from runlane.diagnostics import diagnostic_error
from runlane.models import FinishReport, ResolvedModel, ResponseInfo
from runlane.observability import (
    RunEvent,
    RunEventSink,
    RunStartedEvent,
    RunTerminalEvent,
    StepFinishedEvent,
    StepOutcome,
    span_id_of,
    stated_usage,
    trace_id_of,
)
from runlane.records import Ownership, ProviderResponse, Run, RunMetrics, TerminalReason, Usage

__all__ = ["RunReport"]

_MILLISECOND: Final = timedelta(milliseconds=1)


class _Where(TypedDict):
    conversation_id: str
    run_id: str
    trace_id: str


class RunReport:
    """Tells of an execution; costs nothing while nobody wants to know."""

    __slots__ = (
        "_attempt",
        "_clock",
        "_error_code",
        "_first_output",
        "_model",
        "_observers",
        "_opened",
        "_ownership",
        "_run_id",
        "_span_id",
        "_step",
        "_where",
    )

    def __init__(self, observers: Sequence[RunEventSink], clock: Clock, run: Run, ownership: Ownership, /) -> None:
        """Tell of the execution that holds a run."""
        self._observers = observers
        self._clock = clock
        self._ownership = ownership
        self._run_id = run.id
        self._where: _Where | None = None
        self._span_id = ""
        if observers:
            self._where = {
                "conversation_id": run.conversation_id,
                "run_id": run.id,
                "trace_id": trace_id_of(run.id),
            }
            self._span_id = span_id_of(run.id, ownership.owner, ownership.fencing_token)
        self._model: ResolvedModel | None = None
        self._step = 0
        self._attempt = 1
        self._opened = 0.0
        self._first_output: float | None = None
        self._error_code: str | None = None

    def started(self, run: Run, model: ResolvedModel | None, /) -> None:
        """The execution holds the run; the model is known unless the run is prepared later."""
        if self._where is None:
            return
        self._model = model
        now = self._clock.now()
        self._tell(
            RunStartedEvent(
                **self._where,
                event_id=f"{run.id}:run-started:{run.fencing_token}",
                span_id=self._span_id,
                state=run.state,
                model_id=self._model_id,
                emitted_at=now,
                queue_wait_ms=max(0, (now - run.created_at) // _MILLISECOND),
            )
        )

    # --- steps ---------------------------------------------------------------------------------------------------

    def step_opened(self, step: int, attempt: int, model: ResolvedModel, /) -> None:
        """A call of a model begins."""
        self._model, self._step, self._attempt = model, step, attempt
        self._first_output = self._error_code = None
        if self._where is not None:
            self._opened = self._clock.monotonic()

    def first_output(self) -> None:
        """The open call put something out."""
        if self._where is not None and self._first_output is None:
            self._first_output = self._clock.monotonic()

    def step_failed(self, error: Exception, /) -> None:
        """The open call will not be completed."""
        self._error_code = get_error_info(error).code

    def step_closed(
        self,
        run: Run,
        usage: Usage | None,
        response: ResponseInfo,
        finish: FinishReport | None,
        outcome: StepOutcome,
        /,
    ) -> None:
        """The open call is over."""
        model = self._model
        if self._where is None or model is None:
            return
        token = self._ownership.fencing_token
        place = (token, self._attempt, self._step)
        self._tell(
            StepFinishedEvent(
                **self._where,
                event_id=":".join((run.id, "step-finished", *(str(number) for number in place))),
                span_id=span_id_of(run.id, self._ownership.owner, *place),
                parent_span_id=self._span_id,
                state=run.state,
                model_id=model.model,
                duration_ms=self._since_opened(self._clock.monotonic()),
                emitted_at=self._clock.now(),
                step=self._step,
                attempt=self._attempt,
                outcome=outcome,
                provider_id=model.provider.provider_id,
                usage=stated_usage(usage),
                response=ProviderResponse(
                    response_id=response.response_id,
                    model=response.model,
                    upstream_provider=model.response_provider_of(response),
                    finish_reason=None if finish is None else finish.reason,
                    raw_finish_reason=None if finish is None else finish.raw_reason,
                ),
                ttft_ms=None if self._first_output is None else self._since_opened(self._first_output),
                error_code=None if outcome == "completed" else self._error_code,
            )
        )

    # --- the end -------------------------------------------------------------------------------------------------

    def ended(
        self,
        run: Run,
        reason: TerminalReason,
        metrics: RunMetrics,
        /,
        *,
        version: int | None,
        is_winner: bool,
        error: Exception | None = None,
    ) -> None:
        """The execution is over.

        Args:
            run: As far as it is known here.
            reason: Why the run ended, or would have.
            metrics: What this execution spent, and how long it took.
            version: Of the conversation, as of the run's end; None if that is not known.
            is_winner: Whether this execution ended the run.
            error: What failed.
        """
        if self._where is None:
            return
        ended = str(version) if version is not None else str(self._ownership.fencing_token)
        event_id = f"{run.id}:terminal:{ended}"
        if not is_winner:
            event_id = f"{event_id}:{self._ownership.owner}"
        event = RunTerminalEvent(
            **self._where,
            event_id=event_id,
            span_id=self._span_id,
            state=run.state,
            model_id=self._model_id,
            duration_ms=metrics.duration_ms,
            emitted_at=self._clock.now(),
            terminal_reason=reason,
            policy_name=run.terminal_policy_name,
            usage=stated_usage(metrics.usage),
            ttft_ms=metrics.ttft_ms,
            is_winner=is_winner,
            error_code=None if error is None else get_error_info(error).code,
        )
        told = None if error is None else event.model_copy(update={"internal_cause": diagnostic_error(error)})
        for observer in self._observers:
            takes_causes = bool(getattr(observer, "takes_causes", False))
            _emit(observer, told if takes_causes and told is not None else event)

    @property
    def _model_id(self) -> str | None:
        return None if self._model is None else self._model.model

    def _since_opened(self, moment: float) -> int:
        return max(0, int((moment - self._opened) * 1000))

    def _tell(self, event: RunEvent) -> None:
        for observer in self._observers:
            _emit(observer, event)


def _emit(observer: RunEventSink, event: RunEvent) -> None:
    # An operator's sink never fails a run, and has nobody else to tell.
    with suppress(Exception), stray_ends("observers"):
        observer.emit(event)
