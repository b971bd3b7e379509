"""Leases as rows: who lives, and what happens to the lanes of who does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import apsw

from runlane.errors import UsageError
from runlane.store._rows import OwnerRow
from runlane.store.sqlite._host import Host

__all__ = ["OwnerFacts", "owners", "register", "release", "renew", "sweep"]

OwnerFacts: TypeAlias = dict[str, tuple[Any, ...]]
"""Rows of owners, by id; whether one of them lives changes with time, not only with its row."""

_KEPT: Final = 24 * 3600.0
"""How long a dead owner is remembered, in seconds: until then it cannot acquire anything by mistake."""


def register(cursor: apsw.Cursor, host: Host, owner_id: str, ttl: float, /) -> None:
    """Add a living owner.

    Raises:
        UsageError: The id was used before.
    """
    if cursor.execute("SELECT 1 FROM owner WHERE id = ?", (owner_id,)).fetchall():
        raise UsageError(f"{owner_id!r} was used before; every incarnation has an id of its own", argument="owner_id")
    cursor.execute(
        "INSERT INTO owner VALUES (?, 1, ?, ?, ?, ?, ?)",
        (owner_id, host.boot_id, host.pid_space, host.pid, host.started, host.now() + ttl),
    )


def renew(connection: apsw.Connection, owner_ids: Iterable[str], until: float, /) -> list[str]:
    """Prolong leases; return the owners whose lease is gone."""
    lost: list[str] = []
    for owner_id in owner_ids:
        connection.execute(
            "UPDATE owner SET expires_at = ? WHERE id = ? AND alive = 1 AND expires_at < ?", (until, owner_id, until)
        )
        if connection.changes() == 0:
            lost.append(owner_id)
    return lost


def release(cursor: apsw.Cursor, owner_id: str, /) -> None:
    """End a lease: others may take over at once."""
    cursor.execute("UPDATE owner SET alive = 0 WHERE id = ?", (owner_id,))


def owners(cursor: apsw.Cursor, host: Host, owner_ids: Iterable[str], known: OwnerFacts, /) -> dict[str, OwnerRow]:
    """Return which of these owners are registered, and whether they live now.

    Args:
        cursor: To read them.
        host: Judges them.
        owner_ids: Their ids.
        known: What was read of owners and still holds, by id; what is read is added.
    """
    found: dict[str, OwnerRow] = {}
    for owner_id in owner_ids:
        if owner_id not in known:
            for row in cursor.execute(
                "SELECT alive, boot_id, pid_space, pid, started, expires_at FROM owner WHERE id = ?", (owner_id,)
            ):
                known[owner_id] = row
        if owner_id in known:
            alive, *facts = known[owner_id]
            found[owner_id] = OwnerRow(owner_id, bool(alive) and not host.is_gone(*facts))
    return found


def sweep(cursor: apsw.Cursor, host: Host, /) -> list[str]:
    """Mark owners that are gone, raise the epoch of the lanes they held, and return those that held one."""
    rows: list[tuple[Any, ...]] = cursor.execute(
        "SELECT id, alive, boot_id, pid_space, pid, started, expires_at FROM owner"
    ).fetchall()
    gone = {owner_id: bool(alive) for owner_id, alive, *facts in rows if not alive or host.is_gone(*facts)}
    cursor.executemany(
        "UPDATE owner SET alive = 0 WHERE id = ?", [(owner_id,) for owner_id, alive in gone.items() if alive]
    )
    lanes = cursor.execute(
        "SELECT no, lane_owner FROM conversation WHERE lane_owner IS NOT NULL AND id IN"
        " (SELECT conversation_id FROM active_run)"
    ).fetchall()
    taken = [(number, owner) for number, owner in lanes if owner in gone]
    cursor.executemany(
        "UPDATE conversation SET lane_owner = NULL, lane_epoch = lane_epoch + 1 WHERE no = ?",
        [(number,) for number, _ in taken],
    )
    cursor.execute(
        "DELETE FROM owner WHERE alive = 0 AND (boot_id <> ? OR expires_at < ?)", (host.boot_id, host.now() - _KEPT)
    )
    return sorted({str(owner) for _, owner in taken})
