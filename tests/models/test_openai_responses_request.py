"""What is sent to OpenAI's responses."""

import json
from typing import Any

import pytest
from pydantic import JsonValue

from runlane.errors import InvalidValueError
from runlane.models import (
    AnyModelMessage,
    FileItem,
    ModelAssistantToolMessage,
    ModelImage,
    ModelMessage,
    ModelOptions,
    ModelProviderContext,
    ModelToolResultMessage,
)
from runlane.models.openai_responses import OpenAIResponses, OpenAIResponsesDialect, encode_request
from runlane.records import JsonObject, ProviderEnvelope, ProviderPart, ReasoningPart, TextPart, ToolCallPart
from runlane.testing import ReplayServer, Reply
from tests.models.messages import FUNCTION, broken_call, call, envelope, opaque, result
from tests.models.protocols import own_streams


def encode(
    *messages: AnyModelMessage,
    context: ModelProviderContext | None = None,
    model: str = "parrot-5",
    dialect: OpenAIResponsesDialect | None = None,
) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = json.loads(encode_request(model, messages, context or ModelProviderContext(), dialect))
    return body


def own(**data: JsonValue) -> ProviderEnvelope:
    """What OpenAI attached."""
    return envelope("openai-responses", **data)


def test_a_plain_question_is_the_smallest_request() -> None:
    """Model, stream and the message; the provider is asked not to keep what runlane keeps."""
    assert encode(ModelMessage.system("Be brief."), ModelMessage.user("Hi"), ModelMessage.system("Be kind.")) == {
        "model": "parrot-5",
        "stream": True,
        "store": False,
        "instructions": "Be brief.\n\nBe kind.",
        "input": [{"role": "user", "content": "Hi"}],
    }


@pytest.mark.parametrize(
    ("model", "asked", "included"),
    [
        ("gpt-5-mini", None, True),
        ("o4-mini", None, True),
        ("openai/gpt-oss-120b", None, True),
        ("gpt-4o", None, False),
        ("gpt-4o", True, True),
        ("o4-mini", False, False),
    ],
)
def test_reasoning_is_asked_for_in_a_form_that_goes_back(model: str, asked: bool | None, included: bool) -> None:  # noqa: FBT001
    """Of models that reason by their name, unless the dialect says otherwise."""
    body = encode(ModelMessage.user("Hi"), model=model, dialect=OpenAIResponsesDialect(encrypted_reasoning=asked))
    assert ("include" in body) == included


def test_calls_and_results_keep_their_text() -> None:
    """The arguments go back exactly as they were written, blank ones as an empty object, broken ones too."""
    spaced = ToolCallPart(call_id="a", tool_name="f", arguments='{ "n":1 }', input={"n": 1})
    blank = ToolCallPart(call_id="b", tool_name="f", arguments="", input={})
    body = encode(
        ModelMessage.user("Go"),
        ModelAssistantToolMessage((TextPart(text="Now."), spaced, blank, broken_call("c"))),
        ModelToolResultMessage((result("a", {"x": 1}), result("b", "no", "error"))),
        ModelToolResultMessage((result("c", None, "error"),)),
    )
    assert body["input"][1:] == [
        {"role": "assistant", "content": "Now."},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{ "n":1 }'},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": '},
        {"type": "function_call_output", "call_id": "a", "output": '{"x":1}'},
        {"type": "function_call_output", "call_id": "b", "output": "no"},
        {"type": "function_call_output", "call_id": "c", "output": "null"},
    ]


def test_what_the_provider_attached_goes_back() -> None:
    """A namespace with its call; a call with free text, and its result, in their own form."""
    custom = ToolCallPart(call_id="b", tool_name="w", arguments="print(1)", provider=own(type="custom_tool_call"))
    body = encode(
        ModelMessage.user("Go"),
        ModelAssistantToolMessage((call("a", own(namespace="clock")), custom)),
        ModelToolResultMessage((result("a", 1), result("b", "done"))),
    )
    assert body["input"][1:] == [
        {"namespace": "clock", "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "w", "input": "print(1)"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "done"},
    ]


def test_its_own_reasoning_goes_back_before_what_it_led_to() -> None:
    """The item goes back whole; foreign reasoning, and reasoning that led to nothing, stay here."""
    mine = ReasoningPart(text="Mine.", provider=own(id="rs_1", encrypted_content="ZW5j"))
    theirs = ReasoningPart(text="Theirs.", provider=envelope("anthropic", signature="x"))
    body = encode(
        ModelMessage.user("Go"),
        ModelMessage("assistant", (mine, theirs, TextPart(text="Hm."), mine)),
        ModelMessage.user("On"),
    )
    assert body["input"] == [
        {"role": "user", "content": "Go"},
        {"summary": [], "id": "rs_1", "encrypted_content": "ZW5j", "type": "reasoning"},
        {"role": "assistant", "content": "Hm."},
        {"role": "user", "content": "On"},
    ]


def test_a_tool_the_provider_ran_goes_back_as_it_came() -> None:
    """Its own items do; others', pieces without a form, and images without their data stay here."""
    search: JsonObject = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    parts = (
        opaque("openai-responses", search),
        opaque("openai-responses", {"type": "message_piece", "piece": {}}),
        opaque("openai-responses", {"type": "image_generation_call", "id": "ig", "result": None}),
        opaque("anthropic", {"type": "server_tool_use"}),
        TextPart(text="So."),
    )
    body = encode(ModelMessage.user("Go"), ModelMessage("assistant", parts))
    assert body["input"][1:] == [search, {"role": "assistant", "content": "So."}]


_SHELL: JsonObject = {"type": "shell_call", "id": "sh", "call_id": "c", "status": "completed", "action": {}}
_SHOWN: JsonObject = {"type": "shell_call_output", "call_id": "c", "output": []}
_LOCAL: JsonObject = {"type": "local_shell_call", "id": "ls", "call_id": "c", "status": "completed", "action": {}}
_RAN: JsonObject = {"type": "local_shell_call_output", "id": "c", "output": ""}
_SEEKS: JsonObject = {"type": "tool_search_call", "id": "ts", "call_id": None, "execution": "server", "arguments": {}}
_FINDS: JsonObject = {"type": "tool_search_output", "id": "to", "call_id": None, "execution": "server", "tools": []}
_ASKS: JsonObject = {"type": "mcp_approval_request", "id": "ap", "server_label": "w", "name": "n", "arguments": "{}"}
_SAYS: JsonObject = {"type": "mcp_approval_response", "approval_request_id": "ap", "approve": True}


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ((_SHELL, _SHOWN), [_SHELL, _SHOWN]),
        ((_SHELL,), []),
        ((_SHOWN,), []),
        ((_LOCAL, _RAN), [_LOCAL, _RAN]),
        ((_LOCAL,), []),
        ((_SEEKS, _FINDS), [_SEEKS, _FINDS]),
        (({**_SEEKS, "call_id": "c", "execution": "client"},), []),
        ((_ASKS, _SAYS), [_ASKS, _SAYS]),
        ((_ASKS,), []),
        (({**_SHELL, "call_id": "d"}, _SHOWN), []),
    ],
)
def test_what_waits_for_the_application_goes_back_with_its_answer_or_not_at_all(
    parts: tuple[JsonObject, ...], kept: list[JsonObject]
) -> None:
    """The provider refuses a question without its answer."""
    message = ModelMessage("assistant", tuple(opaque("openai-responses", part) for part in parts))
    assert encode(ModelMessage.user("Go"), message, ModelMessage.user("On."))["input"][1:-1] == kept


def test_reasoning_that_led_to_something_left_out_is_left_out_with_it() -> None:
    """The provider refuses reasoning without the item behind it; a piece of a message is none."""
    hm = ReasoningPart(text="Hm.", provider=own(id="rs_1", encrypted_content="ZW5j"))
    piece: JsonObject = {"type": "message_piece", "piece": {}}
    said = (hm, opaque("openai-responses", _SHELL), hm, opaque("openai-responses", piece), TextPart(text="So."))
    body = encode(ModelMessage.user("Go"), ModelMessage("assistant", said))
    assert [item.get("type", "message") for item in body["input"][1:]] == ["reasoning", "message"]


@pytest.mark.parametrize(
    ("texts", "length", "items"),
    [
        (["I look. ", "Done."], 5, [("I look. ", None), ("Done.", "final_answer")]),
        (["I look. Done."], 5, [("I look. ", None), ("Done.", "final_answer")]),
        (["Do", "ne."], 5, [("Done.", "final_answer")]),
        (["Done."], 6, [("Done.", None)]),
    ],
)
def test_the_phase_goes_back_with_the_text_it_is_of(
    texts: list[str], length: int, items: list[tuple[str, str | None]]
) -> None:
    """However the record joined or parted the text; a mark that does not fit it is left out."""
    mark: JsonObject = {"type": "message", "phase": "final_answer", "length": length}
    said: list[TextPart | ProviderPart] = [*(TextPart(text=text) for text in texts), opaque("openai-responses", mark)]
    body = encode(ModelMessage.user("Go"), ModelMessage("assistant", tuple(said)))
    assert [(item["content"], item.get("phase")) for item in body["input"][1:]] == items


def test_images_and_files_have_their_pieces() -> None:
    """Data, addresses, text and the provider's own files, each in its form."""
    items = (
        TextPart(text="See:"),
        ModelImage(media_type="image/png", data=b"\x89", detail="low"),
        ModelImage(media_type="image/png", url="https://a.example/b.png"),
        FileItem(media_type="image/webp", provider_file="file_2"),
        FileItem(media_type="image/webp", data=b"w"),
        FileItem(media_type="application/pdf", data=b"%PDF"),
        FileItem(media_type="application/pdf", url="https://a.example/b.pdf"),
        FileItem(media_type="text/plain", text="Said.", filename="n.txt"),
        FileItem(media_type="application/pdf", provider_file="file_1"),
    )
    (message,) = encode(ModelMessage("user", items))["input"]
    assert message["content"] == [
        {"type": "input_text", "text": "See:"},
        {"type": "input_image", "image_url": "data:image/png;base64,iQ==", "detail": "low"},
        {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "auto"},
        {"type": "input_image", "file_id": "file_2", "detail": "auto"},
        {"type": "input_image", "image_url": "data:image/webp;base64,dw==", "detail": "auto"},
        {"type": "input_file", "filename": "file", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_file", "file_url": "https://a.example/b.pdf"},
        {"type": "input_text", "text": "n.txt:\nSaid."},
        {"type": "input_file", "file_id": "file_1"},
    ]


def test_functions_wishes_and_options() -> None:
    """A function is a tool, wishes have their fields, extra fields go in as they are."""
    options = ModelOptions(
        max_output_tokens=9,
        temperature=7,
        top_p=0.5,
        extra={"tools": [{"type": "web_search"}], "reasoning": {"effort": "low"}, "include": ["x"]},
    )
    context = ModelProviderContext(
        functions=(FUNCTION,),
        function_choice="required",
        allow_multiple_calls=False,
        response_format="json_object",
        options=options,
    )
    body = encode(ModelMessage.user("Hi"), context=context, model="gpt-5")
    tool = {
        "type": "function",
        "name": "f",
        "description": "Finds.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert body["tools"] == [tool, {"type": "web_search"}]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert body["text"] == {"format": {"type": "json_object"}}
    assert (body["max_output_tokens"], body["temperature"], body["top_p"]) == (9, 7, 0.5)
    assert body["reasoning"] == {"effort": "low"}
    assert body["include"] == ["reasoning.encrypted_content", "x"]


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        (ModelOptions(seed=1), "options.seed"),
        (ModelOptions(stop=("x",)), "options.stop"),
        (ModelOptions(extra={"input": []}), "options.extra.input"),
    ],
)
def test_an_option_without_a_form_is_refused(options: ModelOptions, argument: str) -> None:
    """The error names the option, and nothing is sent."""
    with pytest.raises(InvalidValueError) as refused:
        encode(ModelMessage.user("Hi"), context=ModelProviderContext(options=options))
    assert refused.value.argument == argument


@pytest.mark.anyio
async def test_the_request_is_what_openais_client_sends() -> None:
    """A POST to `/responses` below the base URL, with the key."""
    (stream,) = (one for one in own_streams("openai-responses") if one.path.stem == "text")
    async with ReplayServer([Reply(stream.body, headers={"Content-Type": "text/event-stream"})]) as server:
        provider = OpenAIResponses("parrot-5", base_url=f"{server.base_url}/v1", api_key="sk-parrot")
        async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
            assert [part async for part in opened]
        await provider.aclose()
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/responses")
    assert request.header("authorization") == "Bearer sk-parrot"
