"""What a runner shares with all its descendants: the call budget of the request, and the policy for children."""

from __future__ import annotations

from runlane.contracts import AttemptBudget
from runlane.errors import BudgetError
from runlane.runner._config import ModelRunnerSettings

__all__ = ["RequestTree"]


class RequestTree:
    """Counts for one request. Attempts are never given back; a place among the concurrent calls is.

    Attributes:
        budget: The calls of all runners together.
    """

    __slots__ = ("_calls", "_children", "_policy", "_running", "budget")

    def __init__(self, settings: ModelRunnerSettings) -> None:
        self.budget = AttemptBudget(settings.max_calls)
        self._policy = settings.children
        self._children = 0
        self._calls = 0
        self._running = 0

    def admit_child(self, depth: int) -> None:
        """Count one more runner.

        Raises:
            BudgetError: It would be too deep, or one too many; nothing is counted.
        """
        policy = self._policy
        if depth > policy.max_depth:
            raise _refused("model_child_depth", policy.max_depth)
        if self._children >= policy.max_children:
            raise _refused("model_children", policy.max_children)
        self._children += 1

    def charge(self, own: AttemptBudget | None, depth: int) -> None:
        """Spend one call: of the runner's own budget, of the policy, of the shared budget, in this order.

        Raises:
            BudgetError: One of them refuses; what those before it took stays spent.
        """
        if own is not None and not own.take():
            raise _refused("model_calls", own.limit)
        if depth:
            self._enter()
        if not self.budget.take():
            self.leave(depth)
            raise _refused("model_calls", self.budget.limit)

    def leave(self, depth: int) -> None:
        """Give the place among the concurrent calls back."""
        if depth:
            self._running -= 1

    def _enter(self) -> None:
        policy = self._policy
        if self._running >= policy.max_concurrent_calls:
            raise _refused("model_child_concurrency", policy.max_concurrent_calls)
        if policy.max_calls is not None and self._calls >= policy.max_calls:
            raise _refused("model_child_calls", policy.max_calls)
        self._calls += 1
        self._running += 1


def _refused(allowance: str, limit: int) -> BudgetError:
    return BudgetError(f"{allowance} is spent: the limit is {limit}", allowance=allowance, limit=limit)
