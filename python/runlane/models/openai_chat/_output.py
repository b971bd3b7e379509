"""The output inside a chunk: text, reasoning, refusals, calls, sources and files, in every dialect met so far."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from pydantic import JsonValue

from runlane.models._messages import model_protocol_error
from runlane.models._repair import SurrogateMender, repair_object, repair_text
from runlane.models._stream import (
    FileOutput,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    SourceOutput,
    TextDelta,
)
from runlane.models.openai_chat._calls import CallTracker
from runlane.models.openai_chat._facts import PROVIDER_ID
from runlane.models.openai_chat._scan import ARGUMENTS, NOTHING, REASONING, TEXT, Scanned
from runlane.records import JsonObject

__all__ = ["OutputReader"]

_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
"""DeepSeek, Z.ai, Moonshot, vLLM; OpenRouter, Groq. Some servers send both with the same text: the first counts."""

_REASONING_KEYS: Final = frozenset({*_REASONING_FIELDS, "reasoning_details"})
_OTHER_KEYS: Final = frozenset({"refusal", "tool_calls", "function_call", "annotations", "images"})

_JOINED: Final = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""The field of a reasoning detail that arrives in fragments, by the detail's type."""


class OutputReader:
    """Turns the `delta` objects of one response into parts.

    Reasoning is a block: it opens with the first reasoning of any form and ends before the next text or call. The end
    carries what the provider wants to see again: the details it sent (fragments joined), and the field it used.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        """Start a response; `new_id` names a call whose provider does not."""
        self.calls = CallTracker(new_id)
        self.refused = False
        self._text = SurrogateMender()
        self._thought = SurrogateMender()
        self._reasoning = False
        self._field: str | None = None
        self._details: list[JsonValue] = []
        self._sources: set[str] = set()
        self._mended = False

    @property
    def repaired(self) -> bool:
        """Whether a lone surrogate was replaced."""
        return self._mended or self._text.repaired or self._thought.repaired or self.calls.repaired

    def add(self, said: Scanned, parts: list[ModelPart]) -> bool:
        """Take what the fast scan found in a chunk.

        Returns:
            False if the chunk has to be read in full after all.
        """
        if len(said) > 3:  # noqa: PLR2004 - a call, which has five
            return not self._reasoning and self.calls.begin(said[1], said[3], said[4], said[2], parts)
        kind, index, text = said
        if kind == TEXT:
            if self._reasoning or self._text.holds:
                self._add_text(text, parts)
            else:
                parts.append(TextDelta(text))
        elif kind == ARGUMENTS:
            return not self._reasoning and self.calls.add(index, text, parts)
        elif kind != NOTHING:
            self._field = "reasoning" if kind == REASONING else "reasoning_content"
            if self._reasoning and not self._thought.holds:
                parts.append(ReasoningDelta(text))
            else:
                self._add_reasoning(text, parts)
        return True

    def read(self, delta: JsonObject, parts: list[ModelPart]) -> None:
        """Read one delta (or the message of a response that did not stream).

        Raises:
            ModelProtocolError: A known field has a shape it cannot have; the parts before it are in `parts`.
        """
        if not _REASONING_KEYS.isdisjoint(delta):
            self._read_reasoning(delta, parts)
        content = delta.get("content")
        if isinstance(content, str):
            self._add_text(content, parts)
        elif isinstance(content, list):
            self._read_pieces(content, parts)
        elif content is not None:
            model_protocol_error("the content is neither text nor a list")
        if not _OTHER_KEYS.isdisjoint(delta):
            self._read_others(delta, parts)

    def _read_others(self, delta: JsonObject, parts: list[ModelPart]) -> None:
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self.refused = True
            self._add_text(refusal, parts)
        self._read_calls(delta, parts)
        self._read_extras(delta, parts)

    def read_citations(self, citations: JsonValue, parts: list[ModelPart]) -> None:
        """Read the list of addresses that Perplexity repeats in every chunk; each is said once."""
        if isinstance(citations, list):
            for url in citations:
                if isinstance(url, str):
                    self._add_source(url, None, parts)

    def finish(self, parts: list[ModelPart]) -> None:
        """Say what is left when the answer is complete."""
        self._close_reasoning(parts)
        rest = self._text.flush()
        if rest:
            parts.append(TextDelta(rest))
        self.calls.finish(parts)

    def _add_text(self, text: str, parts: list[ModelPart]) -> None:
        if not text:
            return
        self._close_reasoning(parts)
        mended = self._text.add(text)
        if mended:
            parts.append(TextDelta(mended))

    def _read_pieces(self, pieces: list[JsonValue], parts: list[ModelPart]) -> None:
        """Read content given as a list, as Mistral does."""
        for piece in pieces:
            if isinstance(piece, str):
                self._add_text(piece, parts)
            elif isinstance(piece, dict):
                self._read_piece(piece, parts)
            else:
                model_protocol_error("a piece of content is neither text nor an object")

    def _read_piece(self, piece: JsonObject, parts: list[ModelPart]) -> None:
        kind, text = piece.get("type"), piece.get("text")
        if kind in ("text", "output_text") and isinstance(text, str):
            self._add_text(text, parts)
        elif kind == "thinking":
            self._add_reasoning(_thinking_text(piece.get("thinking")), parts)
        elif kind == "refusal" and isinstance(piece.get("refusal"), str):
            self.read({"refusal": piece["refusal"]}, parts)
        else:
            parts.append(OpaqueOutput(PROVIDER_ID, self._mend(piece)))

    def _mend(self, value: JsonObject) -> JsonObject:
        """Repair what is kept as the provider gave it."""
        mended = repair_object(value)
        self._mended = self._mended or mended != value
        return mended

    def _read_reasoning(self, delta: JsonObject, parts: list[ModelPart]) -> None:
        for field in _REASONING_FIELDS:
            text = delta.get(field)
            if isinstance(text, str) and text:
                self._field = field
                self._add_reasoning(text, parts)
                break
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            for detail in details:
                self._open_reasoning(parts)
                _join_detail(self._details, detail)

    def _add_reasoning(self, text: str, parts: list[ModelPart]) -> None:
        if not text:
            return
        self._open_reasoning(parts)
        mended = self._thought.add(text)
        if mended:
            parts.append(ReasoningDelta(mended))

    def _open_reasoning(self, parts: list[ModelPart]) -> None:
        if not self._reasoning:
            self._reasoning = True
            parts.append(ReasoningDelta(phase="start"))

    def _close_reasoning(self, parts: list[ModelPart]) -> None:
        if not self._reasoning:
            return
        rest = self._thought.flush()
        if rest:
            parts.append(ReasoningDelta(rest))
        options: JsonObject = {}
        if self._field is not None:
            options["field"] = self._field
        if self._details:
            options["reasoning_details"] = self._details
        parts.append(ReasoningDelta(phase="end", provider_options=self._mend(options) or None))
        self._reasoning, self._field, self._details = False, None, []

    def _read_calls(self, delta: JsonObject, parts: list[ModelPart]) -> None:
        calls, legacy = delta.get("tool_calls"), delta.get("function_call")
        if not calls and not legacy:
            return
        self._close_reasoning(parts)
        if legacy:
            self.calls.read_legacy(legacy, parts)
        if calls and not isinstance(calls, list):
            model_protocol_error("tool_calls is not a list")
        for entry in calls if isinstance(calls, list) else ():
            self.calls.read(entry, parts)

    def _read_extras(self, delta: JsonObject, parts: list[ModelPart]) -> None:
        annotations, images = delta.get("annotations"), delta.get("images")
        if isinstance(annotations, list):
            for annotation in annotations:
                self._read_annotation(annotation, parts)
        if isinstance(images, list):
            for image in images:
                self._read_image(image, parts)

    def _read_annotation(self, annotation: JsonValue, parts: list[ModelPart]) -> None:
        citation = annotation.get("url_citation") if isinstance(annotation, dict) else None
        if isinstance(citation, dict):
            url, title = citation.get("url"), citation.get("title")
            if isinstance(url, str):
                self._add_source(url, title if isinstance(title, str) else None, parts)

    def _add_source(self, url: str, title: str | None, parts: list[ModelPart]) -> None:
        if url and url not in self._sources:
            self._sources.add(url)
            address, name = repair_text(url), repair_text(title or "")
            self._mended = self._mended or (address, name) != (url, title or "")
            parts.append(SourceOutput(address, address, name or None))

    def _read_image(self, image: JsonValue, parts: list[ModelPart]) -> None:
        """Read an image a model made, given as a data URL; one given otherwise is passed on as it is."""
        file = _inline_image(image)
        if file is not None:
            parts.append(file)
        elif isinstance(image, dict):
            parts.append(OpaqueOutput(PROVIDER_ID, self._mend(image)))


def _thinking_text(thinking: JsonValue) -> str:
    """Return the text of a Mistral thinking piece: a text, or a list of text pieces."""
    if isinstance(thinking, str):
        return thinking
    pieces = thinking if isinstance(thinking, list) else []
    texts = [piece.get("text") for piece in pieces if isinstance(piece, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def _join_detail(details: list[JsonValue], detail: JsonValue) -> None:
    """Append a reasoning detail, or join it to the last one if it is the next fragment of the same."""
    last = details[-1] if details else None
    if isinstance(last, dict) and isinstance(detail, dict):
        kind = detail.get("type")
        field = _JOINED.get(kind) if isinstance(kind, str) else None
        if field is not None and (last.get("type"), last.get("index")) == (kind, detail.get("index")):
            text, more = last.get(field), detail.get(field)
            last.update({key: value for key, value in detail.items() if value not in (None, "")})
            if isinstance(text, str):
                last[field] = text + (more if isinstance(more, str) else "")
            return
    details.append(dict(detail) if isinstance(detail, dict) else detail)


def _inline_image(image: JsonValue) -> FileOutput | None:
    """Return the image a data URL holds, or None."""
    holder = image.get("image_url") if isinstance(image, dict) else None
    url = holder.get("url") if isinstance(holder, dict) else None
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, encoded = url[5:].partition(",")
    media_type, _, encoding = head.partition(";")
    if encoding != "base64" or not media_type:
        return None
    try:
        return FileOutput(media_type, base64.b64decode(encoded, validate=True))
    except ValueError:  # not base64, or not even ASCII
        return None
