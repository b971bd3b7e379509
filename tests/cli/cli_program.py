"""Runs the `runlane` command as a user does: as a program of its own, with or without a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

COMMAND = (sys.executable, "-m", "runlane")
_PATIENCE = 50.0
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR")


def environment(home: Path, **extra: str) -> dict[str, str]:
    """Return an environment in which nothing of the caller's settings or keys is left."""
    kept = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color", **extra}


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def envelope(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def run(arguments: Sequence[str], *, env: Mapping[str, str], stdin: str = "", encoding: str = "utf-8") -> Done:
    """Run a command without a terminal, to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=dict(env),
        input=stdin.encode(encoding),
        capture_output=True,
        check=False,
        timeout=_PATIENCE,
    )
    return Done(done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding))


class AtTerminal:
    """A command whose stdin, stdout and stderr are one pseudo-terminal."""

    def __init__(self, arguments: Sequence[str], *, env: Mapping[str, str], columns: int = 100) -> None:
        """Start it."""
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            env=dict(env),
            stdin=follower,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C needs a terminal of its own
        )
        os.close(follower)
        self.screen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._leader)

    def type(self, text: str) -> None:
        r"""Type; `\x03` is Ctrl-C, `\x04` Ctrl-D."""
        os.write(self._leader, text.encode())

    def wait_for(self, pattern: str, *, start: int = 0) -> int:
        """Read until the screen shows a pattern from position `start` on; return the position behind it."""
        found = self._read(lambda: re.search(pattern, self.screen[start:]))
        assert found is not None, f"the screen never showed {pattern!r}:\n{self.screen}"
        return start + found.end()

    def wait_end(self) -> int:
        """Read until the program ends and return its exit code."""
        self._read(lambda: None)
        return self.process.wait(timeout=_PATIENCE)

    def _read(self, found: Callable[[], re.Match[str] | None]) -> re.Match[str] | None:
        deadline = time.monotonic() + _PATIENCE
        while (match := found()) is None and time.monotonic() < deadline:
            if not select.select([self._leader], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(self._leader, 65536)
            except OSError:  # Linux says EIO once the other side is closed
                break
            if not data:
                break
            self.screen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return match or found()


def wait_until(holds: Callable[[], bool]) -> None:
    """Look again and again until something holds; looking takes its time, so nothing is slept."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
