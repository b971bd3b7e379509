"""The rules that every store keeps, as functions that any store's tests can call."""

from __future__ import annotations

from typing import Final

from runlane.contracts import require_sync
from runlane.testing._store_checks_admission import ADMISSION_CHECKS
from runlane.testing._store_checks_again import AGAIN_CHECKS
from runlane.testing._store_checks_archive import ARCHIVE_CHECKS
from runlane.testing._store_checks_arguments import ARGUMENT_CHECKS
from runlane.testing._store_checks_branch import BRANCH_CHECKS
from runlane.testing._store_checks_groups import GROUP_CHECKS
from runlane.testing._store_checks_history import HISTORY_CHECKS
from runlane.testing._store_checks_rows import ROW_CHECKS
from runlane.testing._store_checks_runs import RUN_CHECKS
from runlane.testing._store_checks_shared import SHARED_CHECKS
from runlane.testing._store_kit import StoreCheck, StoreMaker

__all__ = ["STORE_CHECKS", "check_store"]

STORE_CHECKS: Final[tuple[StoreCheck, ...]] = (
    *ADMISSION_CHECKS,
    *RUN_CHECKS,
    *GROUP_CHECKS,
    *AGAIN_CHECKS,
    *ARGUMENT_CHECKS,
    *HISTORY_CHECKS,
    *ROW_CHECKS,
    *SHARED_CHECKS,
    *ARCHIVE_CHECKS,
    *BRANCH_CHECKS,
)
"""Every check; each takes a store maker, uses one store of its own, and raises `AssertionError` for a broken rule."""


async def check_store(maker: StoreMaker, /) -> None:
    """Check a store against every rule.

    Args:
        maker: Gives an open, empty store for a block, and cleans up behind it. It is called once a rule, with the
            conversation ids that the rule will use.

    Raises:
        UsageError: `maker` cannot be called.
        AssertionError: A rule is broken; the message says which value was wanted, or that it took too long.
        BaseExceptionGroup: A check failed, and then its cleanup did too.

    Example:
        >>> import anyio
        >>> from contextlib import asynccontextmanager
        >>> from runlane.store import MemoryStore
        >>> @asynccontextmanager
        ... async def memory(conversation_ids):
        ...     async with MemoryStore() as store:
        ...         yield store
        >>> anyio.run(check_store, memory)
    """
    require_sync(maker, argument="maker")
    for check in STORE_CHECKS:
        await check(maker)
