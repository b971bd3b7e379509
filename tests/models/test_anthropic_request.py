"""What is sent to Anthropic's messages."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import JsonValue

from runlane.errors import InvalidValueError, MissingCredentialError, ModelProtocolError
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
from runlane.models.anthropic import Anthropic, encode_request
from runlane.records import (
    JsonObject,
    ProviderEnvelope,
    ProviderPart,
    ReasoningPart,
    TextPart,
)
from runlane.testing import ReplayServer, Reply
from tests.models.messages import FUNCTION, broken_call, call, envelope, opaque, result
from tests.models.protocols import own_streams


def encode(*messages: AnyModelMessage, context: ModelProviderContext | None = None) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = json.loads(encode_request("parrot-4", messages, context or ModelProviderContext()))
    return body


def own(**data: JsonValue) -> ProviderEnvelope:
    """What Anthropic attached."""
    return envelope("anthropic", **data)


def test_a_plain_question_is_the_smallest_request() -> None:
    """Model, limit, stream and the message; nothing that nobody asked for."""
    assert encode(ModelMessage.user("Hi")) == {
        "model": "parrot-4",
        "stream": True,
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }


def test_instructions_go_to_the_system_field() -> None:
    """Wherever they stand, in their order."""
    body = encode(ModelMessage.system("Be brief."), ModelMessage.user("Hi"), ModelMessage.system("Be kind."))
    assert body["system"] == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    assert len(body["messages"]) == 1


def test_a_round_of_calls_is_followed_by_all_its_results() -> None:
    """Results in two messages and the next question become one user message, the results first."""
    body = encode(
        ModelMessage.user("Go"),
        ModelAssistantToolMessage((TextPart(text="Now."), call("a", n=2512292042121000001), call("b"))),
        ModelToolResultMessage((result("a", {"x": 1}),)),
        ModelToolResultMessage((result("b", "no", "error"),)),
        ModelMessage.user("And?"),
    )
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "Now."},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"n": 2512292042121000001}},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]
    assert body["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": '{"x":1}'},
        {"type": "tool_result", "tool_use_id": "b", "content": "no", "is_error": True},
        {"type": "text", "text": "And?"},
    ]


def _failed(call_id: str) -> ModelToolResultMessage:
    return ModelToolResultMessage((result(call_id, "no", "error"),))


def test_arguments_that_are_not_json_have_no_form() -> None:
    """The call goes back without them; the error result beside it says what was wrong."""
    body = encode(ModelMessage.user("Go"), ModelAssistantToolMessage((broken_call("a"),)), _failed("a"))
    assert body["messages"][1]["content"] == [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]


def test_its_own_reasoning_goes_back_and_no_other() -> None:
    """A signed or redacted block goes back as it came; unsigned and foreign reasoning stays here."""
    body = encode(
        ModelMessage.user("Go"),
        ModelMessage(
            "assistant",
            (
                ReasoningPart(text="Mine.", provider=own(signature="c2ln")),
                ReasoningPart(text="", provider=own(type="redacted_thinking", data="b3A=")),
                ReasoningPart(text="Unsigned."),
                ReasoningPart(text="Theirs.", provider=ProviderEnvelope(provider="google", data={"signature": "x"})),
                TextPart(text="Hm."),
            ),
        ),
        ModelMessage.user("On."),
    )
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Mine.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3A="},
        {"type": "text", "text": "Hm."},
    ]


_USE: JsonObject = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
_FOUND: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ((_USE, _FOUND), [_USE, _FOUND]),
        ((_USE,), []),
        ((_FOUND,), []),
        (({"type": "compaction", "content": "x"},), [{"type": "compaction", "content": "x"}]),
    ],
)
def test_a_tool_the_provider_ran_goes_back_whole_or_not_at_all(
    parts: tuple[JsonObject, ...], kept: list[JsonObject]
) -> None:
    """Half of one, which the provider would refuse, is left out."""
    message = ModelMessage("assistant", (*(opaque("anthropic", part) for part in parts), TextPart(text="So.")))
    body = encode(ModelMessage.user("Go"), message, ModelMessage.user("On."))
    assert body["messages"][1]["content"] == [*kept, {"type": "text", "text": "So."}]


def test_a_paused_answer_goes_back_as_it_is() -> None:
    """The provider goes on with its own call where the answer stopped; others' parts stay here."""
    message = ModelMessage(
        "assistant", (TextPart(text="Let me see. "), opaque("anthropic", _USE), opaque("google", _USE))
    )
    body = encode(ModelMessage.user("Go"), message)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Let me see. "}, _USE]


def test_a_call_from_a_provider_run_tool_keeps_both() -> None:
    """The code that called the function has its result only later, and goes back with the call."""
    code: JsonObject = {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {}}
    caller: JsonObject = {"type": "code_execution_20250825", "tool_id": "s1"}
    body = encode(
        ModelMessage.user("Go"),
        ModelAssistantToolMessage((opaque("anthropic", code), call("a", own(caller=caller)))),
        ModelToolResultMessage((result("a", 1),)),
    )
    assert body["messages"][1]["content"] == [
        code,
        {"caller": caller, "type": "tool_use", "id": "a", "name": "f", "input": {}},
    ]


_INDEXED: JsonObject = {"type": "web_search_result_location", "encrypted_index": "aWR4", "url": "https://a.example"}


@pytest.mark.parametrize(
    ("texts", "length", "blocks"),
    [
        (["So. They talk."], 10, [("So. ", False), ("They talk.", True)]),
        (["So. ", "They", " talk."], 10, [("So. ", False), ("They talk.", True)]),
        (["They talk."], 10, [("They talk.", True)]),
        (["They talk."], 11, [("They talk.", False)]),
        (["They talk."], 0, [("They talk.", False)]),
        (["They talk."], True, [("They talk.", False)]),
        ([], 1, []),
    ],
)
def test_citations_go_back_with_the_text_they_are_of(
    texts: list[str], length: JsonValue, blocks: list[tuple[str, bool]]
) -> None:
    """However the record joined or parted the text; a mark that does not fit it is left out."""
    mark: JsonObject = {"type": "text", "citations": [_INDEXED], "length": length}
    said: list[TextPart | ProviderPart] = [TextPart(text=text) for text in texts]
    said += [opaque("anthropic", mark), TextPart(text="End.")]
    body = encode(ModelMessage.user("Go"), ModelMessage("assistant", tuple(said)), ModelMessage.user("On."))
    assert [(block["text"], "citations" in block) for block in body["messages"][1]["content"]] == [
        *blocks,
        ("End.", False),
    ]


_NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expires_at", "further", "sent"),
    [
        ("2026-01-02T00:00:01Z", (ModelMessage.user("On."),), True),
        ("2026-01-01T23:59:59Z", (ModelMessage.user("On."),), False),
        ("2026-01-03T00:00:00", (ModelMessage.user("On."),), False),
        ("soon", (ModelMessage.user("On."),), False),
        (None, (ModelMessage.user("On."),), False),
        ("2026-01-01T23:59:59Z", (), True),
        (None, (), True),
    ],
)
def test_the_container_is_named_while_it_is_needed_or_known_to_live(
    expires_at: str | None, further: tuple[AnyModelMessage, ...], *, sent: bool
) -> None:
    """Within its turn the provider asks for it; later one that is gone would cost every request."""
    mark: JsonObject = {"type": "message", "container": {"id": "cntr_1", "expires_at": expires_at}}
    asked = ModelAssistantToolMessage((call("a"), opaque("anthropic", mark)))
    messages = [ModelMessage.user("Go"), asked, ModelToolResultMessage((result("a", 1),)), *further]

    def container(**extra: object) -> object:
        context = ModelProviderContext(options=ModelOptions(extra=extra))
        body = json.loads(encode_request("m", messages, context, now=_NOW))
        assert [block["type"] for block in body["messages"][1]["content"]] == ["tool_use"]
        return body.get("container")

    tools = [{"type": "code_execution_20250825", "name": "code_execution"}]
    assert container(tools=tools) == ("cntr_1" if sent else None)
    assert container() is None
    assert container(tools=tools, container="mine") == "mine"
    skills = {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}
    assert container(tools=tools, container=skills) == ({**skills, "id": "cntr_1"} if sent else skills)


def test_blank_text_is_left_out_and_an_open_answer_is_trimmed() -> None:
    """The provider refuses blank text, and white space at the end of an answer it shall go on with."""
    body = encode(ModelMessage.user("Go"), ModelMessage.user(" "), ModelMessage.assistant("So far  \n"))
    assert body["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Go"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So far"}]},
    ]


def test_images_and_files_have_their_blocks() -> None:
    """Data, addresses, text and the provider's own files, each in its form."""
    items = (
        ModelImage(media_type="image/png", data=b"\x89"),
        ModelImage(media_type="image/png", url="https://a.example/b.png"),
        FileItem(media_type="image/webp", data=b"w"),
        FileItem(media_type="application/pdf", data=b"%PDF", filename="a.pdf"),
        FileItem(media_type="application/pdf", url="https://a.example/b.pdf"),
        FileItem(media_type="text/csv", data=b"a,b", filename="t.csv"),
        FileItem(media_type="text/plain", text="Said.", filename="n.txt"),
        FileItem(media_type="application/pdf", provider_file="file_1"),
    )
    (message,) = encode(ModelMessage("user", (TextPart(text="See:"), *items)))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iQ=="}},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/webp", "data": "dw=="}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://a.example/b.pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}, "title": "t.csv"},
        {"type": "text", "text": "n.txt:\nSaid."},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    ]


def test_a_file_without_a_form_is_refused() -> None:
    """The error names the type."""
    with pytest.raises(ModelProtocolError, match="audio/mpeg"):
        encode(ModelMessage("user", (FileItem(media_type="audio/mpeg", data=b"x"),)))


@pytest.mark.parametrize(
    ("wishes", "choice"),
    [
        ({}, None),
        ({"function_choice": "required"}, {"type": "any"}),
        ({"function_choice": "none"}, {"type": "none"}),
        ({"allow_multiple_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
    ],
)
def test_functions_and_the_wish_for_them(wishes: dict[str, Any], choice: JsonValue) -> None:
    """A function is a tool; the wish is the tool choice, and the default is not said."""
    body = encode(ModelMessage.user("Hi"), context=ModelProviderContext(functions=(FUNCTION,), **wishes))
    assert body["tools"] == [{"name": "f", "description": "Finds.", "input_schema": {"type": "object"}}]
    assert body.get("tool_choice") == choice


def test_options_go_by_the_providers_names() -> None:
    """Extra fields go in as they are; tools the provider runs stand behind the functions."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    options = ModelOptions(
        max_output_tokens=9,
        temperature=7,
        stop=("x",),
        extra={"tools": [search], "thinking": {"type": "enabled", "budget_tokens": 1024}},
    )
    body = encode(ModelMessage.user("Hi"), context=ModelProviderContext(functions=(FUNCTION,), options=options))
    assert (body["max_tokens"], body["temperature"], body["stop_sequences"]) == (9, 7, ["x"])
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 1024}
    assert body["tools"][1] == search


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        (ModelOptions(seed=1), "options.seed"),
        (ModelOptions(extra={"messages": []}), "options.extra.messages"),
        (ModelOptions(extra={"tools": 1}), "options.extra.tools"),
        (ModelOptions(extra={"thing": object()}), "options.extra"),
    ],
)
def test_an_option_without_a_form_is_refused(options: ModelOptions, argument: str) -> None:
    """The error names the option, and nothing is sent."""
    with pytest.raises(InvalidValueError) as refused:
        encode(ModelMessage.user("Hi"), context=ModelProviderContext(options=options))
    assert refused.value.argument == argument


@pytest.mark.anyio
async def test_the_request_is_what_anthropics_client_sends() -> None:
    """A POST to `/v1/messages` with the key and the version of the protocol."""
    (stream,) = (one for one in own_streams("anthropic-messages") if one.path.stem == "refusal")
    async with ReplayServer([Reply(stream.body, headers={"Content-Type": "text/event-stream"})]) as server:
        provider = Anthropic("parrot-4", base_url=f"{server.base_url}/v1/", api_key="sk-parrot")
        async with provider.open_stream([ModelMessage.user("Hi")], ModelProviderContext()) as opened:
            assert [part async for part in opened]
        await provider.aclose()
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert (request.header("x-api-key"), request.header("anthropic-version")) == ("sk-parrot", "2023-06-01")


def test_a_key_is_needed_away_from_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(MissingCredentialError, match="ANTHROPIC_API_KEY"):
        Anthropic("parrot-4", base_url="https://api.anthropic.example")


def test_a_system_message_carries_anthropics_own_options() -> None:
    """A mark for the cache stands on its block; another provider's are left out, and nothing is overwritten."""
    body = encode(
        ModelMessage.system("stable", own(cache_control={"type": "ephemeral"}, text="not this")),
        ModelMessage.system("dynamic", envelope("openai-chat", cache_control={"type": "other"})),
        ModelMessage.user("Hi"),
    )
    assert body["system"] == [
        {"type": "text", "text": "stable", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "dynamic"},
    ]
