"""What the ledger says of the steps, parks, deliveries and effects of one run.

Of records that disagree, the last step or park counts, the first delivery, and the first outcome of an effect. A
damaged record of the conversation, of whichever run, fails every reading until it is mended: it says something about
the log, and must not be taken for leave to run anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal, Protocol, TypeAlias, TypeVar

import anyio
from pydantic import Field, TypeAdapter, ValidationError

from runlane.canonical import decode_lossless
from runlane.errors import CanonicalJsonError, ParkRecordDecodeError, StepResultDecodeError, StoreCommitUnknownError
from runlane.records import JsonObject, Record
from runlane.store import EventEnvelope, EventKind, EventPage, ReadEvents

__all__ = ["DURABILITY_STEP_EVENT_KIND", "AppendRecord", "DurabilityLog", "DurabilityStore", "EffectState"]

DURABILITY_STEP_EVENT_KIND: Final = "durability/step"
"""The kind of the ledger entries that hold results of steps."""

_R = TypeVar("_R")

LARGEST_DEADLINE: Final = 2**53 - 1
_PAGE: Final = 10_000
_LOOK_BACK: Final = 100
_PATIENCE: Final = 5.0
"""Seconds a record may take to be written; it is not cancelled meanwhile."""

_Text: TypeAlias = Annotated[str, Field(min_length=1, strict=True)]


class DurabilityStore(Protocol):
    """What is needed of a store: append and read. `runlane.store.Store` has both."""

    async def append_event(self, *, conversation_id: str, kind: EventKind, payload: JsonObject) -> object:
        """Append a ledger entry."""
        ...

    async def read_events(self, query: ReadEvents, /) -> EventPage:
        """Return ledger entries, ascending."""
        ...


AppendRecord: TypeAlias = Callable[[EventKind, JsonObject], Awaitable[object]]
"""Appends a ledger entry to the conversation; returns once it is durable."""


class _Step(Record):
    run_id: _Text
    step_name: _Text
    encoded: _Text


class _Sleep(Record):
    run_id: _Text
    kind: Literal["sleep"]
    name: _Text
    deadline: Annotated[int, Field(ge=0, le=LARGEST_DEADLINE, strict=True)]


class _Wait(Record):
    run_id: _Text
    kind: Literal["wait"]
    event: _Text
    id: _Text


class _Delivery(Record):
    run_id: _Text
    event: _Text
    id: _Text
    encoded: _Text


class _Intent(Record):
    run_id: _Text
    effect_name: _Text
    phase: Literal["intent", "uncertain"]


class _Accepted(Record):
    run_id: _Text
    effect_name: _Text
    phase: Literal["accepted"]
    encoded: _Text
    via: Literal["run", "reconcile"]


class EffectState(Record):
    """How far an effect got; `encoded` is the proof of an accepted one."""

    phase: Literal["intent", "accepted", "uncertain"]
    encoded: str | None = None


_STEP: TypeAdapter[_Step] = TypeAdapter(_Step)
_PARK: TypeAdapter[_Sleep | _Wait] = TypeAdapter(Annotated[_Sleep | _Wait, Field(discriminator="kind")])
_DELIVERY: TypeAdapter[_Delivery] = TypeAdapter(_Delivery)
_EFFECT: TypeAdapter[_Intent | _Accepted] = TypeAdapter(Annotated[_Intent | _Accepted, Field(discriminator="phase")])


class DurabilityLog:
    """The records of one run, read as far as somebody asked.

    Attributes:
        steps: Encoded results by name.
        sleeps: Deadlines in Unix milliseconds by name.
        waits: Waits that are on record, by event and id.
        deliveries: Encoded payloads by event and id.
        effects: By name.
    """

    def __init__(
        self,
        store: DurabilityStore,
        conversation_id: str,
        run_id: str,
        /,
        *,
        append: AppendRecord | None,
        since_version: int | None,
    ) -> None:
        """Know nothing yet."""
        self._store = store
        self._conversation_id = conversation_id
        self._run_id = run_id
        self._append = append
        self._since_version = since_version
        self._next_seq: int | None = None
        self._lock = anyio.Lock(fast_acquire=True)
        self.steps: dict[str, str] = {}
        self.sleeps: dict[str, int] = {}
        self.waits: set[tuple[str, str]] = set()
        self.deliveries: dict[tuple[str, str], str] = {}
        self.effects: dict[str, EffectState] = {}

    async def append(self, kind: EventKind, /, **facts: str | int) -> None:
        """Append a record of the run. What was done is put on record also when its task is being cancelled.

        Raises:
            StoreCommitUnknownError: The store did not answer in time.
            StoreError: Nothing was written.
        """
        payload: JsonObject = {"run_id": self._run_id, **facts}
        with anyio.move_on_after(_PATIENCE, shield=True) as scope:
            if self._append is not None:
                await self._append(kind, payload)
            else:
                await self._store.append_event(conversation_id=self._conversation_id, kind=kind, payload=payload)
        if scope.cancelled_caught:
            raise StoreCommitUnknownError(f"{kind} was not confirmed within {_PATIENCE:g} s")

    async def refresh(self) -> None:
        """Read what was appended since the last time.

        Raises:
            StepResultDecodeError, ParkRecordDecodeError: A record is damaged; the next reading meets it again.
            StoreError: The ledger could not be read.
        """
        async with self._lock:
            if self._next_seq is None:
                self._next_seq = await self._first_seq()
            more = True
            while more:
                page = await self._read(self._next_seq, _PAGE)
                for event in page.items:
                    if event.kind.startswith("durability/"):
                        self._take(event)
                    self._next_seq = event.seq + 1
                more = page.next_seq is not None

    async def _read(self, seq: int, limit: int) -> EventPage:
        return await self._store.read_events(
            ReadEvents(conversation_id=self._conversation_id, from_seq=seq, limit=limit)
        )

    async def _first_seq(self) -> int:
        """Return where the run was admitted, if it is known when it was acquired; what is older is not about it."""
        since = self._since_version
        if since is None:
            return 1
        low, step = 0, 1
        while await self._is_before(low + step, since):
            low += step
            step *= 2
        high = low + step
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if await self._is_before(middle, since) else (low, middle)
        return await self._admission_before(high)

    async def _is_before(self, seq: int, version: int) -> bool:
        page = await self._read(seq, 1)
        return bool(page.items) and page.items[0].version < version

    async def _admission_before(self, high: int) -> int:
        """Look back for the entry that admitted the run; 1 if there is none."""
        while high > 1:
            low = max(1, high - _LOOK_BACK)
            page = await self._read(low, high - low)
            for event in page.items:
                facts = event.payload
                if (facts.get("type"), facts.get("run_id"), facts.get("revision")) == ("accept", self._run_id, 0):
                    return event.seq
            high = low
        return 1

    # --- one record ----------------------------------------------------------------------------------------------

    def _take(self, event: EventEnvelope) -> None:
        match event.kind:
            case "durability/step":
                self._take_step(self._parsed(_STEP, event))
            case "durability/park":
                self._take_park(self._parsed(_PARK, event))
            case "durability/event":
                delivery = self._parsed(_DELIVERY, event)
                if delivery.run_id == self._run_id:
                    self.deliveries.setdefault((delivery.event, delivery.id), delivery.encoded)
            case "durability/effect":
                self._take_effect(self._parsed(_EFFECT, event))
            case _:
                raise self._damaged(event, f"kind {event.kind!r} is unknown")

    def _take_step(self, step: _Step) -> None:
        if step.run_id == self._run_id:
            self.steps[step.step_name] = step.encoded

    def _take_park(self, park: _Sleep | _Wait) -> None:
        if park.run_id != self._run_id:
            return
        if isinstance(park, _Sleep):
            self.sleeps[park.name] = park.deadline
        else:
            self.waits.add((park.event, park.id))

    def _take_effect(self, effect: _Intent | _Accepted) -> None:
        if effect.run_id != self._run_id:
            return
        known = self.effects.get(effect.effect_name)
        if known is None or known.phase == "intent":
            encoded = effect.encoded if isinstance(effect, _Accepted) else None
            self.effects[effect.effect_name] = EffectState(phase=effect.phase, encoded=encoded)

    def _parsed(self, adapter: TypeAdapter[_R], event: EventEnvelope) -> _R:
        try:
            record = adapter.validate_python(event.payload)
            encoded: str | None = getattr(record, "encoded", None)
            if encoded is not None:
                decode_lossless(encoded.encode("utf-8", "surrogatepass"))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise self._damaged(event, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        except CanonicalJsonError as error:
            raise self._damaged(event, f"encoded: {error}") from None
        return record

    def _damaged(self, event: EventEnvelope, problem: str) -> StepResultDecodeError | ParkRecordDecodeError:
        kind = ParkRecordDecodeError if event.kind in {"durability/park", "durability/event"} else StepResultDecodeError
        return kind(f"{event.kind}: {problem}", conversation_id=self._conversation_id, seq=event.seq)
