"""`runlane demo`: a durable conversation, a real kill, and what is left of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.table import Table

from runlane.cli._demo import DemoFlags
from runlane.cli._demo_facts import Check, Facts, checks
from runlane.cli._demo_model import ScriptedPace
from runlane.cli._demo_play import CONVERSATION, Play
from runlane.cli._exits import Exit
from runlane.cli._failure import Failure
from runlane.cli._flags import Call
from runlane.cli._place import store_path
from runlane.cli._signals import ended_by_signal
from runlane.cli._terminal import Terminal
from runlane.cli._text import short_id, shortened
from runlane.clock import SystemClock
from runlane.errors import InvalidValueError
from runlane.testing import ReplayServer

__all__ = ["run_demo"]

_NARROW: Final = 72


async def run_demo(call: Call, flags: DemoFlags) -> int:
    """Play the demo that the flags ask for, and return the exit code."""
    with _store_file(call.common.store, keep=flags.keep) as path:
        return await ended_by_signal(lambda: _demo(call.terminal, path, flags, kept=_stays(call, flags)))


async def _demo(terminal: Terminal, path: Path, flags: DemoFlags, *, kept: bool) -> int:
    pace = ScriptedPace(flags.seconds, flags.seed, SystemClock())
    async with ReplayServer(pace.reply) as server:
        terminal.aside("One conversation, two worker processes, one kill -9. Nothing leaves this machine.")
        terminal.aside(f"store: {path}", style="dim", indent=("   ", "   "))
        terminal.aside(f"model: {server.base_url}/v1, which plays a script", style="dim", indent=("   ", "   "))
        seen = await Play(terminal=terminal, path=path, server=server, pace=pace).perform()
    decided = checks(seen)
    terminal.aside()
    _show(terminal, seen.at_end, decided)
    if kept:
        terminal.say(f"The store stays in {path}")
    data = _data(seen.at_end, decided) | {
        "store": str(path) if kept else None,
        "seconds": round(pace.elapsed, 3),
        "seed": flags.seed,
        "killed_after_pieces": pace.kill_after,
    }
    broken = [check.name for check in decided if not check.held]
    if not broken:
        terminal.result(data)
        return Exit.DONE
    terminal.fail(Failure(code="demo.check_failed", message=f"not kept: {'; '.join(broken)}"), data=data)
    return Exit.CHECK_FAILED


def _stays(call: Call, flags: DemoFlags) -> bool:
    return flags.keep or call.common.store is not None


@contextmanager
def _store_file(url: str | None, *, keep: bool) -> Iterator[Path]:
    """Choose the file of the store: the one that was named, which must be new, or one in a folder of its own."""
    if url is not None:
        path = store_path(url).absolute()
        if path.exists():
            raise InvalidValueError(f"{path} exists; the demo wants a new file", argument="--store")
        yield path
    elif keep:
        yield Path(tempfile.mkdtemp(prefix="runlane-demo-")) / "demo.db"
    else:
        with tempfile.TemporaryDirectory(prefix="runlane-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder) / "demo.db"


# --- the end ------------------------------------------------------------------------------------------------------


def _show(terminal: Terminal, facts: Facts, decided: tuple[Check, ...]) -> None:
    """Show the store and the checks; a narrow terminal gets lists instead of a table."""
    if terminal.width >= _NARROW:
        terminal.show(_table(facts, terminal.width))
    else:
        terminal.say("What is in the store")
        for run, question, state, reason, token, answer in _rows(facts):
            terminal.say(f"{run}: {question}", indent=("", "   "))
            terminal.say(f"{state}, {reason}, token {token}, {answer}", indent=("   ", "   "))
    terminal.say(_summary(facts))
    terminal.say()
    for check in decided:
        mark, style = ("kept  ", "green") if check.held else ("BROKEN", "bold red")
        terminal.say(f"{mark}  {check.name}: {check.detail}", style=style, indent=("", " " * 8))


def _table(facts: Facts, width: int) -> Table:
    table = Table(title="What is in the store", title_justify="left", width=min(width, 120))
    for heading in ("run", "input", "state", "reason", "token", "answer"):
        table.add_column(heading, no_wrap=heading != "input")
    for row in _rows(facts):
        table.add_row(*row)
    return table


def _rows(facts: Facts) -> list[tuple[str, ...]]:
    return [
        (
            short_id(run.id),
            shortened(facts.question_of(run), 40),
            run.state,
            run.terminal_reason or "-",
            str(run.fencing_token or "-"),
            f"{sum(map(len, facts.answers_of(run.id)))} chars",
        )
        for run in facts.runs
    ]


def _summary(facts: Facts) -> str:
    return (
        f"conversation {CONVERSATION!r}, version {facts.version}: {len(facts.runs)} runs, "
        f"{len(facts.messages)} messages, {len(facts.ledger)} ledger entries"
    )


def _data(facts: Facts, decided: tuple[Check, ...]) -> dict[str, object]:
    return {
        "conversation": CONVERSATION,
        "version": facts.version,
        "runs": [
            {
                "id": run.id,
                "input": facts.question_of(run),
                "state": run.state,
                "reason": run.terminal_reason,
                "fencing_token": run.fencing_token,
                "answer": "".join(facts.answers_of(run.id)),
            }
            for run in facts.runs
        ],
        "messages": len(facts.messages),
        "ledger_entries": len(facts.ledger),
        "checks": [{"name": check.name, "held": check.held, "detail": check.detail} for check in decided],
    }
