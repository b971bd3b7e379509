"""`runlane chat`: a durable conversation with any endpoint that speaks chat completions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from runlane.cli._chat import ChatFlags
from runlane.cli._chat_session import ChatSession
from runlane.cli._chat_view import show_tail
from runlane.cli._flags import Call
from runlane.cli._lines import whole_text
from runlane.cli._place import chat_store
from runlane.cli._terminal import Terminal
from runlane.errors import InvalidValueError, MissingCredentialError, UsageError
from runlane.ids import RandomIds
from runlane.models.openai_chat import OpenAIChat
from runlane.runtime import AgentRuntime
from runlane.store.sqlite import SqliteStore

__all__ = ["run_chat"]

_KEY: Final = "RUNLANE_API_KEY"
_STDIN: Final = "-"


async def run_chat(call: Call, flags: ChatFlags) -> int:
    """Hold the chat that the flags ask for, and return the exit code."""
    _check(flags)
    message = _message(flags.message)
    provider = _provider(call, flags)
    path = chat_store(call.common.store, call.environ)
    conversation = flags.conversation or RandomIds().new("chat")
    async with SqliteStore(path) as store:
        runtime = AgentRuntime(store, model=provider, instructions=flags.instructions)
        session = ChatSession(runtime, conversation, call.terminal)
        async with runtime:
            if message is not None:
                return await session.ask_once(message, key=flags.idempotency_key, within=flags.timeout)
            await _greet(call.terminal, store, conversation, path, known=flags.conversation is not None)
            return await session.talk()


def _check(flags: ChatFlags) -> None:
    """Refuse flags that would do nothing."""
    for name, value in (("--idempotency-key", flags.idempotency_key), ("--timeout", flags.timeout)):
        if value is not None and flags.message is None:
            raise UsageError("goes with --message only", argument=name)


def _message(given: str | None) -> str | None:
    """Return the one message to send, if it is to be one.

    Raises:
        InvalidValueError: It is blank.
    """
    if given is None:
        return None
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if given == _STDIN else whole_text(given)
    if not text.strip():
        raise InvalidValueError("is blank; there is nothing to answer", argument="--message")
    return text


def _provider(call: Call, flags: ChatFlags) -> OpenAIChat:
    """Return the endpoint; nothing is sent yet."""
    if not flags.model:
        raise InvalidValueError("give the endpoint's name of a model, or set RUNLANE_MODEL", argument="--model")
    try:
        provider = OpenAIChat(flags.model, base_url=flags.base_url, api_key=call.environ.get(_KEY))
    except MissingCredentialError as error:
        raise MissingCredentialError(provider=error.provider, variable=f"{_KEY} or {error.variable}") from None
    except InvalidValueError as error:
        flag = {"base_url": "--base-url", "model": "--model", "api_key": f"{_KEY} or OPENAI_API_KEY"}
        raise InvalidValueError(_without_name(error), argument=flag.get(error.argument, error.argument)) from None
    return provider


def _without_name(error: InvalidValueError) -> str:
    return str(error).removeprefix(f"{error.argument}: ")


async def _greet(terminal: Terminal, store: SqliteStore, conversation: str, path: Path, *, known: bool) -> None:
    """Say where we are, and show how the conversation ended last time."""
    terminal.note(f"conversation {conversation} in {path}")
    if known:
        await show_tail(terminal, store, conversation)
    if terminal.is_typed_at:
        terminal.note("Ctrl-C or /stop interrupts an answer, /quit leaves; what you type meanwhile waits its turn")
