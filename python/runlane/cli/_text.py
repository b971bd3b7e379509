"""Text on its way to a terminal: nothing that steers the terminal, nothing secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["Mask", "printable", "short_id", "shortened"]

# C0 but tab and newline, DEL, C1: what could move the cursor, change the title or answer a query.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_URL_PASSWORD = re.compile(r"(?P<scheme>\b[a-zA-Z][a-zA-Z0-9+.-]*://)(?P<user>[^/\s:@]*):[^/\s@]+@")
_SECRET_NAME = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD)$", re.IGNORECASE)
# A shorter value is more likely a word of the text than a secret.
_SHORTEST_SECRET = 6
_SHORT_ID = 8


def printable(text: str, /) -> str:
    r"""Return text without the characters that steer a terminal; `\r\n` becomes `\n`.

    Example:
        >>> printable("a\x1b[31mb\r\nc")
        'a[31mb\nc'
    """
    return _STEERING.sub("", text)


def shortened(text: str, width: int, /) -> str:
    """Return text on one line of at most `width` characters, with `...` where something was left out."""
    line = " ".join(printable(text).split())
    return line if len(line) <= width else f"{line[: max(0, width - 3)]}..."


def short_id(identity: str, /) -> str:
    """Return an identifier as short as people can still tell it from its neighbours: its kind and its end.

    Example:
        >>> short_id("run_01a22e68d269c5902122a2f7ebeeb7bb")
        'run_..ebeeb7bb'
    """
    kind, separator, number = identity.rpartition("_")
    return identity if len(number) <= _SHORT_ID else f"{kind}{separator}..{number[-_SHORT_ID:]}"


class Mask:
    """Blots out the secrets this process was given.

    Known are the values of environment variables whose name ends in API_KEY, TOKEN, SECRET or PASSWORD, and whatever
    stands as a password in a URL.

    Example:
        >>> Mask({"OPENAI_API_KEY": "sk-1234567"})("key sk-1234567 refused by http://me:pw@host/")
        'key *** refused by http://me:***@host/'
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Learn the secrets of an environment."""
        known = {
            value.strip()
            for name, value in environ.items()
            if _SECRET_NAME.search(name) and len(value.strip()) >= _SHORTEST_SECRET
        }
        self._known = sorted(known, key=len, reverse=True)

    def __call__(self, text: str, /) -> str:
        """Return the text with every known secret replaced by `***`."""
        for secret in self._known:
            text = text.replace(secret, "***")
        return _URL_PASSWORD.sub(r"\g<scheme>\g<user>:***@", text)
