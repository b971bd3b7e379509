"""What a script of a replay server may say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import InvalidValueError
from runlane.testing import ReceivedRequest, Reply


@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ({"status": 199}, "status"),
        ({"status": 600}, "status"),
        ({"body": b"x", "status": 204}, "body"),
        ({"body": b"x", "chunk_size": 0}, "chunk_size"),
        ({"body": b"x", "cut_at": 2}, "cut_at"),
        ({"body": b"x", "cut_at": -1}, "cut_at"),
        ({"body": b"x", "cut_at": 0, "cut": "melt"}, "cut"),
        ({"body": b"x", "hang_after": 2}, "hang_after"),
        ({"delay": -0.1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"first_delay": float("inf")}, "first_delay"),
        ({"body": b"x", "send_head": False}, "send_head"),
    ],
)
def test_a_reply_that_cannot_be_sent_is_refused_where_it_is_written(fields: dict[str, Any], culprit: str) -> None:
    """The error names the field that is wrong."""
    with pytest.raises(InvalidValueError) as refused:
        Reply(**fields)
    assert refused.value.argument == culprit


@given(body=st.binary(max_size=200), size=st.none() | st.integers(1, 50), data=st.data())
def test_the_pieces_are_the_body_up_to_the_cut(body: bytes, size: int | None, data: st.DataObject) -> None:
    """Whatever the sizes, nothing is lost, nothing doubled, nothing empty, and no piece reaches over a hang."""
    position = st.none() | st.integers(0, len(body))
    reply = Reply(body, chunk_size=size, cut_at=data.draw(position), hang_after=data.draw(position))
    pieces = list(reply.pieces())
    sent = body if reply.cut_at is None else body[: reply.cut_at]
    assert b"".join(pieces) == sent
    assert all(0 < len(piece) <= (size or len(body)) for piece in pieces)
    starts = {sum(map(len, pieces[:index])) for index in range(len(pieces) + 1)}
    if reply.hang_after is not None and reply.hang_after <= len(sent):
        assert reply.hang_after in starts


def _request(body: bytes = b'{"password": "sk-body"}') -> ReceivedRequest:
    return ReceivedRequest.from_wire(
        method=b"post",
        target=b"/v1/models/m:stream?alt=sse&key=sk-query",
        headers=[(b"Authorization", b"Bearer sk-header"), (b"X-Api-Key", b"sk-other"), (b"Accept", b"*/*")],
        body=body,
    )


def test_the_repr_of_a_request_shows_no_secret() -> None:
    """Keys in headers and in the query are veiled, and of the body only its length is shown."""
    shown = repr(_request())
    assert "sk-" not in shown
    assert "'***'" in shown
    assert "/v1/models/m:stream" in shown
    assert "'alt', 'sse'" in shown


def test_a_request_gives_what_was_sent() -> None:
    """Method, path, query, headers in any case and the JSON body are there for assertions, secrets included."""
    request = _request()
    assert (request.method, request.path) == ("POST", "/v1/models/m:stream")
    assert request.query == (("alt", "sse"), ("key", "sk-query"))
    assert request.header("AUTHORIZATION") == "Bearer sk-header"
    assert request.header("missing") is None
    assert request.json() == {"password": "sk-body"}


def test_a_body_that_is_not_json_is_an_error_without_the_body() -> None:
    """The error of `json` says what is wrong and does not quote the whole body."""
    with pytest.raises(InvalidValueError) as refused:
        _request(body=b"sk-secret{").json()
    assert refused.value.argument == "body"
    assert "sk-secret" not in str(refused.value)
