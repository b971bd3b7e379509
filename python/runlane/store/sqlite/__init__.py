"""The store in one SQLite file.

When the disk is full: nothing that was answered is lost, and nothing has to be opened anew. Watch for `StoreFullError`
(retryable) and `SqliteStore.is_full`; answer new inputs with "later"; free space, or let the file shrink by purging
conversations, which gives pages back while the store is idle. Inputs are taken again by themselves within a second.
What remains is to close the runs whose end could not be written (`RunUnsettledError` names each): read the run, and if
it is still acquired by the error's owner, abandon it with its revision. The README shows it.
"""

from runlane.store.sqlite._driver import SqliteDriver, SqliteOptions
from runlane.store.sqlite._open import Durability
from runlane.store.sqlite._store import SqliteStore

__all__ = ["Durability", "SqliteDriver", "SqliteOptions", "SqliteStore"]
