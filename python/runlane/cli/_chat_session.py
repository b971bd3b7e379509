"""A chat while it is going on: input, answers, Ctrl-C, and what an earlier process left behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.abc

from runlane.cli._chat_outcome import Answer, failure_of, rejected
from runlane.cli._chat_view import ChatView
from runlane.cli._exits import Exit
from runlane.cli._failure import Failure
from runlane.cli._lines import read_lines
from runlane.cli._signals import ENDING, exit_of_signal
from runlane.cli._terminal import Terminal
from runlane.delivery import Subscription
from runlane.errors import RunlaneError, RunUnsettledError
from runlane.runtime import AgentRuntime, RecoveryDecision, RecoveryInput, RecoveryOutcome, RunResult, RunTicket

__all__ = ["ChatSession"]

_STDIN: Final = 0
_CLOSE_WITHIN: Final = 5.0


class ChatSession:
    """One conversation at one terminal.

    Everything shown comes from one subscription, so it has one order. An input is submitted the moment it is read:
    the lane, not this session, keeps it waiting.
    """

    def __init__(self, runtime: AgentRuntime, conversation: str, terminal: Terminal) -> None:
        """Prepare to talk over a runtime that is entered by the caller."""
        self._runtime = runtime
        self._conversation = conversation
        self._terminal = terminal
        self._types = sys.stdin is not None and sys.stdin.isatty() and terminal.for_people
        self._view = ChatView(terminal)
        self._answers: list[Answer] = []
        self._open: dict[RunTicket, str | None] = {}
        self._settled = anyio.Event()
        self._left = anyio.Event()
        self._shown = anyio.Event()
        self._code: int | None = None
        self._stopping = False
        self._tasks: anyio.abc.TaskGroup | None = None

    # --- the two ways to use it ---------------------------------------------------------------------------------

    async def ask_once(self, text: str, *, key: str | None, within: float | None) -> int:
        """Submit one input, show its answer, and return the exit code.

        Args:
            text: The input.
            key: Its idempotency key, or None for a new one.
            within: Seconds after which the answer is interrupted, or None.
        """
        await self._during(lambda: self._ask(text, key, within))
        return self._report()

    async def talk(self) -> int:
        """Read inputs until there are no more, and return the exit code."""
        self._view.echoes = not self._types
        await self._during(self._read)
        return self._report() if self._code is None and not self._types else self._code or Exit.DONE

    async def _during(self, body: Callable[[], Awaitable[None]]) -> None:
        """Do something while events are shown, signals obeyed and leftovers recovered."""
        async with self._runtime.subscribe(self._conversation) as events, anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._show, events)
            tasks.start_soon(self._obey)
            tasks.start_soon(self._recover)
            tasks.start_soon(self._leave_after, body)
            await self._left.wait()
            await self._runtime.close(force=_CLOSE_WITHIN)
            await self._shown.wait()
            tasks.cancel_scope.cancel()

    async def _leave_after(self, body: Callable[[], Awaitable[None]]) -> None:
        await body()
        self._left.set()

    async def _ask(self, text: str, key: str | None, within: float | None) -> None:
        self._submit(text, key)
        with anyio.move_on_after(within) as patience:
            await self._settled.wait()
        if patience.cancelled_caught:
            self._code = Exit.TIMED_OUT
            await self._stop()
            await self._settled.wait()

    async def _read(self) -> None:
        """Submit line after line; the end of the input leaves once everything is answered, /quit at once."""
        self._prompt()
        async for line in read_lines(_STDIN, encoding=sys.stdin.encoding):
            self._stopping = False
            match line.strip():
                case "":
                    self._prompt()
                case "/quit":
                    return
                case "/stop":
                    await self._stop()
                case text if text.startswith("/") and " " not in text:
                    self._terminal.note("there are /stop and /quit; any other line is sent to the model")
                case _:
                    self._submit(line, None)
        while self._open:
            await self._settled.wait()

    # --- inputs and their answers -------------------------------------------------------------------------------

    def _submit(self, text: str, key: str | None) -> None:
        if not self._open:
            self._settled = anyio.Event()
        ticket = self._runtime.submit(self._conversation, text, idempotency_key=key)
        self._open[ticket] = None
        if self._tasks is not None:
            self._tasks.start_soon(self._follow, ticket)

    async def _follow(self, ticket: RunTicket) -> None:
        """See an input through to its end, and tell how it went."""
        try:
            admission = await ticket.admission
            self._open[ticket] = admission.run_id
            result = await self._result_of(ticket)
        except RunlaneError as error:
            answer = rejected(error, None)
        else:
            if result.metrics is None:  # answered before, or elsewhere: nothing of it streamed here
                self._terminal.stream(f"{result.message.text}\n")
            else:
                await self._view.wait_end(result.run.id)
            failure = failure_of(result.reason, result.error)
            code = Exit.DONE if failure is None else Exit.NOT_SUCCESSFUL
            answer = Answer(code=code, run=result.run, message=result.message, failure=failure)
        self._answers.append(answer)
        if self._types and answer.failure is not None:
            self._terminal.complain(answer.failure)
        del self._open[ticket]
        if not self._open:
            self._settled.set()
        self._prompt()

    async def _result_of(self, ticket: RunTicket) -> RunResult:
        """Wait for the end of a run; if whoever is ahead of it has died meanwhile, take over from there."""
        try:
            return await ticket.result
        except RunUnsettledError:
            taken_over = await self._recover()
            result = next((one.result for one in taken_over if one.run_id == ticket.run_id), None)
            if result is None:
                raise
            return await result

    async def _show(self, events: Subscription) -> None:
        async for event in events:
            self._view.show(event)
        self._shown.set()

    async def _recover(self) -> Sequence[RecoveryOutcome]:
        """Go on with what a process that died left in this conversation; what a living one does is left alone."""
        return await self._runtime.recover(decide=self._only_this_conversation)

    def _only_this_conversation(self, item: RecoveryInput) -> RecoveryDecision:
        return item.default if item.conversation_id == self._conversation else "skip"

    # --- stopping -----------------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        """Ctrl-C stops the answer; a second one, or SIGTERM, leaves."""
        with anyio.open_signal_receiver(*ENDING) as signals:
            async for number in signals:
                if number == signal.SIGTERM or self._stopping or self._left.is_set():
                    self._code = exit_of_signal(number)
                    self._left.set()
                    return
                self._stopping = True
                if not self._types:
                    self._code = exit_of_signal(number)
                await self._stop()

    async def _stop(self) -> None:
        """End the answer that streams here, durably; or the first of our inputs that waits for its turn."""
        if self._view.running is not None:
            await self._runtime.interrupt(self._conversation, self._view.running)
            return
        waiting = next((run for run in self._open.values() if run is not None), None)
        if waiting is not None:
            await self._runtime.cancel(self._conversation, waiting)
        elif self._types:
            self._terminal.note("nothing is running; Ctrl-C again or /quit leaves")

    # --- the end ------------------------------------------------------------------------------------------------

    def _prompt(self) -> None:
        if self._types and not self._open:
            self._terminal.stream("> ")

    def _report(self) -> int:
        """Give the result to a machine or the failures to a person; return the exit code."""
        data = {"conversation": self._conversation, "answers": [answer.as_json() for answer in self._answers]}
        failed = next((answer for answer in self._answers if answer.failure is not None), None)
        if self._code == Exit.TIMED_OUT:
            failure = Failure(code="timeout", message="the answer took too long and was interrupted; what came is kept")
            self._terminal.fail(failure, data=data)
        elif failed is not None and failed.failure is not None:
            self._terminal.fail(failed.failure, data=data)
        else:
            self._terminal.result(data)
        if self._code is not None:
            return self._code
        return Exit.DONE if failed is None else failed.code
