"""Who has a file open: how an opener learns that it is alone, and that whoever was there before never closed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from runlane.errors import StoreUnavailableError

__all__ = ["Presence", "open_beside"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def open_beside(path: Path, suffix: str, /) -> int:
    """Open a companion of a store, made for the owner alone if it is missing; return its descriptor.

    Raises:
        StoreUnavailableError: It cannot be opened.
    """
    try:
        return os.open(path.with_name(f"{path.name}{suffix}"), _FLAGS, 0o600)
    except OSError as error:
        raise StoreUnavailableError(f"the folder cannot be written: {error.strerror}", store=str(path)) from error


class Presence:
    """A shared lock on a file beside the store, held while the store is open; the kernel drops it with the process.

    It is made under the lock of `prepare`, so two openers never both believe to be alone.

    Attributes:
        alone: Whether nobody else had the store open when this was made.
    """

    def __init__(self, path: Path, /) -> None:
        self._descriptor = open_beside(path, ".users")
        self.alone = self._try(fcntl.LOCK_EX)
        self._try(fcntl.LOCK_SH)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def leave(self) -> None:
        """Give the lock up."""
        os.close(self._descriptor)
