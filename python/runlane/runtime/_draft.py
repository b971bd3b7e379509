"""The answer as it grows: message parts out of stream parts, and what each checkpoint must add.

Text is kept in pieces and joined only when somebody needs it whole, so that a long answer costs what it is long. What
came between two checkpoints becomes one piece: a word alone takes six times the room of its letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from runlane.errors import CanonicalJsonError, InvalidValueError
from runlane.models import ReasoningDelta
from runlane.records import (
    ControlPart,
    Message,
    MessageStatus,
    Part,
    ProviderEnvelope,
    ReasoningPart,
    Record,
    Run,
    TextPart,
    stored_json,
    validated,
)
from runlane.store import DraftPatch, GrownPart

__all__ = ["Draft", "DraftMark", "check_storable"]

_AROUND: Final = 4
"""How many containers lie around a part of a stored record, at most."""


@dataclass(slots=True)
class _Growing:
    """A text or reasoning part that may still get longer."""

    is_reasoning: bool
    pieces: list[str]
    provider: ProviderEnvelope | None = None
    saved_pieces: int = 0
    saved_provider: ProviderEnvelope | None = None
    joined_pieces: int = 0

    def join(self) -> int:
        """Make one piece of those that came since the last time, and return how many there are.

        Marks count pieces, and none is made but here: what an earlier mark counted stays as it was.
        """
        if len(self.pieces) > self.joined_pieces + 1:
            self.pieces[self.joined_pieces :] = ["".join(self.pieces[self.joined_pieces :])]
        self.joined_pieces = len(self.pieces)
        return self.joined_pieces

    def part(self, pieces: int | None = None) -> TextPart | ReasoningPart:
        text = "".join(self.pieces if pieces is None else self.pieces[:pieces])
        return ReasoningPart(text=text, provider=self.provider) if self.is_reasoning else TextPart(text=text)

    def suffix(self) -> str:
        return "".join(self.pieces[self.saved_pieces :])

    @property
    def has_grown(self) -> bool:
        return len(self.pieces) > self.saved_pieces or self.provider is not self.saved_provider


class DraftMark(NamedTuple):
    """How far a draft had come when a patch was made; becomes its saved state once the patch is committed."""

    parts: tuple[tuple[_Growing, int, ProviderEnvelope | None] | Part, ...]


def check_storable(record: Record, what: str, /) -> None:
    """Refuse what has no stored form.

    Raises:
        InvalidValueError: It has none; names the place in what it is.
    """
    try:
        stored_json(record, inside=_AROUND)
    except CanonicalJsonError as error:
        path = what + error.path.replace("/", ".")
        raise InvalidValueError(f"cannot be stored as JSON: {error.problem}", argument=path) from None


class Draft:
    """The answer of one execution.

    | what came | becomes |
    |---|---|
    | text | appended to the last part if that is text, else a new text part |
    | reasoning start, delta, end | one part from start to end, even if other parts came in between |
    | anything else | a part of its own |

    What cannot be stored is refused when it comes: an answer that holds it could neither be checkpointed nor ended.
    """

    def __init__(self, run: Run, parts: tuple[Part, ...] = (), /) -> None:
        """Start an answer, empty or with what an earlier execution made durable of it."""
        self._run = run
        self._parts: list[_Growing | Part] = list(parts)
        self._reasoning: _Growing | None = None
        self._saved = len(parts)
        self._durable = len(parts)

    @property
    def size(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    def add_text(self, text: str, /) -> None:
        """Append visible text."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Growing) and not last.is_reasoning:
            last.pieces.append(text)
        elif text:
            self._parts.append(_Growing(is_reasoning=False, pieces=[text]))

    def add_reasoning(self, delta: ReasoningDelta, provider_id: str, /) -> ProviderEnvelope | None:
        """Append reasoning; returns the envelope of what the provider attached.

        Raises:
            InvalidValueError: What it attached has no stored form.
        """
        envelope = None
        if delta.provider_options is not None:
            given = {"provider": provider_id, "data": delta.provider_options}
            envelope = validated(ProviderEnvelope, given, argument="provider_options")
            check_storable(envelope, "reasoning")
        opened = self._reasoning
        if opened is None and delta.phase == "end" and not delta.text and envelope is None:
            return None
        if opened is None or (delta.phase == "start" and opened.pieces):
            opened = self._reasoning = _Growing(is_reasoning=True, pieces=[])
            self._parts.append(opened)
        if delta.text:
            opened.pieces.append(delta.text)
        if envelope is not None:
            opened.provider = envelope
        if delta.phase == "end":
            self._reasoning = None
        return envelope

    def add(self, part: Part, /) -> None:
        """Append a whole part.

        Raises:
            InvalidValueError: It holds something that has no stored form.
        """
        check_storable(part, part.type)
        self._parts.append(part)

    def put(self, part: Part, /) -> None:
        """Append a whole part that is known to have a stored form."""
        self._parts.append(part)

    def cut(self, size: int, /) -> None:
        """Take back every part from an index on: a retried attempt left them."""
        del self._parts[size:]
        self._saved = min(self._saved, size)
        self._reasoning = None

    def parts(self, start: int = 0, /) -> tuple[Part, ...]:
        """Return the parts from an index on, put together."""
        return tuple(part.part() if isinstance(part, _Growing) else part for part in self._parts[start:])

    @property
    def saved(self) -> int:
        """How many parts are durable, as far as they had come."""
        return self._saved

    def patch(self) -> tuple[DraftPatch | None, DraftMark]:
        """Return what the draft gained since the last committed patch (None: nothing), and the mark to commit."""
        grown = tuple(
            GrownPart(index, part.suffix(), part.provider if part.provider is not part.saved_provider else None)
            for index, part in enumerate(self._parts[: self._saved])
            if isinstance(part, _Growing) and part.has_grown
        )
        added = self.parts(self._saved)
        mark = DraftMark(
            tuple((part, part.join(), part.provider) if isinstance(part, _Growing) else part for part in self._parts)
        )
        if not grown and not added and self._saved == self._durable:
            return None, mark
        return DraftPatch(keep=self._saved, grown=grown, added=added), mark

    def committed(self, mark: DraftMark, /) -> None:
        """Note that everything up to a mark is durable."""
        self._saved = self._durable = len(mark.parts)
        for entry in mark.parts:
            if isinstance(entry, tuple):
                growing, pieces, provider = entry
                growing.saved_pieces, growing.saved_provider = pieces, provider

    def message(self, status: MessageStatus, at: datetime, /, *, control: ControlPart | None = None) -> Message:
        """Return the whole answer as a message."""
        parts = self.parts()
        if control is not None and control not in parts:
            parts = (*parts, control)
        return self._message(status, at, parts)

    def view(self, mark: DraftMark, at: datetime, /) -> Message:
        """Return the draft as it was at a mark."""
        parts = tuple(entry[0].part(entry[1]) if isinstance(entry, tuple) else entry for entry in mark.parts)
        return self._message("streaming", at, parts)

    def _message(self, status: MessageStatus, at: datetime, parts: tuple[Part, ...]) -> Message:
        return Message(
            id=self._run.assistant_message_id,
            conversation_id=self._run.conversation_id,
            run_id=self._run.id,
            role="assistant",
            status=status,
            parts=parts,
            created_at=self._run.created_at,
            updated_at=at,
        )
