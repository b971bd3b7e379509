"""What can name the file of a store, and what is refused with words about it."""

import os
from pathlib import Path

import pytest

from runlane.errors import InvalidValueError, StoreUnavailableError, UsageError
from runlane.store.sqlite import SqliteStore


@pytest.mark.parametrize("given", [None, 5, b"agents.db", ["agents.db"]])
def test_a_path_is_a_text_or_a_path(given: object) -> None:
    """Anything else is misuse, named at once."""
    with pytest.raises(UsageError, match="path"):
        SqliteStore(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "names no file"),
        (":memory:", "MemoryStore"),
        ("sqlite:///agents.db", "is a URL"),
        ("postgresql://user:secret@host/db", "is a URL"),
        ("a\0b", "NUL"),
        ("\ud800.db", "lone surrogate"),
    ],
)
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_made(given: str, says: str) -> None:
    """The error names the argument and does not show the value, which may hold a password."""
    with pytest.raises(InvalidValueError, match=says) as caught:
        SqliteStore(given)
    assert caught.value.argument == "path"
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "long"])
async def test_what_is_no_regular_file_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    """A folder, a pipe, a device or an impossible name never becomes a store, and nothing waits for it."""
    path = tmp_path / "it"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/null")
    else:
        path = tmp_path / ("x" * 300)
    with pytest.raises(StoreUnavailableError, match=r"regular file|cannot be a file"):
        async with SqliteStore(path):
            pass
    assert list(path.parent.glob("it?*")) == []


@pytest.mark.anyio
async def test_a_copy_is_named_like_a_store(tmp_path: Path) -> None:
    """`backup` refuses the names that a store refuses."""
    async with SqliteStore(tmp_path / "agents.db") as store:
        with pytest.raises(InvalidValueError, match="is a URL"):
            await store.backup("sqlite:///copy.db")
