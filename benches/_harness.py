"""Side by side: runlane and its peers, turn by turn in one process, reported as ratios.

A bench module says what it compares:

    @bench
    def bench_decode() -> Row:
        '''SSE decode, chunks of 16 KiB.'''
        return Row(ours=..., peers=[Peer("httpx-sse", ..., at_least(8))])

The docstring is the name of the row. `make bench-smoke` collects the decorated function with
pytest and runs every contender once; `python -m benches` measures all rows (see `__main__`).

A ratio is the median over rounds. In each round every contender is timed once, one after the
other, so that a slow moment of the machine hits all of them; the order changes from round to round.
The clock is the processor time of the thread, because a machine is rarely idle; a row whose work
is done by other threads, or that waits for a disk, takes `time.perf_counter` instead. Garbage
collection is off while a sample is taken, as in `timeit`.
"""

import gc
import importlib
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from types import ModuleType

from typing_extensions import override

ROUNDS = 11
SAMPLE_SECONDS = 0.02
"""A sample repeats its work until it takes at least this long."""

Work = Callable[[], object]


@dataclass(frozen=True)
class Goal:
    """What a ratio should be.

    Attributes:
        factor: The ratio to reach.
        faster: True if the peer should take at least `factor` times our time, False if we should
            take at most `factor` times the peer's.
    """

    factor: float
    faster: bool

    def ratio(self, ours: float, peer: float) -> float:
        """Return the ratio this goal speaks of."""
        return peer / ours if self.faster else ours / peer

    def met(self, ratio: float) -> bool:
        """Return whether a ratio is good enough."""
        return ratio >= self.factor if self.faster else ratio <= self.factor

    @override
    def __str__(self) -> str:
        return f"{'≥' if self.faster else '≤'} {self.factor:g}"


def at_least(factor: float) -> Goal:
    """The peer takes at least `factor` times as long as we do."""
    return Goal(factor, faster=True)


def at_most(factor: float) -> Goal:
    """We take at most `factor` times as long as the peer does."""
    return Goal(factor, faster=False)


class Counter:
    """A clock that shows what was added to it, so that a row can compare sizes instead of seconds."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Peer:
    """Something to compare with.

    Attributes:
        name: What the table calls it.
        work: One unit of the same work that `Row.ours` does; None if the peer is not installed.
        goal: The ratio to reach.
    """

    name: str
    work: Work | None
    goal: Goal


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        ours: One unit of work, done by runlane through its public names.
        peers: What it is compared with.
        clock: What samples are timed with.
        clean: Called after the row was measured, to close loops and files.
    """

    ours: Work
    peers: Sequence[Peer]
    clock: Callable[[], float] = time.thread_time
    clean: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Result:
    """A measured ratio, with its quartiles over the rounds."""

    row: str
    peer: str
    goal: Goal
    ratio: float
    low: float
    high: float


@dataclass
class Registry:
    """The rows of the modules imported so far, in their order.

    Attributes:
        is_smoke: Whether a row is being built to be run once, only to see that it works.
    """

    rows: list[tuple[str, str, Callable[[], Row]]] = field(default_factory=list)
    is_smoke: bool = False


REGISTRY = Registry()


def size(measured: int, smoke: int) -> int:
    """Return how much a row does: `measured` when it is timed, `smoke` when it is run to see that it works."""
    return smoke if REGISTRY.is_smoke else measured


def bench(build: Callable[[], Row]) -> Callable[[], None]:
    """Register a row; what is returned runs every contender once, for pytest to call."""
    title = (build.__doc__ or "").strip()
    assert title, f"{build.__name__} needs a docstring: it is the name of its row"
    module = build.__module__.rpartition(".")[2].removeprefix("bench_")
    REGISTRY.rows.append((module, title.rstrip("."), build))

    @wraps(build)
    def smoke() -> None:
        REGISTRY.is_smoke = True
        try:
            row = build()
        finally:
            REGISTRY.is_smoke = False
        try:
            for work in (row.ours, *(peer.work for peer in row.peers)):
                if work is not None:
                    work()
        finally:
            row.clean()

    # pytest reads the signature and the annotations of what it calls.
    smoke.__annotations__ = {"return": None}
    return smoke


def optional(name: str) -> ModuleType | None:
    """Import a peer, or return None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def measure(title: str, row: Row, rounds: int = ROUNDS) -> list[Result]:
    """Time a row and return one result for each peer that is installed."""
    present = [peer for peer in row.peers if peer.work is not None]
    contenders = [row.ours, *(peer.work for peer in present if peer.work is not None)]
    repeats = [_repeats(work, row.clock) for work in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    try:
        for turn in range(rounds):
            for step in range(len(contenders)):
                at = (turn + step) % len(contenders)
                times[at].append(_sample(contenders[at], repeats[at], row.clock))
    finally:
        row.clean()
    return [_result(title, peer, times[0], peer_times) for peer, peer_times in zip(present, times[1:], strict=True)]


def _result(title: str, peer: Peer, ours: Iterable[float], theirs: Iterable[float]) -> Result:
    ratios = [peer.goal.ratio(mine, other) for mine, other in zip(ours, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Result(title, peer.name, peer.goal, statistics.median(ratios), low, high)


def _repeats(work: Work, clock: Callable[[], float]) -> int:
    """Return how often work is repeated in a sample; the first run also warms it up."""
    work()
    count = 1
    while True:
        seconds = _sample(work, count, clock) * count
        if seconds >= SAMPLE_SECONDS:
            return count
        count = max(count + 1, int(count * min(10.0, SAMPLE_SECONDS * 1.2 / max(seconds, 1e-7))))


def _sample(work: Work, repeats: int, clock: Callable[[], float]) -> float:
    """Return the seconds that one unit of work took."""
    gc.collect()
    gc.disable()
    try:
        start = clock()
        for _ in range(repeats):
            work()
        return (clock() - start) / repeats
    finally:
        gc.enable()
