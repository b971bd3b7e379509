"""Engines for tests, and whoever listens to them."""

# ruff: noqa: ANN401, ARG002 - handlers and routes take a context of any app, also where they ignore it

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runlane.contracts import Id
from runlane.diagnostics import CoreEvent, CreateDiagnosticsOptions, DiagnosticContext, create_diagnostics
from runlane.flow import (
    AgentCoreEngine,
    AgentCoreEngineOptions,
    AgentWorkflowDefinition,
    EngineResult,
    LoopEvent,
    WorkflowEvent,
    define_workflow,
)
from runlane.ids import SequenceIds


class Listener:
    """Takes everything it is offered."""

    def __init__(self) -> None:
        self.events: list[CoreEvent] = []

    def accepts(self, descriptor: object) -> bool:
        """Want everything."""
        return True

    def on_event(self, event: CoreEvent) -> None:
        """Keep an event."""
        self.events.append(event)

    def named(self, *names: str) -> list[CoreEvent]:
        """Return the events of these names, in order."""
        return [event for event in self.events if event.name in names]

    def scope(self, *, accept_content: bool = True, run_id: str = "run") -> DiagnosticContext:
        """Return a root scope that this listens to."""
        return create_diagnostics(
            CreateDiagnosticsOptions(
                run_id=Id(run_id), observer=self, accept_content=accept_content, ids=SequenceIds("d-")
            )
        )


class Told:
    """The two observers of an engine."""

    def __init__(self) -> None:
        self.loop: list[LoopEvent] = []
        self.workflow: list[WorkflowEvent] = []

    def on_loop(self, event: LoopEvent) -> None:
        """Keep an event of a round."""
        self.loop.append(event)

    async def on_workflow(self, event: WorkflowEvent) -> None:
        """Keep an event of a workflow."""
        self.workflow.append(event)


def engine_of(definition: AgentWorkflowDefinition[Any], app: object = None, **options: Any) -> AgentCoreEngine[Any]:
    """Return an engine without a model that is bound to a workflow."""
    engine: AgentCoreEngine[Any] = AgentCoreEngine(AgentCoreEngineOptions(ids=SequenceIds(), **options))
    engine.bind_workflow(define_workflow(definition), app)
    return engine


async def run(
    definition: AgentWorkflowDefinition[Any], state: Mapping[str, object] | None = None, **options: Any
) -> EngineResult:
    """Run a workflow once on an engine of its own."""
    return await engine_of(definition, **options).run(state=state)
