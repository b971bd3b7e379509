"""What is submitted is checked at once, and refused with an error of runlane that names the field."""

import pytest
from pydantic import JsonValue

from runlane.clock import SystemClock
from runlane.errors import InvalidValueError, UsageError
from runlane.records import TextPart
from runlane.runtime._history_seeds import seed_messages
from runlane.runtime._inputs import RuntimeInput, read_id, read_input, read_object

_LONE = "\ud800"
_NOW = SystemClock().now()


def _nested(depth: int) -> JsonValue:
    value: JsonValue = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("given", [f"{_LONE}x", {"type": "text", "text": _LONE}, [{"type": "text", "text": _LONE}]])
def test_a_text_that_is_no_text_is_refused_in_our_words(given: str | dict[str, object]) -> None:
    """A lone surrogate in a plain text is an error of runlane, like anywhere else."""
    with pytest.raises(InvalidValueError, match="lone surrogate") as caught:
        read_input(given, None)
    assert caught.value.argument.startswith("input.parts.0")


@pytest.mark.parametrize(
    "given", [{"a": _LONE}, {_LONE: 1}, {"a": {_LONE: 1}}, {"a": float("nan")}, {"a": _nested(505)}, [], "x", 5]
)
def test_an_object_that_cannot_be_stored_is_refused_before_anything_is_written(given: object) -> None:
    """Metadata and request are checked when they are given, keys and depth included."""
    for read in (lambda: read_object(given, "metadata"), lambda: read_input("Hi", given)):  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match="metadata") as caught:
            read()
        assert len(str(caught.value)) < 400


def test_given_metadata_wins_over_the_inputs_own_even_if_empty() -> None:
    """Only None leaves the input's own metadata in place."""
    own = RuntimeInput(parts=(TextPart(text="Hi"),), metadata={"a": 1})
    assert read_input(own, None).metadata == {"a": 1}
    assert read_input(own, {}).metadata == {}
    assert read_input(own, {"b": 2}).metadata == {"b": 2}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "at least 1 character"),
        ("x" * 513, "at most 512 characters"),
        (b"x", "string"),
        (5, "string"),
        (None, "string"),
    ],
)
def test_an_identifier_is_a_text_of_1_to_512_characters(given: object, says: str) -> None:
    """Bytes and numbers are no identifiers, and the error counts characters."""
    with pytest.raises(InvalidValueError, match=says):
        read_id(given, "conversation_id")
    assert read_id("x" * 512, "conversation_id") == "x" * 512


def test_a_large_text_passes() -> None:
    """Ten mebibytes with every plane of Unicode in them are one part."""
    text = "a\0é€😀" * (10 * 1024 * 1024 // 11)
    (part,) = read_input(text, None).parts
    assert isinstance(part, TextPart)
    assert part.text == text


_NOT_A_USERS: list[dict[str, object]] = [
    {"type": "tool-call", "call_id": "c", "tool_name": "t", "arguments": "{}"},
    {"type": "tool-result", "call_id": "c", "tool_name": "t", "outcome": "success", "output": 1},
    {"type": "tool-approval-request", "approval_id": "a", "call_id": "c"},
    {"type": "tool-approval-response", "approval_id": "a", "approved": True},
    {"type": "control", "reason": "run-interrupted"},
]


@pytest.mark.parametrize("part", _NOT_A_USERS, ids=lambda part: part["type"])
def test_a_user_neither_calls_tools_nor_speaks_of_approvals(part: dict[str, object]) -> None:
    """Such a part of a user would use up somebody's consent, or read as if a tool had been called."""
    with pytest.raises(UsageError) as caught:
        read_input([part], None)
    assert caught.value.argument == "input.parts.0"
    with pytest.raises(UsageError) as caught:
        seed_messages("c", "k", [{"role": "user", "parts": [{"type": "text", "text": "Hi"}, part]}], _NOW)
    assert caught.value.argument == "messages.0.parts.1"


@pytest.mark.parametrize(
    ("given", "place", "says"),
    [
        ({"role": "user", "content": "Hi"}, "input", "neither `parts` nor a `type`; a message is {"),
        ({}, "input", "a text can be given as it is"),
        ([{"role": "user", "content": "Hi"}], "input.parts.0", "is a message, not a part"),
        ({"type": "image"}, "input.parts.0", "one of text, reasoning, file, .*; this one 'image' is none"),
        ([{"type": "text", "text": "a"}, {"text": "b"}], "input.parts.1", "this one has none"),
        ({"type": "text", "text": 5}, "input.parts.0.text", "valid string"),
        ({"type": "file"}, "input.parts.0.media_type", "required"),
        (["Hi"], "input.parts.0", "must be a part or its JSON, not str"),
        ([5], "input.parts.0", "not int"),
        ({"parts": "Hi"}, "input.parts", "must be a list of parts, not str"),
        ({"parts": 5}, "input.parts", "must be a list of parts, not int"),
    ],
)
def test_what_is_no_part_is_refused_in_words_of_parts(given: object, place: str, says: str) -> None:
    """The error names the place and what belongs there, in our words."""
    with pytest.raises((InvalidValueError, UsageError), match=says) as caught:
        read_input(given, None)  # type: ignore[arg-type]
    assert getattr(caught.value, "argument", None) == place
    assert "discriminator" not in str(caught.value)
