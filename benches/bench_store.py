"""The store: what a mutation costs, what it writes, how many fit in a second."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import apsw

from benches._harness import Counter, Peer, Row, Work, at_least, at_most, bench, optional
from benches.store_work import (
    CONTENT,
    OWNER,
    BareLoop,
    Bench,
    Executor,
    begin,
    conversation,
    in_parallel,
    size_of,
    turn,
)
from runlane.store.sqlite import SqliteStore
from runlane.store.sqlite._codec import RUN_COLUMNS

LANES = 100
LONG, SHORT = 20_000, 20


@bench
def bench_turn_time() -> Row:
    """One turn in six commits, conversation of 20,000 messages."""
    own = Bench()
    long = own.run(partial(conversation, own.store, LONG))
    short = own.run(partial(conversation, own.store, SHORT))
    return Row(
        ours=lambda: own.run(partial(turn, own.store, long)),
        peers=[Peer("the same at 20 messages", lambda: own.run(partial(turn, own.store, short)), at_most(1.2))],
        clock=time.perf_counter,
        clean=own.stack.close,
    )


def _measured(own: Bench, counter: Counter, conversation_id: str, watch: Callable[[], float]) -> Work:
    def work() -> None:
        before = watch()
        own.run(partial(turn, own.store, conversation_id))
        counter.value += watch() - before

    return work


def _compared(watch: Callable[[Bench], Callable[[], float]], budget: float, name: str) -> Row:
    """Compare what a turn writes at both lengths, and with its budget."""
    own, counter = Bench(), Counter()
    long = own.run(partial(conversation, own.store, LONG))
    short = own.run(partial(conversation, own.store, SHORT))
    look = watch(own)

    def spend() -> None:
        counter.value += budget

    return Row(
        ours=_measured(own, counter, long, look),
        peers=[
            Peer(name, spend, at_most(1)),
            Peer("the same at 20 messages", _measured(own, counter, short, look), at_most(1.1)),
        ],
        clock=counter,
        clean=own.stack.close,
    )


def _bound(own: Bench) -> Callable[[], float]:
    total = 0

    def note(_cursor: apsw.Cursor, _statement: str, values: object) -> bool:
        nonlocal total
        total += size_of(values)
        return True

    own.use(lambda connection: connection.set_exec_trace(note))
    return lambda: total


def _logged(own: Bench) -> Callable[[], float]:
    total, last = 0, 0

    def note(_connection: apsw.Connection, _name: str, pages: int) -> int:
        nonlocal total, last
        total += pages - last if pages >= last else pages
        last = pages
        return apsw.SQLITE_OK

    own.use(lambda connection: connection.set_wal_hook(note))
    frame = int(str(own.use(lambda connection: connection.pragma("page_size")))) + 24
    return lambda: total * frame


@bench
def bench_bytes_bound() -> Row:
    """Bytes bound to statements by one turn of 2 KiB with a tool call."""
    return _compared(_bound, 16 * 1024 + 2 * CONTENT, "16 KiB and twice the content")


@bench
def bench_bytes_logged() -> Row:
    """Bytes of the write-ahead log of that turn."""
    return _compared(_logged, 320 * 1024, "320 KiB")


def _lang_graph(times: int, path: str) -> tuple[Work | None, Callable[[], object]]:
    """Return as many steps of LangGraph's saver, in a thread of 200 messages."""
    sqlite, base = optional("langgraph.checkpoint.sqlite"), optional("langgraph.checkpoint.base")
    messages = optional("langchain_core.messages")
    if sqlite is None or base is None or messages is None:
        return None, lambda: None
    manager = sqlite.SqliteSaver.from_conn_string(path)
    saver = manager.__enter__()
    history = [messages.HumanMessage(content="some words of a conversation " * 10) for _ in range(200)]
    config: dict[str, Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def work() -> None:
        following = config
        for step in range(times):
            checkpoint = base.empty_checkpoint()
            checkpoint["id"] = f"{time.time_ns():032x}"
            checkpoint["channel_values"] = {"messages": history}
            checkpoint["channel_versions"] = {"messages": f"{step:032}"}
            metadata = {"source": "loop", "step": step, "parents": {}}
            following = saver.put(following, checkpoint, metadata, {"messages": f"{step:032}"})

    return work, lambda: manager.__exit__(None, None, None)


def _lanes(own: Bench) -> list[Executor]:
    names = [own.run(partial(conversation, own.store, 0)) for _ in range(LANES)]
    return [own.run(partial(begin, own.store, name)) for name in names]


@bench
def bench_many_lanes() -> Row:
    """1,000 mutations from 100 lanes at once, synchronous=FULL."""
    own = Bench()
    executors = _lanes(own)
    bare = BareLoop(own.folder / "bare.db", LANES)
    own.stack.callback(bare.close)
    return Row(
        ours=lambda: own.run(partial(in_parallel, executors, 10, [])),
        peers=[Peer("a bare apsw loop in groups of 50", lambda: bare.commit([50] * 20), at_least(0.25))],
        clock=time.perf_counter,
        clean=own.stack.close,
    )


def _beside_lang_graph(each: int, factor: float) -> Row:
    """Return mutations of 100 lanes beside 100 of the peer's steps; a thousand of those would write 150 MB a round."""
    own = Bench()
    executors = _lanes(own)
    rival, leave = _lang_graph(LANES, str(own.folder / "rival.db"))
    own.stack.callback(leave)
    return Row(
        ours=lambda: own.run(partial(in_parallel, executors, each, [])),
        peers=[Peer("100 steps of LangGraph's SqliteSaver at history 200", rival, at_least(factor))],
        clock=time.perf_counter,
        clean=own.stack.close,
    )


@bench
def bench_beside_lang_graph() -> Row:
    """100 mutations from 100 lanes at once, synchronous=FULL."""
    return _beside_lang_graph(1, 8)


@bench
def bench_beside_lang_graph_for_longer() -> Row:
    """1,000 mutations from 100 lanes, synchronous=FULL, beside a tenth as many steps: eight times as fast is 0.8."""
    return _beside_lang_graph(10, 0.8)


@bench
def bench_latency() -> Row:
    """99th percentile of a mutation at 100 lanes."""
    own, counter = Bench(), Counter()
    executors = _lanes(own)
    latencies: list[float] = []

    def ours() -> None:
        latencies.clear()
        own.run(partial(in_parallel, executors, 20, latencies))
        counter.value += statistics.quantiles(latencies, n=100)[98]

    def median() -> None:
        counter.value += statistics.median(latencies)

    ours()
    return Row(
        ours=ours,
        peers=[Peer("its median", median, at_most(10))],
        clock=counter,
        clean=own.stack.close,
    )


def _fill(path: str, conversations: int, active: int) -> None:
    """Write conversations with an ended or a queued run each, as the store would have."""
    connection = apsw.Connection(path)
    at = "2026-01-01T00:00:00.000Z"
    with connection:
        for number in range(1, conversations + 1):
            name, run = f"conversation_{number:032x}", f"run_{number:032x}"
            waits = number % (conversations // active) == 0
            connection.execute(
                "INSERT INTO conversation VALUES (?, ?, 3, 3, 1, ?, 0, 0, 1114112, 0, ?, ?, ?)",
                (number, name, OWNER, at, at, at),
            )
            connection.execute(
                "INSERT INTO run (no, conversation, id, arrival, version, assistant_message_id, created_at, inputs,"
                " state, revision, terminal_reason, updated_at) VALUES (?, ?, ?, 1, 1, ?, ?, ?, ?, 0, ?, ?)",
                (
                    number,
                    number,
                    run,
                    f"answer_{number}",
                    at,
                    f'["input_{number}"]'.encode(),
                    "queued" if waits else "completed",
                    None if waits else "success",
                    at,
                ),
            )
            if waits:
                connection.execute("INSERT INTO active_run VALUES (?, ?, ?)", (name, run, number))
    connection.close()


@bench
def bench_opening() -> Row:
    """Opening a store of 10,000 conversations and listing its 1,000 recoverable runs."""
    own = Bench()
    path = own.folder / "many.db"

    async def make() -> None:
        async with SqliteStore(path):
            pass

    async def ours() -> None:
        async with SqliteStore(path) as store:
            page = await store.scan_recoverable(limit=1000)
            assert len(page.items) == 1000

    def bare() -> None:
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", "WAL")
        connection.pragma("synchronous", "FULL")
        rows = connection.execute(
            f"SELECT active_run.conversation_id, {RUN_COLUMNS} FROM active_run JOIN run ON run.no = active_run.run"  # noqa: S608
            " ORDER BY active_run.conversation_id, active_run.run_id LIMIT 1001"
        ).fetchall()
        assert len(rows) == 1000
        connection.close()

    anyio.run(make)
    _fill(str(path), 10_000, 1_000)
    return Row(
        ours=lambda: own.run(ours),
        peers=[Peer("bare apsw", bare, at_most(3))],
        clock=time.perf_counter,
        clean=own.stack.close,
    )


_GROWTH = """
import re, sys, anyio
from pathlib import Path
from runlane.store.sqlite import SqliteStore

async def look():
    async with SqliteStore(sys.argv[1]) as store:
        return await store.scan_recoverable(limit=1000)

def peak():
    # Of this program: what getrusage tells has a lower bound in the size of whoever started it.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

before = peak()
page = anyio.run(look)
print(peak() - before)
"""


@bench
def bench_opening_memory() -> Row:
    """Growth of a fresh process that opens a store of 10,000 conversations and holds its 1,000 recoverable runs."""
    own, counter = Bench(), Counter()
    path = own.folder / "many.db"

    async def make() -> None:
        async with SqliteStore(path):
            pass

    def ours() -> None:
        command = [sys.executable, "-c", _GROWTH, str(path)]
        counter.value += int(subprocess.run(command, check=True, capture_output=True).stdout)

    def budget() -> None:
        counter.value += 64 * 1024 * 1024

    anyio.run(make)
    _fill(str(path), 10_000, 1_000)
    return Row(ours=ours, peers=[Peer("64 MiB", budget, at_most(1))], clock=counter, clean=own.stack.close)
