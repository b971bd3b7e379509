"""`runlane chat`: what it takes; what it does is in `_chat_run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from runlane.cli._flags import Call

__all__ = ["ChatFlags", "chat"]


@dataclass(frozen=True, kw_only=True)
class ChatFlags:
    """What a chat takes."""

    conversation: Annotated[str | None, typer.Argument(help="Which conversation to continue; a new one if absent.")] = (
        None
    )
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar=["RUNLANE_BASE_URL", "OPENAI_BASE_URL"],
            help="The endpoint, with its /v1; OpenAI if absent.",
        ),
    ] = None
    model: Annotated[str | None, typer.Option(envvar="RUNLANE_MODEL", help="The endpoint's name of the model.")] = None
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="TEXT", help="Send this, show the answer and leave; - reads stdin."),
    ] = None
    instructions: Annotated[
        str | None,
        typer.Option("--instructions", "--system", metavar="TEXT", help="Instructions to the model, for this time."),
    ] = None
    idempotency_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="With --message: sent again under the same key, it is answered once."),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="With --message: interrupt the answer after so long (exit 8)."),
    ] = None


async def chat(call: Call, flags: ChatFlags) -> int:
    """Talk to a model, durably.

    What you send is committed before the model is asked, and the answer is kept as it streams: whatever dies, reopening
    the conversation goes on with it. While an answer streams you may type the next message; it waits its turn. Ctrl-C
    or /stop interrupts the answer and keeps what came; a second Ctrl-C or /quit leaves.

    The key comes from RUNLANE_API_KEY or OPENAI_API_KEY; an endpoint on this machine needs none. With --message the
    exit code is 0, or 10 if the answer did not end in success.

    Example: runlane chat --base-url http://localhost:11434/v1 --model llama3.2
    """
    from runlane.cli._chat_run import run_chat  # noqa: PLC0415 - help and usage errors need nothing of a runtime

    return await run_chat(call, flags)
