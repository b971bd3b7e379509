"""What a model and its tools put out, on its way into the answer: repaired, kept, and told."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace

from runlane.errors import InvalidValueError, UsageError
from runlane.models import (
    FileOutput,
    ModelPart,
    OpaqueOutput,
    ReasoningDelta,
    SourceOutput,
    TextDelta,
    check_part,
    repair_object,
    repair_text,
)
from runlane.records import (
    ProviderEnvelope,
    ProviderPart,
    SourcePart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
    validated,
)
from runlane.runtime._announcing import RunVoice
from runlane.runtime._draft import Draft
from runlane.runtime._files import FilesConfig, keep_file
from runlane.runtime._pairing import Pairing
from runlane.runtime._turn import TurnPart

__all__ = ["Intake"]


class Intake:
    """Takes parts one by one.

    | part | in the answer | told as |
    |---|---|---|
    | text | appended to the last text | `assistant-delta` |
    | reasoning | one part from start to end | `reasoning-start`, `-delta`, `-end` |
    | whole tool call | a part | `tool-status` started |
    | tool result | a part | `tool-status` completed, failed or interrupted |
    | consent asked for, or given automatically | a part | nothing |
    | source, opaque output | a part | nothing |
    | file | kept by the application first, then a part with its reference | nothing |
    | fragments of calls, usage, response identity, finish | nothing | nothing |

    Attributes:
        provider_id: The wire protocol whose parts are taken, for the envelopes of reasoning.
    """

    def __init__(self, draft: Draft, pairing: Pairing, voice: RunVoice, files: FilesConfig, /) -> None:
        """Take parts into a draft."""
        self._draft = draft
        self._pairing = pairing
        self._voice = voice
        self._files = files
        self._is_closed = False
        self.provider_id = "unknown"

    def close(self) -> None:
        """Take nothing any more: whoever still works for a turn that has ended is told so."""
        self._is_closed = True

    def take(self, part: ModelPart | TurnPart, /) -> Awaitable[None] | None:
        """Take a part; returns what is left to await, if anything is.

        Tool traffic from outside is checked before (`check_tool_part`); what the runtime made itself can be stored.

        Raises:
            InvalidValueError: The part has no stored form, or does not fit the calls of the answer.
            ModelProtocolError: It is no part of a response.
            UsageError: The turn has ended. Once awaited: it is a file, and nothing is configured to keep it.
        """
        if self._is_closed:
            kind = type(part).__name__
            raise UsageError(f"the turn has ended; no {kind} can be added to its answer", argument="emit")
        if isinstance(part, TextDelta):
            if type(part.text) is not str:
                check_part(part)
            if not part.text:
                return None
            text = repair_text(part.text)
            self._draft.add_text(text)
            self._voice.text(text)
            return None
        if isinstance(part, ReasoningDelta):
            check_part(part)
            thought = _repaired(part)
            self._voice.reasoning(thought, self._draft.add_reasoning(thought, self.provider_id))
            return None
        if isinstance(part, ToolCallPart | ToolResultPart | ToolApprovalRequestPart | ToolApprovalResponsePart):
            self._pairing.take(part)
            self._draft.put(part)
            if isinstance(part, ToolCallPart | ToolResultPart):
                self._voice.tool(part)
            return None
        return self._take_quietly(part)

    def _take_quietly(self, part: ModelPart) -> Awaitable[None] | None:
        """Take what no transient event speaks of."""
        check_part(part)
        match part:
            case SourceOutput():
                self._draft.add(_source(part))
            case OpaqueOutput(provider, data):
                envelope = {"provider": provider, "data": repair_object(data)}
                self._draft.add(ProviderPart(envelope=validated(ProviderEnvelope, envelope, argument="opaque output")))
            case FileOutput():
                return self._keep(part)
            case _:
                pass
        return None

    async def _keep(self, file: FileOutput) -> None:
        self._draft.add(await keep_file(self._files, file))


def _source(part: SourceOutput) -> SourcePart:
    """Return a citation; an address that is no URL stays as its id, rather than costing the answer."""
    said = {"source_id": part.source_id, "url": part.url, "title": part.title}
    source = {name: repair_text(text) for name, text in said.items() if text}
    try:
        return validated(SourcePart, source, argument="source")
    except InvalidValueError:
        source.pop("url", None)
        return validated(SourcePart, source, argument="source")


def _repaired(part: ReasoningDelta) -> ReasoningDelta:
    """Return reasoning as it can be stored, whatever its provider made of it."""
    options = part.provider_options
    text = repair_text(part.text) if part.text else part.text
    if options is None and text == part.text:
        return part
    return replace(part, text=text, provider_options=None if options is None else repair_object(options))
