"""Reading a whole response: what a call that does not stream is."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass

from pydantic import ValidationError

from runlane.errors import ProviderStreamCutError
from runlane.models._calls import create_tool_call_collector
from runlane.models._messages import ModelAssistantToolMessage, ModelMessage, model_protocol_error
from runlane.models._stream import (
    FileOutput,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelUsage,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    SourceOutput,
    TextDelta,
    UsageReport,
)
from runlane.records import ProviderEnvelope, ProviderPart, ReasoningPart, SourcePart, TextPart, ToolCallPart

__all__ = ["CollectedResponse", "collect"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedResponse:
    """A whole response.

    Attributes:
        items: Text, reasoning, sources and opaque output in the order they began, tool calls last.
        files: Files the model made; store them before a message refers to them.
        usage: What was reported, or None.
        finish: Why it ended.
        info: How the provider identified it.
    """

    items: tuple[TextPart | ReasoningPart | SourcePart | ProviderPart | ToolCallPart, ...]
    files: tuple[FileOutput, ...]
    usage: ModelUsage | None
    finish: FinishReport
    info: ResponseInfo

    @property
    def message(self) -> ModelMessage | ModelAssistantToolMessage:
        """The answer as it goes back to the model in the next request; its sources and files do not."""
        said = tuple(item for item in self.items if not isinstance(item, SourcePart))
        if any(isinstance(item, ToolCallPart) for item in said):
            return ModelAssistantToolMessage(said)
        return ModelMessage("assistant", tuple(item for item in said if not isinstance(item, ToolCallPart)))

    @property
    def text(self) -> str:
        """The visible text, joined without a separator."""
        return "".join(item.text for item in self.items if isinstance(item, TextPart))

    @property
    def reasoning(self) -> str:
        """The reasoning text, joined without a separator."""
        return "".join(item.text for item in self.items if isinstance(item, ReasoningPart))

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls, in the provider's order."""
        return tuple(item for item in self.items if isinstance(item, ToolCallPart))


async def collect(parts: AsyncIterable[ModelPart], /, *, provider: str = "unknown") -> CollectedResponse:
    """Read a stream to its end and return the response as a whole.

    Args:
        parts: What `ChatProvider.open_stream` gives.
        provider: The wire protocol's key (`ChatProvider.provider_id`), for the envelopes of opaque output.

    Raises:
        ModelError: The stream failed; nothing of it is returned.
        ModelProtocolError: It held something that is no part of a response.
        ProviderStreamCutError: It ended without a finish report.

    Example:
        >>> async def ask(model, question):
        ...     async with model.open_stream([ModelMessage.user(question)], ModelProviderContext()) as stream:
        ...         return (await collect(stream)).text
    """
    builder = _Builder(provider)
    async for part in parts:
        builder.add(part)
    return builder.response()


class _Builder:
    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._items: list[_Text | SourcePart | ProviderPart] = []
        self._reasoning: _Text | None = None
        self._calls = create_tool_call_collector(provider=provider)
        self._files: list[FileOutput] = []
        self._usage: ModelUsage | None = None
        self._finish: FinishReport | None = None
        self._info = ResponseInfo()

    def add(self, part: ModelPart) -> None:
        match part:
            case TextDelta(text):
                self._add_text(text)
            case ReasoningDelta():
                self._add_reasoning(part)
            case FunctionCallDelta():
                self._calls.add(part)
            case SourceOutput(source_id, url, title):
                self._items.append(_source(source_id, url, title))
            case OpaqueOutput(provider, data):
                envelope = ProviderEnvelope(provider=provider, data=data)
                self._items.append(ProviderPart(envelope=envelope))
            case _:
                self._add_fact(part)

    def _add_fact(self, part: ModelPart) -> None:
        match part:
            case FileOutput():
                self._files.append(part)
            case UsageReport(usage):
                self._usage = usage
            case ResponseInfo():
                self._info = part
            case FinishReport():
                self._finish = part
            case _:
                model_protocol_error(f"the provider yielded {type(part).__name__}, which is no part of a response")

    def _add_text(self, text: str) -> None:
        last = self._items[-1] if self._items else None
        if not isinstance(last, _Text) or last.is_reasoning:
            last = _Text(is_reasoning=False)
            self._items.append(last)
        last.pieces.append(text)

    def _add_reasoning(self, delta: ReasoningDelta) -> None:
        open_part = self._reasoning
        if open_part is None:
            open_part = self._reasoning = _Text(is_reasoning=True)
            self._items.append(open_part)
        open_part.pieces.append(delta.text)
        if delta.provider_options is not None:
            open_part.envelope = ProviderEnvelope(provider=self._provider, data=delta.provider_options)
        if delta.phase == "end":
            self._reasoning = None

    def response(self) -> CollectedResponse:
        if self._finish is None:
            raise ProviderStreamCutError
        whole = (item.part() if isinstance(item, _Text) else item for item in self._items)
        return CollectedResponse(
            items=(*whole, *self._calls.finish()),
            files=tuple(self._files),
            usage=self._usage,
            finish=self._finish,
            info=self._info,
        )


def _source(source_id: str, url: str | None, title: str | None) -> SourcePart:
    """Return a citation; an address that is no URL costs only the link."""
    try:
        return SourcePart(source_id=source_id, url=url, title=title)
    except ValidationError:
        return SourcePart(source_id=source_id, title=title)


class _Text:
    __slots__ = ("envelope", "is_reasoning", "pieces")

    def __init__(self, *, is_reasoning: bool) -> None:
        self.is_reasoning = is_reasoning
        self.pieces: list[str] = []
        self.envelope: ProviderEnvelope | None = None

    def part(self) -> TextPart | ReasoningPart:
        text = "".join(self.pieces)
        return ReasoningPart(text=text, provider=self.envelope) if self.is_reasoning else TextPart(text=text)
