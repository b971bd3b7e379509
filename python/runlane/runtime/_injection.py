"""Inputs that join the run which executes, instead of waiting for a run of their own.

An input admitted under the policy `inject` is an ordinary queued run. While it waits it is *offered*. Before each
provider step the executing run *takes* what is offered in its conversation, shows it to the model, and remembers it. If
it then ends with a completing reason, its terminal commit *absorbs* the runs whose inputs it took: whole or not at all.

| what happens | then |
|---|---|
| the run ends before another boundary | the successor runs by itself |
| the run is stopped or fails after taking | it absorbs nothing, the successor runs |
| a durable interrupt is faster than the commit | the end becomes interrupted and absorbs nothing |
| the commit conflicts while the run is still held | the same absorption is tried again |
| the commit never lands, or the process dies | the successor is an ordinary queued run |
| the run is then gone on from what its model said after it saw the input | it is shown again, and absorbed after all |
| the successor was started, cancelled or abandoned meanwhile | its entry is dropped by the store, the end commits |
| the successor got one more input after the last boundary | its inputs differ, the whole entry is dropped |
| the input cannot be shown, because a file of it is missing | it is left to a run of its own |
| the runtime closes | nothing is offered any more; what waits stays queued |
| an attempt of the provider is retried | what it took is handed back, and taken again |

Nothing of this is durable but the absorption itself, and what the ledger says of each request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from pydantic import JsonValue

from runlane.models import AnyModelMessage
from runlane.records import Message, Part
from runlane.runtime._left_open import Joined, spoken_rounds
from runlane.store import Absorption

__all__ = ["Inbox", "Offers", "ShowInputs"]

ShowInputs: TypeAlias = Callable[[Sequence[Message]], Awaitable[tuple[AnyModelMessage, ...]]]
"""Makes messages for the model of inputs, as they would stand in a prompt."""


class Offers:
    """What is offered in one conversation: inputs of runs that wait, by run, in order of admission."""

    __slots__ = ("_by_run",)

    def __init__(self) -> None:
        """Offer nothing."""
        self._by_run: dict[str, dict[str, Message]] = {}

    def offer(self, run_id: str, message: Message, /) -> None:
        """Offer an input of a queued run; an input that is offered already is not offered twice."""
        self._by_run.setdefault(run_id, {})[message.id] = message

    def restore(self, run_id: str, messages: list[Message], /) -> None:
        """Offer inputs again that were taken, before what was offered of the same run since."""
        later = self._by_run.pop(run_id, {})
        self._by_run[run_id] = {message.id: message for message in messages} | later

    def withdraw(self, run_id: str, /) -> None:
        """Offer a run's inputs no more; idempotent."""
        self._by_run.pop(run_id, None)

    def take(self, taker: str, /) -> dict[str, list[Message]]:
        """Return what every other run than the taker offers, and offer it no more."""
        if not self._by_run:
            return {}
        taken = {run_id: list(offered.values()) for run_id, offered in self._by_run.items() if run_id != taker}
        for run_id in taken:
            del self._by_run[run_id]
        return taken

    def clear(self) -> None:
        """Offer nothing any more."""
        self._by_run.clear()


class Inbox:
    """What one execution took, and what it will absorb if it ends well."""

    __slots__ = ("_adopted", "_new", "_offers", "_run_id", "_show", "_taken", "_waits")

    def __init__(self, offers: Offers, run_id: str, waits: Callable[[str], bool], show: ShowInputs, /) -> None:
        """Take for a run.

        Args:
            offers: Of its conversation.
            run_id: The run that takes.
            waits: Whether a run still waits here, by its id.
            show: Makes messages for the model of inputs.
        """
        self._show = show
        self._offers = offers
        self._run_id = run_id
        self._waits = waits
        self._taken: dict[str, list[Message]] = {}
        self._adopted: list[Joined] = []
        self._new: dict[str, list[Message]] = {}

    async def take(self) -> tuple[AnyModelMessage, ...]:
        """Take what is offered, for the provider step about to begin; usually nothing."""
        taken = self._offers.take(self._run_id)
        if not taken:
            return ()
        try:
            shown = await self._show([message for messages in taken.values() for message in messages])
        except Exception:  # noqa: BLE001 - the run it was to join is not to fail for it
            return ()
        if not shown:
            return ()
        for run_id, messages in taken.items():
            self._taken.setdefault(run_id, []).extend(messages)
            self._new.setdefault(run_id, []).extend(messages)
        return shown

    def joined(self, parts: int, /, *, first: bool) -> list[JsonValue]:
        """Return for the ledger what the request about to be made shows for the first time, usually nothing.

        Args:
            parts: How many parts the answer has.
            first: Whether the request is the first of an attempt; it names what an earlier execution took as well.
        """
        new, self._new = self._new, {}
        joined = [Joined(after=parts, run_id=run_id, messages=tuple(messages)) for run_id, messages in new.items()]
        if first:
            joined = [*self._adopted, *joined]
        return [one.to_json() for one in joined]

    def hand_back(self) -> None:
        """Offer again whatever was taken and still waits: the attempt it was for failed, and begins anew."""
        taken, self._taken = self._taken, {}
        self._new = {}
        for run_id, messages in taken.items():
            if self._waits(run_id):
                self._offers.restore(run_id, messages)

    def adopt(self, joined: Sequence[Joined], /) -> None:
        """Take over what an earlier execution of the run took, whatever attempts follow."""
        self._adopted = list(joined)
        for one in joined:
            self._offers.withdraw(one.run_id)

    async def rejoin(self, parts: Sequence[Part], /) -> tuple[AnyModelMessage, ...]:
        """Return an answer as it is given back to its model, with what joined it in its place.

        What cannot be shown any more is left out, and to a run of its own.
        """
        told: list[AnyModelMessage] = []
        start = 0
        for one in tuple(self._adopted):
            told.extend(spoken_rounds(parts[start : one.after]))
            start = one.after
            try:
                told.extend(await self._show(one.messages))
            except Exception:  # noqa: BLE001 - the run it joined is not to fail for it
                self._adopted.remove(one)
        return (*told, *spoken_rounds(parts[start:]))

    def absorptions(self) -> tuple[Absorption, ...]:
        """Return an entry for each run whose inputs were taken."""
        taken: dict[str, list[Message]] = {}
        for one in self._adopted:
            taken.setdefault(one.run_id, []).extend(one.messages)
        for run_id, messages in self._taken.items():
            taken.setdefault(run_id, []).extend(messages)
        return tuple(
            Absorption(run_id, tuple(message.id for message in messages)) for run_id, messages in taken.items()
        )
