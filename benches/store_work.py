"""Work for the store's bench: whole turns, many lanes, and what they write."""

import math
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import anyio
import apsw
from anyio.from_thread import BlockingPortal, start_blocking_portal

from runlane.ids import RandomIds
from runlane.records import (
    CostValue,
    Message,
    Ownership,
    Run,
    RunOperation,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    UsageValue,
)
from runlane.store import (
    AcceptInput,
    AcquireRun,
    Applied,
    CheckpointRunAssistant,
    Command,
    CommitRunTerminal,
    DraftPatch,
    GrownPart,
    RecordRunOperation,
    SeedConversation,
)
from runlane.store.sqlite import SqliteStore
from runlane.store.sqlite._rows import SqliteRows

T = TypeVar("T")

IDS = RandomIds()
OWNER = IDS.new("owner")
QUESTION = "What is the weather in Paris, and should I take an umbrella?"
ANSWER = "The quick brown fox jumps over the lazy dog. " * 45
CONTENT = len(QUESTION) + len(ANSWER)
CALL = ToolCallPart(call_id="call_01", tool_name="weather", arguments='{"city":"Paris"}', input={"city": "Paris"})
RESULT = ToolResultPart(call_id="call_01", tool_name="weather", outcome="success", output={"t": 18, "sky": "rain"})
MORE = "some more text, as a checkpoint brings it, " * 14


def now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


def spent(tokens: int) -> Usage:
    """Return usage as a provider reports it."""
    figure = UsageValue(value=tokens, provenance="provider-reported")
    return Usage(
        input_tokens=figure,
        output_tokens=figure,
        reasoning_tokens=figure,
        cache_read_tokens=figure,
        cache_write_tokens=figure,
        cost=CostValue(provenance="unavailable"),
    )


@dataclass
class Bench:
    """A store in a folder of its own, used from this thread."""

    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        # Beside the benches and not in /tmp, which may be memory and would flush for nothing.
        self.folder = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".store-"))
        self.stack.callback(shutil.rmtree, self.folder)
        self.portal: BlockingPortal = self.stack.enter_context(start_blocking_portal())
        self.store = self.stack.enter_context(
            self.portal.wrap_async_context_manager(SqliteStore(self.folder / "store.db"))
        )

    def run(self, do: Callable[[], Awaitable[T]]) -> T:
        """Run something in the store's event loop."""
        return self.portal.call(do)

    def use(self, look: Callable[[apsw.Connection], T]) -> T:
        """Look at the write connection, in its own thread: it may be busy in any other moment."""

        async def write() -> T:
            return await self.store.driver.write(lambda rows: look(cast("SqliteRows", rows).cursor.connection), "")

        return self.portal.call(write)


async def conversation(store: SqliteStore, messages: int) -> str:
    """Make a conversation that holds this many messages."""
    name = IDS.new("conversation")
    for first in range(0, messages, 1000):
        inputs = tuple(
            Message(
                id=IDS.new("message"),
                conversation_id=name,
                role="user",
                status="committed",
                parts=(TextPart(text=QUESTION),),
                created_at=now(),
                updated_at=now(),
            )
            for _ in range(min(1000, messages - first))
        )
        command = SeedConversation(
            command_id=IDS.new("command"),
            at=now(),
            seed_key=f"{first}",
            inputs=inputs,
            placement="after-settled",
        )
        await _applied(store, name, command)
    return name


async def _applied(store: SqliteStore, conversation_id: str, *commands: Command) -> Applied:
    outcomes = await store.apply(conversation_id, commands)
    first, last = outcomes[0], outcomes[-1]
    assert isinstance(last, Applied)
    assert isinstance(first, Applied)
    return first


def _operation(run_id: str, step: int, phase: str) -> RunOperation:
    facts = {"operation_id": f"{run_id}:{step}", "kind": "model-request", "phase": phase, "step": step}
    times = {"first_output_at": now()} if phase != "started" else {}
    times |= {"finished_at": now()} if phase == "completed" else {}
    return RunOperation.model_validate({**facts, "started_at": now(), **times})


@dataclass
class Executor:
    """Writes on behalf of one run."""

    store: SqliteStore
    conversation_id: str
    run_id: str
    ownership: Ownership
    revision: int = 1

    def checkpoint(self, patch: DraftPatch, usage: Usage | None = None) -> Command:
        """Return a checkpoint that expects everything before it to be applied."""
        self.revision += 1
        return CheckpointRunAssistant(
            command_id=IDS.new("command"),
            at=now(),
            run_id=self.run_id,
            expected_revision=self.revision - 1,
            ownership=self.ownership,
            patch=patch,
            usage=usage,
        )

    def operation(self, step: int, phase: str) -> Command:
        """Return an operation record."""
        self.revision += 1
        return RecordRunOperation(
            command_id=IDS.new("command"),
            at=now(),
            run_id=self.run_id,
            expected_revision=self.revision - 1,
            ownership=self.ownership,
            operation=_operation(self.run_id, step, phase),
        )

    async def grow(self, times: int) -> None:
        """Checkpoint some text this many times, one commit each."""
        for _ in range(times):
            await _applied(
                self.store, self.conversation_id, self.checkpoint(DraftPatch(keep=1, grown=(GrownPart(0, MORE),)))
            )


def _accept(conversation_id: str, run_id: str) -> AcceptInput:
    message = Message(
        id=IDS.new("message"),
        conversation_id=conversation_id,
        role="user",
        status="committed",
        parts=(TextPart(text=QUESTION),),
        created_at=now(),
        updated_at=now(),
    )
    run = Run(
        id=run_id,
        conversation_id=conversation_id,
        input_message_ids=(message.id,),
        assistant_message_id=IDS.new("message"),
        state="queued",
        revision=0,
        created_at=now(),
        updated_at=now(),
    )
    return AcceptInput(command_id=IDS.new("command"), at=now(), idempotency_key=IDS.new("key"), input=message, run=run)


def _acquire(run_id: str) -> AcquireRun:
    return AcquireRun(command_id=IDS.new("command"), at=now(), run_id=run_id, expected_revision=0, owner_id=OWNER)


async def begin(store: SqliteStore, conversation_id: str) -> Executor:
    """Accept and acquire a run, with a first piece of text in its draft."""
    run_id = IDS.new("run")
    executor = Executor(store, conversation_id, run_id, Ownership(owner=OWNER))
    first = executor.checkpoint(DraftPatch(added=(TextPart(text="So"),)))
    await _applied(store, conversation_id, _accept(conversation_id, run_id), _acquire(run_id), first)
    return executor


async def turn(store: SqliteStore, conversation_id: str) -> None:
    """Carry out one whole turn with a tool call, in six commits."""
    accept = _accept(conversation_id, IDS.new("run"))
    executor = Executor(store, conversation_id, accept.run.id, Ownership(owner=OWNER))
    await _applied(store, conversation_id, accept)
    begun = await _applied(
        store,
        conversation_id,
        _acquire(accept.run.id),
        executor.checkpoint(DraftPatch()),
        executor.operation(0, "started"),
    )
    assert begun.ownership is not None
    executor.ownership = begun.ownership
    text = TextPart(text=ANSWER)
    groups = (
        (executor.operation(0, "first-output"), executor.checkpoint(DraftPatch(added=(CALL,)))),
        (
            executor.checkpoint(DraftPatch(keep=1, added=(RESULT,)), spent(1000)),
            executor.operation(0, "completed"),
            executor.operation(1, "started"),
        ),
        (executor.checkpoint(DraftPatch(keep=2, added=(text,)), spent(1200)),),
    )
    for group in groups:
        await _applied(store, conversation_id, *group)
    answer = Message(
        id=accept.run.assistant_message_id,
        conversation_id=conversation_id,
        run_id=accept.run.id,
        role="assistant",
        status="completed",
        parts=(CALL, RESULT, text),
        created_at=now(),
        updated_at=now(),
    )
    closing = executor.operation(1, "completed")
    end = CommitRunTerminal(
        command_id=IDS.new("command"),
        at=now(),
        run_id=accept.run.id,
        expected_revision=executor.revision,
        ownership=executor.ownership,
        assistant=answer,
        reason="success",
        usage=spent(1300),
    )
    await _applied(store, conversation_id, closing, end)


def size_of(values: object) -> int:
    """Return the bytes that are bound to one statement."""
    total = 0
    for value in values if isinstance(values, tuple) else ():
        if isinstance(value, bytes):
            total += len(value)
        elif isinstance(value, str):
            total += len(value.encode())
        elif value is not None:
            total += max(1, math.ceil(int(value).bit_length() / 8))
    return total


@cache
def plain_tables() -> tuple[str, ...]:
    """Return the statements that make the tables which a checkpoint writes, for the bare loop."""
    return (
        "CREATE TABLE conversation (no INTEGER PRIMARY KEY, version, seq, changed_at)",
        """CREATE TABLE run (no INTEGER PRIMARY KEY, version, place, state, revision, execution_sequence, owner_id,
        fencing_token, updated_at, draft_kinds, draft_patches, draft_size, draft_sha256)""",
        """CREATE TABLE event (no INTEGER PRIMARY KEY, conversation, seq, version, id, kind, occurred_at, ignorable,
        body)""",
        "CREATE UNIQUE INDEX event_by_seq ON event (conversation, seq)",
        "CREATE UNIQUE INDEX event_by_id ON event (id, conversation)",
        "CREATE TABLE draft (key INTEGER PRIMARY KEY, body)",
    )


class BareLoop:
    """What a checkpoint writes, in the same groups, by a loop that does nothing else."""

    def __init__(self, path: Path, lanes: int) -> None:
        self._connection = apsw.Connection(str(path))
        # As the store has them.
        self._connection.pragma("page_size", 2048)
        self._connection.pragma("journal_mode", "WAL")
        self._connection.pragma("synchronous", "FULL")
        for statement in plain_tables():
            self._connection.execute(statement)
        self._seq = [0] * lanes
        with self._connection:
            for lane in range(lanes):
                self._connection.execute("INSERT INTO conversation VALUES (?, 0, 0, '')", (lane,))
                self._connection.execute("INSERT INTO run (no) VALUES (?)", (lane,))

    def commit(self, groups: list[int]) -> None:
        """Commit groups of these sizes, lane after lane."""
        cursor = self._connection.cursor()
        at, lane = "2026-01-01T00:00:00.000Z", 0
        patch, entry = b"x" * (len(MORE) + 50), b"x" * 330
        for group in groups:
            cursor.execute("BEGIN IMMEDIATE")
            for _ in range(group):
                self._seq[lane] += 1
                seq = self._seq[lane]
                cursor.execute(
                    "UPDATE conversation SET version = ?, seq = ?, changed_at = ? WHERE no = ?", (seq, seq, at, lane)
                )
                cursor.execute(
                    "UPDATE run SET version = ?, place = ?, state = ?, revision = ?, execution_sequence = ?,"
                    " owner_id = ?, fencing_token = ?, updated_at = ?, draft_kinds = ?, draft_patches = ?,"
                    " draft_size = ?, draft_sha256 = ? WHERE no = ?",
                    (seq, 65536, "running", seq, 2, OWNER, 1, at, "t", seq, seq * 700, bytes(32), lane),
                )
                cursor.execute("INSERT INTO draft VALUES (?, ?)", ((lane << 24) | seq, patch))
                cursor.execute(
                    "INSERT INTO event VALUES (NULL, ?, ?, ?, ?, ?, ?, 0, ?)",
                    (lane, seq, seq, IDS.new("command"), "runtime/transition", at, entry),
                )
                lane = (lane + 1) % len(self._seq)
            cursor.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


async def in_parallel(executors: list[Executor], times: int, latencies: list[float]) -> None:
    """Let every lane checkpoint at once, and note how long each commit took its lane."""

    async def lane(executor: Executor) -> None:
        for _ in range(times):
            start = anyio.current_time()
            await executor.grow(1)
            latencies.append(anyio.current_time() - start)

    async with anyio.create_task_group() as group:
        for executor in executors:
            group.start_soon(lane, executor)
