"""The stream of a chat completion, as neutral parts: no I/O, so a recorded stream is replayed byte by byte.

Theory of operation. A response is *open* until it ends in one of three ways, and stays ended:

* complete: a finish reason was seen and the body ended or said `[DONE]`; or `[DONE]` came alone and no call is open.
  The last part is the `FinishReport`;
* failed: the provider reported an error before any finish reason, or broke the protocol. `failure` holds the error;
* cut: the body ended without evidence that the answer did. `failure` holds a `ProviderStreamCutError`.

What arrived before a failure is always delivered before it. An error after a finish reason does not unmake the answer:
it becomes a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from pydantic import JsonValue
from pydantic_core import from_json

from runlane.errors import ModelError, ModelProtocolError, ProviderStreamCutError
from runlane.models._decoding import problem_of, random_call_id
from runlane.models._failure import provider_error
from runlane.models._messages import model_protocol_error
from runlane.models._repair import parse_json, repair_object, repair_text
from runlane.models._stream import (
    FinishReason,
    FinishReport,
    ModelPart,
    ModelUsage,
    ResponseInfo,
    StreamNote,
    UsageReport,
)
from runlane.models._usage import merge_usage
from runlane.models.openai_chat._facts import PROVIDER_ID, find_error, find_usage, read_error, read_usage
from runlane.models.openai_chat._output import OutputReader
from runlane.models.openai_chat._scan import FINISH, Scanned, scan_chat_chunk
from runlane.records import JsonObject

__all__ = ["OpenAIChatDecoder"]

_DONE: Final = "[DONE]"
_SHORT: Final = 64

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "tool_calls": "tool-calls",
    "tool_call": "tool-calls",
    "tool_use": "tool-calls",
    "function_call": "tool-calls",
    "content_filter": "content-filter",
    "refusal": "content-filter",
    "sensitive": "content-filter",
}


class OpenAIChatDecoder:
    """Decodes one response.

    Feed it the events of the body; after each `feed`, deliver the parts, then look at `failure`. When the body ends,
    `close`. Once `ended`, further input is ignored.

    Args:
        new_call_id: Names a tool call whose provider gives it no id; random by default.
        currency: What a cost figure is in (three letters), if the endpoint is known to report one.
        secrets: Texts that must not be in an error, even if the provider repeats them.

    Attributes:
        failure: Why the response failed, or None.
        ended: Whether nothing more can come, because it is complete or failed.
        notes: What was odd but did not stop it.

    Example:
        >>> decoder = OpenAIChatDecoder()
        >>> decoder.feed('{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}')
        [TextDelta(text='Hi')]
        >>> decoder.feed("[DONE]")[-1]
        FinishReport(reason='stop', raw_reason='stop')
    """

    def __init__(
        self,
        *,
        new_call_id: Callable[[], str] = random_call_id,
        currency: str | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self.failure: ModelError | None = None
        self.ended = False
        self.notes: list[StreamNote] = []
        self._currency = currency
        self._secrets = secrets
        self._output = OutputReader(new_call_id)
        self._events = 0
        self._raw_finish: str | None = None
        self._usage: ModelUsage | None = None
        self._response_id: str | None = None
        self._model: str | None = None
        self._upstream: str | None = None
        self._identified = False
        self._begun = False
        self._suspect = False  # whether the chunk at hand may hold surrogates

    @property
    def has_finish(self) -> bool:
        """Whether there is evidence that the answer is complete."""
        return self._raw_finish is not None or (self.ended and self.failure is None)

    def feed(self, data: str, event: str = "message") -> list[ModelPart]:
        """Decode one event.

        Args:
            data: Its data.
            event: Its name; some providers call a failure `error`.

        Returns:
            The parts it completes, in order. If the response fails here, `failure` is set, and these came before.
        """
        parts: list[ModelPart] = []
        if self.ended:
            return parts
        self._events += 1
        if self._begun and event == "message":
            # Most chunks of a stream only bring the next text: those need not be built as objects.
            said = scan_chat_chunk(data)
            if said is not None and self._take(said, parts):
                return parts
        try:
            self._read(data, event, parts)
        except ModelError as error:
            self._fail(error, parts)
        return parts

    def _take(self, said: Scanned, parts: list[ModelPart]) -> bool:
        if said[0] != FINISH:
            return self._output.add(said, parts)
        if said[2] == "error":
            return False
        self._raw_finish = said[2]
        return True

    def feed_document(self, document: str) -> list[ModelPart]:
        """Decode a whole JSON body: what a server sends that does not stream, or that reports an error this way."""
        parts: list[ModelPart] = []
        if self.ended:
            return parts
        try:
            body = self._parse(document)
            self._read_chunk(body, "message", "message", parts)
            if self._raw_finish is None:
                model_protocol_error("the response is a JSON document without a finish reason")
            self._complete(parts)
        except ModelError as error:
            self._fail(error, parts)
        return parts

    def close(self) -> list[ModelPart]:
        """End the body.

        Returns:
            The last parts. If nothing showed that the answer is complete, `failure` is a `ProviderStreamCutError`.
        """
        parts: list[ModelPart] = []
        if self.ended:
            return parts
        if self._raw_finish is None:
            self._fail(ProviderStreamCutError(), parts)
        else:
            self._complete(parts)
        return parts

    def _read(self, data: str, event: str, parts: list[ModelPart]) -> None:
        if data == _DONE or (len(data) < _SHORT and data.strip() == _DONE):
            self._done(parts)
        elif data and not data.isspace():
            self._read_chunk(self._parse(data), event, "delta", parts)

    def _parse(self, data: str) -> JsonObject:
        body: JsonValue
        try:
            body, self._suspect = from_json(data, allow_inf_nan=False), False
        except ValueError:
            body = self._parse_slowly(data)
        if not isinstance(body, dict):
            self._malformed("it is not a JSON object")
        return body

    def _parse_slowly(self, data: str) -> JsonValue:
        try:
            body, self._suspect = parse_json(data)
        except ValueError as error:
            detail = f"{PROVIDER_ID} sent malformed JSON in event {self._events} of its stream: {problem_of(error)}"
            raise ModelProtocolError(detail=detail) from None
        return body

    def _read_chunk(self, chunk: JsonObject, event: str, holder: str, parts: list[ModelPart]) -> None:
        if not self._identified:
            self._identify(chunk, parts)
        choices = chunk.get("choices")
        if choices:
            # From here on a chunk of the common shape has nothing to say but its text: who answers is known by now,
            # or will be said again in the chunks that end the stream.
            begun, self._begun = self._begun, True
            self._read_choices(choices, holder, parts, may_be_whole=not begun)
        if "citations" in chunk:
            self._output.read_citations(chunk["citations"], parts)
        usage = find_usage(chunk)
        if usage is not None:
            self._report_usage(usage, parts)
        error = find_error(chunk, event)
        if error is not None:
            self._meet_error(error)
        elif self._raw_finish == "error":
            self._meet_error("it gave the finish reason 'error'")

    def _read_choices(self, choices: JsonValue, holder: str, parts: list[ModelPart], *, may_be_whole: bool) -> None:
        if not isinstance(choices, list):
            self._malformed("choices is not a list")
        for choice in choices:
            if not isinstance(choice, dict):
                self._malformed("a choice is not an object")
            if choice.get("index") not in (0, None):
                continue
            delta = choice.get(holder)
            if delta is None and may_be_whole:
                delta = choice.get("message")  # a stream of one chunk; later ones only repeat what was told
            if isinstance(delta, dict):
                self._read_delta(delta, parts)
            elif delta is not None:
                self._malformed(f"the {holder} is not an object")
            self._read_finish(choice.get("finish_reason"))

    def _read_delta(self, delta: JsonObject, parts: list[ModelPart]) -> None:
        try:
            self._output.read(delta, parts)
        except ModelProtocolError as error:
            self._malformed(error.detail)

    def _read_finish(self, reason: JsonValue) -> None:
        if reason is None or reason == "":
            return
        if not isinstance(reason, str):
            self._malformed("the finish reason is not text")
        self._raw_finish = repair_text(reason)

    def _identify(self, chunk: JsonObject, parts: list[ModelPart]) -> None:
        """Learn who answers. Azure's first chunk leaves id and model empty; Snowflake never gives an id."""
        self._response_id = self._response_id or _filled(chunk.get("id"))
        self._model = self._model or _filled(chunk.get("model"))
        self._upstream = self._upstream or _filled(chunk.get("provider"))
        if self._response_id and self._model:
            self._say_identity(parts)

    def _say_identity(self, parts: list[ModelPart]) -> None:
        self._identified = True
        parts.append(ResponseInfo(response_id=self._response_id, model=self._model, upstream_provider=self._upstream))

    def _report_usage(self, raw: JsonObject, parts: list[ModelPart]) -> None:
        if self._usage is not None and self._usage.raw == raw:
            return
        usage = read_usage(repair_object(raw) if self._suspect else raw, currency=self._currency)
        self._usage = merge_usage(self._usage, usage)
        parts.append(UsageReport(self._usage))

    def _meet_error(self, error: JsonValue) -> None:
        reply = read_error(error, where="failed in the middle of its answer", fallback="stream-error")
        failure = provider_error(reply, provider=PROVIDER_ID, secrets=self._secrets)
        if self._raw_finish in (None, "error"):
            raise failure
        self.notes.append(StreamNote("error-after-finish", str(failure)))

    def _done(self, parts: list[ModelPart]) -> None:
        if self._raw_finish is None and self._output.calls:
            message = "the provider's stream ended with an open tool call and no finish reason"
            raise ProviderStreamCutError(message)
        self._complete(parts)

    def _complete(self, parts: list[ModelPart]) -> None:
        self._output.finish(parts)
        self._note_repair()
        if not self._identified:
            self._say_identity(parts)
        parts.append(FinishReport(self._reason(), self._raw_finish))
        self.ended = True

    def _reason(self) -> FinishReason:
        """Read the finish reason; `stop` beside calls means the calls, and beside a refusal the refusal."""
        reason = "stop" if self._raw_finish is None else _REASONS.get(self._raw_finish.lower(), "other")
        if reason == "stop" and self._output.calls:
            return "tool-calls"
        return "content-filter" if reason == "stop" and self._output.refused else reason

    def _fail(self, error: ModelError, parts: list[ModelPart]) -> None:
        self._note_repair()
        if not self._identified and (self._response_id or self._model):
            self._say_identity(parts)
        self.failure = error
        self.ended = True

    def _note_repair(self) -> None:
        if self._output.repaired:
            self.notes.append(StreamNote("text-repaired", "lone surrogates in the answer became U+FFFD"))

    def _malformed(self, problem: str) -> NoReturn:
        model_protocol_error(f"{PROVIDER_ID} sent a malformed chunk in event {self._events} of its stream: {problem}")


def _filled(value: JsonValue) -> str | None:
    return repair_text(value) if isinstance(value, str) and value else None
