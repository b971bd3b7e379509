"""The SQLite driver: one file, one writing thread, a few reading threads, a keeper."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import anyio
import anyio.to_thread
import apsw
from typing_extensions import override

from runlane.clock import Clock
from runlane.contracts import clock_or_system, ids_or_random, require_kind
from runlane.errors import InvalidValueError, StoreClosedError, StoreError, StoreUnavailableError, UsageError
from runlane.ids import IdSource
from runlane.store._driver import Rows, StoreDriver
from runlane.store._port import Lease
from runlane.store._waiting import wait_at_most
from runlane.store.sqlite._bell import Bell
from runlane.store.sqlite._errors import typed
from runlane.store.sqlite._host import Host
from runlane.store.sqlite._keeper import HeldLease, Keeper, Waiter
from runlane.store.sqlite._open import Durability, connect, prepare
from runlane.store.sqlite._owners import register, release, sweep
from runlane.store.sqlite._presence import Presence
from runlane.store.sqlite._readers import Query, Readers
from runlane.store.sqlite._reserve import Reserve
from runlane.store.sqlite._rows import SqliteRows
from runlane.store.sqlite._writer import Mutation, Writer

__all__ = ["SqliteDriver", "SqliteOptions"]

T = TypeVar("T")

_BACKUP_PAGES = 256


_LONGEST: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteOptions:
    """How a file is used.

    Attributes:
        durability: `full`: what was answered survives a loss of power. `relaxed`: it survives the end of the process;
            the newest commits may be lost with the power.
        busy_timeout: Seconds to wait for another process's write before `StoreUnavailableError`.
        readers: How many threads read.
        max_waiting: How many mutations may wait before `StoreBusyError`.
        lease_ttl: Seconds after which an owner that stopped renewing counts as gone.
        lease_beat: Seconds between renewals.
        read_limit: Seconds after which a read is ended with `StoreUnavailableError`: a snapshot that is held for long
            keeps the write-ahead log from starting again. Raise it to export very long conversations in one piece.
        disk_reserve: Bytes set aside for the day the disk is full, 0 for none. When a commit finds no room they are
            given back: inputs are refused with `StoreFullError` from then on, and runs that were accepted can end.
            64 MiB is plenty for a service.
    """

    durability: Durability = "full"
    busy_timeout: float = 5.0
    readers: int = 4
    max_waiting: int = 512
    lease_ttl: float = 10.0
    lease_beat: float = 2.0
    read_limit: float = 5.0
    disk_reserve: int = 0

    def __post_init__(self) -> None:
        if self.durability not in ("full", "relaxed"):
            raise InvalidValueError("must be 'full' or 'relaxed'", argument="durability")
        for name in ("busy_timeout", "lease_ttl", "lease_beat", "read_limit"):
            value = getattr(self, name)
            if type(value) not in {int, float} or not 0 < value <= _LONGEST:
                raise InvalidValueError(f"must be a time of more than 0 and at most {_LONGEST} seconds", argument=name)
        for name, least, most in (("readers", 1, 1_000), ("max_waiting", 1, 1 << 31), ("disk_reserve", 0, 1 << 62)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise InvalidValueError(f"must be an integer of {least} to {most}", argument=name)
        if self.lease_beat * 2 > self.lease_ttl:
            raise InvalidValueError("must be at most half of lease_ttl", argument="lease_beat")


_URL: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class _Opened:
    """The threads of an open store, and the process they belong to."""

    pid: int
    writer: Writer
    readers: Readers
    keeper: Keeper
    reserve: Reserve
    presence: Presence


def _read_path(path: object) -> Path:
    """Return where a store is, from what the application gave.

    Raises:
        UsageError: It is no text and no path.
        InvalidValueError: It can name no file.
    """
    if not isinstance(path, str | Path):
        raise UsageError(f"must be a text or a pathlib.Path, not {type(path).__name__}", argument="path")
    name = str(path)
    if name in {"", ":memory:"}:
        raise InvalidValueError("names no file; use MemoryStore for a store in memory", argument="path")
    if _URL.match(name):
        raise InvalidValueError("is a URL; give the path of a file", argument="path")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        raise InvalidValueError("holds a lone surrogate, which no file name can", argument="path") from None
    if b"\0" in encoded:
        raise InvalidValueError("holds a NUL character, which no file name can", argument="path")
    return Path(os.path.abspath(name))  # noqa: PTH100  resolve() would follow a link


class SqliteDriver(StoreDriver):
    """Transactions over one file, which many processes of one host may have open."""

    def __init__(
        self,
        path: str | Path,
        options: SqliteOptions | None = None,
        /,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.path = _read_path(path)
        self.options = SqliteOptions() if options is None else require_kind(options, SqliteOptions, argument="options")
        self._clock = clock_or_system(clock)
        self._ids = ids_or_random(ids)
        self._host = Host()
        self._opened: _Opened | None = None

    @property
    @override
    def location(self) -> str:
        return str(self.path)

    # --- opening and closing --------------------------------------------------------------------------------------

    @override
    async def open(self) -> None:
        if self._opened is not None:
            raise UsageError("is open already", argument="store")
        await anyio.to_thread.run_sync(self._open)

    def _open(self) -> None:
        options = self.options
        connection, presence = prepare(
            self.path, options.durability, options.busy_timeout, store_id=self._ids.new("store")
        )
        try:
            self._opened = self._start(connection, presence)
        except BaseException as error:
            connection.close()
            presence.leave()
            if isinstance(error, OSError | RuntimeError):
                problem = f"this process has no room for its threads and files: {error}"
                raise StoreUnavailableError(problem, store=self.location) from error
            raise

    def _start(self, connection: apsw.Connection, presence: Presence) -> _Opened:
        """Start what works on an open file."""
        options = self.options
        self._host = Host()
        relaxed = partial(connect, self.path, "relaxed", options.busy_timeout)
        bell = Bell(self.path)
        reserve = Reserve(self.path, options.disk_reserve, self._host)
        keeper = Keeper(relaxed, bell, self._host, options.lease_ttl, options.lease_beat)
        writer = Writer(connection, self.location, self._host, reserve, options.max_waiting)
        keeper.found_full = reserve.give_back
        writer.committed = keeper.committed
        writer.checkpoint_wanted = keeper.wants_checkpoint
        writer.answered = bell.ring_others
        readers = Readers(self._connect, self.location, self._host, options.readers, options.read_limit)
        return _Opened(os.getpid(), writer, readers, keeper, reserve, presence)

    def _connect(self) -> apsw.Connection:
        return connect(self.path, self.options.durability, self.options.busy_timeout)

    @override
    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is None or opened.pid != os.getpid():
            return
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_close, opened)

    def _use(self) -> _Opened:
        opened = self._opened
        if opened is None:
            raise StoreClosedError("is not open; use it inside `async with`", store=self.location)
        if opened.pid != os.getpid():
            raise StoreClosedError("was opened before a fork; open another one in this process", store=self.location)
        return opened

    # --- transactions ---------------------------------------------------------------------------------------------

    @override
    async def read(self, work: Callable[[Rows], T], /) -> T:
        query = Query(work)
        self._use().readers.submit(query)
        return cast("T", await query.reply.wait())

    @override
    async def write(self, work: Callable[[Rows], T], conversation_id: str, /) -> T:
        mutation = Mutation(work, conversation_id)
        self._use().writer.submit(mutation)
        return cast("T", await mutation.reply.wait())

    @property
    def is_full(self) -> bool:
        """Whether the disk was found full and what was set aside is given back, so that no inputs are taken."""
        return self._use().reserve.is_spent

    @property
    def writer(self) -> Writer:
        """The writing thread, for tests that stop it."""
        return self._use().writer

    # --- ownership ------------------------------------------------------------------------------------------------

    @override
    def hold_lease(self, owner_id: str, /) -> AbstractAsyncContextManager[Lease]:
        return self._hold(owner_id)

    @asynccontextmanager
    async def _hold(self, owner_id: str) -> AsyncIterator[Lease]:
        opened = self._use()
        lease = HeldLease(owner_id, self._host, self.options.lease_ttl)
        await self._change_owners(lambda rows: register(rows.cursor, self._host, owner_id, self.options.lease_ttl))
        opened.keeper.add(lease)
        try:
            yield lease
        finally:
            opened.keeper.remove(lease)
            lease.lose()
            # A store that cannot be reached any more lets the lease run out by itself.
            with anyio.CancelScope(shield=True), suppress(StoreError):
                await self._change_owners(lambda rows: release(rows.cursor, owner_id))

    @override
    async def sweep_owners(self) -> Sequence[str]:
        return await self._change_owners(lambda rows: sweep(rows.cursor, self._host))

    async def _change_owners(self, work: Callable[[SqliteRows], T]) -> T:
        def change(rows: Rows) -> T:
            own = cast("SqliteRows", rows)
            own.change_owners()
            return work(own)

        return await self.write(change, "")

    # --- notification ---------------------------------------------------------------------------------------------

    @override
    async def wait_for_change(self, conversation_id: str, version: int, max_wait: float, /) -> bool:
        keeper = self._use().keeper
        ends = self._clock.monotonic() + max_wait
        while True:
            waiter = Waiter(conversation_id, version)
            reached = keeper.watch(waiter)
            try:
                if reached is None:
                    reached = (await self.read(lambda rows: rows.head(conversation_id))).version
                    keeper.read(waiter, reached)
                if reached > version:
                    return True
                rest = ends - self._clock.monotonic()
                if rest <= 0:
                    return False
                await wait_at_most(waiter.event, self._clock, rest)
            finally:
                keeper.unwatch(waiter)

    # --- backup ---------------------------------------------------------------------------------------------------

    async def backup(self, target: str | Path, /) -> None:
        """Copy the store, as it is now, into a new file, while it is in use."""
        self._use()
        await anyio.to_thread.run_sync(self._backup, _read_path(target))

    def _backup(self, target: Path) -> None:
        try:
            os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise StoreUnavailableError(f"the copy cannot be made: {error.strerror}", store=str(target)) from error
        with typed(str(target)):
            source = self._connect()
            copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                with copy.backup("main", source, "main") as backup:
                    while not backup.done:
                        backup.step(_BACKUP_PAGES)
                copy.execute("UPDATE meta SET value = ? WHERE key = 'store_id'", (self._ids.new("store"),))
                copy.execute("DELETE FROM owner")
            finally:
                copy.close()
                source.close()


def _close(opened: _Opened) -> None:
    opened.readers.close()
    opened.keeper.close()
    opened.writer.close()
    opened.presence.leave()
