"""Waking the keeper of a store: from this process, and from others that commit to the same file.

A process that waits for a change binds a datagram socket in a folder beside the store; a process that commits sends an
empty datagram to every socket there. What a datagram says is never trusted: whoever is woken looks into the file.
Nobody waits on a socket in an event loop, so asyncio and trio never see it.

The address of a socket holds about a hundred bytes; where the folder's path is longer, it is addressed through an open
descriptor of the folder, by way of /proc. Where no socket can be bound (there is no /proc, the folder belongs to
somebody else) the keeper looks more often instead; a datagram that is lost costs one such look.
"""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

__all__ = ["Bell"]

_LONGEST_FOLDER: Final = 80
"""Bytes of a folder's path that leave room for a name."""
_TRIES: Final = 64


class Bell:
    """Wakes one thread.

    Args:
        path: The store.
    """

    def __init__(self, path: Path, /) -> None:
        self._folder = path.with_name(f"{path.name}.sock.d")
        self._looked_for = os.fspath(self._folder)
        self._address: str | None = None
        self._outside: socket.socket | None = None
        self._inside, self._button = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._inside.setblocking(False)  # noqa: FBT003  the parameter is positional
        self._button.setblocking(False)  # noqa: FBT003  the parameter is positional
        self._ready = select.poll()
        self._ready.register(self._inside, select.POLLIN)

    @property
    def is_heard_outside(self) -> bool:
        """Whether other processes can ring it."""
        return self._outside is not None

    def ring(self) -> None:
        """Wake the thread, from any other; if it is awake, it will not sleep once."""
        with suppress(OSError):
            self._button.send(b"")

    def ring_others(self) -> None:
        """Wake whoever else waits for this store. Costs one look at the file system if nobody does."""
        folder = self._looked_for
        if not os.access(folder, os.X_OK):
            return
        with suppress(OSError):
            names = [name for name in os.listdir(folder) if name != self._address]  # noqa: PTH208  once a commit
            if names:
                with _addressable(folder) as short:
                    for name in names:
                        self._send(f"{short}/{name}")

    def _send(self, address: str) -> None:
        try:
            self._button.sendto(b"", address)
        except ConnectionRefusedError:
            # Its process is gone.
            with suppress(OSError):
                os.unlink(address)  # noqa: PTH108  a socket's address
        except OSError:
            # Its buffer is full, so it is about to wake anyway; or it left just now.
            return

    # --- in the thread ----------------------------------------------------------------------------------------------

    def wait(self, seconds: float | None, /) -> None:
        """Return when it was rung, or after a time."""
        self._ready.poll(None if seconds is None else max(0.0, seconds) * 1000)
        for bound in (self._inside, self._outside):
            if bound is not None:
                _drain(bound)

    def listen(self) -> bool:
        """Let other processes ring it; whether they can from now on and could not before."""
        if self._outside is not None:
            return False
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listening.setblocking(False)  # noqa: FBT003  the parameter is positional
            self._address = self._bind(listening)
        except OSError:
            self._address = None
        if self._address is None:
            listening.close()
            return False
        self._outside = listening
        self._ready.register(listening, select.POLLIN)
        return True

    def _bind(self, listening: socket.socket) -> str | None:
        """Bind to a free name in the folder; None if the folder is not ours."""
        with suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None
        with _addressable(os.fspath(self._folder)) as folder:
            for number in range(_TRIES):
                name = f"{os.getpid()}-{number}"
                with suppress(OSError):
                    listening.bind(f"{folder}/{name}")
                    return name
        return None

    def close(self) -> None:
        """Take it down; the thread must have ended."""
        if self._outside is not None and self._address is not None:
            with suppress(OSError):
                (self._folder / self._address).unlink()
            self._outside.close()
        with suppress(OSError):
            # The last one out removes the folder.
            self._folder.rmdir()
        self._inside.close()
        self._button.close()


@contextmanager
def _addressable(folder: str) -> Generator[str]:
    """Give a folder's path in a form that leaves room for a name in the address of a socket.

    Raises:
        OSError: The folder is gone.
    """
    if len(os.fsencode(folder)) <= _LONGEST_FOLDER:
        yield folder
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _drain(bound: socket.socket) -> None:
    with suppress(BlockingIOError):
        while True:
            bound.recv(1)
