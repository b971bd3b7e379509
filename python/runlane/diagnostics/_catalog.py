"""The closed list of facts that the core tells, and what each says.

A *metadata* event holds who, when, how many and how it ended. A *content* event may hold what people, models or tools
said; nobody gets one without an explicit yes.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, get_args

__all__ = ["CORE_EVENT_CATALOG", "CoreEventDescriptor", "CoreEventName"]

CoreEventName: TypeAlias = Literal[
    "run.started",
    "run.finished",
    "round.started",
    "round.finished",
    "workflow.started",
    "workflow.finished",
    "node.entered",
    "node.finished",
    "route.taken",
    "recovery.taken",
    "model.prepared",
    "model.started",
    "model.finished",
    "tool.started",
    "tool.finished",
    "journal.failed",
    "cache.read",
    "cache.written",
    "budget.refused",
    "model.input",
    "model.output",
    "tool.input",
    "tool.output",
    "node.report",
    "debug.steps",
]

_CONTENT: Final = frozenset({"model.input", "model.output", "tool.input", "tool.output", "node.report", "debug.steps"})
_CLOSES: Final[dict[str, CoreEventName]] = {
    "run.finished": "run.started",
    "round.finished": "round.started",
    "workflow.finished": "workflow.started",
    "node.finished": "node.entered",
    "model.finished": "model.started",
    "tool.finished": "tool.started",
}


@dataclass(frozen=True, slots=True)
class CoreEventDescriptor:
    """What is known of an event by its name alone.

    Attributes:
        name: The event.
        content: Whether it may hold what people, models or tools said.
        closes: The event it ends, or None.
    """

    name: CoreEventName
    content: bool
    closes: CoreEventName | None = None


CORE_EVENT_CATALOG: Final[MappingProxyType[CoreEventName, CoreEventDescriptor]] = MappingProxyType(
    {name: CoreEventDescriptor(name, name in _CONTENT, _CLOSES.get(name)) for name in get_args(CoreEventName)}
)
"""Every event, by name."""
