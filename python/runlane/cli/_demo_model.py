"""The demo's model: it plays the script, at a pace that lets the demo end when it should."""

from __future__ import annotations

from typing import Final

from runlane.cli._demo_script import FIRST, SECOND, Chance, Exchange, chunks, pieces
from runlane.clock import Clock
from runlane.testing import ReceivedRequest, Reply

__all__ = ["ScriptedPace"]

_HEADERS: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_FIRST_SHARE: Final = 0.35
# Whatever else takes long, an answer streams at least for this part of the time, so that there is something to see.
_LEAST_SHARE: Final = 0.1
_EARLIEST_KILL: Final = 0.35
_KILL_WINDOW: Final = 0.3
# Reading the file and repeating the keys at the end takes about this many seconds.
_TAIL: Final = 0.5


class ScriptedPace:
    """Answers the demo's requests: the first answer, the second, and, once the worker was killed, that one again.

    How long processes take to start is only known when it has happened, so every answer gets its pace when it is
    asked for.

    Attributes:
        kill_after: Pieces of the second answer after which the worker is killed.
    """

    def __init__(self, seconds: float, seed: int, clock: Clock) -> None:
        """Begin now.

        Args:
            seconds: How long the demo should take in all.
            seed: Decides the moment of the kill, between 35 and 65 % of the second answer.
            clock: Measures.
        """
        self._clock = clock
        self._began = clock.monotonic()
        self._seconds = seconds
        self._served = 0
        self._start_up = 0.0
        self._whole = len(pieces(SECOND.answer))
        self.kill_after = round(self._whole * (_EARLIEST_KILL + _KILL_WINDOW * Chance(seed).number("kill")))

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return self._clock.monotonic() - self._began

    def reply(self, _request: ReceivedRequest, /) -> Reply:
        """Return the next answer."""
        self._served += 1
        left = self._seconds - self.elapsed - _TAIL
        match self._served:
            case 1:
                self._start_up = self.elapsed
                return self._speak(FIRST, (left - self._start_up) * _FIRST_SHARE / len(pieces(FIRST.answer)))
            case 2:
                return self._speak(SECOND, (left - self._start_up) / (self.kill_after + self._whole))
            case 3:
                return self._speak(SECOND, left / self._whole)
            case _:
                return Reply(b"the script has three answers", status=500)

    def _speak(self, exchange: Exchange, delay: float) -> Reply:
        events = chunks(exchange)
        body = b"".join(events)
        delay = max(delay, self._seconds * _LEAST_SHARE / len(events))
        # Pieces of the network do not keep to the borders of events; about one event is in each.
        size = -(-len(body) // len(events))
        return Reply(body, headers=_HEADERS, chunk_size=size, first_delay=delay, delay=delay)
