"""Neutral messages become the body that chat completions ask for; nothing is lost or invented on the way."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.errors import InvalidValueError, ModelProtocolError
from runlane.models import (
    AnyModelMessage,
    FileItem,
    ModelAssistantToolMessage,
    ModelFunction,
    ModelImage,
    ModelMessage,
    ModelOptions,
    ModelProviderContext,
    ModelToolResultMessage,
)
from runlane.models.openai_chat import OpenAIChatDialect, encode_message, encode_request
from runlane.records import (
    JsonObject,
    ProviderEnvelope,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)


def wire(message: AnyModelMessage, dialect: OpenAIChatDialect | None = None) -> list[Any]:
    """One neutral message as JSON values."""
    values: list[Any] = json.loads(b"[%b]" % encode_message(message, dialect))
    return values


def body(context: ModelProviderContext, dialect: OpenAIChatDialect | None = None) -> dict[str, Any]:
    """A request with one message, as JSON values, without that message."""
    values: dict[str, Any] = json.loads(encode_request("parrot-1", [ModelMessage.user("Hi")], context, dialect))
    assert values.pop("messages") == [{"role": "user", "content": "Hi"}]
    return values


def options(**given: Any) -> ModelProviderContext:  # noqa: ANN401 - the fields of the options
    """A context with some options."""
    return ModelProviderContext(options=ModelOptions(**given))


def test_texts_are_plain_content() -> None:
    """System, user and assistant words are content as text."""
    assert wire(ModelMessage.system("Be brief.")) == [{"role": "system", "content": "Be brief."}]
    assert wire(ModelMessage("user", (TextPart(text="a"), TextPart(text="b")))) == [{"role": "user", "content": "a\nb"}]
    assert wire(ModelMessage.assistant("Hi")) == [{"role": "assistant", "content": "Hi"}]


def test_reasoning_and_opaque_output_of_an_answer_stay_out() -> None:
    """An answer without calls is sent back as its text alone."""
    envelope = ProviderEnvelope(provider="openai-chat", data={"field": "reasoning"})
    items = (ReasoningPart(text="hm", provider=envelope), TextPart(text="Hi"), ProviderPart(envelope=envelope))
    assert wire(ModelMessage("assistant", items)) == [{"role": "assistant", "content": "Hi"}]


def test_calls_are_sent_back_exactly_as_they_were_written() -> None:
    """The arguments text keeps its spacing and digits; blank text is sent as an empty object."""
    exact = '{ "id" : 2512292042121000001 }'
    message = ModelAssistantToolMessage.of(
        "Looking.",
        [
            ToolCallPart(call_id="a", tool_name="find", arguments=exact),
            ToolCallPart(call_id="b", tool_name="list", arguments=" ", input={}),
            ToolCallPart(call_id="c", tool_name="find", arguments='{"half'),
        ],
    )
    (sent,) = wire(message)
    assert sent["content"] == "Looking."
    assert [(call["id"], call["type"]) for call in sent["tool_calls"]] == [(name, "function") for name in "abc"]
    assert [call["function"]["arguments"] for call in sent["tool_calls"]] == [exact, "{}", '{"half']


def test_calls_without_words_have_no_content() -> None:
    """Content is null beside calls; an answer of neither is left out, for endpoints refuse it."""
    call = ToolCallPart(call_id="a", tool_name="find", arguments="{}")
    ask = ToolApprovalRequestPart(approval_id="p", call_id="a")
    assert wire(ModelAssistantToolMessage((call, ask)))[0]["content"] is None
    assert wire(ModelAssistantToolMessage((ask,))) == []
    assert wire(ModelMessage("assistant", (ReasoningPart(text="Hm."), TextPart(text="")))) == []


def test_a_provider_gets_its_own_reasoning_back_beside_calls() -> None:
    """In the field it used, details in order; another provider's reasoning stays out, and so does all if unwanted."""
    own = ProviderEnvelope(provider="openai-chat", data={"field": "reasoning", "reasoning_details": [{"text": "a"}]})
    more = ProviderEnvelope(provider="openai-chat", data={"reasoning_details": [{"data": "b"}]})
    foreign = ProviderEnvelope(provider="anthropic", data={"field": "thinking"})
    call = ToolCallPart(call_id="a", tool_name="find", arguments="{}")
    message = ModelAssistantToolMessage(
        (
            ReasoningPart(text="one, ", provider=own),
            ReasoningPart(text="two", provider=own),
            ReasoningPart(text="", provider=more),
            ReasoningPart(text="not yours", provider=foreign),
            ReasoningPart(text="nobody's"),
            call,
        )
    )
    (sent,) = wire(message)
    assert sent["reasoning"] == "one, two"
    assert sent["reasoning_details"] == [{"text": "a"}, {"text": "a"}, {"data": "b"}]
    assert "thinking" not in sent
    assert set(wire(message, OpenAIChatDialect(send_reasoning="never"))[0]) == {"role", "content", "tool_calls"}


def test_what_a_provider_attached_to_a_call_goes_back_to_it() -> None:
    """A signature beside a call is repeated, and cannot replace what the call is."""
    data: JsonObject = {"extra_content": {"google": {"thought_signature": "s"}}, "id": "forged"}
    call = ToolCallPart(
        call_id="a", tool_name="f", arguments="{}", provider=ProviderEnvelope(provider="openai-chat", data=data)
    )
    sent = wire(ModelAssistantToolMessage((call,)))[0]["tool_calls"][0]
    assert (sent["id"], sent["extra_content"]) == ("a", {"google": {"thought_signature": "s"}})


def test_each_result_is_a_message_of_its_own() -> None:
    """Text stays text, other output is JSON, absence is empty or names the outcome; approvals are not sent."""
    results = (
        ToolResultPart(call_id="a", tool_name="f", outcome="success", output="plain"),
        ToolResultPart(call_id="b", tool_name="f", outcome="error", output={"error": "x", "id": 2**63}),
        ToolResultPart(call_id="c", tool_name="f", outcome="success", output=None),
        ToolResultPart(call_id="d", tool_name="f", outcome="success"),
        ToolResultPart(call_id="e", tool_name="f", outcome="interrupted"),
        ToolApprovalResponsePart(approval_id="p", approved=True),
    )
    sent = wire(ModelToolResultMessage(results))
    assert all(message["role"] == "tool" for message in sent)
    assert [(message["tool_call_id"], message["content"]) for message in sent] == [
        ("a", "plain"),
        ("b", '{"error":"x","id":9223372036854775808}'),
        ("c", "null"),
        ("d", ""),
        ("e", "interrupted"),
    ]


def test_a_message_of_approvals_only_leaves_no_hole() -> None:
    """Answers to approvals have no form here: a message of nothing else is left out, and the body stays JSON."""
    approval = ModelToolResultMessage((ToolApprovalResponsePart(approval_id="a", approved=True),))
    messages = (ModelMessage.user("Hi"), approval, ModelMessage.user("Well?"))
    sent = json.loads(encode_request("parrot-1", messages, ModelProviderContext()))
    assert [message["content"] for message in sent["messages"]] == ["Hi", "Well?"]


def test_images_and_files_are_pieces_in_their_order() -> None:
    """Data becomes a data URL, a URL stays one, text is text, audio and documents have pieces of their own."""
    items = (
        TextPart(text="Look"),
        ModelImage(media_type="image/png", data=b"\x00"),
        ModelImage(media_type="image/png", url="https://x.org/a.png", detail="low"),
        FileItem(media_type="text/plain", text="words", filename="a.txt"),
        FileItem(media_type="application/pdf", data=b"%PDF"),
        FileItem(media_type="application/pdf", provider_file="file-1"),
        FileItem(media_type="audio/wav", data=b"RIFF"),
        FileItem(media_type="image/tiff", url="https://x.org/b.tiff"),
    )
    (sent,) = wire(ModelMessage("user", items))
    assert sent["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}},
        {"type": "text", "text": "a.txt:\nwords"},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "file"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "https://x.org/b.tiff"}},
    ]


def test_a_document_by_url_has_no_form() -> None:
    """It is refused before anything is sent, and the error says what to do."""
    with pytest.raises(ModelProtocolError, match="fetch it"):
        wire(ModelMessage("user", (FileItem(media_type="application/pdf", url="https://x.org/a.pdf"),)))


def test_options_pass_untouched() -> None:
    """No clamping, no range check; extra fields come by the provider's own names and win."""
    given_options = options(
        max_output_tokens=5, temperature=7.0, top_p=0.0, seed=3, stop=("a", "b"), extra={"top_k": 4, "seed": 9}
    )
    assert body(given_options) == {
        "model": "parrot-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 7.0,
        "top_p": 0.0,
        "seed": 9,
        "stop": ["a", "b"],
        "top_k": 4,
    }


def test_the_dialect_decides_what_an_endpoint_accepts() -> None:
    """Usage can be left out, the output limit and the role of instructions renamed."""
    dialect = OpenAIChatDialect(include_usage=False, max_tokens_field="max_completion_tokens", system_role="developer")
    sent = body(options(max_output_tokens=5), dialect)
    assert sent == {"model": "parrot-1", "stream": True, "max_completion_tokens": 5}
    assert wire(ModelMessage.system("x"), dialect)[0]["role"] == "developer"


@pytest.mark.parametrize("name", ["messages", "stream"])
def test_fields_that_are_written_here_are_refused_as_extra(name: str) -> None:
    """Overriding them would break the call."""
    with pytest.raises(InvalidValueError, match=name):
        body(options(extra={name: False}))


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}, b"x"])
def test_an_extra_that_is_not_json_is_refused(value: object) -> None:
    """The error names the argument."""
    with pytest.raises(InvalidValueError, match="extra"):
        body(options(extra={"x": value}))


def test_tools_are_told_as_functions() -> None:
    """Choice and parallel calls are mentioned only where they differ from the default, and only beside tools."""
    functions = (
        ModelFunction(name="find", description="Finds.", parameters={"type": "object"}),
        ModelFunction(name="list", description="Lists.", parameters={}, strict=True),
    )
    plain = body(ModelProviderContext(functions=functions))
    assert plain["tools"] == [
        {"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "list", "description": "Lists.", "parameters": {}, "strict": True}},
    ]
    assert not {"tool_choice", "parallel_tool_calls"} & set(plain)
    strict = body(ModelProviderContext(functions=functions, function_choice="required", allow_multiple_calls=False))
    assert (strict["tool_choice"], strict["parallel_tool_calls"]) == ("required", False)
    alone = body(ModelProviderContext(function_choice="required", allow_multiple_calls=False))
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(alone)


def test_json_output_is_asked_for() -> None:
    """`json_object` becomes the response format."""
    assert body(ModelProviderContext(response_format="json_object"))["response_format"] == {"type": "json_object"}


@given(text=st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_is_sent_as_valid_utf8(text: str) -> None:
    """A lone surrogate in what an application says becomes U+FFFD; all other text arrives as it is."""
    message = ModelImage(media_type="image/png", url=text)  # the one field of text that records do not check
    (sent,) = wire(ModelMessage("user", (message,)))
    repaired = sent["content"][0]["image_url"]["url"]
    assert isinstance(repaired.encode(), bytes)
    surrogates = any("\ud800" <= character <= "\udfff" for character in text)
    assert surrogates or repaired == text


def test_a_system_message_carries_the_endpoints_own_options() -> None:
    """OpenRouter takes a mark for the cache on a piece of text; without options the content stays a plain text."""
    cached = ProviderEnvelope(provider="openai-chat", data={"cache_control": {"type": "ephemeral"}})
    foreign = ProviderEnvelope(provider="anthropic", data={"cache_control": {"type": "ephemeral"}})
    written = [json.loads(encode_message(ModelMessage.system("stable", own))) for own in (cached, foreign, None)]
    assert written == [
        {"role": "system", "content": [{"type": "text", "text": "stable", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "stable"},
        {"role": "system", "content": "stable"},
    ]
