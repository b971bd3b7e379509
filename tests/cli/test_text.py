"""What reaches a terminal, and what does not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.cli._place import chat_store, store_path
from runlane.cli._text import Mask, printable, shortened
from runlane.errors import InvalidValueError


@given(st.text())
def test_nothing_that_steers_a_terminal_is_printed(text: str) -> None:
    """Printable text has no control character but tab and newline, and loses nothing else."""
    shown = printable(text)
    assert all(character in "\t\n" or not (character < " " or "\x7f" <= character <= "\x9f") for character in shown)
    assert [c for c in shown if c >= " "] == [c for c in text if c >= " " and not "\x7f" <= c <= "\x9f"]


@given(st.text(), st.integers(min_value=3, max_value=80))
def test_a_shortened_text_fits_on_its_line(text: str, width: int) -> None:
    """A shortened text has one line of at most the width asked for."""
    line = shortened(text, width)
    assert len(line) <= width
    assert "\n" not in line


@given(before=st.text(), after=st.text())
def test_no_secret_of_the_environment_is_printed(before: str, after: str) -> None:
    """The value of a variable named like a secret never gets through, wherever it stands."""
    mask = Mask({"RUNLANE_API_KEY": "rk-secret-9", "PG_PASSWORD": "hunter22", "HOME": "/somewhere"})
    for secret in ("rk-secret-9", "hunter22"):
        assert secret not in mask(f"{before}{secret}{after}")


def test_a_password_in_a_url_is_masked() -> None:
    """A URL keeps its user and host and loses its password."""
    assert Mask({})("cannot reach https://me:p4ss@host:8080/v1") == "cannot reach https://me:***@host:8080/v1"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("chats.db", "chats.db"),
        ("./a b/chats.db", "a b/chats.db"),
        ("sqlite:///chats.db", "chats.db"),
        ("sqlite:////var/lib/chats.db", "/var/lib/chats.db"),
    ],
)
def test_a_store_is_named_by_url_or_path(url: str, path: str) -> None:
    """A plain path, and a sqlite URL with three slashes (relative) or four (absolute), name a file."""
    assert store_path(url) == Path(path)


@pytest.mark.parametrize("url", ["", " ", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "mysql://h/db"])
def test_what_names_no_store_file_is_refused(url: str) -> None:
    """A store that would not be durable, or that nobody can open, is refused with the way to write it."""
    with pytest.raises(InvalidValueError, match=r"--store: .*sqlite:///PATH"):
        store_path(url)


def test_the_flag_wins_over_the_environment_and_that_over_the_default() -> None:
    """The store is the flag's, else RUNLANE_STORE's, else one in the user's data directory."""
    environ = {"RUNLANE_STORE": "env.db", "XDG_DATA_HOME": "/data"}
    assert chat_store("flag.db", environ) == Path("flag.db")
    assert chat_store(None, environ) == Path("env.db")
    assert chat_store(None, {"XDG_DATA_HOME": "/data"}) == Path("/data/runlane/chat.db")
