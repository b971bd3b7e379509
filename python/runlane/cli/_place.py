"""Where a command's store lies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runlane.errors import InvalidValueError

__all__ = ["chat_store", "store_path"]

_SQLITE = "sqlite:///"
_VARIABLE = "RUNLANE_STORE"


def store_path(url: str, /, *, source: str = "--store") -> Path:
    """Return the file that a store URL or a plain path names.

    As with other Python tools, three slashes begin a relative path and four an absolute one.

    Args:
        url: The URL or path.
        source: Where it was given, for the error.

    Raises:
        InvalidValueError: It names no file, or a kind of store that the command line does not open.

    Example:
        >>> store_path("sqlite:///chats.db"), store_path("sqlite:////var/lib/chats.db"), store_path("./chats.db")
        (PosixPath('chats.db'), PosixPath('/var/lib/chats.db'), PosixPath('chats.db'))
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        path = url
    elif url.startswith(_SQLITE):
        path = url.removeprefix(_SQLITE)
    else:
        kind = f"{scheme}:// names no store that this version opens" if scheme != "sqlite" else "the path is missing"
        raise InvalidValueError(f"{kind}; give sqlite:///PATH or a plain path", argument=source)
    if not path.strip() or path == ":memory:":
        raise InvalidValueError("names no file; give sqlite:///PATH or a plain path", argument=source)
    return _expanded(path, source)


def chat_store(given: str | None, environ: Mapping[str, str], /) -> Path:
    """Return the store of conversations: the flag, else `RUNLANE_STORE`, else the user's data directory."""
    if given is not None:
        return store_path(given)
    if url := environ.get(_VARIABLE):
        return store_path(url, source=_VARIABLE)
    data = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return _expanded(data, "XDG_DATA_HOME") / "runlane" / "chat.db"


def _expanded(path: str, source: str) -> Path:
    """Return a path with `~` and `~name` replaced by the folders they stand for."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InvalidValueError("the folder that ~ stands for is unknown; write it out", argument=source) from None
