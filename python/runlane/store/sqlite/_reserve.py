"""Room kept for the end of what was begun: a file beside the store that is given back when the disk is full.

A disk that is full refuses inputs and answers alike, and an answer that was paid for is worth more than a new input.
So some room may be set aside. When a commit finds no room, the file is cut to nothing; from then on inputs are refused
and everything else may use what was given back. Once the file can be made again, inputs are taken again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from runlane.errors import StoreUnavailableError
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._presence import open_beside

__all__ = ["Reserve"]

_PAUSE: Final = 1.0


class Reserve:
    """The room that is set aside, as one process sees it; all processes of the store share it.

    Attributes:
        is_spent: Whether it was given back, so that only what was begun may be written.

    Args:
        path: The store.
        size: Bytes to set aside; 0 sets nothing aside, and then nothing is ever refused beforehand.
        host: Its clock spaces the tries to set it aside again.
    """

    def __init__(self, path: Path, size: int, host: Host, /) -> None:
        self._path = path
        self._size = size
        self._host = host
        self._next_try = 0.0
        self.is_spent = size > 0 and not self._set_aside()

    def give_back(self) -> None:
        """Let the store have the room, because the disk is full."""
        if self._size and not self.is_spent:
            self._note_spent()
            self._cut()

    def look(self) -> None:
        """Notice that another process gave the room back; set it aside again, tried at most once a second."""
        if self._size == 0:
            return
        if not self.is_spent:
            if not self._is_there():
                self._note_spent()
        elif self._host.now() >= self._next_try:
            self._next_try = self._host.now() + _PAUSE
            self.is_spent = not self._set_aside()

    def _note_spent(self) -> None:
        self.is_spent = True
        self._next_try = self._host.now() + _PAUSE

    def _is_there(self) -> bool:
        try:
            return os.stat(f"{self._path}.reserve").st_size >= self._size  # noqa: PTH116  once a group
        except OSError:
            return False

    def _set_aside(self) -> bool:
        try:
            with self._open() as descriptor:
                try:
                    os.posix_fallocate(descriptor, 0, self._size)
                except OSError:
                    os.ftruncate(descriptor, 0)
                    return False
        except (OSError, StoreUnavailableError):
            return False
        return True

    def _cut(self) -> None:
        # If even that fails, the next write finds out.
        with suppress(OSError, StoreUnavailableError), self._open() as descriptor:
            os.ftruncate(descriptor, 0)

    @contextmanager
    def _open(self) -> Iterator[int]:
        descriptor = open_beside(self._path, ".reserve")
        try:
            yield descriptor
        finally:
            os.close(descriptor)
