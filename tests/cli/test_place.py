"""Where the command line keeps conversations."""

import pytest

from runlane.cli._place import chat_store, store_path
from runlane.errors import InvalidValueError


@pytest.mark.parametrize("given", ["~nobody-of-that-name/chat.db", "sqlite:///~nobody-of-that-name/chat.db"])
def test_a_home_that_nobody_has_is_refused_in_words(given: str) -> None:
    """`~name` of an unknown user is a wrong flag, not a bug of runlane."""
    with pytest.raises(InvalidValueError, match="--store: the folder that ~ stands for is unknown"):
        store_path(given)
    with pytest.raises(InvalidValueError, match="RUNLANE_STORE"):
        chat_store(None, {"RUNLANE_STORE": given})
    with pytest.raises(InvalidValueError, match="XDG_DATA_HOME"):
        chat_store(None, {"XDG_DATA_HOME": "~nobody-of-that-name"})
