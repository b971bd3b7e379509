"""Registries only grow, and a sealed one no longer changes; catalogues only show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from runlane.contracts._scalars import Id, require_id, require_sync, sync_result
from runlane.errors import (
    DuplicateRegistrationError,
    InvalidValueError,
    MissingEntryError,
    RegistrySealedError,
    UsageError,
)

__all__ = ["OrderedRegistry", "ProtocolRegistry", "ReadonlyCatalog", "Registry"]

Item_contra = TypeVar("Item_contra", contravariant=True)
Entry_co = TypeVar("Entry_co", covariant=True)
Item = TypeVar("Item")
Entry = TypeVar("Entry")
Value = TypeVar("Value")


class ReadonlyCatalog(Protocol[Entry_co]):
    """Shows entries by id; what it lists cannot be changed through it. The order is the implementation's."""

    def get(self, entry_id: Id, /) -> Entry_co | None:
        """Return an entry, or None."""
        ...

    def require(self, entry_id: Id, /) -> Entry_co:
        """Return an entry.

        Raises:
            MissingEntryError: There is none; also a `KeyError`.
        """
        ...

    def list(self) -> tuple[Entry_co, ...]:
        """Return all entries."""
        ...

    def __contains__(self, entry_id: object, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Entry_co]: ...


class Registry(ReadonlyCatalog[Entry_co], Protocol[Item_contra, Entry_co]):
    """A catalogue that takes items until it is sealed. What is registered and what is read may be of two types."""

    @property
    def sealed(self) -> bool:
        """Whether it takes no more."""
        ...

    def register(self, item: Item_contra, /) -> Entry_co:
        """Append an item and return its entry. A refused registration changes nothing.

        Raises:
            DuplicateRegistrationError: Its id is known, whatever the item is.
            RegistrySealedError: The registry takes no more.
        """
        ...

    def seal(self) -> ReadonlyCatalog[Entry_co]:
        """Take no more from now on, and return what is there. Sealing twice is sealing once."""
        ...


class _Entries(Generic[Entry]):
    """The reading half, over a dictionary that its owner alone writes."""

    __slots__ = ("_entries", "_name")

    def __init__(self, name: str, entries: dict[Id, Entry]) -> None:
        self._name = name
        self._entries = entries

    def get(self, entry_id: Id, /) -> Entry | None:
        """Return an entry, or None."""
        return self._entries.get(entry_id)

    def require(self, entry_id: Id, /) -> Entry:
        """Return an entry.

        Raises:
            MissingEntryError: There is none; also a `KeyError`.
        """
        try:
            return self._entries[entry_id]
        except KeyError:
            raise MissingEntryError(argument=self._name, key=entry_id) from None

    def list(self) -> tuple[Entry, ...]:
        """Return all entries, in the order of registration."""
        return tuple(self._entries.values())

    def __contains__(self, entry_id: object, /) -> bool:
        return entry_id in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.list())


class OrderedRegistry(_Entries[Entry], Generic[Item, Entry]):
    """A `Registry` in the order of registration.

    Args:
        name: What it is called in errors.
        admit: Checks an item and returns its id and the entry that readers get. What it raises refuses the item.

    Example:
        >>> colours = OrderedRegistry("colours", lambda name: (Id(name), name.upper()))
        >>> colours.register("red"), colours.require(Id("red"))
        ('RED', 'RED')
    """

    __slots__ = ("_admit", "_catalog", "_sealed")

    def __init__(self, name: str, admit: Callable[[Item], tuple[Id, Entry]], /) -> None:
        require_sync(admit, argument="admit")
        super().__init__(name, {})
        self._admit = admit
        self._sealed = False
        self._catalog: ReadonlyCatalog[Entry] = _Entries(name, self._entries)

    @property
    def sealed(self) -> bool:
        """Whether it takes no more."""
        return self._sealed

    def register(self, item: Item, /) -> Entry:
        """Append an item and return its entry. A refused registration changes nothing.

        Raises:
            DuplicateRegistrationError: Its id is known, even with an equal item.
            RegistrySealedError: The registry takes no more.
        """
        entry_id, entry = sync_result(self._admit(item), argument=f"{self._name}.admit")
        require_id(entry_id, argument=f"{self._name}.id")
        # Looked at after `admit` ran: it may have registered or sealed by itself.
        if self._sealed:
            raise RegistrySealedError(registry=self._name, key=entry_id)
        if entry_id in self._entries:
            raise DuplicateRegistrationError(registry=self._name, key=entry_id)
        self._entries[entry_id] = entry
        return entry

    def seal(self) -> ReadonlyCatalog[Entry]:
        """Take no more from now on, and return what is there, as a catalogue without a way to write."""
        self._sealed = True
        return self._catalog


class ProtocolRegistry(Mapping[str, Value]):
    """A mapping that only grows, in the order of insertion.

    To readers it is any mapping. A known key is never set again and nothing is ever removed; it is no `dict`, whose
    own methods would go round that.

    Args:
        name: What it is called in errors.
        entries: What is in it from the start.
        check: Raises to refuse a value; synchronous.

    Example:
        >>> formats = ProtocolRegistry("formats", [("json", 1)])
        >>> formats["text"] = 2
        >>> list(formats)
        ['json', 'text']
    """

    __slots__ = ("_check", "_entries", "_name")

    def __init__(
        self,
        name: str,
        entries: Iterable[tuple[str, Value]] = (),
        /,
        *,
        check: Callable[[str, Value], object] | None = None,
    ) -> None:
        if check is not None:
            require_sync(check, argument="check")
        self._name = name
        self._check = check
        self._entries: dict[str, Value] = {}
        for key, value in entries:
            self[key] = value

    def __setitem__(self, key: str, value: Value, /) -> None:
        if not isinstance(key, str):
            raise UsageError(f"a key is text, not {type(key).__name__}", argument=self._name)
        if not key:
            raise InvalidValueError("a key cannot be empty", argument=self._name)
        if self._check is not None:
            sync_result(self._check(key, value), argument=f"{self._name}.check")
        if key in self._entries:
            raise DuplicateRegistrationError(registry=self._name, key=key)
        self._entries[key] = value

    def register(self, key: str, value: Value, /) -> None:
        """Add a value under a new key; the same as `registry[key] = value`.

        Raises:
            DuplicateRegistrationError: The key is known.
            InvalidValueError: The key is empty.
            UsageError: The key is no text, or the check gave an awaitable.
        """
        self[key] = value

    @override
    def __getitem__(self, key: str, /) -> Value:
        return self._entries[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._entries))

    @override
    def __len__(self) -> int:
        return len(self._entries)
