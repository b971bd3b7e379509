"""What is sent to Google's generateContent."""

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
from runlane.models.google import Google, encode_request
from runlane.records import JsonObject, ProviderEnvelope, ReasoningPart, TextPart
from runlane.testing import ReplayServer, Reply
from tests.models.messages import FUNCTION, broken_call, call, envelope, opaque, result
from tests.models.protocols import own_streams


def encode(
    *messages: AnyModelMessage, context: ModelProviderContext | None = None, model: str = "gemini-2.5-flash"
) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = json.loads(encode_request(model, messages, context or ModelProviderContext()))
    return body


def own(**data: JsonValue) -> ProviderEnvelope:
    """What Google attached."""
    return envelope("google", **data)


def test_a_plain_question_is_the_smallest_request() -> None:
    """Instructions have their own field; nothing is said that nobody asked for."""
    assert encode(ModelMessage.system("Be brief."), ModelMessage.user("Hi"), ModelMessage.user("")) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }


def test_a_round_of_calls_is_followed_by_its_results_in_their_order() -> None:
    """Results stand in one content, in the order of the calls; the next question is a content of its own."""
    body = encode(
        ModelMessage.user("Go"),
        ModelAssistantToolMessage((call("a", own(id="a"), n=1), call("b", own(thoughtSignature="c2ln")))),
        ModelToolResultMessage((result("b", "no", "error"),)),
        ModelToolResultMessage((result("a", {"x": 1}),)),
        ModelMessage.user("And?"),
    )
    assert body["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "f", "args": {"n": 1}, "id": "a"}},
                {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2ln"},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": {"x": 1}}, "id": "a"}},
                {"functionResponse": {"name": "f", "response": {"error": "no"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "And?"}]},
    ]


@pytest.mark.parametrize(("model", "signed"), [("gemini-2.5-flash", False), ("gemini-3-pro", True)])
def test_a_call_of_another_model_is_marked_where_signatures_are_wanted(model: str, signed: bool) -> None:  # noqa: FBT001
    """The first call of a round without a signature says so to models that would refuse it."""
    message = ModelAssistantToolMessage((call("a"), broken_call("b")))
    parts = encode(ModelMessage.user("Go"), message, model=model)["contents"][1]["parts"]
    assert ["thoughtSignature" in part for part in parts] == [signed, False]
    assert parts[1]["functionCall"] == {"name": "f", "args": {}}


def test_signatures_and_the_providers_own_parts_go_back() -> None:
    """A signed thought, the signature of text, and code with its result do; the rest stays here."""
    code: JsonObject = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "Y29kZQ=="}
    message = ModelMessage(
        "assistant",
        (
            ReasoningPart(text="Mine.", provider=own(thoughtSignature="c2ln", thought=True)),
            ReasoningPart(text="Unsigned."),
            ReasoningPart(text="Theirs.", provider=envelope("anthropic", signature="x")),
            opaque("google", code),
            opaque("google", {"groundingMetadata": {}}),
            opaque("anthropic", {"executableCode": {}}),
            TextPart(text="So."),
            ReasoningPart(text="", provider=own(thoughtSignature="dGV4dA==")),
        ),
    )
    assert encode(ModelMessage.user("Go"), message)["contents"][1]["parts"] == [
        {"text": "Mine.", "thoughtSignature": "c2ln", "thought": True},
        code,
        {"text": "So."},
        {"text": "", "thoughtSignature": "dGV4dA=="},
    ]


def test_images_and_files_have_their_parts() -> None:
    """Data, addresses, text and the provider's own files, each in its form."""
    items = (
        TextPart(text="See:"),
        ModelImage(media_type="image/png", data=b"\x89"),
        ModelImage(media_type="image/png", url="https://a.example/b.png"),
        FileItem(media_type="audio/mpeg", data=b"x"),
        FileItem(media_type="text/plain", text="Said.", filename="n.txt"),
        FileItem(media_type="video/mp4", provider_file="https://files.example/f"),
    )
    (content,) = encode(ModelMessage("user", items))["contents"]
    assert content["parts"] == [
        {"text": "See:"},
        {"inlineData": {"mimeType": "image/png", "data": "iQ=="}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://a.example/b.png"}},
        {"inlineData": {"mimeType": "audio/mpeg", "data": "eA=="}},
        {"text": "n.txt:\nSaid."},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://files.example/f"}},
    ]


def test_functions_wishes_and_options() -> None:
    """A function is a declaration, wishes have their fields, extra fields are joined or go in as they are."""
    options = ModelOptions(
        max_output_tokens=9,
        temperature=7,
        seed=3,
        stop=("x",),
        extra={
            "tools": [{"googleSearch": {}}],
            "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}},
            "safetySettings": [],
        },
    )
    context = ModelProviderContext(
        functions=(FUNCTION,), function_choice="required", response_format="json_object", options=options
    )
    body = encode(ModelMessage.user("Hi"), context=context)
    declaration = {"name": "f", "description": "Finds.", "parametersJsonSchema": {"type": "object"}}
    assert body["tools"] == [{"functionDeclarations": [declaration]}, {"googleSearch": {}}]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert body["generationConfig"] == {
        "maxOutputTokens": 9,
        "temperature": 7,
        "seed": 3,
        "stopSequences": ["x"],
        "responseMimeType": "application/json",
        "thinkingConfig": {"thinkingBudget": 0},
    }
    assert body["safetySettings"] == []


@pytest.mark.parametrize("name", ["contents", "generationConfig", "toolConfig"])
def test_an_option_without_a_form_is_refused(name: str) -> None:
    """The error names the option, and nothing is sent."""
    with pytest.raises(InvalidValueError) as refused:
        encode(ModelMessage.user("Hi"), context=ModelProviderContext(options=ModelOptions(extra={name: 1})))
    assert refused.value.argument == f"options.extra.{name}"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("model", "stream", "path", "query"),
    [
        ("parrot-6", True, "/v1beta/models/parrot-6:streamGenerateContent", (("alt", "sse"),)),
        ("tunedModels/mine", False, "/v1beta/tunedModels/mine:generateContent", ()),
    ],
)
async def test_the_request_is_what_googles_client_sends(
    model: str,
    stream: bool,  # noqa: FBT001
    path: str,
    query: tuple[tuple[str, str], ...],
) -> None:
    """A POST to the model's method with the key; a stream is asked for as events."""
    (recorded,) = (one for one in own_streams("google-generate") if one.path.stem == "filtered")
    document = json.dumps({"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]})
    reply = (
        Reply(recorded.body, headers={"Content-Type": "text/event-stream"})
        if stream
        else Reply(document.encode(), headers={"Content-Type": "application/json"})
    )
    async with ReplayServer([reply]) as server:
        provider = Google(model, base_url=f"{server.base_url}/v1beta", api_key="AIza-parrot", stream=stream)
        async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
            assert [part async for part in opened]
        await provider.aclose()
    (request,) = server.requests
    assert (request.method, request.path, request.query) == ("POST", path, query)
    assert request.header("x-goog-api-key") == "AIza-parrot"
