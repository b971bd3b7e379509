"""Bounding what the code of a visit contributes, before anybody gets it."""

from __future__ import annotations

from typing import Any

from runlane.diagnostics._bounds import DiagnosticLimits, bound_text, bound_value
from runlane.diagnostics._payloads import CoreEventPayload, NodeReported
from runlane.diagnostics._steps import DebugStepsOutput, ReportedStep

__all__ = ["bounded_report"]


def bounded_report(payload: CoreEventPayload, limits: DiagnosticLimits, /) -> CoreEventPayload:
    """Return a report with its values, texts and steps within the limits, detached; any other payload as it is."""
    kind = type(payload)
    if kind is NodeReported or kind is DebugStepsOutput:
        return _bounded(payload, limits)
    return payload


def _bounded(report: Any, limits: DiagnosticLimits) -> CoreEventPayload:  # noqa: ANN401 - one of two classes
    steps = tuple(_bounded_step(step, limits) for step in report.steps[: limits.entries])
    values, _ = bound_value(report.values, limits)
    if type(report) is DebugStepsOutput:
        return DebugStepsOutput(steps=steps, values=values, note=bound_text(report.note, limits)[0])
    title, summary = (bound_text(text, limits)[0] for text in (report.title, report.summary))
    return NodeReported(title=title, summary=summary, values=values, steps=steps)


def _bounded_step(step: ReportedStep, limits: DiagnosticLimits) -> ReportedStep:
    texts = {name: bound_text(getattr(step, name), limits)[0] for name in ("title", "kind", "group")}
    return step.model_copy(update={**texts, "detail": bound_value(step.detail, limits)[0]})
