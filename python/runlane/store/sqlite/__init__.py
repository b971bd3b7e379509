"""The store in one SQLite file."""

from runlane.store.sqlite._driver import SqliteDriver, SqliteOptions
from runlane.store.sqlite._open import Durability
from runlane.store.sqlite._store import SqliteStore

__all__ = ["Durability", "SqliteDriver", "SqliteOptions", "SqliteStore"]
