"""A thousand streams at once: what each of them holds, and what a subscriber who does not read costs the others."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import anyio

from benches._harness import Counter, Peer, Row, at_most, bench, size
from benches.stream_work import text
from benches.turn_work import stream_to_one

STREAMS = 1_000
KIB = 1024


@contextmanager
def _server() -> Iterator[str]:
    """Serve in a process of its own, whose memory is not counted; yields its address."""
    command = [sys.executable, "-m", "benches.stream_work", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.communicate()


def _held(kind: str, count: int) -> float:
    """Return the bytes that a fresh process holds for each of so many open streams."""
    with _server() as base_url:
        command = [sys.executable, "-m", "benches.stream_work", kind, base_url, str(count)]
        return int(subprocess.run(command, check=True, capture_output=True, timeout=600).stdout) / count


@bench
def bench_open_streams() -> Row:
    """Memory of each of 1,000 open streams with a subscriber, beyond its HTTP connection and its text."""
    counter, count = Counter(), size(STREAMS, 20)

    def ours() -> None:
        counter.value += max(0.0, _held("runlane", count) - _held("bare", count) - len(text()))

    def budget() -> None:
        counter.value += 60 * KIB

    return Row(ours=ours, peers=[Peer("60 KiB", budget, at_most(1))], clock=counter)


@bench
def bench_slow_subscriber() -> Row:
    """A streamed answer with a subscriber who reads and one who does not."""
    return Row(
        ours=lambda: anyio.run(partial(stream_to_one, standing=1)),
        peers=[Peer("the same without the one who does not", lambda: anyio.run(stream_to_one), at_most(1.1))],
    )
