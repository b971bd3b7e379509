"""An allowance of attempts, spent before each and never given back."""

from __future__ import annotations

from runlane.contracts._scalars import require_limit

__all__ = ["AttemptBudget"]


class AttemptBudget:
    """Counts attempts down.

    `available` is a reading, not a claim: whoever saw 1 must still call `take` and obey it. `take` is synchronous, so
    no other task can come in between.

    Args:
        limit: How many attempts there are; 0 is legal.

    Raises:
        InvalidValueError: `limit` is no integer of at least 0.

    Example:
        >>> budget = AttemptBudget(1)
        >>> budget.take(), budget.take(), budget.available
        (True, False, 0)
    """

    __slots__ = ("_limit", "_spent")

    def __init__(self, limit: int, /) -> None:
        self._limit = require_limit(limit, argument="limit")
        self._spent = 0

    @property
    def limit(self) -> int:
        """The attempts there were."""
        return self._limit

    @property
    def available(self) -> int:
        """The attempts left at this moment."""
        return self._limit - self._spent

    def take(self) -> bool:
        """Spend one attempt and return True; return False and change nothing if none is left."""
        if self._spent >= self._limit:
            return False
        self._spent += 1
        return True
