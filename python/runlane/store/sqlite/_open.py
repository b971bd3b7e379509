"""Opening a file: who may, which files are refused, and what is set on every connection."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import apsw

from runlane.errors import (
    StoreDamagedError,
    StoreForeignError,
    StoreTooNewError,
    StoreUnavailableError,
)
from runlane.store.sqlite._errors import typed
from runlane.store.sqlite._presence import Presence, open_beside
from runlane.store.sqlite._schema import APPLICATION_ID, SCHEMA_VERSION, STATEMENTS, definitions

if TYPE_CHECKING:
    from apsw import SQLiteValue

__all__ = ["Durability", "connect", "prepare"]

Durability: TypeAlias = Literal["full", "relaxed"]

_SMALLEST_DATABASE: Final = 512
_OLDEST_SQLITE: Final = 3_051_003
_JOURNAL_LIMIT: Final = 64 * 1024 * 1024
_LARGE: Final = 1 << 30
_PAGE_SIZE: Final = 2048
"""Of a new file. A turn changes some 60 pages by a few hundred bytes each, and the write-ahead log takes
whole ones: half the usual size logs and flushes 40 % less, for as much processor time."""
_POLL: Final = 0.005
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "ceph", "lustre", "glusterfs", "fuse.sshfs", "fuse.glusterfs"}
)


def connect(path: Path, durability: Durability, busy_timeout: float, /) -> apsw.Connection:
    """Open one connection of a store that exists.

    What is set, and why:

    * `synchronous` FULL: a commit that was answered survives a loss of power. `relaxed` (NORMAL) may lose the newest.
    * `wal_autocheckpoint` 0: checkpoints are made beside the writer, not in the middle of somebody's commit.
    * `trusted_schema` off, defensive mode, `cell_size_check`, no quoted strings as identifiers: a tampered file can
      neither run code nor be half read.
    * `secure_delete` FAST: purged text is overwritten where pages are written anyway.
    * `mmap_size` 0: an input or output error is an error, not a signal.
    """
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=200)
    try:
        _set_up(connection, durability, busy_timeout)
    except BaseException:
        connection.close(True)  # noqa: FBT003  the parameter is positional
        raise
    return connection


def _set_up(connection: apsw.Connection, durability: Durability, busy_timeout: float) -> None:
    connection.set_busy_handler(_Patience(busy_timeout))
    # A file that cannot even be set up is refused, and a file that is refused keeps its log beside it.
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    connection.wal_autocheckpoint(0)
    for name, value in (
        ("synchronous", "FULL" if durability == "full" else "NORMAL"),
        ("foreign_keys", True),
        ("cell_size_check", True),
        ("secure_delete", "FAST"),
        ("temp_store", "MEMORY"),
        ("journal_size_limit", _JOURNAL_LIMIT),
        ("mmap_size", 0),
    ):
        connection.pragma(name, value)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


class _Patience:
    """SQLite's busy handler: short, growing waits, for a limited time; each process has a rhythm of its own."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._spent = 0.0
        self._pause = threading.Event()
        self._rhythm = 0.5 + (os.getpid() % 97) / 97

    def __call__(self, attempt: int) -> bool:
        if attempt == 0:
            self._spent = 0.0
        if self._spent >= self._limit:
            return False
        wait = min(0.001 * (attempt + 1), 0.010) * self._rhythm
        self._pause.wait(wait)
        self._spent += wait
        return True


# --- the file -----------------------------------------------------------------------------------------------------


def prepare(
    path: Path, durability: Durability, busy_timeout: float, /, *, store_id: str
) -> tuple[apsw.Connection, Presence]:
    """Make sure that a file is a store of this version: create it, migrate it, or refuse it.

    Many processes may do this at once: they take turns by a lock on a file beside it. If whoever had the file open
    last never closed it, the file is looked through first, unless it is large.

    Args:
        path: The file.
        durability: As for `connect`.
        busy_timeout: Seconds to wait for other programs.
        store_id: The identity of the store if it is created now.

    Returns:
        A connection, and the presence to leave when the store is closed.

    Raises:
        StoreUnavailableError: The file or its folder cannot be used.
        StoreForeignError: It is something else.
        StoreTooNewError: A later version of runlane wrote it.
        StoreDamagedError: It is ours and broken.
    """
    if apsw.SQLITE_VERSION_NUMBER < _OLDEST_SQLITE:
        raise StoreUnavailableError(f"SQLite {apsw.sqlite_lib_version()} may lose commits; install a newer apsw")
    _prepare_folder(path)
    with typed(str(path)), _only_one(path, busy_timeout):
        _prepare_file(path)
        presence = Presence(path)
        try:
            left_open = presence.alone and _has_log(path)
            return _opened(path, durability, busy_timeout, store_id=store_id, left_open=left_open), presence
        except BaseException:
            presence.leave()
            raise


def _has_log(path: Path) -> bool:
    """Whether there is a write-ahead log: the last to close a store leaves none."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    except OSError:
        return False


def _opened(
    path: Path, durability: Durability, busy_timeout: float, *, store_id: str, left_open: bool
) -> apsw.Connection:
    connection = connect(path, durability, busy_timeout)
    try:
        # A file that is refused is left as it is: closing it must not fold its log into it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _bring_up_to_date(connection, path, store_id)
        if left_open and path.stat().st_size < _LARGE:
            _look_through(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except BaseException:
        connection.close()
        raise
    return connection


def _look_through(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file whose pages do not fit together.

    Raises:
        StoreDamagedError: They do not.
    """
    found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise StoreDamagedError(f"the file is corrupt; keep a copy and restore a backup ({found[0]})", store=str(path))


def _prepare_folder(path: Path) -> None:
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = folder.stat().st_mode
    except OSError as error:
        raise StoreUnavailableError(f"the folder cannot be used: {error.strerror}", store=str(path)) from error
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise StoreUnavailableError("everybody may write to the folder; choose another", store=str(path))
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    except OSError as error:
        raise StoreUnavailableError(f"cannot be a file: {error.strerror}", store=str(path)) from error
    if stat.S_ISLNK(kind):
        raise StoreUnavailableError("is a symbolic link; give the real path", store=str(path))
    if not stat.S_ISREG(kind):
        raise StoreUnavailableError("is no regular file; give the path of one, or of none yet", store=str(path))
    system = _file_system(folder)
    if system in _NETWORK_FILE_SYSTEMS:
        raise StoreUnavailableError(
            f"is on a network file system ({system}), which cannot share memory", store=str(path)
        )


def _file_system(folder: Path) -> str:
    """Return the type of the file system that a folder is on, as the kernel names it; empty if it does not say."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real = f"{folder.resolve()}/"
    found = ("", "")
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if real.startswith(f"{point.rstrip('/')}/") and len(point) >= len(found[0]):
            found = (point, kind)
    return found[1]


@contextmanager
def _only_one(path: Path, limit: float) -> Iterator[None]:
    """Hold the lock under which files are created and migrated."""
    descriptor = open_beside(path, ".init")
    try:
        _lock(descriptor, path, max(limit, 30.0))
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, limit: float) -> None:
    pause = threading.Event()
    for _ in range(int(limit / _POLL)):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        pause.wait(_POLL)
    raise StoreUnavailableError("another program has been opening it for too long", store=str(path))


def _prepare_file(path: Path) -> None:
    """Create the file with its rights, if it is missing.

    A file that exists is not opened here: closing any descriptor of it would drop the locks that this process's other
    connections hold on it (POSIX locks belong to the process, not to the descriptor).
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreUnavailableError("cannot be opened for writing: permission denied", store=str(path)) from None
        if 0 < path.stat().st_size < _SMALLEST_DATABASE:
            raise StoreForeignError("the file is not a SQLite database", store=str(path)) from None
    except OSError as error:
        raise StoreUnavailableError(f"cannot be created: {error.strerror}", store=str(path)) from error


def _bring_up_to_date(connection: apsw.Connection, path: Path, store_id: str) -> None:
    name = str(path)
    application = connection.pragma("application_id")
    version = int(connection.pragma("user_version") or 0)
    held = _schema(connection)
    if application == 0 and not held:
        version = 0
        connection.pragma("page_size", _PAGE_SIZE)
        connection.pragma("auto_vacuum", "INCREMENTAL")
    elif application != APPLICATION_ID:
        raise StoreForeignError("the database belongs to another program", store=name)
    elif version < 1:
        raise StoreDamagedError("the database does not say which version it has", store=name)
    elif version > SCHEMA_VERSION:
        raise StoreTooNewError(f"has schema {version}, this program knows {SCHEMA_VERSION}; upgrade it", store=name)
    elif version == SCHEMA_VERSION:
        _check_schema(held, name)
    if connection.pragma("journal_mode", "WAL") != "wal":
        raise StoreUnavailableError("cannot keep a write-ahead log there", store=name)
    if version < SCHEMA_VERSION:
        _migrate(connection, version, store_id, name)


def _schema(connection: apsw.Connection) -> dict[str, tuple[SQLiteValue, SQLiteValue]]:
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema")
    return {str(item): (kind, sql) for kind, item, sql in found}


def _check_schema(held: dict[str, tuple[SQLiteValue, SQLiteValue]], location: str) -> None:
    """Refuse a file whose tables or indexes are not as this version makes them, or in which something else runs.

    Raises:
        StoreDamagedError: They are not, or it does.
    """
    for name, definition in definitions().items():
        if name not in held:
            raise StoreDamagedError(f"{name!r} is missing; restore a backup", store=location)
        if held[name][1] != definition:
            raise StoreDamagedError(f"the definition of {name!r} was changed; restore a backup", store=location)
    for name, (kind, _) in held.items():
        if kind in {"trigger", "view"}:
            raise StoreDamagedError(f"{kind} {name!r} is none of a store's; drop it", store=location)


def _migrate(connection: apsw.Connection, version: int, store_id: str, location: str) -> None:
    """Bring a file up to this version in one transaction; one whose tables were changed is left as it is."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STATEMENTS[version:]:
            for statement in step:
                connection.execute(statement)
        if version == 0:
            connection.execute("INSERT INTO meta VALUES ('store_id', ?)", (store_id,))
        else:
            _check_schema(_schema(connection), location)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", SCHEMA_VERSION)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(apsw.Error):
            connection.execute("ROLLBACK")
        raise
