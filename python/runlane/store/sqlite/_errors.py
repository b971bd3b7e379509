"""What SQLite reports, as errors of runlane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from runlane.errors import (
    InvalidValueError,
    RunlaneError,
    StoreCommitUnknownError,
    StoreDamagedError,
    StoreError,
    StoreForeignError,
    StoreFullError,
    StoreUnavailableError,
)

__all__ = ["FILE_ERRORS", "commit_failure", "store_error", "typed", "typed_error"]

FILE_ERRORS: Final = (apsw.Error, UnicodeDecodeError)
"""What a file can bring about: SQLite's own errors, and a text in it that is none."""

_MEANINGS: Final[tuple[tuple[tuple[type[apsw.Error], ...], type[StoreError], str], ...]] = (
    (
        (apsw.BusyError, apsw.LockedError),
        StoreUnavailableError,
        "another program held the write lock for too long",
    ),
    ((apsw.FullError,), StoreFullError, "the disk is full; nothing was written"),
    ((apsw.CorruptError,), StoreDamagedError, "the file is corrupt; keep a copy and restore a backup"),
    ((apsw.NotADBError,), StoreForeignError, "the file is not a SQLite database"),
    (
        (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError),
        StoreUnavailableError,
        "the file or its folder cannot be opened for writing",
    ),
    ((apsw.IOError,), StoreUnavailableError, "the file cannot be read or written"),
    ((apsw.ConstraintError,), StoreDamagedError, "a row contradicts the tables"),
)


def store_error(error: apsw.Error, location: str, /) -> StoreError:
    """Return what an error of SQLite means, when it is certain that nothing was committed."""
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE:
        text = "a write failed: look for a quota, a limit on the size of files, or a failing disk; nothing was written"
        return StoreUnavailableError(f"{text} ({error})", store=location)
    for kinds, meaning, text in _MEANINGS:
        if isinstance(error, kinds):
            return meaning(f"{text} ({error})", store=location)
    return StoreError(f"SQLite failed ({type(error).__name__}: {error})", store=location)


def commit_failure(error: apsw.Error, location: str, /) -> StoreError:
    """Return what a failed COMMIT means.

    A commit is in the file once its last frame is in the write-ahead log. If writing the frames failed, it is not;
    if making them durable failed, nobody knows.
    """
    result: int = getattr(error, "extendedresult", 0)
    written = isinstance(error, apsw.IOError) and result != apsw.SQLITE_IOERR_WRITE
    if written:
        return StoreCommitUnknownError(f"the commit could not be made durable ({error})", store=location)
    return store_error(error, location)


def typed_error(error: BaseException, location: str, /) -> BaseException:
    """Return what may leave the driver for anything that happened inside it; what runlane itself raised stays."""
    if isinstance(error, RunlaneError) or not isinstance(error, Exception):
        return error
    typed: RunlaneError
    if isinstance(error, apsw.Error):
        typed = store_error(error, location)
    elif isinstance(error, UnicodeEncodeError):
        typed = InvalidValueError("a text holds a lone surrogate", argument="id")
    elif isinstance(error, UnicodeDecodeError):
        problem = "a text in the file is not UTF-8; the file is corrupt; keep a copy and restore a backup"
        typed = StoreDamagedError(problem, store=location)
    else:
        typed = StoreError(f"the transaction failed ({type(error).__name__}: {error})", store=location)
    typed.__cause__ = error
    return typed


@contextmanager
def typed(location: str, /) -> Iterator[None]:
    """Let nothing of SQLite out of a block but `StoreError`s."""
    try:
        yield
    except FILE_ERRORS as error:
        raise typed_error(error, location) from error
