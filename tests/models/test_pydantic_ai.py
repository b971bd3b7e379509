"""Any model of pydantic-ai answers through runlane's port, and is held to its rules."""

from collections.abc import AsyncIterator

import anthropic
import anyio
import openai
import pytest
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, ModelProtocolError, ProviderError, ProviderStreamCutError
from runlane.models import (
    AnyModelMessage,
    CollectedResponse,
    FileItem,
    FinishReport,
    ModelAssistantToolMessage,
    ModelImage,
    ModelMessage,
    ModelOptions,
    ModelProviderContext,
    ModelToolResultMessage,
    collect,
)
from runlane.models.pydantic_ai import PydanticAIModel
from runlane.records import ReasoningPart, TextPart
from runlane.testing import ReplayServer, Reply
from tests.models.messages import FUNCTION, call, envelope, opaque, result
from tests.models.protocols import own_streams

pytestmark = pytest.mark.anyio

_HELLO: list[AnyModelMessage] = [ModelMessage.user("Hi")]


def scripted(*deltas: object, heard: list[object] | None = None) -> PydanticAIModel:
    """A model of pydantic-ai that streams what it is told; what it heard goes into a list."""

    async def stream(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[object]:
        if heard is not None:
            heard.extend([messages, info])
        for delta in deltas:
            if isinstance(delta, Exception):
                raise delta
            yield delta

    return PydanticAIModel(FunctionModel(stream_function=stream), finish_reason_needed=False)  # type: ignore[arg-type]


async def answer(model: PydanticAIModel, context: ModelProviderContext | None = None) -> CollectedResponse:
    """A whole response."""
    async with model.open_stream(_HELLO, context or ModelProviderContext()) as stream:
        return await collect(stream, provider=model.provider_id)


async def test_text_thinking_and_calls_arrive() -> None:
    """Each in its neutral part; the arguments of a call stay as they were streamed."""
    model = scripted(
        {0: DeltaThinkingPart(content="Hm"), 1: DeltaThinkingPart(content="")},
        {0: DeltaThinkingPart(content=".", signature="c2ln")},
        {2: DeltaToolCall(name="f", json_args='{"n": 25122920421', tool_call_id="a")},
        {2: DeltaToolCall(json_args="21000001}")},
    )
    told = await answer(model)
    assert told.reasoning == "Hm."
    (asked,) = told.tool_calls
    assert (asked.call_id, asked.tool_name, asked.input) == ("a", "f", {"n": 2512292042121000001})
    assert told.finish.reason == "tool-calls"


async def test_text_is_streamed_piece_by_piece() -> None:
    """Every piece is a delta of its own."""
    told = await answer(scripted("Hello", ", ", "there"))
    assert told.text == "Hello, there"
    assert told.finish == FinishReport("stop", None)


async def test_a_stream_without_a_finish_reason_is_cut_unless_told_otherwise() -> None:
    """A model that never gives one is trusted only where its owner says so."""

    async def stream(_messages: object, _info: object) -> AsyncIterator[str]:
        yield "Hi"

    model = PydanticAIModel(FunctionModel(stream_function=stream))
    with pytest.raises(ProviderStreamCutError):
        await answer(model)


async def test_what_is_said_reaches_the_model_in_its_own_form() -> None:
    """Instructions, questions with files, answers with calls, and results, in order."""
    heard: list[object] = []
    model = scripted("ok", heard=heard)
    messages: list[AnyModelMessage] = [
        ModelMessage.system("Be brief."),
        ModelMessage("user", (TextPart(text="See:"), ModelImage(media_type="image/png", data=b"\x89"))),
        ModelAssistantToolMessage(
            (
                ReasoningPart(text="Mine.", provider=envelope("pydantic-ai", signature="c2ln", provider_name="x")),
                ReasoningPart(text="Theirs.", provider=envelope("anthropic", signature="y")),
                opaque("pydantic-ai", {"part_kind": "text", "content": "kept", "id": None}),
                opaque("pydantic-ai", {"part_kind": "of another version"}),
                TextPart(text="Now."),
                call("a", n=1),
            )
        ),
        ModelToolResultMessage((result("a", "no", "error"),)),
        ModelMessage("user", (FileItem(media_type="text/plain", text="Said."),)),
    ]
    options = ModelOptions(max_output_tokens=9, stop=("x",), extra={"presence_penalty": 1})
    context = ModelProviderContext(functions=(FUNCTION,), allow_multiple_calls=False, options=options)
    async with model.open_stream(messages, context) as stream:
        await collect(stream)
    (asked, info) = heard
    assert isinstance(asked, list)
    assert isinstance(info, AgentInfo)
    first, second, third = asked
    assert [part.part_kind for part in first.parts] == ["system-prompt", "user-prompt"]
    assert [part.part_kind for part in second.parts] == ["thinking", "text", "text", "tool-call"]
    assert (second.parts[0].signature, second.parts[0].provider_name) == ("c2ln", "x")
    assert [(part.part_kind, part.content) for part in third.parts] == [("tool-return", "no"), ("user-prompt", "Said.")]
    assert [tool.name for tool in info.function_tools] == ["f"]
    assert info.model_settings == {
        "max_tokens": 9,
        "stop_sequences": ["x"],
        "parallel_tool_calls": False,
        "presence_penalty": 1,
    }


async def test_a_providers_own_file_has_no_form() -> None:
    """The error says so before anything is sent."""
    item = FileItem(media_type="application/pdf", provider_file="file_1")
    with pytest.raises(ModelProtocolError):
        async with scripted("x").open_stream([ModelMessage("user", (item,))], ModelProviderContext()):
            pass


@pytest.mark.parametrize(
    ("error", "status", "reason", "retryable"),
    [
        (ModelHTTPError(429, "m", {"error": {"message": "Slow down."}}), 429, "rate-limited", True),
        (ModelHTTPError(503, "m", "busy"), 503, "unknown", True),
        (RuntimeError("boom"), None, "unknown", None),
    ],
    ids=["429", "503", "other"],
)
async def test_a_failure_is_told_as_ours(
    error: Exception,
    status: int | None,
    reason: str,
    retryable: bool | None,  # noqa: FBT001
) -> None:
    """The status decides where there is one; what came before is delivered."""
    with pytest.raises(ProviderError) as failed:
        await answer(scripted("A half", error))
    assert (failed.value.status, failed.value.reason, failed.value.retryable) == (status, reason, retryable)


async def test_a_tripped_signal_ends_a_silent_stream() -> None:
    """The reader sees the signal's error at once, and nothing of the model is left running."""
    entered, left = anyio.Event(), anyio.Event()

    async def stream(_messages: object, _info: object) -> AsyncIterator[str]:
        yield "Hi"
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.set()

    model = PydanticAIModel(FunctionModel(stream_function=stream), finish_reason_needed=False)
    signal = CancelToken()

    async def trip() -> None:
        await entered.wait()
        signal.cancel("enough")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(trip)
        with pytest.raises(AbortedError):
            await answer(model, ModelProviderContext(signal=signal))
    assert left.is_set()


async def test_leaving_early_ends_the_model() -> None:
    """Whoever leaves the stream in its middle leaves nothing behind, and its own error comes out as it is."""
    with pytest.raises(LookupError, match="mine"):
        async with scripted("a", "b", "c").open_stream(_HELLO, ModelProviderContext()) as stream:
            async for _ in stream:
                raise LookupError("mine")


_OPENAI = {"text-with-usage", "parallel-calls"}
_ANTHROPIC = {"thinking-and-parallel-calls", "text-with-cumulative-usage"}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(
    "stream",
    [one for one in own_streams("openai-chat", "anthropic-messages") if one.path.stem in _OPENAI | _ANTHROPIC],
    ids=lambda stream: str(stream.path.stem),
)
async def test_a_real_model_of_pydantic_ai_agrees_with_its_index(stream: object) -> None:
    """Its models for OpenAI and Anthropic, over a real connection, give what the index says."""
    (recorded,) = (one for one in own_streams() if one == stream)
    reply = Reply(recorded.body, headers={"Content-Type": "text/event-stream"})
    async with ReplayServer([reply]) as server:
        if recorded.protocol.api == "openai-chat":
            async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="x") as client:
                model: Model = OpenAIChatModel("any", provider=OpenAIProvider(openai_client=client))
                told = await answer(PydanticAIModel(model))
        else:
            async with anthropic.AsyncAnthropic(base_url=server.base_url, api_key="x") as other:
                model = AnthropicModel("any", provider=AnthropicProvider(anthropic_client=other))
                told = await answer(PydanticAIModel(model))
    expected = recorded.expected
    assert (told.text, told.reasoning) == (expected["text"], expected["reasoning"])
    assert [(each.call_id, each.tool_name, each.arguments) for each in told.tool_calls] == [
        (each["id"], each["name"], each["arguments"]) for each in expected["tool_calls"]
    ]
    assert (told.info.response_id, told.info.model) == (expected["response_id"], expected["model"])
    assert told.finish.raw_reason == expected["finish_reason"]
