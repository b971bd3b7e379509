"""Counting with an offline tokenizer."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import InvalidValueError, MissingDependencyError
from runlane.history import ByteBound, OpenAITokens
from runlane.models import _tokens as tokens


@pytest.mark.parametrize("vocabulary", ["o200k_base", "cl100k_base"])
def test_known_texts_count_what_the_vocabularies_say(vocabulary: str) -> None:
    """Counts are exact, and a text that looks like a special token counts as ordinary text."""
    counter = OpenAITokens(vocabulary)  # type: ignore[arg-type]
    assert [counter.count(text) for text in ("", "hello world", "Hello, world!")] == [0, 2, 4]
    assert counter.count("<|endoftext|>") > 1
    assert (counter.name, counter.provenance) == (vocabulary, "measured")


@given(text=st.text(max_size=80))
def test_the_byte_bound_is_never_too_low(text: str) -> None:
    """No text has more tokens than bytes."""
    assert OpenAITokens().count(text) <= ByteBound().count(text)


def test_an_unknown_vocabulary_is_refused() -> None:
    """The error names the argument and what it may be."""
    with pytest.raises(InvalidValueError) as refused:
        OpenAITokens("p50k_base")  # type: ignore[arg-type]
    assert refused.value.argument == "vocabulary"


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing tokenizer is a missing dependency with the name of its extra."""
    tokens._tokenizer.cache_clear()
    monkeypatch.setitem(sys.modules, "bpe_openai", None)
    with pytest.raises(MissingDependencyError) as missing:
        OpenAITokens()
    assert missing.value.extra == "tokens"
