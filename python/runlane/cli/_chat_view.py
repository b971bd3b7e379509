"""What a chat looks like: answers as they stream, and how the conversation ended last time."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import anyio

from runlane.cli._terminal import Json, Terminal
from runlane.cli._text import shortened
from runlane.delivery import (
    AdmissionEvent,
    AssistantDeltaEvent,
    AttemptResetEvent,
    Gap,
    ReasoningDeltaEvent,
    RunStateEvent,
    RuntimeEvent,
    TerminalEvent,
)
from runlane.records import Message
from runlane.store import Store

__all__ = ["ChatView", "show_tail"]

_TAIL: Final = 6
_TAIL_WIDTH: Final = 500


class ChatView:
    """Shows one conversation's events, run after run.

    Attributes:
        running: The run whose answer streams now, or None.
        echoes: Whether every input is shown above its answer; else only those whose answer had to wait.
    """

    def __init__(self, terminal: Terminal) -> None:
        """Show on a terminal."""
        self.running: str | None = None
        self.echoes = False
        self._terminal = terminal
        self._late: dict[str, str] = {}
        self._begins: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)
        self._ends: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)
        self._thinking = False
        self._shown = False
        self._incomplete = False

    def show(self, event: RuntimeEvent | Gap, /) -> None:
        """Show an event."""
        match event:
            case AssistantDeltaEvent() | ReasoningDeltaEvent():
                self._stream(event.text_delta, thinking=isinstance(event, ReasoningDeltaEvent))
            case AttemptResetEvent():
                self._break_off(f"the answer broke off; attempt {event.attempt} begins")
            case Gap():
                self._incomplete = True
            case _:
                self._show_step(event)
        told = _as_json(event)
        if told is not None:
            self._terminal.event(told)

    def _show_step(self, event: RuntimeEvent) -> None:
        """Show that a run went a step further in its life."""
        match event:
            case AdmissionEvent() if self.echoes or self.running is not None:
                self._late[event.run_id] = event.input.text
            case RunStateEvent(state="running"):
                self._begin(event.run_id)
            case TerminalEvent():
                self._end(event)
            case _:
                pass

    async def wait_begin(self, run_id: str, /) -> None:
        """Wait until a run has begun."""
        await self._begins[run_id].wait()

    async def wait_end(self, run_id: str, /) -> None:
        """Wait until the end of a run was shown."""
        await self._ends[run_id].wait()

    def _begin(self, run_id: str) -> None:
        self.running = run_id
        self._begins[run_id].set()
        self._thinking = self._shown = self._incomplete = False
        question = self._late.pop(run_id, None)
        if question is not None:
            self._terminal.aside(f"> {shortened(question, self._terminal.width - 4)}", style="bold")

    def _stream(self, piece: str, *, thinking: bool) -> None:
        if self._thinking and not thinking:
            self._terminal.stream("\n\n")
        self._thinking = thinking
        self._shown = True
        self._terminal.stream(piece, style="dim italic" if thinking else "")

    def _break_off(self, why: str) -> None:
        self._terminal.stream("\n")
        self._terminal.note(why)
        self._thinking = self._shown = False

    def _end(self, event: TerminalEvent) -> None:
        if self._incomplete:
            self._break_off("some of it streamed too fast to be shown; the whole answer is:")
        if self._incomplete or (not self._shown and event.message.text):
            self._terminal.stream(event.message.text)
        self._terminal.stream("\n")
        self.running = None
        self._ends[event.run_id].set()


async def show_tail(terminal: Terminal, store: Store, conversation: str, /) -> None:
    """Show the last messages of a conversation, shortened, so that one knows where it stands."""
    page = await store.read_messages(conversation, limit=_TAIL)
    if not page.items:
        terminal.note("it has no messages yet")
        return
    if page.next_before is not None:
        terminal.aside("...", style="dim")
    for item in reversed(page.items):
        message = Message.model_validate_json(item.body)
        text = shortened(message.text, _TAIL_WIDTH)
        if message.role == "user":
            terminal.aside(f"> {text}", style="bold")
        elif text:
            terminal.aside(text if message.status == "completed" else f"{text} [{message.status}]", style="dim")


def _as_json(event: RuntimeEvent | Gap) -> Json | None:
    """Return an event as a machine reads it, or None if it is of no use to one."""
    match event:
        case Gap():
            return {"type": "gap", "reason": event.reason}
        case AssistantDeltaEvent() | ReasoningDeltaEvent():
            more: Json = {"text": event.text_delta}
        case AdmissionEvent():
            more = {"text": event.input.text}
        case RunStateEvent():
            more = {"state": event.state}
        case AttemptResetEvent():
            more = {"attempt": event.attempt}
        case TerminalEvent():
            more = {"reason": event.reason, "text": event.message.text}
        case _:
            return None
    return {"type": event.type, "run": event.run_id, **more}
