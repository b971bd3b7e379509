"""What was asked of a provider, as ledger entries: identities and hashes, never the prompt again.

`provider/request` is written before the provider is called, in the commit that records the call's start. It names the
stored records the prompt was made of by their first and last id and one chained hash (see `_record_chain`); what the
run has added since is hashed message by message into the same chain. `provider/response` follows when the call ends.

The first request that shows inputs which joined the run names them under `joined`: how many parts the answer had by
then (`after`), the run they belong to and their ids. The first request of an attempt names all it shows.

Of two requests with the same attempt and step the first was never made: somebody wrote to the conversation while the
run was acquired, and the prompt was made again.

| hash | of what |
|---|---|
| `instructions_sha256` | the text of the instructions; of several, see `instructions_digest` |
| `records.sha256` | the stored records, chained |
| `messages_sha256` | the same chain, continued over the messages that follow them |
| `body_sha256` | the two texts `instructions_sha256` and `messages_sha256`, joined by a comma |
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from pydantic import BaseModel, JsonValue

from runlane.canonical import canonical_record_json
from runlane.clock import Clock
from runlane.errors import CanonicalJsonError
from runlane.ids import IdSource
from runlane.models import (
    AnyModelMessage,
    FileItem,
    MessageChain,
    ModelImage,
    ModelMessage,
    ResolvedModel,
    ResponseInfo,
)
from runlane.records import JsonObject, TextPart, Usage
from runlane.runtime._record_chain import RecordRange, link
from runlane.store import AppendEvent, EventKind

__all__ = ["Entry", "ProviderCall", "RecordedRequest", "RequestLedger", "instructions_digest", "message_digest"]

_NO_RECORDS: Final = RecordRange()

_Item: TypeAlias = BaseModel | ModelImage | FileItem


class Entry(NamedTuple):
    """A ledger entry that was not appended yet.

    Attributes:
        body_sha256: Of a request: two requests that say the same have the same one.
    """

    kind: EventKind
    payload: JsonObject
    body_sha256: str = ""

    def command(self, ids: IdSource, clock: Clock, /) -> AppendEvent:
        """Return the command that appends it."""
        return AppendEvent(command_id=ids.new("command"), at=clock.now(), kind=self.kind, payload=self.payload)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request that is on record and was not made yet.

    Attributes:
        spoken: What the provider is given.
    """

    body_sha256: str
    spoken: Sequence[AnyModelMessage]

    def gives(self, messages: Sequence[AnyModelMessage], /) -> bool:
        """Whether messages are the very ones it gives; False does not mean that they say something else.

        A stored history is not made into objects to find out, nor is one looked at that was projected again since.
        """
        if not isinstance(self.spoken, MessageChain) or not isinstance(messages, MessageChain):
            return False
        own, pieces = self.spoken.pieces, messages.pieces
        return len(own) == len(pieces) and all(
            one is other or (type(one) is tuple and type(other) is tuple and one == other)
            for one, other in zip(own, pieces, strict=True)
        )


class ProviderCall(NamedTuple):
    """One call of a provider.

    Attributes:
        model: Who is asked.
        attempt: 1 for the first.
        step: 0 for the first of an attempt.
    """

    model: ResolvedModel
    attempt: int = 1
    step: int = 0


class RequestLedger:
    """The requests of one run. Each message is hashed once, however often it is sent."""

    def __init__(self, run_id: str, base: Sequence[AnyModelMessage] = (), records: RecordRange | None = None) -> None:
        """Begin with the prompt a run starts with.

        Args:
            run_id: The run.
            base: Its messages, of which those first `records.messages` stand for stored records.
            records: These records, or None if the messages do not come from records.
        """
        self._run_id = run_id
        self._records = records or _NO_RECORDS
        first = MessageChain(base).pieces[:1]
        self._base = first[0] if first and len(first[0]) == self._records.messages else base[: self._records.messages]
        self._seen: list[AnyModelMessage] = []
        self._chain: list[bytes] = []

    def request(
        self, call: ProviderCall, spoken: Sequence[AnyModelMessage], /, *, joined: Sequence[JsonValue] = ()
    ) -> Entry:
        """Return the entry of a request.

        Args:
            call: The call.
            spoken: Everything the provider is given; system messages at the head are the instructions.
            joined: Inputs of other runs that it shows for the first time.
        """
        system, records, added = self._parted(spoken)
        instructions = instructions_digest(system)
        messages = self._chained(records, added).hex()
        body = hashlib.sha256(f"{instructions},{messages}".encode()).hexdigest()
        payload: JsonObject = {
            **self._identity(call),
            "model": call.model.model,
            "model_id": call.model.provider.model_id,
            "provider": call.model.provider.provider_id,
            "instructions_sha256": instructions,
            "records": records.to_json(),
            "added": len(added),
            "messages_sha256": messages,
            "body_sha256": body,
        }
        if joined:
            payload["joined"] = list(joined)
        return Entry(kind="provider/request", payload=payload, body_sha256=body)

    def response(self, call: ProviderCall, response: ResponseInfo, usage: Usage, /, *, finished: bool) -> Entry:
        """Return the entry of a response.

        Args:
            call: The call.
            response: How the provider identified it.
            usage: What this call alone spent.
            finished: Whether the answer is complete; a call that failed may have been billed all the same.
        """
        said = {
            "id": response.response_id,
            "model": response.model,
            "provider": call.model.response_provider_of(response),
        }
        payload: JsonObject = {
            **self._identity(call),
            "response": {name: text for name, text in said.items() if text},
            "usage": usage.to_json(),
            "finished": finished,
        }
        return Entry(kind="provider/response", payload=payload)

    def _parted(
        self, spoken: Sequence[AnyModelMessage]
    ) -> tuple[Sequence[AnyModelMessage], RecordRange, Sequence[AnyModelMessage]]:
        """Tell apart the instructions, what stands for records, and what was added; untouched records stay unread."""
        pieces = MessageChain(spoken).pieces
        place = next((place for place, piece in enumerate(pieces) if piece is self._base), None)
        if place is not None:
            system = tuple(itertools.chain.from_iterable(pieces[:place]))
            if all(map(_is_system, system)):
                return system, self._records, tuple(itertools.chain.from_iterable(pieces[place + 1 :]))
        whole = tuple(spoken)
        head = next((place for place, message in enumerate(whole) if not _is_system(message)), len(whole))
        rest = whole[head:]
        # What a callback put in the place of a message does not stand for the records any more.
        same = rest[: len(self._base)] == tuple(self._base)
        records = self._records if same else _NO_RECORDS
        return whole[:head], records, rest[records.messages :]

    def _identity(self, call: ProviderCall) -> JsonObject:
        return {"run_id": self._run_id, "attempt": call.attempt, "step_number": call.step}

    def _chained(self, records: RecordRange, added: Sequence[AnyModelMessage]) -> bytes:
        """Continue the chain of the records over the messages added to them; those seen before cost nothing."""
        same = 0
        if records is self._records:
            while same < min(len(self._seen), len(added)) and self._seen[same] is added[same]:
                same += 1
            del self._seen[same:], self._chain[same:]
            seen, chain = self._seen, self._chain
        else:
            seen, chain = [], []
        for message in added[same:]:
            previous = chain[-1] if chain else records.chain
            seen.append(message)
            chain.append(link(previous, message_digest(message)))
        return chain[-1] if chain else records.chain


def instructions_digest(system: Sequence[AnyModelMessage], /) -> str:
    """Return the SHA-256 of instructions, in hexadecimal.

    Of one text it is the hash of the text, of none that of the empty text, of several that of the canonical JSON of
    their list. With a provider's options in one of them it is the hash of their message digests, one behind another.
    """
    messages = [message for message in system if isinstance(message, ModelMessage)]
    texts = [message.text for message in messages]
    if any(not isinstance(item, TextPart) for message in messages for item in message.items):
        return hashlib.sha256(b"".join(map(message_digest, messages))).hexdigest()
    if len(texts) > 1:
        return hashlib.sha256(canonical_record_json(texts)).hexdigest()
    return hashlib.sha256("".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def message_digest(message: AnyModelMessage, /) -> bytes:
    """Return the SHA-256 of a message's canonical JSON; bytes in it stand there by their own hash and size."""
    value = {"role": message.role, "items": [_item(item) for item in message.items]}
    try:
        body = canonical_record_json(value)
    except CanonicalJsonError:
        # Nothing a store would take; a fingerprint all the same.
        body = repr(value).encode("utf-8", "surrogatepass")
    return hashlib.sha256(body).digest()


def _item(item: _Item) -> JsonObject:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude_none=True)
    kind = "image" if isinstance(item, ModelImage) else "file"
    facts: JsonObject = {"type": kind}
    for name in ("media_type", "url", "text", "provider_file", "filename", "detail"):
        value = getattr(item, name, None)
        if value is not None:
            facts[name] = value
    if item.data is not None:
        digest = hashlib.sha256(item.data).hexdigest()
        facts["data"] = {"binary": True, "sha256": digest, "bytes": len(item.data)}
    return facts


def _is_system(message: AnyModelMessage) -> bool:
    return isinstance(message, ModelMessage) and message.role == "system"
