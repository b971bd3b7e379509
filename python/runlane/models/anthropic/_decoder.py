"""The stream of Anthropic's messages, as neutral parts: no I/O, so a recorded stream is replayed byte by byte.

A message is a list of content blocks. Text, thinking and tool calls become neutral parts; every other block (tools the
provider runs itself and what they gave, compactions, kinds yet unknown) is passed on as it is, whole. Two opaque
parts are no blocks but marks, for the next request: `text` tells the citations of the text before it, `message` the
container.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from pydantic import JsonValue
from typing_extensions import override

from runlane.errors import ProviderStreamCutError
from runlane.models._decoding import ResponseDecoder, random_call_id
from runlane.models._failure import ErrorReply
from runlane.models._stream import (
    FinishReason,
    FunctionCallDelta,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    SourceOutput,
    TextDelta,
    UsageReport,
)
from runlane.models.anthropic._blocks import (
    Block,
    call_options,
    cited_text,
    container_of,
    source_of,
    thinking_options,
)
from runlane.models.anthropic._facts import PROVIDER_ID, read_error, read_usage
from runlane.records import JsonObject

__all__ = ["AnthropicDecoder"]

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-calls",
    "refusal": "content-filter",
}


class AnthropicDecoder(ResponseDecoder):
    """Decodes one response; see `ResponseDecoder`.

    A stop reason is evidence that the answer is whole, and so is `message_stop`, unless a call is still open.

    Example:
        >>> decoder = AnthropicDecoder()
        >>> decoder.feed('{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hi"}}')
        [TextDelta(text='Hi')]
        >>> _ = decoder.feed('{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}')
        >>> decoder.feed('{"type":"message_stop"}')[-1]
        FinishReport(reason='stop', raw_reason='end_turn')
    """

    provider: ClassVar[str] = PROVIDER_ID

    def __init__(self, *, new_call_id: Callable[[], str] = random_call_id, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(new_call_id=new_call_id, secrets=secrets)
        self._blocks: dict[int, Block] = {}
        self._calls = 0
        self._unnamed: list[int] = []
        self._bare: dict[int, str] = {}  # calls without argument text, and the input they began with
        self._figures: JsonObject = {}
        self._sources: set[str] = set()
        self._container: JsonObject | None = None
        self._call_repaired = False

    @override
    def _read(self, body: JsonObject, event: str, parts: list[ModelPart], /) -> None:
        kind = body.get("type")
        if kind == "content_block_delta":
            self._read_delta(body, parts)
            return
        read = _EVENTS.get(kind if isinstance(kind, str) else event)
        if read is not None:
            read(self, body, parts)
        elif event == "error":
            self._meet_error(body)

    @override
    def _read_document(self, body: JsonValue, parts: list[ModelPart], /) -> None:
        if not isinstance(body, dict):
            self._malformed("it is not a JSON object")
        if body.get("type") == "error" or "error" in body:
            self._read_failure(body, parts)
        self._read_head(body, parts)
        content = body.get("content")
        for place, block in enumerate(content if isinstance(content, list) else ()):
            self._open({"index": place, "content_block": block}, parts)
            self._close(self._blocks.pop(place), parts)
        self._read_end({"delta": body}, parts)

    # Events.

    def _read_start(self, body: JsonObject, parts: list[ModelPart]) -> None:
        message = body.get("message")
        if not isinstance(message, dict):
            self._malformed("the message that starts is not an object")
        self._read_head(message, parts)

    def _read_head(self, message: JsonObject, parts: list[ModelPart]) -> None:
        self._identify(message.get("id"), message.get("model"), parts)
        self._read_container(message, parts)
        self._read_usage(message.get("usage"), parts)

    def _open(self, body: JsonObject, parts: list[ModelPart]) -> None:
        place, data = self._place(body), body.get("content_block")
        kind = data.get("type") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(kind, str):
            self._malformed("a content block has no type")
        earlier = self._blocks.pop(place, None)
        if earlier is not None:  # its stop never came
            self._close(earlier, parts)
        block = self._blocks[place] = Block(kind, data)
        opener = _OPENERS.get(kind)
        if opener is not None:
            opener(self, block, parts)
        elif not block.grows:
            self._say_opaque(block, parts)

    def _open_text(self, block: Block, parts: list[ModelPart]) -> None:
        self._say(block, block.data.get("text"), parts)
        citations = block.data.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self._cite(block, citation, parts)

    def _open_thinking(self, block: Block, parts: list[ModelPart]) -> None:
        parts.append(ReasoningDelta(phase="start"))
        self._think(block.data.get("thinking"), parts)

    def _open_redacted(self, block: Block, parts: list[ModelPart]) -> None:
        parts.append(ReasoningDelta(phase="start"))
        self._end_thought(self._clean_object(block.data), parts)

    def _open_call(self, block: Block, parts: list[ModelPart]) -> None:
        call_id, name = (self._filled(block.data.get(key)) for key in ("id", "name"))
        block.call, self._calls = self._calls, self._calls + 1
        if call_id is None:
            self._unnamed.append(block.call)
        options = call_options(self._clean_object(block.data))
        parts.append(FunctionCallDelta(block.call, call_id, name, provider_options=options))

    def _read_delta(self, body: JsonObject, parts: list[ModelPart]) -> None:
        delta = body.get("delta")
        if not isinstance(delta, dict):
            self._malformed("a delta is not an object")
        place = body.get("index")
        block = self._blocks.get(place) if isinstance(place, int) else None
        if block is None:
            block = self._open_unannounced(body, delta, parts)
        kind = delta.get("type")
        if not isinstance(kind, str):
            self._malformed("a delta has no type")
        tell = _TELLERS.get(kind)
        if tell is None:
            block.add(self._clean_object(delta))
        else:
            tell(self, block, delta, parts)

    def _tell_text(self, block: Block, delta: JsonObject, parts: list[ModelPart]) -> None:
        text = delta.get("text")
        if isinstance(text, str) and text and not (self._suspect or self._text.holds):
            block.length += len(text)
            parts.append(TextDelta(text))  # what most events are
        else:
            self._say(block, text, parts)

    def _tell_thought(self, _block: Block, delta: JsonObject, parts: list[ModelPart]) -> None:
        text = delta.get("thinking")
        if isinstance(text, str) and text and not (self._suspect or self._thought.holds):
            parts.append(ReasoningDelta(text))
        else:
            self._think(text, parts)

    def _tell_input(self, block: Block, delta: JsonObject, parts: list[ModelPart]) -> None:
        if block.call < 0:
            block.add(self._clean_object(delta))
            return
        fragment = delta.get("partial_json")
        if not isinstance(fragment, str):
            self._malformed("the arguments of a tool call are not text")
        if not fragment:
            return
        block.said = True
        if self._suspect or block.mender.holds:
            fragment = block.mender.add(fragment)
        if fragment:
            parts.append(FunctionCallDelta(block.call, arguments=fragment))

    def _tell_citation(self, block: Block, delta: JsonObject, parts: list[ModelPart]) -> None:
        self._cite(block, delta.get("citation"), parts)

    def _tell_signature(self, block: Block, delta: JsonObject, _parts: list[ModelPart]) -> None:
        block.signature = self._clean_object(delta).get("signature")

    def _open_unannounced(self, body: JsonObject, delta: JsonObject, parts: list[ModelPart]) -> Block:
        """Begin the block of a delta whose start never came: text and thinking need nothing from it."""
        kind = delta.get("type")
        if kind not in ("text_delta", "thinking_delta"):
            self._malformed("a delta belongs to no block")
        bare: JsonObject = {"type": "text" if kind == "text_delta" else "thinking"}
        self._open({"index": body.get("index"), "content_block": bare}, parts)
        return self._blocks[self._place(body)]

    def _read_stop(self, body: JsonObject, parts: list[ModelPart]) -> None:
        block = self._blocks.pop(self._place(body), None)
        if block is not None:
            self._close(block, parts)

    def _close(self, block: Block, parts: list[ModelPart]) -> None:
        if block.kind == "text":
            self._close_text(block, parts)
        elif block.kind == "thinking":
            self._end_thought(thinking_options(block), parts)
        elif block.call >= 0:
            self._close_call(block, parts)
        elif block.kind != "redacted_thinking" and block.grows:
            self._say_opaque(block, parts)

    def _close_text(self, block: Block, parts: list[ModelPart]) -> None:
        rest = self._text.flush() if self._text.holds else ""
        if rest:
            block.length += len(rest)
            parts.append(TextDelta(rest))
        mark = cited_text(block) if block.cited else None
        if mark is not None:
            parts.append(OpaqueOutput(PROVIDER_ID, mark))

    def _close_call(self, block: Block, parts: list[ModelPart]) -> None:
        rest = block.mender.flush()
        if rest:
            parts.append(FunctionCallDelta(block.call, arguments=rest))
        self._call_repaired = self._call_repaired or block.mender.repaired
        if not block.said:
            self._bare[block.call] = self._clean(block.start_input())

    def _read_end(self, body: JsonObject, parts: list[ModelPart]) -> None:
        delta = body.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        if isinstance(reason, str) and reason:
            self._raw_finish = self._clean(reason)
            self._finished = True
        if isinstance(delta, dict):
            self._read_container(delta, parts)
        self._read_usage(body.get("usage"), parts)

    def _read_container(self, message: JsonObject, parts: list[ModelPart]) -> None:
        mark = container_of(message)
        if mark is not None and mark != self._container:
            self._container = mark
            parts.append(OpaqueOutput(PROVIDER_ID, self._clean_object(mark)))

    def _read_message_stop(self, _body: JsonObject, parts: list[ModelPart]) -> None:
        if not self._finished and any(block.call >= 0 for block in self._blocks.values()):
            message = "the provider's stream ended with an open tool call and no stop reason"
            raise ProviderStreamCutError(message)
        self._finished = True
        self._complete(parts)

    def _read_failure(self, body: JsonObject, _parts: list[ModelPart]) -> None:
        error = body.get("error")
        self._meet_error(body if error is None else error)

    # What blocks say.

    def _say(self, block: Block, text: JsonValue, parts: list[ModelPart]) -> None:
        if isinstance(text, str):
            before = len(parts)
            self._say_text(text, parts)
            block.length += sum(len(part.text) for part in parts[before:] if isinstance(part, TextDelta))
        elif text is not None:
            self._malformed("a text is not text")

    def _think(self, text: JsonValue, parts: list[ModelPart]) -> None:
        if isinstance(text, str):
            self._say_thought(text, parts)
        elif text is not None:
            self._malformed("a thought is not text")

    def _cite(self, block: Block, citation: JsonValue, parts: list[ModelPart]) -> None:
        block.cited.append(self._clean_object(citation) if isinstance(citation, dict) else None)
        found = source_of(citation)
        if found is None or found[0] in self._sources:
            return
        self._sources.add(found[0])
        name, url, title = (None if text is None else self._clean(text) for text in found)
        parts.append(SourceOutput(name or "source", url, title))

    def _say_opaque(self, block: Block, parts: list[ModelPart]) -> None:
        parts.append(OpaqueOutput(PROVIDER_ID, self._clean_object(block.whole())))

    def _read_usage(self, usage: JsonValue, parts: list[ModelPart]) -> None:
        """Read figures, which are those of the whole response so far; a later event may leave some of them out."""
        if isinstance(usage, dict):
            said = {name: value for name, value in self._clean_object(usage).items() if value is not None}
            figures = {**self._figures, **said}
            if figures != self._figures:
                self._figures = figures
                parts.append(UsageReport(read_usage(figures)))

    def _place(self, body: JsonObject) -> int:
        place = body.get("index")
        if isinstance(place, bool) or not isinstance(place, int):
            self._malformed("a content block has no index")
        return place

    # The end.

    @override
    def _flush(self, parts: list[ModelPart], /) -> None:
        for place in sorted(self._blocks):
            self._close(self._blocks.pop(place), parts)
        parts.extend(FunctionCallDelta(call, id=self._new_call_id()) for call in self._unnamed)
        parts.extend(FunctionCallDelta(call, arguments=text) for call, text in self._bare.items() if text)

    @override
    def _reason(self) -> FinishReason:
        """Read the stop reason; an ordinary stop beside calls means the calls."""
        reason = "stop" if self._raw_finish is None else _REASONS.get(self._raw_finish, "other")
        return "tool-calls" if reason == "stop" and self._calls else reason

    @override
    def _read_error(self, error: JsonValue, where: str, /) -> ErrorReply:
        return read_error(error, where, fallback="stream-error")

    @property
    @override
    def _repaired(self) -> bool:
        return super()._repaired or self._call_repaired


_Reader: TypeAlias = Callable[[AnthropicDecoder, JsonObject, list[ModelPart]], None]
_Teller: TypeAlias = Callable[[AnthropicDecoder, Block, JsonObject, list[ModelPart]], None]
_Opener: TypeAlias = Callable[[AnthropicDecoder, Block, list[ModelPart]], None]

# Methods of the class above, by the provider's words; `ping` and kinds yet unknown say nothing.
_EVENTS: Final[dict[str, _Reader]] = {
    "message_start": AnthropicDecoder._read_start,  # noqa: SLF001
    "content_block_start": AnthropicDecoder._open,  # noqa: SLF001
    "content_block_stop": AnthropicDecoder._read_stop,  # noqa: SLF001
    "message_delta": AnthropicDecoder._read_end,  # noqa: SLF001
    "message_stop": AnthropicDecoder._read_message_stop,  # noqa: SLF001
    "error": AnthropicDecoder._read_failure,  # noqa: SLF001
}
_OPENERS: Final[dict[str, _Opener]] = {
    "text": AnthropicDecoder._open_text,  # noqa: SLF001
    "thinking": AnthropicDecoder._open_thinking,  # noqa: SLF001
    "redacted_thinking": AnthropicDecoder._open_redacted,  # noqa: SLF001
    "tool_use": AnthropicDecoder._open_call,  # noqa: SLF001
}
_TELLERS: Final[dict[str, _Teller]] = {
    "text_delta": AnthropicDecoder._tell_text,  # noqa: SLF001
    "thinking_delta": AnthropicDecoder._tell_thought,  # noqa: SLF001
    "input_json_delta": AnthropicDecoder._tell_input,  # noqa: SLF001
    "citations_delta": AnthropicDecoder._tell_citation,  # noqa: SLF001
    "signature_delta": AnthropicDecoder._tell_signature,  # noqa: SLF001
}
