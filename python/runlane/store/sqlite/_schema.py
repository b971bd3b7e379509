"""The tables of a SQLite store, and how a file of an earlier version becomes one of this version.

Choices worth knowing:

* A conversation's text id is stored once, in its head; everything else refers to its number.
* Unique indexes begin with the record's id, not with the conversation. Ids that grow with time, as those of
  `runlane.ids.RandomIds` do, are then appended at the right edge of one page that all lanes share, and a group of
  commits writes few pages.
* Rows that are long (entries, bodies, runs) are appended at the right edge of their table, where SQLite fills pages
  without splitting them; only the short entries of indexes lie among those of other conversations. Draft rows are
  clustered by run: their key is the run's number and the patch in one integer.
* `active_run` holds the backlog only. Recovery and the queue are read from it, whatever the history holds.
* An answer's row exists from admission on, without a body: it reserves the id.
* Bodies have a table of their own, under the number of their message's row: a message that moves or is compacted
  changes a few bytes, however large it is.
* Every table is STRICT, so a column holds the type it declares or the row is refused.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import apsw

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "STATEMENTS", "definitions"]

APPLICATION_ID: Final = 0x524C4E45
"""`RLNE` in the header of the file: it is ours."""

_FIRST: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE conversation (
  no INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  version INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  lane_epoch INTEGER NOT NULL,
  lane_owner TEXT,
  purged INTEGER NOT NULL DEFAULT 0,
  lowest INTEGER NOT NULL,
  next_place INTEGER NOT NULL,
  gap INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  changed_at TEXT NOT NULL,
  active_at TEXT NOT NULL
) STRICT;
CREATE INDEX conversation_by_activity ON conversation (active_at DESC, id) WHERE purged = 0;

CREATE TABLE run (
  no INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL,
  id TEXT NOT NULL,
  schema_version INTEGER NOT NULL DEFAULT 1,
  arrival INTEGER NOT NULL,
  version INTEGER NOT NULL,
  place INTEGER,
  assistant_message_id TEXT NOT NULL,
  queue_priority TEXT,
  created_at TEXT NOT NULL,
  request BLOB,
  inputs BLOB NOT NULL,
  state TEXT NOT NULL,
  revision INTEGER NOT NULL,
  execution_sequence INTEGER,
  owner_id TEXT,
  fencing_token INTEGER,
  terminal_reason TEXT,
  terminal_policy_name TEXT,
  absorbed_into TEXT,
  updated_at TEXT NOT NULL,
  draft_kinds TEXT,
  draft_patches INTEGER,
  draft_size INTEGER,
  draft_sha256 BLOB,
  last_operation BLOB,
  usage BLOB
) STRICT;
CREATE UNIQUE INDEX run_by_id ON run (id, conversation);

CREATE TABLE active_run (
  conversation_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  run INTEGER NOT NULL,
  PRIMARY KEY (conversation_id, run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE message (
  no INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL,
  id TEXT NOT NULL,
  position INTEGER,
  removed_at INTEGER,
  version INTEGER NOT NULL,
  run_id TEXT,
  role TEXT NOT NULL,
  status TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX message_by_id ON message (id, conversation);
CREATE INDEX message_by_position ON message (conversation, position, removed_at);

CREATE TABLE body (no INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT;

CREATE TABLE draft (key INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;

CREATE TABLE receipt (
  conversation INTEGER NOT NULL,
  key TEXT NOT NULL,
  run_id TEXT NOT NULL,
  message_id TEXT NOT NULL,
  sha256 BLOB NOT NULL,
  PRIMARY KEY (conversation, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE seed (
  conversation INTEGER NOT NULL,
  key TEXT NOT NULL,
  message_ids BLOB NOT NULL,
  PRIMARY KEY (conversation, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
  no INTEGER PRIMARY KEY,
  conversation INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  version INTEGER NOT NULL,
  id TEXT NOT NULL,
  command_id TEXT,
  kind TEXT NOT NULL,
  occurred_at TEXT NOT NULL,
  ignorable INTEGER NOT NULL DEFAULT 0,
  body BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX event_by_seq ON event (conversation, seq);
CREATE UNIQUE INDEX event_by_id ON event (id, conversation);

CREATE TABLE owner (
  id TEXT PRIMARY KEY,
  alive INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  pid_space TEXT NOT NULL,
  pid INTEGER NOT NULL,
  started TEXT NOT NULL,
  expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
"""

_BRANCHES: Final = """
CREATE TABLE branch (
  key TEXT PRIMARY KEY,
  fingerprint BLOB NOT NULL,
  source TEXT,
  destination TEXT NOT NULL UNIQUE,
  source_seq INTEGER NOT NULL,
  source_version INTEGER NOT NULL,
  source_sha256 BLOB NOT NULL,
  created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX branch_by_source ON branch (source);

ALTER TABLE event ADD COLUMN schema_version INTEGER NOT NULL DEFAULT 1;
"""
"""Receipts of branches, and the version of ledger entries that an archive of a later release may bring.

A program that knows only the first version and still has the file open goes on writing what is valid in both.
"""

MIGRATIONS: Final[tuple[str, ...]] = (_FIRST, _BRANCHES)
"""Step n brings version n - 1 to n; each runs in one transaction, and none is ever changed once released."""

SCHEMA_VERSION: Final = len(MIGRATIONS)


def _statements(step: str) -> tuple[str, ...]:
    return tuple(statement.strip() for statement in step.split(";\n") if statement.strip())


STATEMENTS: Final = tuple(_statements(step) for step in MIGRATIONS)
"""The statements of each migration."""


@cache
def definitions() -> dict[str, str]:
    """Return every table and index of a file of this version, by name, as SQLite keeps their definitions."""
    model = apsw.Connection(":memory:")
    try:
        for statement in (statement for step in STATEMENTS for statement in step):
            model.execute(statement)
        held = model.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        return {str(name): str(sql) for name, sql in held}
    finally:
        model.close()
