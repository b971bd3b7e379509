"""What a replay server answers, and what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import UnionType
from typing import Final, Literal
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import override

from runlane.contracts import require_kind
from runlane.errors import InvalidValueError

__all__ = ["ReceivedRequest", "Reply"]

_SECRET_HEADERS: Final = frozenset({
    "api-key",
    "authorization",
    "cookie",
    "proxy-authorization",
    "x-api-key",
    "x-goog-api-key",
})  # fmt: skip
_SECRET_PARAMETERS: Final = frozenset({"access_token", "api_key", "key", "token"})
_BODILESS_STATUSES: Final = frozenset({204, 304})
_FIRST_FINAL_STATUS: Final = 200
_LAST_STATUS: Final = 599
_KINDS: Final[Mapping[str, type | UnionType]] = {
    "body": bytes,
    "status": int,
    "headers": Mapping | Sequence,
    "chunk_size": int | None,
    "first_delay": int | float,
    "delay": int | float,
    "cut_at": int | None,
    "hang_after": int | None,
    "send_head": bool,
}


@dataclass(frozen=True, slots=True)
class Reply:
    r"""One answer of a `ReplayServer`: its bytes, its pace, and how it goes wrong.

    Positions count bytes of the body, whatever the framing adds to them.

    Attributes:
        body: The bytes of the body, all of them, also those that a cut keeps back.
        status: The HTTP status, 200 to 599.
        headers: Sent as they are. `Content-Length` or `Transfer-Encoding` is added to frame the body unless one is
            given.
        chunk_size: Bytes in one piece; each piece is one chunk of a chunked body and one write. None sends the body
            as one piece with its `Content-Length`.
        first_delay: Seconds to wait before the head.
        delay: Seconds to wait between two pieces.
        cut_at: The connection is ended, without the end of the message, once this many bytes are sent.
        cut: How a cut looks to the client: `close` ends the stream of bytes politely (FIN), `reset` resets the
            connection (RST), which may also destroy bytes that the client has not read yet.
        hang_after: The reply stops once this many bytes are sent and leaves the connection open. It goes on when
            `ReplayServer.release` is called, and ends when the client leaves or the server does.
        send_head: Whether status and headers are sent; without them the reply must cut or hang at 0.

    Raises:
        InvalidValueError, UsageError: A field is outside what it accepts; `argument` names it.

    Example:
        A stream that breaks off after 300 bytes, sent 40 bytes at a time:

        >>> Reply(b"data: {}\n\n" * 100, chunk_size=40, delay=0.01, cut_at=300).status
        200
    """

    body: bytes = b""
    _: KW_ONLY
    status: int = 200
    headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()
    chunk_size: int | None = None
    first_delay: float = 0.0
    delay: float = 0.0
    cut_at: int | None = None
    cut: Literal["close", "reset"] = "close"
    hang_after: int | None = None
    send_head: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be sent, so that a script fails where it is written."""
        self._check_kinds()
        if not _FIRST_FINAL_STATUS <= self.status <= _LAST_STATUS:
            raise InvalidValueError(f"{self.status} is not a final HTTP status (200 to 599)", argument="status")
        if self.body and self.status in _BODILESS_STATUSES:
            raise InvalidValueError(f"a reply of status {self.status} has no body", argument="body")
        if self.chunk_size is not None and self.chunk_size < 1:
            raise InvalidValueError("a piece has at least 1 byte", argument="chunk_size")
        if self.cut not in {"close", "reset"}:
            raise InvalidValueError(f"{self.cut!r} is neither 'close' nor 'reset'", argument="cut")
        self._check_delays()
        self._check_positions()

    def _check_kinds(self) -> None:
        for name, kind in _KINDS.items():
            require_kind(getattr(self, name), kind, argument=name)

    def _check_delays(self) -> None:
        for name, seconds in (("first_delay", self.first_delay), ("delay", self.delay)):
            if not 0 <= seconds < float("inf"):
                raise InvalidValueError("a delay is a finite number of seconds, 0 or more", argument=name)

    def _check_positions(self) -> None:
        for name, position in (("cut_at", self.cut_at), ("hang_after", self.hang_after)):
            if position is not None and not 0 <= position <= len(self.body):
                raise InvalidValueError(f"{position} is outside the body of {len(self.body)} bytes", argument=name)
        if not self.send_head and 0 not in {self.cut_at, self.hang_after}:
            raise InvalidValueError("a reply without a head cuts or hangs at 0", argument="send_head")

    def header_list(self) -> list[tuple[str, str]]:
        """The headers as pairs, in order."""
        pairs = self.headers.items() if isinstance(self.headers, Mapping) else self.headers
        return list(pairs)

    def pieces(self) -> Iterator[bytes]:
        """The pieces that are sent, in order; none reaches over the place of a hang or a cut."""
        end = len(self.body) if self.cut_at is None else self.cut_at
        pause = end if self.hang_after is None else min(self.hang_after, end)
        for first, last in ((0, pause), (pause, end)):
            size = self.chunk_size or max(last - first, 1)
            for start in range(first, last, size):
                yield self.body[start : min(start + size, last)]


@dataclass(frozen=True, slots=True, repr=False)
class ReceivedRequest:
    """One request as a `ReplayServer` received it; its `repr` shows neither secrets nor the body.

    Attributes:
        method: The method, in capitals.
        path: The path without the query.
        query: The pairs of the query, decoded, in order.
        headers: The headers in order; names in lower case.
        body: The whole body, its transfer encoding undone.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @classmethod
    def from_wire(
        cls, *, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> ReceivedRequest:
        """Read a request from the parts that an HTTP/1.1 parser gives."""
        address = urlsplit(target.decode("latin-1"))
        return cls(
            method=method.decode("latin-1").upper(),
            path=address.path,
            query=tuple(parse_qsl(address.query, keep_blank_values=True)),
            headers=tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers),
            body=body,
        )

    def header(self, name: str, /) -> str | None:
        """The first header of a name, in any case; None where there is none."""
        return next((value for known, value in self.headers if known == name.lower()), None)

    def json(self) -> object:
        """The body read as JSON.

        Raises:
            InvalidValueError: The body is not JSON.
        """
        try:
            value: object = json.loads(self.body)
        except ValueError as error:
            raise InvalidValueError(
                f"the body of {len(self.body)} bytes is not JSON: {error}", argument="body"
            ) from error
        return value

    @override
    def __repr__(self) -> str:
        query = [(name, _veil(name, value, _SECRET_PARAMETERS)) for name, value in self.query]
        headers = [(name, _veil(name, value, _SECRET_HEADERS)) for name, value in self.headers]
        return (
            f"ReceivedRequest({self.method} {self.path}, query={query!r}, headers={headers!r}, "
            f"body=<{len(self.body)} bytes>)"
        )


def _veil(name: str, value: str, secrets: frozenset[str]) -> str:
    return "***" if name.lower() in secrets else value
