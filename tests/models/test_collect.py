"""A response can be had as a whole, in the order it was said, or not at all."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from runlane.errors import ModelProtocolError, ProviderStreamCutError
from runlane.models import (
    CollectedResponse,
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelAssistantToolMessage,
    ModelMessage,
    ModelPart,
    ModelProviderContext,
    ModelToolResultMessage,
    ModelUsage,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    SourceOutput,
    TextDelta,
    UsageReport,
    anthropic,
    collect,
    google,
    openai_chat,
    openai_responses,
)
from runlane.records import ProviderEnvelope, ProviderPart, ReasoningPart, SourcePart, TextPart
from tests.models.messages import result
from tests.models.protocols import Stream, name_of, own_streams

pytestmark = pytest.mark.anyio


async def gathered(*parts: ModelPart) -> CollectedResponse:
    """The whole of some parts."""

    async def stream() -> AsyncIterator[ModelPart]:
        for part in parts:
            yield part

    return await collect(stream(), provider="openai-chat")


async def test_parts_are_joined_in_the_order_they_began() -> None:
    """Text after something else is a new part; reasoning goes on until it ends, whatever comes between."""
    response = await gathered(
        ReasoningDelta(phase="start"),
        ReasoningDelta("Hm"),
        TextDelta("It "),
        TextDelta("is "),
        ReasoningDelta("m."),
        ReasoningDelta(phase="end", provider_options={"signature": "s"}),
        SourceOutput("s1", "https://x.org", "X"),
        TextDelta("four."),
        ReasoningDelta("again"),
        OpaqueOutput("openai-chat", {"type": "reference"}),
        FinishReport("stop"),
    )
    envelope = ProviderEnvelope(provider="openai-chat", data={"signature": "s"})
    assert response.items == (
        ReasoningPart(text="Hmm.", provider=envelope),
        TextPart(text="It is "),
        SourcePart(source_id="s1", url="https://x.org", title="X"),
        TextPart(text="four."),
        ReasoningPart(text="again"),
        ProviderPart(envelope=ProviderEnvelope(provider="openai-chat", data={"type": "reference"})),
    )
    assert (response.text, response.reasoning) == ("It is four.", "Hmm.again")


async def test_calls_files_usage_and_identity_are_kept() -> None:
    """The last usage report counts."""
    info, file = ResponseInfo(response_id="r", model="m"), FileOutput("image/png", b"x")
    response = await gathered(
        info,
        FunctionCallDelta(0, id="c", name="f", arguments="{"),
        UsageReport(ModelUsage(output_tokens=1)),
        FunctionCallDelta(0, arguments="}"),
        file,
        UsageReport(ModelUsage(output_tokens=2)),
        FinishReport("tool-calls", "tool_calls"),
    )
    (call,) = response.tool_calls
    assert (call.call_id, call.arguments) == ("c", "{}")
    assert (response.info, response.files, response.usage) == (info, (file,), ModelUsage(output_tokens=2))
    assert response.finish == FinishReport("tool-calls", "tool_calls")


async def test_no_finish_report_is_no_response() -> None:
    """A stream that just stops was cut, and its half call is never returned."""
    with pytest.raises(ProviderStreamCutError):
        await gathered(TextDelta("Hi"), FunctionCallDelta(0, id="c", name="f", arguments="{"))


async def test_what_is_no_part_is_refused() -> None:
    """A provider of one's own that yields something else is told so, and nothing is dropped in silence."""

    async def parts() -> AsyncGenerator[ModelPart, None]:
        yield TextDelta("Hi")
        yield "there"  # type: ignore[misc]  # what a provider without types might do

    async with aclosing(parts()) as stream:
        with pytest.raises(ModelProtocolError, match="str"):
            await collect(stream)


async def test_a_source_without_a_proper_address_keeps_its_name() -> None:
    """An address that is no URL costs only the link."""

    async def parts() -> AsyncIterator[ModelPart]:
        yield SourceOutput("page", "not a url", "Page")
        yield FinishReport("stop")

    (source,) = (await collect(parts())).items
    assert source == SourcePart(source_id="page", title="Page")


async def test_an_answer_goes_back_as_a_message() -> None:
    """With its calls, its reasoning and what has no neutral form, in order; sources and files stay here."""
    said: list[ModelPart] = [ReasoningDelta("Hm", "start"), ReasoningDelta("", "end"), TextDelta("It is.")]
    kept: list[ModelPart] = [OpaqueOutput("openai-chat", {"type": "x"}), SourceOutput("https://a.example")]
    files: list[ModelPart] = [FileOutput("image/png", b"p")]
    plain = await gathered(*said, *kept, *files, FinishReport("stop"))
    assert isinstance(plain.message, ModelMessage)
    assert [type(item) for item in plain.message.items] == [ReasoningPart, TextPart, ProviderPart]
    calls = await gathered(*said, FunctionCallDelta(0, "c1", "look", "{}"), FinishReport("tool-calls"))
    assert isinstance(calls.message, ModelAssistantToolMessage)
    assert (calls.message.tool_calls, calls.message.text) == (calls.tool_calls, "It is.")
    assert (await gathered(FinishReport("stop"))).message.items == ()


@pytest.mark.parametrize("stream", [one for one in own_streams() if not one.fails], ids=name_of)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_any_answer_can_be_put_into_any_request(stream: Stream) -> None:
    """What one protocol said is told to every protocol, its own and the others."""
    parts, _ = stream.protocol.decode([stream.body])
    response = await gathered(*parts)
    results = [ModelToolResultMessage((result(call.call_id, "ok"),)) for call in response.tool_calls]
    messages = [ModelMessage.user("Hi"), response.message, *results, ModelMessage.user("And?")]
    first = next((item.text for item in response.items if isinstance(item, TextPart)), "")
    for encode in (openai_chat.encode_request, openai_responses.encode_request, anthropic.encode_request):
        body = encode("m", messages, ModelProviderContext())
        assert json.dumps(first.strip())[1:-1] in json.dumps(json.loads(body))
    assert json.loads(google.encode_request("m", messages, ModelProviderContext()))["contents"][-1]["role"] == "user"
