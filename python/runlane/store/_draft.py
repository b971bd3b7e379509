"""A streaming answer as a chain of patches, so that a checkpoint costs what was gained and not what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from runlane.errors import RecordCorruptError, UsageError
from runlane.records import Message, Part, ProviderEnvelope, ReasoningPart, Run, TextPart
from runlane.store._bodies import chained_digest, decode, encode_json
from runlane.store._commands import DraftPatch, GrownPart
from runlane.store._rows import DraftHead

__all__ = ["assemble", "draft_head", "draft_message", "extend", "patch_body", "read_draft"]

_GROWING = {"text": "t", "reasoning": "r"}


def extend(head: DraftHead | None, patch: DraftPatch, /) -> tuple[DraftHead, bytes | None, bool]:
    """Work out what a patch makes of a draft.

    Returns:
        The head afterwards, the row to append (None if there is nothing to append), and whether the rows so far are
        dropped.

    Raises:
        UsageError: The patch does not fit the draft.
    """
    old = head or DraftHead()
    _check(old.kinds, patch)
    drops = patch.keep == 0
    base = DraftHead() if drops else old
    kinds = old.kinds[: patch.keep] + "".join([_GROWING.get(part.type, ".") for part in patch.added])
    if not patch.added and not patch.grown and kinds == base.kinds:
        return base, None, drops
    body = patch_body(patch)
    after = DraftHead(kinds, base.patches + 1, base.size + len(body), chained_digest(base.sha256, body))
    return after, body, drops


def _check(kinds: str, patch: DraftPatch) -> None:
    if type(patch.keep) is not int or not 0 <= patch.keep <= len(kinds):
        raise UsageError(f"keeps {patch.keep} of {len(kinds)} parts", argument="patch.keep")
    for grown in patch.grown:
        if type(grown.index) is not int or not 0 <= grown.index < patch.keep:
            raise UsageError(f"part {grown.index} is not among the {patch.keep} kept", argument="patch.grown")
        kind = kinds[grown.index]
        if kind == "." or (grown.provider is not None and kind != "r") or type(grown.suffix) is not str:
            raise UsageError(f"part {grown.index} cannot grow like that", argument="patch.grown")


def patch_body(patch: DraftPatch, /) -> bytes:
    """Write a patch as it is stored: `{"keep": 2, "grown": [[1, "more text"]], "added": [...]}`."""
    value: dict[str, object] = {"keep": patch.keep}
    if patch.grown:
        value["grown"] = [_grown_json(grown) for grown in patch.grown]
    if patch.added:
        value["added"] = [part.to_json() for part in patch.added]
    return encode_json(value, argument="patch")


def _grown_json(grown: GrownPart) -> list[object]:
    row: list[object] = [grown.index, grown.suffix]
    if grown.provider is not None:
        row.append(grown.provider.to_json())
    return row


class _StoredPatch(BaseModel):
    """A patch as it is read back."""

    model_config = ConfigDict(extra="forbid", strict=False)

    keep: Annotated[int, Field(ge=0, strict=True)]
    grown: tuple[tuple[int, str] | tuple[int, str, ProviderEnvelope], ...] = ()
    added: tuple[Part, ...] = ()


class _Growing:
    """A part that is being put together; its texts are joined once, at the end."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._suffixes: list[str] = []

    def grow(self, suffix: str, provider: ProviderEnvelope | None) -> None:
        if not isinstance(self._part, TextPart | ReasoningPart):
            raise TypeError
        self._suffixes.append(suffix)
        if provider is not None:
            self._part = self._part.model_copy(update={"provider": provider})

    def whole(self) -> Part:
        if not self._suffixes or not isinstance(self._part, TextPart | ReasoningPart):
            return self._part
        return self._part.model_copy(update={"text": self._part.text + "".join(self._suffixes)})


def assemble(bodies: Iterable[bytes], /, *, what: str) -> tuple[Part, ...]:
    """Put a draft together again.

    Args:
        bodies: Its patches, oldest first.
        what: Whose draft it is, for the error.

    Raises:
        RecordCorruptError: The patches do not fit each other.
    """
    parts: list[_Growing] = []
    for body in bodies:
        patch = decode(_StoredPatch, body, what=f"a checkpoint of {what}")
        try:
            _apply(parts, patch)
        except (IndexError, TypeError):
            raise RecordCorruptError(f"the checkpoints of {what} do not fit together") from None
    return tuple(part.whole() for part in parts)


def read_draft(head: DraftHead, bodies: Sequence[bytes], /, *, what: str) -> tuple[Part, ...]:
    """Put a draft together again, and compare it with what its run says of it.

    Raises:
        RecordCorruptError: A patch is missing or was changed, or the patches do not fit each other.
    """
    chain = reduce(chained_digest, bodies, bytes(32))
    if (len(bodies), sum(map(len, bodies)), chain) != (head.patches, head.size, head.sha256):
        raise RecordCorruptError(f"the draft of {what} is not the one its run says")
    parts = assemble(bodies, what=what)
    if len(parts) != len(head.kinds):
        raise RecordCorruptError(f"the draft of {what} is not as long as its run says")
    return parts


def draft_head(bodies: Sequence[bytes], /, *, what: str) -> DraftHead:
    """Return what a run says of a draft with these patches.

    Raises:
        RecordCorruptError: The patches do not fit each other.
    """
    kinds = "".join([_GROWING.get(part.type, ".") for part in assemble(bodies, what=what)])
    return DraftHead(kinds, len(bodies), sum(map(len, bodies)), reduce(chained_digest, bodies, bytes(32)))


def _apply(parts: list[_Growing], patch: _StoredPatch) -> None:
    if patch.keep > len(parts):
        raise IndexError
    del parts[patch.keep :]
    for index, suffix, *provider in patch.grown:
        if index < 0:
            raise IndexError
        parts[index].grow(suffix, provider[0] if provider else None)
    parts.extend(map(_Growing, patch.added))


def draft_message(run: Run, parts: tuple[Part, ...], /) -> Message:
    """Return the streaming answer of a run as a message."""
    return Message(
        id=run.assistant_message_id,
        conversation_id=run.conversation_id,
        run_id=run.id,
        role="assistant",
        status="streaming",
        parts=parts,
        created_at=run.created_at,
        updated_at=run.updated_at,
    )
