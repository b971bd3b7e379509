"""What happens in the demo, act by act; what it means is decided in `_demo_facts`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runlane.cli._demo_facts import Asked, Facts, Observed, read_facts
from runlane.cli._demo_model import ScriptedPace
from runlane.cli._demo_process import Worker, WorkerFailedError, start_worker
from runlane.cli._demo_script import FIRST, SECOND, Exchange
from runlane.cli._flow import Flow
from runlane.cli._terminal import Terminal
from runlane.cli._text import short_id
from runlane.testing import ReplayServer

__all__ = ["CONVERSATION", "Play"]

CONVERSATION: Final = "demo"
_INDENT: Final = "   "
_WIDEST: Final = 88


@dataclass
class Play:
    """One performance.

    Attributes:
        path: The store's file.
        server: The model; it runs as long as the performance does.
    """

    terminal: Terminal
    path: Path
    server: ReplayServer
    pace: ScriptedPace
    _act: int = field(init=False, default=0)

    async def perform(self) -> Observed:
        """Perform all acts and return what was seen."""
        self._begin("a worker process answers an input")
        async with self._worker() as worker:
            first = await self._first_answer(worker)
            second, status = await self._killed_answer(worker)
        at_kill = await self._after_the_kill(second)
        self._begin("a new worker process recovers")
        async with self._worker() as worker:
            resumed = await self._recovery(worker)
            at_recovery = await read_facts(self.path, CONVERSATION)
            asked = len(self.server.requests)
            repeated = await self._repeated_keys(worker)
            await worker.leave()
        return Observed(
            first=first,
            second=second,
            killed_status=status,
            resumed=resumed,
            repeated=repeated,
            requests=(asked, len(self.server.requests)),
            at_kill=at_kill,
            at_recovery=at_recovery,
            at_end=await read_facts(self.path, CONVERSATION),
        )

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[Worker]:
        self._tell("starting it ...")
        async with start_worker(self.path, f"{self.server.base_url}/v1", show_errors=self.terminal.verbose) as worker:
            self._tell(f"it is process {worker.pid}")
            yield worker

    # --- the acts -----------------------------------------------------------------------------------------------

    async def _first_answer(self, worker: Worker) -> Asked:
        run = await self._submit(worker, FIRST)
        text = await self._stream(worker)
        return Asked(exchange=FIRST, run=run, streamed=text)

    async def _killed_answer(self, worker: Worker) -> tuple[Asked, int]:
        self._begin("a second input, and kill -9 in the middle of its answer")
        run = await self._submit(worker, SECOND)
        text = await self._stream(worker, stop_after=self.pace.kill_after)
        status = await worker.kill()
        self._tell(f"SIGKILL to worker process {worker.pid} in mid-sentence; its exit status is {status}", style="red")
        return Asked(exchange=SECOND, run=run, streamed=text), status

    async def _after_the_kill(self, second: Asked) -> Facts:
        self._begin("what the file holds now, read by this process")
        facts = await read_facts(self.path, CONVERSATION)
        run = facts.run(second.run)
        if run is None:
            self._tell(f"{short_id(second.run)} is missing", style="red")
            return facts
        draft = "".join(facts.answers_of(run.id))
        self._tell(f"{short_id(run.id)}: still {run.state}, held by a process that is dead")
        self._tell(f"its input is there: {facts.question_of(run)}")
        self._tell(f"its half answer is there: {len(draft)} characters were checkpointed")
        return facts

    async def _recovery(self, worker: Worker) -> str:
        await worker.order("recover", conversation=CONVERSATION)
        return await self._stream(worker)

    async def _repeated_keys(self, worker: Worker) -> tuple[str, ...]:
        self._begin("both inputs once more, under their idempotency keys")
        repeated: list[str] = []
        for exchange in (FIRST, SECOND):
            await worker.order("submit", conversation=CONVERSATION, text=exchange.question, key=exchange.key)
            run: str = (await worker.expect("accepted"))["run"]
            await worker.expect("ended")
            self._tell(f"key {exchange.key}: {short_id(run)}, answered from the store")
            repeated.append(run)
        return tuple(repeated)

    # --- what they are made of ----------------------------------------------------------------------------------

    async def _submit(self, worker: Worker, exchange: Exchange) -> str:
        """Submit an input; return the run that it was given."""
        self._tell(f"> {exchange.question}", style="bold")
        await worker.order("submit", conversation=CONVERSATION, text=exchange.question, key=exchange.key)
        run: str = (await worker.expect("accepted"))["run"]
        self._tell(f"accepted as {short_id(run)}, which means: committed")
        return run

    async def _stream(self, worker: Worker, *, stop_after: int | None = None) -> str:
        """Show an answer as it streams, to its end or for so many pieces; return what arrived."""
        flow = Flow(self.terminal.stream_aside, width=min(self.terminal.width, _WIDEST), indent=_INDENT)
        text: list[str] = []
        async for fact in worker.facts():
            self.terminal.event({"type": fact["event"], **fact})
            if fact["event"] == "recovered":
                self._tell(f"{short_id(fact['run'])}: {fact['outcome']}, under a new fencing token")
            elif fact["event"] == "delta":
                text.append(fact["text"])
                flow.write(fact["text"])
            elif fact["event"] == "ended":
                flow.end()
                self._tell(f"{short_id(fact['run'])} ended: {fact['reason']}")
                return "".join(text)
            if len(text) == stop_after:
                flow.end()
                return "".join(text)
        flow.end()
        raise WorkerFailedError("it ended in the middle of an answer")

    def _begin(self, title: str) -> None:
        self._act += 1
        seconds = self.pace.elapsed
        self.terminal.event({"type": "act", "act": self._act, "title": title, "seconds": round(seconds, 3)})
        self.terminal.aside()
        title = f"{self._act}  {title} ({seconds:.1f} s)"
        self.terminal.aside(title, style="bold cyan", indent=("", _INDENT))

    def _tell(self, text: str, *, style: str = "dim") -> None:
        self.terminal.aside(text, style=style, indent=(_INDENT, _INDENT))
