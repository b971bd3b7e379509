"""A stored history writes itself into a chat request, byte for byte as its messages would be written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.history import History, ProjectionOptions
from runlane.models import AnyModelMessage, MessageChain, ModelMessage, ModelProviderContext, ModelToolResultMessage
from runlane.models._rounds import settle_rounds
from runlane.models.openai_chat import OpenAIChatDialect, encode_message, encode_request
from runlane.records import FilePart, TextPart
from tests.history.records import CALLS, OPTIONS, histories, stored, user
from tests.models.messages import result
from tests.models.test_request_types import FILES

_CONTEXT = ModelProviderContext()
_SYSTEM: list[AnyModelMessage] = [ModelMessage.system("Be brief.")]
_NEW: list[AnyModelMessage] = [ModelMessage.user("And?")]


def _plainly(messages: list[AnyModelMessage], dialect: OpenAIChatDialect) -> bytes:
    """The body with every message written on its own, each round's results behind its calls."""
    head, tail = encode_request("m", [], _CONTEXT, dialect).split(b"[]")
    written = (encode_message(each, dialect) for each in settle_rounds(messages))
    return head + b"[" + b",".join(filter(None, written)) + b"]" + tail


@given(records=histories(), options=OPTIONS, reasoning=st.sampled_from(["tool-calls", "never"]), data=st.data())
def test_a_stored_history_is_written_as_its_messages_would_be(
    records: list[object], options: ProjectionOptions, reasoning: str, data: st.DataObject
) -> None:
    """Whatever the history, between instructions and new messages, with files and without, request after request."""
    dialect = OpenAIChatDialect(send_reasoning=reasoning)  # type: ignore[arg-type]  # drawn from its words
    history = History()
    for piece in (records[: len(records) // 2], records[len(records) // 2 :]):
        history.extend(stored(record) for record in piece)  # type: ignore[arg-type]  # records
        files = {
            (each.id, place): data.draw(FILES)  # type: ignore[attr-defined]
            for each in records
            for place, part in enumerate(each.parts)  # type: ignore[attr-defined]
            if isinstance(part, FilePart)
        }
        projected = history.project(options, files=data.draw(st.sampled_from([files, None]))).messages
        late = [result(call_id, 1) for call_id in data.draw(st.lists(CALLS, unique=True, max_size=2))]
        new = [*_NEW, ModelToolResultMessage(tuple(late))] if late else _NEW
        chain = MessageChain(_SYSTEM, projected, new)
        assert encode_request("m", chain, _CONTEXT, dialect) == _plainly(list(chain), dialect)
        assert encode_request("m", projected, _CONTEXT, dialect) == _plainly(list(projected), dialect)


def test_the_next_request_writes_only_what_is_new() -> None:
    """The history keeps what it wrote; another projection of it goes on from there."""
    history = History([stored(user(f"m{number}")) for number in range(3)])
    first = history.project().messages
    encode_request("m", first, _CONTEXT)
    history.append(stored(user("m3")))
    second = history.project().messages
    body = encode_request("m", MessageChain(_SYSTEM, second), _CONTEXT)
    assert body.count(b'"role"') == 5
    assert second.openai_chat_fragments(lambda _: b"", send_reasoning=True).count(b'"role"') == 4


def test_a_result_behind_a_stored_call_stays_behind_it() -> None:
    """A piece that begins with results of the piece before is not taken for lost."""
    chain = MessageChain(_NEW, [ModelToolResultMessage((result("a", 1),))])
    assert b'"tool_call_id":"a"' in encode_request("m", chain, _CONTEXT)


def test_a_chain_is_its_messages() -> None:
    """It is as long as its pieces together, equal to the list of them, and takes chains apart."""
    inner = MessageChain(_SYSTEM, [])
    chain = MessageChain(inner, _NEW)
    assert chain.pieces == (_SYSTEM, _NEW)
    assert (len(chain), chain[0], chain[-1:]) == (2, _SYSTEM[0], (_NEW[0],))
    assert chain == [*_SYSTEM, *_NEW]
    assert chain != "x"
    assert [chain[place] for place in range(-2, 2)] == [*chain, *chain]
    assert list(reversed(chain)) == [*_NEW, *_SYSTEM]
    for place in (2, -3):
        with pytest.raises(IndexError):
            chain[place]
    assert "Be brief." in repr(chain)


def test_an_attachment_stands_on_a_line_of_its_own() -> None:
    """Text behind a user's text is parted from it."""
    message = ModelMessage("user", (TextPart(text="See this:"), TextPart(text="[attachment: a.pdf]")))
    assert b'"See this:\\n[attachment: a.pdf]"' in encode_message(message)
    part = FilePart(media_type="application/pdf", reference="place", filename="a.pdf")
    history = History([stored(user("m", TextPart(text="See this:"), part))])
    projected = history.project(ProjectionOptions(unresolved_file="text")).messages
    assert b'"See this:\\n[attachment: a.pdf]"' in encode_request("m", projected, _CONTEXT)
