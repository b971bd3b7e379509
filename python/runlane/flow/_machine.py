"""Where a run of a workflow is, and what may happen next: a machine of its own, without callables or effects.

The driver evaluates handlers and predicates and reports what came of them; the machine decides whether that may be
reported now, counts visits and routes, and says what the run has to do.

    ready --start--> entering --enter--> visiting --succeed--> routing ----take--> entering | completed
                                         visiting --fail-----> recovering -recover-> entering | completed
    any of these --end_failed--> failed, --end_cancelled--> cancelled
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from runlane.errors import OutOfTurnError

__all__ = ["Phase", "Traversal"]

Phase: TypeAlias = Literal["ready", "entering", "visiting", "routing", "recovering", "completed", "failed", "cancelled"]

_FINAL: Final = frozenset({"completed", "failed", "cancelled"})


class Traversal:
    """The position of one run in one workflow.

    Attributes:
        phase: What the run is doing.
        node_id: The node it is at, or goes to next.
        visits: How often each node was entered.
        total_visits: All of them together.
        transitions: Routes and recoveries taken, completing ones included.
    """

    __slots__ = ("_taken", "node_id", "phase", "total_visits", "transitions", "visits")

    def __init__(self, start: str, /) -> None:
        self.phase: Phase = "ready"
        self.node_id = start
        self.visits: dict[str, int] = {}
        self.total_visits = 0
        self.transitions = 0
        self._taken: dict[tuple[str, str, int], int] = {}

    def start(self) -> None:
        """Begin."""
        self._expect("ready")
        self.phase = "entering"

    def enter(self) -> int:
        """Enter the node; return the number of the visit, from 1."""
        self._expect("entering")
        visit = self.visits[self.node_id] = self.visits.get(self.node_id, 0) + 1
        self.total_visits += 1
        self.phase = "visiting"
        return visit

    def succeed(self) -> None:
        """The handler returned and what it changed is merged."""
        self._expect("visiting")
        self.phase = "routing"

    def fail(self) -> None:
        """The handler raised what a recovery route may take."""
        self._expect("visiting")
        self.phase = "recovering"

    def has_budget(self, index: int, limit: int | None, /) -> bool:
        """Whether the route of that index, among those now asked, may be taken once more."""
        if limit is None:
            return True
        return self._taken.get((self.node_id, self.phase, index), 0) < limit

    def take(self, index: int, target: str | None, /) -> None:
        """Take a route; without a target the workflow is complete."""
        self._expect("routing")
        self._leave(index, target)

    def recover(self, index: int, target: str | None, /) -> None:
        """Take a recovery route; without a target the workflow is complete."""
        self._expect("recovering")
        self._leave(index, target)

    def end_failed(self) -> None:
        """The run ended with an error."""
        self._expect_open()
        self.phase = "failed"

    def end_cancelled(self) -> None:
        """The run was cancelled."""
        self._expect_open()
        self.phase = "cancelled"

    def _leave(self, index: int, target: str | None) -> None:
        key = (self.node_id, self.phase, index)
        self._taken[key] = self._taken.get(key, 0) + 1
        self.transitions += 1
        if target is None:
            self.phase = "completed"
        else:
            self.phase, self.node_id = "entering", target

    def _expect(self, phase: Phase) -> None:
        if self.phase != phase:
            raise OutOfTurnError(f"is {self.phase}, not {phase}", argument="workflow")

    def _expect_open(self) -> None:
        if self.phase in _FINAL:
            raise OutOfTurnError(f"is {self.phase}; nothing follows", argument="workflow")
