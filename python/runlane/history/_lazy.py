"""Sequences that make their items when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, overload

from typing_extensions import override

__all__ = ["LazySequence"]

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """An immutable sequence over a plan: its length is known, an item is made each time it is read.

    Equal to any sequence of equal items.
    """

    __slots__ = ("_length", "_make")

    def __init__(self, length: int, make: Callable[[int], T], /) -> None:
        """Stand for the items `make(0)` to `make(length - 1)`."""
        self._length = length
        self._make = make

    @override
    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int, /) -> T: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[T, ...]: ...
    @override
    def __getitem__(self, index: int | slice, /) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self._make(place) for place in range(*index.indices(self._length)))
        place = range(self._length)[index]
        return self._make(place)

    @override
    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._length))

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash

    @override
    def __repr__(self) -> str:
        return f"<{self._length} items, made when read>"
