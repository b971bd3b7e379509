"""The stream of Google's generateContent, as neutral parts: no I/O, so a recorded stream is replayed byte by byte.

Every event is a response with the next parts of its first candidate. Text, thoughts, function calls and files become
neutral parts; every other part (code the provider ran itself, its own tools, kinds yet unknown) is passed on as it is.
A signature that comes with text is kept as reasoning without text, directly behind it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

from pydantic import JsonValue
from typing_extensions import override

from runlane.models._decoding import ResponseDecoder, random_call_id
from runlane.models._failure import ErrorReply
from runlane.models._stream import (
    FileOutput,
    FinishReason,
    FunctionCallDelta,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    SourceOutput,
    TextDelta,
)
from runlane.models.google._call import StreamedCall
from runlane.models.google._facts import PROVIDER_ID, neutral_reason, read_error, read_usage
from runlane.records import JsonObject

__all__ = ["GoogleDecoder"]

_SIGNATURE: Final = "thoughtSignature"
_GROUNDS: Final = ("groundingMetadata", "urlContextMetadata")


class GoogleDecoder(ResponseDecoder):
    """Decodes one response; see `ResponseDecoder`.

    A finish reason is the evidence that the answer is whole, and so is a reason why the prompt was blocked. The answer
    ends with the body, for figures may follow.

    Example:
        >>> decoder = GoogleDecoder()
        >>> decoder.feed('{"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}')
        [TextDelta(text='Hi')]
        >>> decoder.close()[-1]
        FinishReport(reason='stop', raw_reason='STOP')
    """

    provider: ClassVar[str] = PROVIDER_ID

    def __init__(self, *, new_call_id: Callable[[], str] = random_call_id, secrets: tuple[str, ...] = ()) -> None:
        super().__init__(new_call_id=new_call_id, secrets=secrets)
        self._calls = 0
        self._open_call: StreamedCall | None = None
        self._thinking = False
        self._thought_options: JsonObject = {}
        self._blocked = False
        self._sources: set[str] = set()
        self._grounds: dict[str, JsonObject] = {}

    @override
    def _read(self, body: JsonObject, event: str, parts: list[ModelPart], /) -> None:
        if "response" in body and "candidates" not in body and isinstance(body["response"], dict):
            body = body["response"]  # Code Assist wraps it
        if not self._identified:
            self._identify(body.get("responseId"), body.get("modelVersion"), parts)
        candidates = body.get("candidates")
        if candidates:
            self._read_candidates(candidates, parts)
        feedback = body.get("promptFeedback")
        if isinstance(feedback, dict):
            self._read_feedback(feedback)
        usage = body.get("usageMetadata")
        if isinstance(usage, dict) and usage:
            self._report_usage(read_usage(self._clean_object(usage)), parts)
        error = body.get("error")
        if error or event == "error":
            self._meet_error(error or body)

    @override
    def _read_document(self, body: JsonValue, parts: list[ModelPart], /) -> None:
        for chunk in body if isinstance(body, list) else [body]:
            if not isinstance(chunk, dict):
                self._malformed("it is not a JSON object")
            self._read(chunk, "message", parts)

    def _read_candidates(self, candidates: JsonValue, parts: list[ModelPart]) -> None:
        if not isinstance(candidates, list):
            self._malformed("candidates is not a list")
        for place, candidate in enumerate(candidates):
            if not isinstance(candidate, dict):
                self._malformed("a candidate is not an object")
            # An index of 0 may be left out (Protocol Buffers, JSON mapping); of several without, the first has it.
            if candidate.get("index", place) in (0, None):
                self._read_candidate(candidate, parts)

    def _read_candidate(self, candidate: JsonObject, parts: list[ModelPart]) -> None:
        content = candidate.get("content")
        pieces = content.get("parts") if isinstance(content, dict) else None
        if pieces is not None and not isinstance(pieces, list):
            self._malformed("the parts are not a list")
        for piece in pieces or ():
            if not isinstance(piece, dict):
                self._malformed("a part is not an object")
            self._read_piece(piece, parts)
        if len(candidate) > 2:  # noqa: PLR2004 - content and index, as in most events
            self._read_rest(candidate, parts)
        elif "finishReason" in candidate:
            self._read_finish(candidate["finishReason"])

    def _read_rest(self, candidate: JsonObject, parts: list[ModelPart]) -> None:
        self._read_finish(candidate.get("finishReason"))
        for key in _GROUNDS:
            grounds = candidate.get(key)
            if isinstance(grounds, dict) and grounds:
                self._grounds[key] = self._clean_object(grounds)
        for name, url, title in _sources_of(candidate):
            if name not in self._sources:
                self._sources.add(name)
                told = (None if text is None else self._clean(text) for text in (url, title))
                parts.append(SourceOutput(self._clean(name), *told))

    def _read_finish(self, reason: JsonValue) -> None:
        if reason is None or reason == "":
            return
        if not isinstance(reason, str):
            self._malformed("the finish reason is not text")
        self._raw_finish = self._clean(reason)
        self._finished = True

    def _read_feedback(self, feedback: JsonObject) -> None:
        """Read what became of the prompt: a blocked one has no other answer."""
        reason = feedback.get("blockReason")
        if isinstance(reason, str) and reason:
            self._blocked = self._finished = True
            self._raw_finish = self._raw_finish or self._clean(reason)

    # Parts.

    def _read_piece(self, piece: JsonObject, parts: list[ModelPart]) -> None:
        text = piece.get("text")
        if isinstance(text, str):
            self._read_text(text, piece, parts)
            return
        self._end_thinking(parts)
        call = piece.get("functionCall")
        if isinstance(call, dict):
            self._read_call(call, piece, parts)
        elif set(piece) <= {_SIGNATURE, "thought", "text"}:
            self._sign(piece, parts)
        else:
            self._read_other(piece, parts)

    def _read_text(self, text: str, piece: JsonObject, parts: list[ModelPart]) -> None:
        if len(piece) == 1 and text and not (self._thinking or self._suspect or self._text.holds):
            parts.append(TextDelta(text))  # what most parts are
            return
        if piece.get("thought") is True:
            if not self._thinking:
                self._thinking = True
                parts.append(ReasoningDelta(phase="start"))
            self._say_thought(text, parts)
            if piece.get(_SIGNATURE):
                self._thought_options = {_SIGNATURE: piece[_SIGNATURE], "thought": True}
            return
        if self._thinking and (text or _SIGNATURE in piece):
            self._end_thinking(parts)
        self._say_text(text, parts)
        if _SIGNATURE in piece:
            self._sign(piece, parts)

    def _sign(self, piece: JsonObject, parts: list[ModelPart]) -> None:
        """Keep the signature of visible text."""
        if piece.get(_SIGNATURE):
            self._end_text(parts)
            parts.append(ReasoningDelta(phase="start"))
            parts.append(ReasoningDelta("", "end", self._clean_object({_SIGNATURE: piece[_SIGNATURE]})))

    def _end_thinking(self, parts: list[ModelPart]) -> None:
        if self._thinking:
            self._end_thought(self._clean_object(self._thought_options), parts)
            self._thinking, self._thought_options = False, {}

    def _read_call(self, data: JsonObject, piece: JsonObject, parts: list[ModelPart]) -> None:
        name = self._filled(data.get("name"))
        call = self._open_call
        if call is not None and name:
            self._end_call(call, parts)
        if call is None or name:
            if not name:
                self._malformed("a function call has no name")
            call = self._open_call = StreamedCall(self._calls)
            self._calls += 1
            self._name_call(call, name, data, piece, parts)
        call.add(self._clean_object(data))
        if data.get("willContinue") is not True:
            self._end_call(call, parts)

    def _name_call(
        self, call: StreamedCall, name: str, data: JsonObject, piece: JsonObject, parts: list[ModelPart]
    ) -> None:
        call_id = self._filled(data.get("id"))
        given: JsonObject = {"id": call_id, _SIGNATURE: piece.get(_SIGNATURE)}
        options: JsonObject = {key: value for key, value in given.items() if value}
        call_id = call_id or self._new_call_id()
        parts.append(FunctionCallDelta(call.index, call_id, name, provider_options=options or None))

    def _end_call(self, call: StreamedCall, parts: list[ModelPart]) -> None:
        parts.append(FunctionCallDelta(call.index, arguments=call.whole()))
        self._open_call = None

    def _read_other(self, piece: JsonObject, parts: list[ModelPart]) -> None:
        blob = piece.get("inlineData")
        file = _file_of(blob) if isinstance(blob, dict) else None
        if file is not None:
            parts.append(file)
            if _SIGNATURE in piece:
                self._sign(piece, parts)
        else:
            parts.append(OpaqueOutput(PROVIDER_ID, self._clean_object(piece)))

    # The end.

    @override
    def _flush(self, parts: list[ModelPart], /) -> None:
        self._end_thinking(parts)
        if self._open_call is not None:
            parts.append(FunctionCallDelta(self._open_call.index, arguments=self._open_call.half()))
        if self._grounds:
            self._end_text(parts)
            parts.append(OpaqueOutput(PROVIDER_ID, dict(self._grounds)))

    @override
    def _reason(self) -> FinishReason:
        """Read the finish reason; an ordinary stop beside calls means the calls."""
        if self._blocked:
            return "content-filter"
        reason = neutral_reason(self._raw_finish or "")
        return "tool-calls" if reason == "stop" and self._calls else reason

    @override
    def _read_error(self, error: JsonValue, where: str, /) -> ErrorReply:
        return read_error(error, where, fallback="stream-error")


def _sources_of(candidate: JsonObject) -> Iterator[tuple[str, str | None, str | None]]:
    """Give what a candidate rests on: what names the source, its address, and its title."""
    grounds, cited = candidate.get("groundingMetadata"), candidate.get("citationMetadata")
    chunks = grounds.get("groundingChunks") if isinstance(grounds, dict) else None
    for chunk in chunks if isinstance(chunks, list) else ():
        for source in chunk.values() if isinstance(chunk, dict) else ():
            yield from _source_of(source)
    for key in ("citationSources", "citations"):
        sources = cited.get(key) if isinstance(cited, dict) else None
        for source in sources if isinstance(sources, list) else ():
            yield from _source_of(source)


def _source_of(source: JsonValue) -> Iterator[tuple[str, str | None, str | None]]:
    if not isinstance(source, dict):
        return
    keys = ("uri", "title", "documentName", "fileSearchStore")
    uri, title, document, store = (_text(source.get(key)) for key in keys)
    name = uri or document or title or store
    if name is not None:
        yield name, uri, title


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _file_of(blob: JsonObject) -> FileOutput | None:
    """Return a file a model made, or None if its data cannot be read."""
    media_type, data = blob.get("mimeType"), blob.get("data")
    if not isinstance(media_type, str) or not media_type or not isinstance(data, str):
        return None
    try:
        # The encoding of bytes in JSON may be either alphabet (Protocol Buffers, JSON mapping).
        return FileOutput(media_type, base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True))
    except ValueError:  # not base64, or not even ASCII
        return None
