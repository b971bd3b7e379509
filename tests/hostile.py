"""Objects that make trouble when somebody looks at them."""

# ruff: noqa: ANN401 - what nobody may look at has no type
import gc
import weakref
from typing import Any


class HostileError(Exception):
    """An error whose class was given parts that raise."""


def broken(*_: object, **__: object) -> Any:
    """Raise, whatever is asked."""
    raise ValueError("broken")


def exits(*_: object) -> Any:
    """End the program, if nobody stops it."""
    raise SystemExit


def hostile_error(**parts: object) -> Exception:
    """Return an exception whose class has these attributes."""
    error: Exception = type("HostileError", (HostileError,), parts)("x")
    return error


def hostile_object(**parts: object) -> Any:
    """Return an object whose class has these attributes."""
    return type("Hostile", (), parts)()


def untouchable() -> Any:
    """Return an object that must not be read, compared, printed, hashed or copied."""
    names = ("__getattribute__", "__eq__", "__repr__", "__deepcopy__", "__copy__", "__hash__", "__bool__", "__str__")
    return hostile_object(**dict.fromkeys(names, broken))


def dead_proxy() -> Any:
    """Return a weak proxy of something that is gone."""

    class Thing:
        pass

    proxy = weakref.proxy(Thing())
    gc.collect()
    return proxy
