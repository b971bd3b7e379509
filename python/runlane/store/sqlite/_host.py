"""What this host knows of its processes, so that an owner that is provably dead need not be waited for."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

__all__ = ["Host"]

_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Host:
    """This boot of this machine, and this process in it.

    Attributes:
        boot_id: Changes with every boot; empty where the kernel does not tell.
        pid_space: The process namespace; numbers of different ones say nothing about each other.
        pid: This process.
        started: When this process started, in the kernel's ticks since boot; a reused number has another.
    """

    def __init__(self) -> None:
        self.boot_id = _text("/proc/sys/kernel/random/boot_id")
        self.pid_space = _link("/proc/self/ns/pid")
        self.pid = os.getpid()
        self.started = _start_of(self.pid)

    def now(self) -> float:
        """Return seconds since boot, sleep of the machine included; no clock adjustment moves it."""
        return time.clock_gettime(_SINCE_BOOT)

    def is_gone(self, boot_id: str, pid_space: str, pid: int, started: str, expires_at: float, /) -> bool:
        """Whether the process that registered these facts is gone, or did not renew in time."""
        if boot_id != self.boot_id:
            return True
        if expires_at < self.now():
            return True
        knows = bool(started) and pid_space == self.pid_space
        # This process is there: an acquisition, which asks, need not read it up.
        is_this = pid == self.pid and started == self.started
        return knows and not is_this and _start_of(pid) != started


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return field 22 of `/proc/<pid>/stat`; empty if there is no such process. A zombie has ended."""
    line = _text(f"/proc/{pid}/stat")
    fields = line.rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in {"Z", "X"} else ""  # noqa: PLR2004  proc(5)
