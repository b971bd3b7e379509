"""Registries only grow."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runlane.contracts import Id, OrderedRegistry, ProtocolRegistry, ReadonlyCatalog, Registry
from runlane.errors import (
    DuplicateRegistrationError,
    InvalidValueError,
    MissingEntryError,
    RegistrySealedError,
    UsageError,
)

NAMES = st.sampled_from(["a", "b", "c", "d", "", "x" * 513])


def _hidden(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function that gives what a coroutine function gives."""

    def call(*args: object) -> object:
        return function(*args)

    return call


def _registry() -> OrderedRegistry[str, tuple[str]]:
    return OrderedRegistry("names", lambda name: (Id(name), (name,)))


class RegistryMachine(RuleBasedStateMachine):
    """A registry beside a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: Registry[str, tuple[str]] = _registry()
        self.catalog: ReadonlyCatalog[tuple[str]] | None = None
        self.model: dict[str, tuple[str]] = {}

    @rule(name=NAMES)
    def register(self, name: str) -> None:
        """D13: refused when sealed, known or no id; appended otherwise."""
        if not 1 <= len(name) <= 512:
            with pytest.raises(InvalidValueError):
                self.registry.register(name)
        elif self.registry.sealed:
            with pytest.raises(RegistrySealedError):
                self.registry.register(name)
        elif name in self.model:
            with pytest.raises(DuplicateRegistrationError):
                self.registry.register(name)
        else:
            assert self.registry.register(name) == (name,)
            self.model[name] = (name,)

    @rule()
    def seal(self) -> None:
        """D13: sealing twice is sealing once."""
        catalog = self.registry.seal()
        assert self.catalog is None or catalog is self.catalog
        self.catalog = catalog

    @precondition(lambda self: self.catalog is not None)
    @rule()
    def catalog_cannot_write(self) -> None:
        """D15: what a catalogue lists cannot be changed through it."""
        catalog: Any = self.catalog
        assert not hasattr(catalog, "register")
        assert not hasattr(catalog, "__setitem__")

    @invariant()
    def reads_like_the_model(self) -> None:
        """Order, lookup and membership are those of the dictionary."""
        for shown in (self.registry, self.catalog or self.registry):
            assert shown.list() == tuple(self.model.values()) == tuple(shown)
            assert len(shown) == len(self.model)
            for name in "abcd":
                assert shown.get(Id(name)) == self.model.get(name)
                assert (name in shown) is (name in self.model)


TestRegistryMachine = RegistryMachine.TestCase
TestRegistryMachine.settings = settings(stateful_step_count=20)


def test_d13_a_known_id_is_refused_even_with_an_equal_item() -> None:
    """The error names the registry and the key, and nothing changed."""
    registry = _registry()
    registry.register("a")
    with pytest.raises(DuplicateRegistrationError) as caught:
        registry.register("a")
    assert (caught.value.registry, caught.value.key) == ("names", "a")
    assert registry.list() == (("a",),)


def test_require_names_what_is_missing() -> None:
    """A missing id is a KeyError whose text is a sentence."""
    with pytest.raises(KeyError, match="names: there is nothing under 'x'") as caught:
        _registry().require(Id("x"))
    assert isinstance(caught.value, MissingEntryError)
    assert str(caught.value).startswith("names")


def test_d13_what_admission_raises_changes_nothing() -> None:
    """A refused item leaves no trace, and the registry goes on."""

    def admit(item: int) -> tuple[Id, int]:
        return Id("x"), 10 // item

    registry = OrderedRegistry("numbers", admit)
    with pytest.raises(ZeroDivisionError):
        registry.register(0)
    assert registry.list() == ()
    assert registry.register(5) == 2


def test_d13_admission_may_register_again() -> None:
    """Re-entrant registration is ordered by completion, and the same id twice is refused at the outer call."""
    seen: list[str] = []

    def admit(item: str) -> tuple[Id, str]:
        if not seen:
            seen.append(item)
            registry.register(item)
        return Id(item), item

    registry: OrderedRegistry[str, str] = OrderedRegistry("items", admit)
    with pytest.raises(DuplicateRegistrationError):
        registry.register("a")
    assert registry.list() == ("a",)


def test_an_awaitable_admission_is_refused() -> None:
    """A coroutine function is refused where it is given, a coroutine where it appears."""

    async def admit(item: str) -> tuple[Id, str]:
        return Id(item), item

    refused: Any = admit
    with pytest.raises(UsageError):
        OrderedRegistry("items", refused)
    late: Any = OrderedRegistry("items", _hidden(refused))
    with pytest.raises(UsageError):
        late.register("a")
    assert late.list() == ()


class ProtocolMachine(RuleBasedStateMachine):
    """A growing mapping beside a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: ProtocolRegistry[int] = ProtocolRegistry("numbers", check=self._check)
        self.model: dict[str, int] = {}

    @staticmethod
    def _check(key: str, value: int) -> None:
        if value < 0:
            raise InvalidValueError("is negative", argument=key)

    @rule(key=st.sampled_from(["", "a", "b", "c"]), value=st.integers(-1, 2))
    def set(self, key: str, value: int) -> None:
        """D14: a known or empty key and a value the check refuses change nothing."""
        if not key or value < 0:
            with pytest.raises(InvalidValueError):
                self.registry[key] = value
        elif key in self.model:
            with pytest.raises(DuplicateRegistrationError):
                self.registry.register(key, value)
        else:
            self.registry.register(key, value)
            self.model[key] = value

    @invariant()
    def reads_like_the_model(self) -> None:
        """To readers it is a mapping in the order of insertion."""
        assert self.registry == self.model
        assert list(self.registry.items()) == list(self.model.items())


TestProtocolMachine = ProtocolMachine.TestCase
TestProtocolMachine.settings = settings(stateful_step_count=20)


def test_d14_nothing_goes_round_the_rule() -> None:
    """It is a mapping and no dict; deleting, popping, clearing, updating and merging in place do not exist."""
    registry: Any = ProtocolRegistry("r", [("a", 1)])
    assert issubclass(type(registry), Mapping)
    assert not issubclass(type(registry), dict)
    assert not any(hasattr(registry, name) for name in ("pop", "clear", "update", "popitem", "setdefault"))
    change_in_place: Any = operator.ior
    for change in (lambda: operator.delitem(registry, "a"), lambda: change_in_place(registry, {"a": 2})):
        with pytest.raises((TypeError, AttributeError)):
            change()
    with pytest.raises(TypeError):
        dict.__setitem__(registry, "a", 2)
    with pytest.raises(UsageError):
        registry[1] = 2
    assert registry == {"a": 1}


def test_d14_entries_from_the_start_follow_the_rule() -> None:
    """The same key twice is refused at construction."""
    with pytest.raises(DuplicateRegistrationError):
        ProtocolRegistry("r", [("a", 1), ("a", 1)])


def test_d14_a_check_is_synchronous() -> None:
    """A coroutine function is refused where it is given, a coroutine where it appears."""

    async def check(key: str, value: int) -> None:
        """Never runs."""

    with pytest.raises(UsageError):
        ProtocolRegistry("r", check=check)
    registry: ProtocolRegistry[int] = ProtocolRegistry("r", check=_hidden(check))
    with pytest.raises(UsageError):
        registry["a"] = 1
    assert len(registry) == 0
