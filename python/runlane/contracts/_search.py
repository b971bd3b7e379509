"""What a search found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from runlane.contracts._scalars import Id, require_id
from runlane.errors import InvalidValueError, UsageError

__all__ = ["SearchHit"]

T = TypeVar("T")


@dataclass(frozen=True)
class SearchHit(Generic[T]):
    """One thing found. The producer's order is the ranking.

    Attributes:
        id: The document's.
        score: What the producer measured, a distance as well as a similarity; nothing here compares or normalises it.
        document: What was found, perhaps only its stored fields.

    Raises:
        InvalidValueError: The score is NaN.
    """

    id: Id
    score: float
    document: T

    def __post_init__(self) -> None:
        require_id(self.id, argument="hit.id")
        if isinstance(self.score, bool) or not isinstance(self.score, int | float):
            raise UsageError(f"must be a number, not {type(self.score).__name__}", argument="hit.score")
        if self.score != self.score:
            raise InvalidValueError("NaN is no score", argument="hit.score")
