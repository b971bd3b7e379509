"""The threads that read, each with a connection of its own that cannot write."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import apsw

from runlane.errors import StoreClosedError, StoreUnavailableError
from runlane.store._driver import Rows
from runlane.store.sqlite._bridge import Reply, deliver
from runlane.store.sqlite._errors import typed_error
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._rows import SqliteRows

__all__ = ["Query", "Readers"]

_STEPS: Final = 20_000
"""Steps of SQLite's machine between two looks at the time: well under a millisecond."""


@dataclass(slots=True)
class Query:
    """One function to run on a snapshot, and who waits for it."""

    work: Callable[[Rows], Any]
    reply: Reply[Any] = field(default_factory=Reply)


class _Patience:
    """Ends a read that takes too long, within a statement or before the next one."""

    def __init__(self, host: Host, limit: float, location: str) -> None:
        self._host = host
        self._limit = limit
        self._location = location
        self._ends = math.inf

    def begin(self) -> None:
        """Give a read its time."""
        self._ends = self._host.now() + self._limit

    def end(self) -> None:
        """Let whatever follows take its time."""
        self._ends = math.inf

    def within_statement(self) -> bool:
        """Go on with a statement; SQLite asks whether to stop it."""
        if self._host.now() > self._ends:
            self._refuse()
        return False

    def before_statement(self, _cursor: object, _sql: str, _values: object) -> bool:
        """Begin a statement; SQLite asks whether to carry it out."""
        if self._host.now() > self._ends:
            self._refuse()
        return True

    def _refuse(self) -> None:
        raise StoreUnavailableError(
            f"a read took more than {self._limit:g} s and was ended; read less at once", store=self._location
        )


class Readers:
    """A few reading threads over one queue.

    Args:
        connect: Opens a connection; called in each thread.
        location: The file, for errors.
        host: Judges owners.
        count: How many threads at most; they are started as they are needed.
        limit: Seconds after which a read is ended: a snapshot that is held keeps the log from starting again.
    """

    def __init__(
        self, connect: Callable[[], apsw.Connection], location: str, host: Host, count: int, limit: float
    ) -> None:
        self._connect = connect
        self._location = location
        self._host = host
        self._limit = limit
        self._closed = False
        self._queue: queue.SimpleQueue[Query | None] = queue.SimpleQueue()
        self._count = count
        self._gate = threading.Lock()
        self._threads: list[threading.Thread] = []

    def submit(self, query: Query, /) -> None:
        """Queue a read.

        Raises:
            StoreClosedError: The readers are closed.
        """
        with self._gate:
            if self._closed:
                raise StoreClosedError("is closed", store=self._location)
            self._queue.put(query)
            # The first read needs a thread, and reads that wait for another one may have more.
            if len(self._threads) < self._count and self._queue.qsize() > bool(self._threads):
                thread = threading.Thread(target=self._run, name=f"runlane-reader-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        """Answer what is queued and end the threads. Blocks."""
        with self._gate:
            self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    # --- in each thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        patience = _Patience(self._host, self._limit, self._location)
        while (query := self._queue.get()) is not None:
            try:
                if connection is None:
                    connection = self._connect()
                    connection.pragma("query_only", True)  # noqa: FBT003  a pragma's value
                    connection.set_progress_handler(patience.within_statement, _STEPS)
                    connection.exec_trace = patience.before_statement
                query.reply.succeed(self._read(connection, query, patience))
            except BaseException as error:  # noqa: BLE001  told to the one who asked
                query.reply.fail(self._typed(error))
            deliver((query.reply,))
        if connection is not None:
            connection.close()

    def _read(self, connection: apsw.Connection, query: Query, patience: _Patience) -> object:
        connection.execute("BEGIN")
        patience.begin()
        try:
            return query.work(SqliteRows(connection.cursor(), self._host))
        finally:
            patience.end()
            with suppress(apsw.Error):
                connection.execute("COMMIT")

    def _typed(self, error: BaseException) -> BaseException:
        return typed_error(error, self._location)
