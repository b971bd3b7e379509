"""The stream that the demo's model speaks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.cli._demo_script import FIRST, SECOND, Chance, Exchange, chunks, pieces


@given(st.text(min_size=1).filter(lambda text: text.strip() != ""))
def test_the_pieces_of_a_text_give_the_text(text: str) -> None:
    """Joined, the pieces are the text again."""
    assert "".join(pieces(text)) == text


@pytest.mark.parametrize("exchange", [FIRST, SECOND], ids=["first", "second"])
def test_an_answer_is_a_chat_completions_stream(exchange: Exchange) -> None:
    """The events carry the answer in deltas, one finish reason, the usage in a last chunk without choices, `[DONE]`."""
    events = [chunk.decode().removeprefix("data: ").removesuffix("\n\n") for chunk in chunks(exchange)]
    assert events.pop() == "[DONE]"
    bodies = [json.loads(event) for event in events]
    assert {body["object"] for body in bodies} == {"chat.completion.chunk"}
    *told, last = bodies
    assert "".join(body["choices"][0]["delta"].get("content", "") for body in told) == exchange.answer
    assert [body["choices"][0]["finish_reason"] for body in told] == [None] * (len(told) - 1) + ["stop"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == len(pieces(exchange.answer))


@given(st.integers(), st.integers(min_value=0, max_value=1000))
def test_chance_is_the_same_for_the_same_seed(seed: int, turn: int) -> None:
    """A seed gives the same number every time, between 0 and 1."""
    number = Chance(seed).number("kill", turn)
    assert number == Chance(seed).number("kill", turn)
    assert 0 <= number < 1
