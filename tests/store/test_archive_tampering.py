"""Archives that were tampered with: each is refused by name, or is a conversation like any other."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import JsonValue

from runlane.canonical import canonical_record_json
from runlane.errors import ArchiveInvalidError
from runlane.store import ConversationReader, MemoryStore, ReadEvents, decode_archive, encode_archive
from runlane.store.sqlite import SqliteStore
from runlane.testing import check_conversation
from runlane.testing._store_checks_archive import _told

pytestmark = pytest.mark.anyio

GONE: Final = object()
VALUES: Final[tuple[object, ...]] = (GONE, None, "", "x", 0, -1, 1 << 62, 1 << 70, 0.5, True, [], {}, ["x"], {"x": 1})
SHARES: Final = 8
"""In how many tests the values are tried."""


def _places(value: JsonValue, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of everything inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from _places(item, (*place, key))


def _changed(document: dict[str, Any], place: tuple[str | int, ...], value: object) -> bytes:
    changed = deepcopy(document)
    at: Any = changed
    for step in place[:-1]:
        at = at[step]
    if value is GONE:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return canonical_record_json(changed)


async def _is_sound(data: bytes, folder: Path) -> bool:
    """Import an archive; whether it was taken, and if so every read of it must work, there and in another store."""
    async with MemoryStore() as store:
        try:
            result = await store.import_conversation(data)
        except ArchiveInvalidError:
            result = None
        if result is None:
            assert (await store.load_head("c1")).version == 0
            return False
        name = result.conversation_id
        await check_conversation(store, name)
        await store.read_events(ReadEvents(conversation_id=name))
        await store.load_changes(name, 0)
        await ConversationReader(store).messages(name, include_compacted=True)
        again = encode_archive(await store.export_conversation(name))
        async with SqliteStore(folder / "other.db", durability="relaxed") as other:
            await other.import_conversation(again)
            assert encode_archive(await other.export_conversation(name)) == again
            await other.load_snapshot(name)
        (folder / "other.db").unlink()
        return True


@pytest.mark.parametrize("share", range(SHARES))
async def test_one_changed_value_is_refused_or_harmless(share: int, tmp_path: Path) -> None:
    """Whatever one value of an archive is changed to, the import refuses it or makes a sound conversation."""
    document: dict[str, Any] = json.loads(await _told())
    attempts = [(place, value) for place in _places(document) for value in VALUES]
    taken = 0
    for place, value in attempts[share :: SHARES * 6]:
        taken += await _is_sound(_changed(document, place, value), tmp_path)
    assert 0 < taken < len(attempts) // SHARES


async def test_exchanged_values_are_refused_or_harmless(tmp_path: Path) -> None:
    """Whichever two neighbours of an archive change places, the import refuses it or makes a sound conversation."""
    document: dict[str, Any] = json.loads(await _told())
    snapshot = document["projections"][0]
    for rows in (document["events"], snapshot["runs"], snapshot["messages"]):
        for index in range(len(rows) - 1):
            rows[index], rows[index + 1] = rows[index + 1], rows[index]
            await _is_sound(canonical_record_json(document), tmp_path)
            rows[index], rows[index + 1] = rows[index + 1], rows[index]
    assert await _is_sound(canonical_record_json(document), tmp_path)


async def test_a_truncated_archive_is_refused() -> None:
    """An archive that was cut anywhere is refused."""
    data = await _told()
    for length in range(0, len(data), 37):
        with pytest.raises(ArchiveInvalidError):
            decode_archive(data[:length])
