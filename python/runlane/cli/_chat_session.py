"""A chat while it is going on: input, answers, Ctrl-C, and what an earlier process left behind."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.abc

from runlane.cli._chat_outcome import Answer, answered, rejected
from runlane.cli._chat_view import ChatView
from runlane.cli._exits import Exit
from runlane.cli._failure import Failure
from runlane.cli._lines import read_lines
from runlane.cli._signals import ENDING, exit_of_signal
from runlane.cli._terminal import Terminal
from runlane.cli._text import short_id
from runlane.delivery import Subscription
from runlane.errors import RunlaneError, RunUnsettledError
from runlane.runtime import AgentRuntime, RecoveryDecision, RecoveryInput, RecoveryOutcome, RunResult, RunTicket

__all__ = ["ChatSession"]

_STDIN: Final = 0
_CLOSE_WITHIN: Final = 5.0
_SETTLE_WITHIN: Final = 1.0
# An answer that has not begun by then is worth a word about why.
_SOON: Final = 1.0


class ChatSession:
    """One conversation at one terminal.

    An input is submitted the moment it is read: the lane, not this session, keeps it waiting. Whatever is shown of a
    conversation comes from one subscription, so it has one order.
    """

    def __init__(self, runtime: AgentRuntime, conversation: str, terminal: Terminal) -> None:
        """Prepare to talk over a runtime that is entered by the caller."""
        self._runtime = runtime
        self._conversation = conversation
        self._terminal = terminal
        self._talks = False
        self._types = False
        self._view = ChatView(terminal)
        self._answers: list[Answer] = []
        self._open: list[RunTicket] = []
        self._settled = anyio.Event()
        self._left = anyio.Event()
        self._shown = anyio.Event()
        self._code: int | None = None
        self._stopping = False

    # --- the two ways to use it ---------------------------------------------------------------------------------

    async def ask_once(self, text: str, *, key: str | None, within: float | None) -> int:
        """Submit one input, show its answer and nothing else, and return the exit code.

        Args:
            text: The input.
            key: Its idempotency key, or None for a new one.
            within: Seconds after which the answer is interrupted, or None.
        """
        async with anyio.create_task_group() as tasks:
            ticket = self._submit(tasks, text, key)
            tasks.start_soon(self._show, ticket.events())
            await self._until_left(tasks, lambda: self._answer_within(within))
        return self._report()

    async def talk(self) -> int:
        """Read inputs until there are no more, and return the exit code."""
        self._talks = True
        self._types = self._terminal.is_typed_at
        self._view.echoes = not self._types
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._show, self._runtime.subscribe(self._conversation))
            await self._until_left(tasks, lambda: self._read(tasks))
        return self._report()

    async def _until_left(self, tasks: anyio.abc.TaskGroup, body: Callable[[], Awaitable[None]]) -> None:
        """Do something while signals are obeyed and leftovers recovered; then stop what runs, and show how it ended."""

        async def leave_after() -> None:
            await body()
            self._left.set()

        tasks.start_soon(self._obey)
        tasks.start_soon(self._recover)
        tasks.start_soon(leave_after)
        await self._left.wait()
        await self._runtime.close(force=_CLOSE_WITHIN)
        with anyio.move_on_after(_SETTLE_WITHIN):
            await self._all_settled()
            await self._shown.wait()
        tasks.cancel_scope.cancel()

    async def _answer_within(self, seconds: float | None) -> None:
        with anyio.move_on_after(seconds) as patience:
            await self._all_settled()
        if patience.cancelled_caught:
            self._code = Exit.TIMED_OUT
            await self._stop()
            await self._all_settled()

    async def _read(self, tasks: anyio.abc.TaskGroup) -> None:
        """Submit line after line; the end of the input leaves once everything is answered, /quit at once."""
        if sys.stdin is None:
            return
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
                    self._prompt()
                case _:
                    self._submit(tasks, line, None)
        await self._all_settled()

    # --- inputs and their answers -------------------------------------------------------------------------------

    def _submit(self, tasks: anyio.abc.TaskGroup, text: str, key: str | None) -> RunTicket:
        ticket = self._runtime.submit(self._conversation, text, idempotency_key=key)
        self._open.append(ticket)
        tasks.start_soon(self._follow, ticket)
        return ticket

    async def _follow(self, ticket: RunTicket) -> None:
        """See an input through to its end, and tell how it went."""
        try:
            await ticket.admission
            await self._tell_if_late(ticket)
            result = await self._result_of(ticket)
            if result.metrics is not None:  # it was executed here, so its end is still to be shown
                await self._view.wait_end(result.run.id)
            answer = answered(result)
        except RunlaneError as error:
            answer = rejected(error, ticket)
        self._answers.append(answer)
        if self._talks and answer.failure is not None and self._terminal.for_people:
            self._terminal.complain(answer.failure)
        self._open.remove(ticket)
        self._settled.set()
        self._settled = anyio.Event()
        self._prompt()

    async def _tell_if_late(self, ticket: RunTicket) -> None:
        """Say why nothing happens if an answer does not begin soon and none of this process is under way."""
        with anyio.move_on_after(_SOON) as patience:
            await self._view.wait_begin(ticket.run_id)
        if patience.cancelled_caught and self._view.running is None and not ticket.result.done:
            self._terminal.note("accepted; it waits for the model, or for an answer that another process gives")

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

    async def _all_settled(self) -> None:
        while self._open:
            await self._settled.wait()

    async def _show(self, events: Subscription) -> None:
        async with events:
            async for event in events:
                self._view.show(event)
        self._shown.set()

    async def _recover(self) -> Sequence[RecoveryOutcome]:
        """Go on with what a process that died left in this conversation; what a living one does is left alone."""
        outcomes = await self._runtime.recover(decide=self._only_this_conversation)
        for outcome in outcomes:
            if outcome.error is not None:
                self._terminal.complain(Failure.of(outcome.error))
            elif outcome.action != "skipped":
                self._terminal.note(
                    f"{short_id(outcome.run_id)} was left open by a process that died: {outcome.action}"
                )
        return outcomes

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
        waiting = next((ticket for ticket in self._open if ticket.admission.done), None)
        if waiting is not None:
            await self._runtime.cancel(self._conversation, waiting.run_id)
        elif self._types:
            self._terminal.note("nothing is running; Ctrl-C again or /quit leaves")
            self._prompt()

    # --- the end ------------------------------------------------------------------------------------------------

    def _prompt(self) -> None:
        if self._types and not self._open and not self._left.is_set():
            self._terminal.stream("> ")

    def _report(self) -> int:
        """Give the result to a machine, or the failure of the one input to a person; return the exit code."""
        data = {"conversation": self._conversation, "answers": [answer.as_json() for answer in self._answers]}
        failed = next((answer for answer in self._answers if answer.failure is not None), None)
        failure = None if failed is None else failed.failure
        if self._code == Exit.TIMED_OUT:
            failure = Failure(code="timeout", message="the answer took too long and was interrupted; what came is kept")
        if failure is None:
            self._terminal.result(data)
        elif not (self._talks and self._terminal.for_people):
            self._terminal.fail(failure, data=data)
        if self._code is not None:
            return self._code
        return Exit.DONE if failed is None or self._types else failed.code
