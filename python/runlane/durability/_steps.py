"""Steps, sleeps, waits and effects of one run, replayed from the ledger."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import anyio
from pydantic import JsonValue

from runlane.canonical import canonical_json, decode_lossless, encode_lossless
from runlane.clock import Clock
from runlane.contracts import (
    CancelToken,
    MaybeAwaitable,
    clock_or_system,
    require_id,
    resolve,
    stray_ends,
    timestamp_ms,
)
from runlane.durability._effects import Effect, EffectOutcome, carry_out
from runlane.durability._records import (
    DURABILITY_STEP_EVENT_KIND,
    LARGEST_DEADLINE,
    AppendRecord,
    DurabilityLog,
    DurabilityStore,
)
from runlane.durability._room import Key, room_of
from runlane.errors import (
    CanonicalJsonError,
    InvalidValueError,
    ParkAbortedError,
    StepAbortedError,
    StepResultNotSerializableError,
    UsageError,
)

__all__ = ["StepDurability", "StepRunOptions"]

_LONGEST_TIMER: Final = (2**31 - 1) / 1000
"""Seconds after which a timer is armed anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRunOptions:
    """What one call may say.

    Attributes:
        signal: Trips when this call should not begin, or not wait any longer; beside the token of the run.
    """

    signal: CancelToken | None = None


_NO_OPTIONS: Final = StepRunOptions()


class StepDurability:
    """Named work of one run: what is on record is not done again, by whoever goes on with the run.

    All state is in the ledger of the conversation; a new object over the same store resumes. Names belong to the run
    and to what they name: a step, a sleep and an effect of one name are three things, and another run sees none of
    them. It keeps nobody out: that no second process executes the run is the business of the run's owner.

    A body that ran and whose record did not come to be, because the process died in between, runs again. What must
    not happen twice is an `effect`.

    Example:
        >>> from runlane.store import MemoryStore
        >>> async def main() -> list[int]:
        ...     entered: list[int] = []
        ...     async with MemoryStore() as store:
        ...         for _ in range(2):
        ...             durability = StepDurability(store, "conversation-1", "run-1")
        ...             await durability.step("charge", lambda: entered.append(1))
        ...     return entered
        >>> anyio.run(main)
        [1]
    """

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        store: DurabilityStore,
        conversation_id: str,
        run_id: str,
        /,
        *,
        signal: CancelToken | None = None,
        subscribe: Callable[[Callable[[], None]], Callable[[], object]] | None = None,
        clock: Clock | None = None,
        append: AppendRecord | None = None,
        execution_sequence: int | None = None,
    ) -> None:
        """Serve a run; nothing is read before the first call.

        Args:
            store: Where the ledger is. Callers of one process over one store object share what is under way.
            conversation_id: The conversation.
            run_id: The run.
            signal: Trips when the run must stop.
            subscribe: Takes a function to call when the ledger may have grown, and returns one that ends this. Needed
                only to notice what another process delivers while this one waits.
            clock: The system's by default.
            append: Appends the records, if not the store plainly; a runtime writes them under the run's ownership.
            execution_sequence: Of the run, if it was acquired: then what is older than its admission is not read, nor
                checked, however long the conversation is. By default the whole ledger is.

        Raises:
            UsageError, InvalidValueError: An id is none.
        """
        self._conversation_id = require_id(conversation_id, argument="conversation_id")
        self._run_id = require_id(run_id, argument="run_id")
        self._signal = signal
        self._subscribe = subscribe
        self._clock = clock_or_system(clock)
        self._room = room_of(store)
        self._store = store
        self._append = append
        self._since_version = execution_sequence

    # Made for whoever has named work: a run offers it to every call of a tool, and few tools take it.

    @cached_property
    def _log(self) -> DurabilityLog:
        return DurabilityLog(
            self._store,
            self._conversation_id,
            self._run_id,
            append=self._append,
            since_version=self._since_version,
        )

    @cached_property
    def _parking(self) -> anyio.Lock:
        return anyio.Lock(fast_acquire=True)

    # --- steps ---------------------------------------------------------------------------------------------------

    async def step(
        self, name: str, body: Callable[[], MaybeAwaitable[Any]], /, options: StepRunOptions = _NO_OPTIONS
    ) -> Any:  # noqa: ANN401 - any lossless JSON
        """Return what a body gave, or gave before; every caller gets a copy of its own.

        A result on record is returned even when the token has tripped.

        Args:
            name: Names the step within the run.
            body: Called without arguments; gives lossless JSON (`runlane.canonical.encode_lossless`).
            options: See `StepRunOptions`.

        Raises:
            StepAbortedError: There is no result on record and the token has tripped; nothing was written.
            StepResultNotSerializableError: The body ran and gave something else; nothing was written.
            StepResultDecodeError, ParkRecordDecodeError: The ledger of the conversation is damaged.
            StoreError: It could not be read or written. Whether a result is on record shows with the next call.
            Exception: Whatever the body raised; nothing was written.
        """
        key = self._key("step", require_id(name, argument="name"))
        signal = self._token(options)
        return _decoded(await self._room.once(key, lambda: self._step(name, body, signal), signal))

    async def _step(self, name: str, body: Callable[[], MaybeAwaitable[Any]], signal: CancelToken) -> str:
        await self._log.refresh()
        found = self._log.steps.get(name)
        if found is not None:
            return found
        if signal.cancelled:
            raise StepAbortedError(step_name=name, reason=signal.reason)
        with stray_ends(f"step {name}"):
            value = await resolve(body())
        try:
            encoded = encode_lossless(value).decode()
        except CanonicalJsonError as error:
            raise StepResultNotSerializableError(str(error), step_name=name, path=error.path) from error
        await self._log.append(DURABILITY_STEP_EVENT_KIND, step_name=name, encoded=encoded)
        self._log.steps[name] = encoded
        return encoded

    async def has_recorded_step(self, name: str, /) -> bool:
        """Say whether a step's result is on record; a recorded None is one."""
        await self._log.refresh()
        return name in self._log.steps

    async def read_recorded_step(self, name: str, /, default: object = None) -> Any:  # noqa: ANN401 - any lossless JSON
        """Return a copy of a step's result, or `default` if there is none on record."""
        await self._log.refresh()
        found = self._log.steps.get(name)
        return default if found is None else _decoded(found)

    # --- parks ---------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float, /, name: str | None = None, *, options: StepRunOptions = _NO_OPTIONS) -> None:
        """Wait until a moment that is on record; the first call puts it there.

        Args:
            seconds: From the first call on, by the wall clock.
            name: Names the sleep within the run; `sleep:<seconds>` by default, so two sleeps of equal length need
                names.
            options: See `StepRunOptions`.

        Raises:
            UsageError, InvalidValueError: `seconds` is no finite number of at least 0, or too large.
            ParkAbortedError: The token tripped; the moment stays on record.
            StepResultDecodeError, ParkRecordDecodeError, StoreError: As for `step`.
        """
        wait_ms = _milliseconds(seconds)
        name = require_id(f"sleep:{canonical_json(seconds).decode()}" if name is None else name, argument="name")
        signal = self._token(options)
        async with self._parking:
            await self._log.refresh()
            deadline = self._log.sleeps.get(name)
            if deadline is None:
                deadline = timestamp_ms(self._clock.now()) + wait_ms
                if deadline > LARGEST_DEADLINE:
                    raise InvalidValueError("is too far away", argument="seconds")
                await self._log.append("durability/park", kind="sleep", name=name, deadline=deadline)
                self._log.sleeps[name] = deadline
        await self._bounded(signal, name, lambda: self._until(deadline))

    async def _until(self, deadline: int) -> None:
        while (rest := deadline - timestamp_ms(self._clock.now())) > 0:
            await self._clock.sleep(min(rest / 1000, _LONGEST_TIMER))

    async def wait_for(self, event: str, id: str, /, *, options: StepRunOptions = _NO_OPTIONS) -> Any:  # noqa: A002, ANN401 - the words of the field; any lossless JSON
        """Wait until something is delivered to this run, and return a copy of it.

        Args:
            event: What kind of thing.
            id: Which one.
            options: See `StepRunOptions`.

        Raises:
            ParkAbortedError: The token tripped.
            StepResultDecodeError, ParkRecordDecodeError, StoreError: As for `step`.
        """
        place = require_id(event, argument="event"), require_id(id, argument="id")
        signal = self._token(options)
        if signal.cancelled:
            raise ParkAbortedError(park_name=event, reason=signal.reason)
        while True:
            # Whatever is delivered after this is heard; whatever was before is in the ledger.
            with self._room.waiter(self._key("wait", *place)) as woken, self._subscribed(woken):
                found = await self._delivered(place)
                if found is not None:
                    return _decoded(found)
                await self._bounded(signal, event, woken.wait)

    async def _delivered(self, place: tuple[str, str]) -> str | None:
        async with self._parking:
            await self._log.refresh()
            found = self._log.deliveries.get(place)
            if found is None and place not in self._log.waits:
                await self._log.append("durability/park", kind="wait", event=place[0], id=place[1])
                self._log.waits.add(place)
            return found

    def _subscribed(self, woken: anyio.Event) -> nullcontext[None] | _Subscription:
        return nullcontext() if self._subscribe is None else _Subscription(self._subscribe, woken)

    async def deliver(self, event: str, id: str, /, payload: JsonValue = None) -> None:  # noqa: A002 - the words of the field
        """Deliver something to this run; the first delivery stands, and may come before anybody waits.

        Args:
            event: What kind of thing.
            id: Which one.
            payload: Lossless JSON.

        Raises:
            UsageError: The payload is none; nothing was written.
            StepResultDecodeError, ParkRecordDecodeError, StoreError: As for `step`.
        """
        place = require_id(event, argument="event"), require_id(id, argument="id")
        try:
            encoded = encode_lossless(payload).decode()
        except CanonicalJsonError as error:
            raise UsageError(f"must be lossless JSON: {error}", argument="payload") from None
        async with self._parking:
            await self._log.refresh()
            if place not in self._log.deliveries:
                await self._log.append("durability/event", event=event, id=id, encoded=encoded)
                self._log.deliveries[place] = encoded
        self._room.wake(self._key("wait", *place))

    # --- effects -------------------------------------------------------------------------------------------------

    async def effect(
        self,
        name: str,
        effect: Effect,
        /,
        *,
        reconcile_timeout: float = 30.0,
        options: StepRunOptions = _NO_OPTIONS,
    ) -> EffectOutcome:
        """Have an effect at most once for this name of the run.

        Its intent is on record before `effect.run` is called. If there is an intent without an outcome, the process
        died in between or the call failed: then `effect.reconcile` is asked, and `run` never again.

        Args:
            name: Names the effect within the run.
            effect: See `Effect`.
            reconcile_timeout: Seconds `reconcile` may take; 30.
            options: See `StepRunOptions`.

        Raises:
            StepAbortedError: There is no outcome on record and the token has tripped; nothing was written.
            EffectUnresolvedError: Nobody can say yet; see its `problem`.
            StepResultDecodeError, ParkRecordDecodeError, StoreError: As for `step`; without an intent on record `run`
                is not called.
        """
        key = self._key("effect", require_id(name, argument="name"))
        if not isinstance(effect, Effect):
            raise UsageError(f"must be an Effect, not {type(effect).__name__}", argument="effect")
        if not _milliseconds(reconcile_timeout, "reconcile_timeout"):
            raise InvalidValueError("must be above 0", argument="reconcile_timeout")
        signal = self._token(options)

        async def work() -> str:
            state = await carry_out(self._log, name, effect, signal, reconcile_timeout)
            return "" if state.encoded is None else state.encoded

        proof = await self._room.once(key, work, signal)
        if not proof:
            return EffectOutcome(status="uncertain")
        return EffectOutcome(status="accepted", proof=_decoded(proof))

    # --- inside --------------------------------------------------------------------------------------------------

    def _key(self, *names: str) -> Key:
        return (names[0], self._conversation_id, self._run_id, *names[1:])

    def _token(self, options: StepRunOptions) -> CancelToken:
        if not isinstance(options, StepRunOptions):
            raise UsageError(f"must be StepRunOptions, not {type(options).__name__}", argument="options")
        return CancelToken.any(self._signal, options.signal)

    async def _bounded(self, signal: CancelToken, name: str, wait: Callable[[], Awaitable[None]]) -> None:
        """Wait, but no longer than the token allows."""
        if not signal.cancelled:
            with anyio.CancelScope() as scope, signal.bind(scope):
                await wait()
        if signal.cancelled:
            raise ParkAbortedError(park_name=name, reason=signal.reason)


class _Subscription:
    """The `with` block that is told when the ledger may have grown."""

    def __init__(self, subscribe: Callable[[Callable[[], None]], Callable[[], object]], woken: anyio.Event) -> None:
        self._subscribe = subscribe
        self._woken = woken
        self._end: Callable[[], object] | None = None

    def __enter__(self) -> None:
        self._end = self._subscribe(self._woken.set)

    def __exit__(self, *_: object) -> None:
        if self._end is not None:
            self._end()


def _decoded(encoded: str) -> Any:  # noqa: ANN401 - any lossless JSON
    return decode_lossless(encoded.encode())


def _milliseconds(seconds: object, argument: str = "seconds") -> int:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise UsageError(f"must be a number of seconds, not {type(seconds).__name__}", argument=argument)
    if not 0 <= seconds <= LARGEST_DEADLINE / 1000:
        raise InvalidValueError("must be finite, at least 0 and not beyond what a clock can show", argument=argument)
    return math.ceil(seconds * 1000)
