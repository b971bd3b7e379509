"""The store that needs nothing but a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from runlane.clock import Clock
from runlane.ids import IdSource
from runlane.store._store import DriverStore
from runlane.store.sqlite._driver import SqliteDriver, SqliteOptions
from runlane.store.sqlite._open import Durability

__all__ = ["SqliteStore"]


class SqliteStore(DriverStore):
    """A store in one SQLite file, which several processes of one host may use at once.

    The file and its companions are made for the owner alone. A file that is not a runlane store, was written by a
    newer version or is broken is refused and left as it is. Copy a store in use with `backup`, never with `cp`.

    Args:
        path: The file; its folder is made if it is missing.
        durability: `full`: what was answered survives a loss of power. `relaxed`: it survives the end of the process;
            the newest commits may be lost with the power. What `options` say by default, and they say `full`.
        clock: Dates the commands of the named operations.
        ids: Names them, and the store.
        options: The rest, and how long things may take.

    Example:
        >>> async def main():
        ...     async with SqliteStore("agents.db") as store:
        ...         return await store.load_head("conversation-1")
    """

    driver: SqliteDriver

    def __init__(
        self,
        path: str | Path,
        *,
        durability: Durability | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        options: SqliteOptions | None = None,
    ) -> None:
        driver = SqliteDriver(path, options, clock=clock, ids=ids)
        if durability is not None:
            driver.options = replace(driver.options, durability=durability)
        super().__init__(driver, clock=clock, ids=ids)

    @property
    def is_full(self) -> bool:
        """Whether the disk was found full and its reserve is given back: inputs are refused, runs can end.

        Always False without `SqliteOptions.disk_reserve`: then each mutation simply finds out by itself.
        """
        return self.driver.is_full

    async def backup(self, target: str | Path, /) -> None:
        """Copy the store, as it is now, into a new file, while it is in use. The copy has an identity of its own.

        Raises:
            StoreUnavailableError: The target exists or cannot be written.
        """
        await self.driver.backup(target)
