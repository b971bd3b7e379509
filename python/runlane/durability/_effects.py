"""External effects: at most one for each name of a run, whatever the process does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import anyio
from pydantic import JsonValue

from runlane.canonical import encode_lossless
from runlane.contracts import CancelToken, MaybeAwaitable, resolve, stray_ends
from runlane.durability._records import DurabilityLog, EffectState
from runlane.errors import CanonicalJsonError, EffectUnresolvedError, StepAbortedError

__all__ = ["Effect", "EffectOutcome", "carry_out"]

PROOF_BYTES: Final = 65_536
"""UTF-8 bytes of an encoded proof at most."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """An effect on the world outside, and how to find out whether it happened.

    Attributes:
        run: Has the effect and returns the proof of it: lossless JSON of at most 65,536 bytes.
        reconcile: Looks whether it happened: its proof, or None if nobody can tell.
    """

    run: Callable[[], MaybeAwaitable[JsonValue]]
    reconcile: Callable[[], MaybeAwaitable[JsonValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectOutcome:
    """What is on record of an effect.

    Attributes:
        status: `accepted`: it happened. `uncertain`: nobody can tell, and it is never tried again.
        proof: Of an accepted one.
    """

    status: Literal["accepted", "uncertain"]
    proof: JsonValue = None


async def carry_out(log: DurabilityLog, name: str, effect: Effect, signal: CancelToken, limit: float, /) -> EffectState:
    """Return an effect's outcome, having it if nothing is on record of it.

    Raises:
        StepAbortedError: The token tripped before there was an outcome.
        EffectUnresolvedError: Nobody can say yet.
    """
    await log.refresh()
    known = log.effects.get(name)
    if known is not None and known.phase != "intent":
        return known
    if signal.cancelled:
        raise StepAbortedError(step_name=name, reason=signal.reason)
    if known is None:
        await log.append("durability/effect", effect_name=name, phase="intent")
        log.effects[name] = EffectState(phase="intent")
        return await _accepted(log, name, await _ran(name, effect), "run")
    proof = await _reconciled(name, effect, limit)
    if proof is not None:
        return await _accepted(log, name, proof, "reconcile")
    await log.append("durability/effect", effect_name=name, phase="uncertain")
    state = log.effects[name] = EffectState(phase="uncertain")
    return state


async def _ran(name: str, effect: Effect) -> JsonValue:
    try:
        with stray_ends(f"effect {name}"):
            return await resolve(effect.run())
    except Exception as error:
        raise EffectUnresolvedError(effect_name=name, problem="run-failed") from error


async def _reconciled(name: str, effect: Effect, limit: float) -> JsonValue:
    proof: JsonValue = None
    with anyio.move_on_after(limit) as deadline:
        try:
            with stray_ends(f"reconcile {name}"):
                proof = await resolve(effect.reconcile())
        except Exception as error:
            raise EffectUnresolvedError(effect_name=name, problem="reconcile-failed") from error
    # An answer that came too late, from code that would not be cancelled, is none.
    if deadline.cancelled_caught or anyio.current_time() >= deadline.deadline:
        raise EffectUnresolvedError(effect_name=name, problem="reconcile-timeout")
    return proof


async def _accepted(log: DurabilityLog, name: str, proof: JsonValue, via: Literal["run", "reconcile"]) -> EffectState:
    try:
        encoded = encode_lossless(proof, max_bytes=PROOF_BYTES).decode()
    except CanonicalJsonError as error:
        raise EffectUnresolvedError(effect_name=name, problem="proof-rejected") from error
    await log.append("durability/effect", effect_name=name, phase="accepted", encoded=encoded, via=via)
    state = log.effects[name] = EffectState(phase="accepted", encoded=encoded)
    return state
