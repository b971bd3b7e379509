"""The stream of OpenAI's responses, as neutral parts: no I/O, so a recorded stream is replayed byte by byte.

A response is a list of output items. Messages, reasoning and calls become neutral parts as they are told; every other
item (tools the provider runs itself, compactions, kinds yet unknown) is passed on as it is, once it is complete. The
events that repeat something whole (`...done`, the response at the end) only fill in what no delta told. One opaque part
is no item but a mark, for the next request: `message` tells the phase of the text before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from pydantic import JsonValue
from typing_extensions import override

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
)
from runlane.models.openai_responses._facts import PROVIDER_ID, read_error, read_usage
from runlane.models.openai_responses._items import (
    CALLS,
    Item,
    call_options,
    image_of,
    phase_of,
    pieces_of,
    reasoning_options,
    source_of,
)
from runlane.records import JsonObject

__all__ = ["OpenAIResponsesDecoder"]

_INCOMPLETE: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "max_tokens": "length",
    "content_filter": "content-filter",
}
_ARGUMENTS: Final = ("arguments", 0)


class OpenAIResponsesDecoder(ResponseDecoder):
    """Decodes one response; see `ResponseDecoder`.

    Only the event that ends a response (`response.completed`, `response.incomplete`) is evidence that the answer is
    whole. The raw finish reason is the status of the response.

    Example:
        >>> decoder = OpenAIResponsesDecoder()
        >>> decoder.feed('{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hi"}')
        [TextDelta(text='Hi')]
        >>> decoder.feed('{"type":"response.completed","response":{"status":"completed"}}')[-1]
        FinishReport(reason='stop', raw_reason='completed')
    """

    provider: ClassVar[str] = PROVIDER_ID

    def __init__(self, *, new_call_id: Callable[[], str] = random_call_id, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(new_call_id=new_call_id, secrets=secrets)
        self._items: dict[int, Item] = {}
        self._last: Item | None = None
        self._calls = 0
        self._refused = False
        self._thinking: Item | None = None
        self._detail: str | None = None
        self._sources: set[str] = set()

    @override
    def _read(self, body: JsonObject, event: str, parts: list[ModelPart], /) -> None:
        kind = body.get("type")
        name = kind if isinstance(kind, str) else event
        told = _DELTAS.get(name)
        if told is not None:
            self._read_delta(told, body, parts)
            return
        read = _EVENTS.get(name)
        if read is not None:
            read(self, body, parts)
        elif name not in ("message", "keepalive") and "error" in body and body["error"]:
            self._meet_error(body["error"])

    @override
    def _read_document(self, body: JsonValue, parts: list[ModelPart], /) -> None:
        if not isinstance(body, dict):
            self._malformed("it is not a JSON object")
        if "output" not in body and body.get("error"):
            self._meet_error(body["error"])
        self._read_end(body, parts)

    # Events.

    def _read_begin(self, body: JsonObject, parts: list[ModelPart]) -> None:
        response = body.get("response")
        if isinstance(response, dict):
            self._identify(response.get("id"), response.get("model"), parts)

    def _read_added(self, body: JsonObject, parts: list[ModelPart]) -> None:
        data = self._item_data(body)
        self._open(self._place(body), data, parts)

    def _read_done(self, body: JsonObject, parts: list[ModelPart]) -> None:
        data = self._item_data(body)
        item = self._find(body) or self._open(self._place(body), data, parts)
        self._finish_item(item, data, parts)

    def _item_data(self, body: JsonObject) -> JsonObject:
        data = body.get("item")
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            self._malformed("an output item has no type")
        return self._clean_object(data)

    def _read_delta(self, told: tuple[str, str, str], body: JsonObject, parts: list[ModelPart]) -> None:
        kind, field, counter = told
        text = body.get("delta")
        if not isinstance(text, str):
            self._malformed("a delta is not text")
        item = self._find(body) or self._open(self._place(body), {"type": kind}, parts)
        index = body.get(counter, 0)
        place = (field, index if isinstance(index, int) else 0)
        if field != "content" or item.kind != "message" or self._suspect or self._text.holds or not text:
            self._tell(item, place, text, parts)
            return
        # What most events are: more visible text.
        pieces = item.told.get(place)
        if pieces is None:
            item.told[place] = [text]
        else:
            pieces.append(text)
        parts.append(TextDelta(text))

    def _read_whole(self, body: JsonObject, parts: list[ModelPart]) -> None:
        """Read an event that repeats a text as a whole."""
        name = str(body.get("type")).removesuffix(".done") + ".delta"
        kind, field, counter = _DELTAS[name]
        whole = next((body[key] for key in ("text", "refusal", "arguments", "input") if key in body), None)
        if not isinstance(whole, str):
            return
        item = self._find(body) or self._open(self._place(body), {"type": kind}, parts)
        place = body.get(counter, 0)
        self._tell_rest(item, (field, place if isinstance(place, int) else 0), whole, parts)

    def _read_annotation(self, body: JsonObject, parts: list[ModelPart]) -> None:
        self._cite(body.get("annotation"), parts)

    def _read_last(self, body: JsonObject, parts: list[ModelPart]) -> None:
        """Read the event that ends the response."""
        response = body.get("response")
        if not isinstance(response, dict):
            self._malformed("the response that ends is not an object")
        status = str(body["type"]).removeprefix("response.")
        self._read_end({"status": status, **response}, parts)
        self._complete(parts)

    def _read_failure(self, body: JsonObject, _parts: list[ModelPart]) -> None:
        error = body.get("error")
        self._meet_error(error if isinstance(error, dict | str) and error else body)

    def _read_end(self, response: JsonObject, parts: list[ModelPart]) -> None:
        self._identify(response.get("id"), response.get("model"), parts)
        output = response.get("output")
        for place, data in enumerate(output if isinstance(output, list) else ()):
            if isinstance(data, dict) and isinstance(data.get("type"), str):
                self._fill_in(place, self._clean_object(data), parts)
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._report_usage(read_usage(self._clean_object(usage)), parts)
        self._judge(response)

    def _judge(self, response: JsonObject) -> None:
        """Say how a response ended."""
        status, error = response.get("status"), response.get("error")
        if status in ("failed", "cancelled"):
            self._meet_error(error or f"the response is {status}")
        elif error and status != "incomplete":
            self._meet_error(error)
        if status not in ("completed", "incomplete"):
            return
        details = response.get("incomplete_details")
        if status == "incomplete" and isinstance(details, dict):
            self._detail = self._filled(details.get("reason"))
        self._raw_finish = status
        self._finished = True

    # Items.

    def _place(self, body: JsonObject) -> int:
        """Return the place of an item; an endpoint that does not say it numbers them in order."""
        place = body.get("output_index")
        if isinstance(place, int) and not isinstance(place, bool) and place >= 0:
            return place
        return max(self._items, default=-1) + 1

    def _find(self, body: JsonObject) -> Item | None:
        place = body.get("output_index")
        if isinstance(place, int):
            return self._items.get(place)
        data = body.get("item")
        item_id = data.get("id") if isinstance(data, dict) else body.get("item_id")
        if item_id is not None:
            return next((item for item in self._items.values() if item.data.get("id") == item_id), None)
        return self._last

    def _open(self, place: int, data: JsonObject, parts: list[ModelPart]) -> Item:
        earlier = self._items.get(place)
        if earlier is not None and not earlier.is_done:  # its end never came
            self._finish_item(earlier, earlier.data, parts)
        item = self._last = self._items[place] = Item(str(data["type"]), data)
        if item.kind == "reasoning":
            self._think(item, parts)
        elif item.kind in CALLS:
            item.call, self._calls = self._calls, self._calls + 1
            self._name_call(item, data, parts, is_first=True)
        return item

    def _fill_in(self, place: int, data: JsonObject, parts: list[ModelPart]) -> None:
        """Take an item from the response as a whole, unless events told it already."""
        item = self._items.get(place)
        if item is not None and item.kind == data["type"]:
            if not item.is_done:
                self._finish_item(item, data, parts)
        elif not any(self._is_told(item, data) for item in self._items.values()):
            self._finish_item(self._open(self._place({}), data, parts), data, parts)

    def _is_told(self, item: Item, data: JsonObject) -> bool:
        """Whether an item may be the one of the response: when in doubt it is, for nothing must be told twice."""
        if item.kind != data["type"]:
            return False
        if item.kind in CALLS:
            return item.call_id == data.get("call_id")
        return item.kind == "message" or item.data.get("id") == data.get("id")

    def _finish_item(self, item: Item, data: JsonObject, parts: list[ModelPart]) -> None:
        if item.is_done:
            return
        item.is_done = True
        if item.kind == "message":
            self._finish_message(item, data, parts)
        elif item.kind == "reasoning":
            self._finish_reasoning(item, data, parts)
        elif item.kind in CALLS:
            self._finish_call(item, data, parts)
        else:
            item.data = data
            self._say_item(data, parts)

    def _finish_message(self, item: Item, data: JsonObject, parts: list[ModelPart]) -> None:
        for place, piece in pieces_of(data, "content"):
            kind = piece.get("type")
            text = piece.get("refusal" if kind == "refusal" else "text")
            if isinstance(text, str) and kind in ("output_text", "text", "refusal"):
                self._tell_rest(item, ("refusal" if kind == "refusal" else "content", place), text, parts)
            else:
                parts.append(OpaqueOutput(PROVIDER_ID, {"type": "message_piece", "piece": piece}))
            annotations = piece.get("annotations")
            for annotation in annotations if isinstance(annotations, list) else ():
                self._cite(annotation, parts)
        self._end_text(parts)
        mark = phase_of(item, data)
        if mark is not None:
            parts.append(OpaqueOutput(PROVIDER_ID, mark))

    def _finish_reasoning(self, item: Item, data: JsonObject, parts: list[ModelPart]) -> None:
        for field in ("summary", "content"):
            for place, piece in pieces_of(data, field):
                text = piece.get("text")
                if isinstance(text, str):
                    self._tell_rest(item, (field, place), text, parts)
        self._think(item, parts)
        self._end_thought(reasoning_options(data), parts)
        self._thinking = None

    def _finish_call(self, item: Item, data: JsonObject, parts: list[ModelPart]) -> None:
        whole = data.get(CALLS[item.kind])
        if isinstance(whole, str):
            self._tell_rest(item, _ARGUMENTS, whole, parts)
        self._name_call(item, data, parts, is_first=False)
        rest = item.mender.flush()
        self._mended = self._mended or item.mender.repaired
        if rest:
            parts.append(FunctionCallDelta(item.call, arguments=rest))

    def _name_call(self, item: Item, data: JsonObject, parts: list[ModelPart], *, is_first: bool) -> None:
        """Say what names a call, as far as it was not said yet."""
        call_id = None if item.call_id else self._filled(data.get("call_id"))
        name = None if item.name else self._filled(data.get("name"))
        item.call_id, item.name = item.call_id or call_id, item.name or name
        options = call_options(data)
        if is_first or call_id or name or options:
            parts.append(FunctionCallDelta(item.call, call_id, name, provider_options=options))

    def _say_item(self, data: JsonObject, parts: list[ModelPart]) -> None:
        image = image_of(data) if data["type"] == "image_generation_call" else None
        if image is not None:
            parts.append(image)
            data = {**data, "result": None}
        parts.append(OpaqueOutput(PROVIDER_ID, data))

    # What items tell.

    def _tell(self, item: Item, place: tuple[str, int], text: str, parts: list[ModelPart]) -> None:
        item.tell(place, text)
        if item.call >= 0:
            if self._suspect or item.mender.holds:
                text = item.mender.add(text)
            if text:
                parts.append(FunctionCallDelta(item.call, arguments=text))
        elif item.kind == "reasoning":
            if item.place != place and item.place is not None and text:
                self._end_thought({}, parts)  # each part of a summary is a thought of its own
                self._thinking = None
            item.place = place
            self._think(item, parts)
            self._say_thought(text, parts)
        else:
            self._refused = self._refused or place[0] == "refusal"
            self._say_text(text, parts)

    def _tell_rest(self, item: Item, place: tuple[str, int], whole: str, parts: list[ModelPart]) -> None:
        rest = item.rest(place, whole)
        if rest:
            self._tell(item, place, rest, parts)
        elif rest is None and item.call >= 0 and not self._suspect:
            self._malformed("the arguments of a call are not those of its fragments")

    def _think(self, item: Item, parts: list[ModelPart]) -> None:
        if self._thinking is not item:
            if self._thinking is not None:
                self._end_thought({}, parts)
            self._thinking = item
            parts.append(ReasoningDelta(phase="start"))

    def _cite(self, annotation: JsonValue, parts: list[ModelPart]) -> None:
        found = source_of(annotation)
        if found is None or found[0] in self._sources:
            return
        self._sources.add(found[0])
        name, url, title = (None if text is None else self._clean(text) for text in found)
        parts.append(SourceOutput(name or "source", url, title))

    # The end.

    @override
    def _flush(self, parts: list[ModelPart], /) -> None:
        for place in sorted(self._items):
            item = self._items[place]
            self._finish_item(item, item.data, parts)
            if item.call >= 0 and item.call_id is None:
                item.call_id = self._filled(item.data.get("id")) or self._new_call_id()
                parts.append(FunctionCallDelta(item.call, id=item.call_id))

    @override
    def _reason(self) -> FinishReason:
        """Read the status; an ordinary end beside calls means the calls, and beside a refusal the refusal."""
        if self._raw_finish == "incomplete":
            return _INCOMPLETE.get(self._detail or "", "other")
        if self._calls:
            return "tool-calls"
        return "content-filter" if self._refused else "stop"

    @override
    def _read_error(self, error: JsonValue, where: str, /) -> ErrorReply:
        return read_error(error, where, fallback="stream-error")


_Reader: TypeAlias = Callable[[OpenAIResponsesDecoder, JsonObject, list[ModelPart]], None]

# The kind of item, which of its texts, and what counts those, by the event that tells a piece.
_DELTAS: Final = {
    "response.output_text.delta": ("message", "content", "content_index"),
    "response.refusal.delta": ("message", "refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("reasoning", "summary", "summary_index"),
    "response.reasoning_summary.delta": ("reasoning", "summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content", "content_index"),
    "response.reasoning.delta": ("reasoning", "content", "content_index"),
    "response.function_call_arguments.delta": ("function_call", "arguments", ""),
    "response.custom_tool_call_input.delta": ("custom_tool_call", "arguments", ""),
}

# Methods of the class above, by the provider's words; progress of the provider's own tools says nothing, for the item
# they belong to comes whole.
_EVENTS: Final[dict[str, _Reader]] = {
    "response.created": OpenAIResponsesDecoder._read_begin,  # noqa: SLF001
    "response.queued": OpenAIResponsesDecoder._read_begin,  # noqa: SLF001
    "response.in_progress": OpenAIResponsesDecoder._read_begin,  # noqa: SLF001
    "response.output_item.added": OpenAIResponsesDecoder._read_added,  # noqa: SLF001
    "response.output_item.done": OpenAIResponsesDecoder._read_done,  # noqa: SLF001
    "response.output_text.annotation.added": OpenAIResponsesDecoder._read_annotation,  # noqa: SLF001
    "response.completed": OpenAIResponsesDecoder._read_last,  # noqa: SLF001
    "response.incomplete": OpenAIResponsesDecoder._read_last,  # noqa: SLF001
    "response.failed": OpenAIResponsesDecoder._read_last,  # noqa: SLF001
    "response.cancelled": OpenAIResponsesDecoder._read_last,  # noqa: SLF001
    "error": OpenAIResponsesDecoder._read_failure,  # noqa: SLF001
    **{f"{name.removesuffix('.delta')}.done": OpenAIResponsesDecoder._read_whole for name in _DELTAS},  # noqa: SLF001
}
