"""The life of a response while it is decoded, the same for every protocol whose events are JSON objects.

Theory of operation. A response is *open* until it ends in one of three ways, and stays ended:

* complete: there was evidence that the answer is whole (a finish reason or the protocol's terminal event), and the
  protocol's last event or the end of the body was reached. The last part is the `FinishReport`;
* failed: the provider reported an error before any such evidence, or broke the protocol. `failure` holds the error;
* cut: the body ended without that evidence. `failure` holds a `ProviderStreamCutError`.

What arrived before a failure is always delivered before it. An error after the evidence does not unmake the answer: it
becomes a note.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final, NoReturn

from pydantic import JsonValue
from pydantic_core import from_json

from runlane.errors import ModelError, ModelProtocolError, ProviderStreamCutError
from runlane.ids import RandomIds
from runlane.models._failure import ErrorReply, provider_error
from runlane.models._messages import model_protocol_error
from runlane.models._repair import SurrogateMender, parse_json, repair_object, repair_text
from runlane.models._stream import (
    FinishReason,
    FinishReport,
    ModelPart,
    ModelUsage,
    ReasoningDelta,
    ResponseInfo,
    StreamNote,
    TextDelta,
    UsageReport,
)
from runlane.models._usage import merge_usage
from runlane.records import JsonObject

__all__ = ["ResponseDecoder", "problem_of", "random_call_id"]

_DONE: Final = "[DONE]"
_SHORT: Final = 64


def random_call_id() -> str:
    """Name a tool call whose provider gives it no id."""
    return RandomIds().new("call")


def problem_of(error: ValueError) -> str:
    """Say what is wrong with JSON text, without the text itself."""
    said = str(error)
    # Python's own words for a number it refuses name a switch of the interpreter.
    return "a number has too many digits" if "integer string conversion" in said else said.split(": line", 1)[0]


class ResponseDecoder(ABC):
    """Decodes one response; each protocol says how it reads an event.

    Feed it the events of the body; after each `feed`, deliver the parts, then look at `failure`. When the body ends,
    `close`. Once `ended`, further input is ignored.

    Args:
        new_call_id: Names a tool call whose provider gives it no id; random by default.
        secrets: Texts that must not be in an error, even if the provider repeats them.

    Attributes:
        failure: Why the response failed, or None.
        ended: Whether nothing more can come, because it is complete or failed.
        notes: What was odd but did not stop it.
    """

    provider: ClassVar[str]

    def __init__(self, *, new_call_id: Callable[[], str] = random_call_id, secrets: tuple[str, ...] = ()) -> None:
        self.failure: ModelError | None = None
        self.ended = False
        self.notes: list[StreamNote] = []
        self._new_call_id = new_call_id
        self._secrets = secrets
        self._events = 0
        self._suspect = False  # whether the event at hand may hold surrogates
        self._mended = False
        self._text = SurrogateMender()
        self._thought = SurrogateMender()
        self._finished = False
        self._raw_finish: str | None = None
        self._usage: ModelUsage | None = None
        self._response_id: str | None = None
        self._model: str | None = None
        self._identified = False

    @property
    def has_finish(self) -> bool:
        """Whether there is evidence that the answer is complete."""
        return self._finished or (self.ended and self.failure is None)

    def feed(self, data: str, event: str = "message", /) -> list[ModelPart]:
        """Decode one event.

        Args:
            data: Its data.
            event: Its name; the data's own type counts where it has one.

        Returns:
            The parts it completes, in order. If the response fails here, `failure` is set, and these came before.
        """
        parts: list[ModelPart] = []
        if self.ended:
            return parts
        self._events += 1
        try:
            try:
                body: JsonValue = from_json(data, allow_inf_nan=False)
                self._suspect = False
            except ValueError:
                if not data or data.isspace():
                    return parts
                if len(data) < _SHORT and data.strip() == _DONE:
                    return self.close()
                body = self._parse(data)
            if isinstance(body, list) and len(body) == 1:
                body = body[0]  # Google wraps errors in a list
            if not isinstance(body, dict):
                self._malformed("it is not a JSON object")
            self._read(body, event, parts)
        except ModelError as error:
            self._fail(error, parts)
        return parts

    def feed_document(self, document: str, /) -> list[ModelPart]:
        """Decode a whole JSON body: a response that did not stream, or an error that came with status 200."""
        parts: list[ModelPart] = []
        if self.ended:
            return parts
        try:
            self._read_document(self._parse(document), parts)
            if not self._finished:
                model_protocol_error(f"{self.provider} sent a JSON document that does not say how the answer ended")
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
        try:
            if self._finished:
                self._complete(parts)
            else:
                self._fail(ProviderStreamCutError(), parts)
        except ModelError as error:
            self._fail(error, parts)
        return parts

    @abstractmethod
    def _read(self, body: JsonObject, event: str, parts: list[ModelPart], /) -> None:
        """Read one event of a stream."""

    @abstractmethod
    def _read_document(self, body: JsonValue, parts: list[ModelPart], /) -> None:
        """Read a whole response."""

    @abstractmethod
    def _flush(self, parts: list[ModelPart], /) -> None:
        """Say what is left when the answer is complete."""

    @abstractmethod
    def _reason(self) -> FinishReason:
        """Say why the answer ended."""

    @abstractmethod
    def _read_error(self, error: JsonValue, where: str, /) -> ErrorReply:
        """Read an error inside a body."""

    @property
    def _repaired(self) -> bool:
        return self._mended or self._text.repaired or self._thought.repaired

    def _parse(self, data: str) -> JsonValue:
        try:
            body, self._suspect = parse_json(data)
        except ValueError as error:
            detail = f"{self.provider} sent malformed JSON in event {self._events} of its stream: {problem_of(error)}"
            raise ModelProtocolError(detail=detail) from None
        return body

    def _say_text(self, text: str, parts: list[ModelPart]) -> None:
        if text and (self._suspect or self._text.holds):
            text = self._text.add(text)
        if text:
            parts.append(TextDelta(text))

    def _say_thought(self, text: str, parts: list[ModelPart]) -> None:
        if text and (self._suspect or self._thought.holds):
            text = self._thought.add(text)
        if text:
            parts.append(ReasoningDelta(text))

    def _end_text(self, parts: list[ModelPart]) -> None:
        rest = self._text.flush() if self._text.holds else ""
        if rest:
            parts.append(TextDelta(rest))

    def _end_thought(self, options: JsonObject, parts: list[ModelPart]) -> None:
        rest = self._thought.flush() if self._thought.holds else ""
        parts.append(ReasoningDelta(rest, "end", options or None))

    def _clean(self, text: str) -> str:
        """Repair a whole text."""
        if not self._suspect:
            return text
        mended = repair_text(text)
        self._mended = self._mended or mended != text
        return mended

    def _clean_object(self, value: JsonObject) -> JsonObject:
        """Repair what is kept as the provider gave it."""
        if not self._suspect:
            return value
        mended = repair_object(value)
        self._mended = self._mended or mended != value
        return mended

    def _filled(self, value: JsonValue) -> str | None:
        """Return a text that is not empty."""
        return self._clean(value) if isinstance(value, str) and value else None

    def _identify(self, response_id: JsonValue, model: JsonValue, parts: list[ModelPart]) -> None:
        """Learn who answers; said once, as soon as both are known."""
        self._response_id = self._response_id or self._filled(response_id)
        self._model = self._model or self._filled(model)
        if self._response_id and self._model:
            self._say_identity(parts)

    def _say_identity(self, parts: list[ModelPart]) -> None:
        if not self._identified:
            self._identified = True
            parts.append(ResponseInfo(response_id=self._response_id, model=self._model))

    def _report_usage(self, usage: ModelUsage, parts: list[ModelPart]) -> None:
        """Report figures, which replace those before them; the same once more is not said again."""
        if self._usage is None or self._usage.raw != usage.raw:
            self._usage = merge_usage(self._usage, usage)
            parts.append(UsageReport(self._usage))

    def _meet_error(self, error: JsonValue) -> None:
        """Fail, or, when the answer is complete already, note what came after it.

        Raises:
            ProviderError: The answer was not complete.
        """
        reply = self._read_error(error, "failed in the middle of its answer")
        failure = provider_error(reply, provider=self.provider, secrets=self._secrets)
        if not self._finished:
            raise failure
        self.notes.append(StreamNote("error-after-finish", str(failure)))

    def _complete(self, parts: list[ModelPart]) -> None:
        self._flush(parts)
        self._end_text(parts)
        self._note_repair()
        self._say_identity(parts)
        parts.append(FinishReport(self._reason(), self._raw_finish))
        self.ended = True

    def _fail(self, error: ModelError, parts: list[ModelPart]) -> None:
        self._note_repair()
        if self._response_id or self._model:
            self._say_identity(parts)
        self.failure = error
        self.ended = True

    def _note_repair(self) -> None:
        if self._repaired:
            self.notes.append(StreamNote("text-repaired", "lone surrogates in the answer became U+FFFD"))

    def _malformed(self, problem: str) -> NoReturn:
        model_protocol_error(f"{self.provider} sent a malformed event, number {self._events} of its stream: {problem}")
