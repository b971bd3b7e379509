"""The threads that read, each with a connection of its own that cannot write."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import apsw

from runlane.errors import StoreClosedError
from runlane.store._driver import Rows
from runlane.store.sqlite._bridge import Reply, deliver
from runlane.store.sqlite._errors import typed_error
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._rows import SqliteRows

__all__ = ["Query", "Readers"]


@dataclass(slots=True)
class Query:
    """One function to run on a snapshot, and who waits for it."""

    work: Callable[[Rows], Any]
    reply: Reply[Any] = field(default_factory=Reply)


class Readers:
    """A few reading threads over one queue.

    Args:
        connect: Opens a connection; called in each thread.
        location: The file, for errors.
        host: Judges owners.
        count: How many threads.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], location: str, host: Host, count: int) -> None:
        self._connect = connect
        self._location = location
        self._host = host
        self._closed = False
        self._queue: queue.SimpleQueue[Query | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"runlane-reader-{index}", daemon=True) for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, query: Query, /) -> None:
        """Queue a read.

        Raises:
            StoreClosedError: The readers are closed.
        """
        if self._closed:
            raise StoreClosedError("is closed", store=self._location)
        self._queue.put(query)

    def close(self) -> None:
        """Answer what is queued and end the threads. Blocks."""
        self._closed = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    # --- in each thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        connection: apsw.Connection | None = None
        while (query := self._queue.get()) is not None:
            try:
                if connection is None:
                    connection = self._connect()
                    connection.pragma("query_only", True)  # noqa: FBT003  a pragma's value
                query.reply.succeed(self._read(connection, query))
            except BaseException as error:  # noqa: BLE001  told to the one who asked
                query.reply.fail(self._typed(error))
            deliver((query.reply,))
        if connection is not None:
            connection.close()

    def _read(self, connection: apsw.Connection, query: Query) -> object:
        connection.execute("BEGIN")
        try:
            return query.work(SqliteRows(connection.cursor(), self._host))
        finally:
            with suppress(apsw.Error):
                connection.execute("COMMIT")

    def _typed(self, error: BaseException) -> BaseException:
        return typed_error(error, self._location)
