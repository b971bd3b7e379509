"""`runlane demo`: what it takes; what it does is in `_demo_run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from runlane.cli._flags import Call

__all__ = ["DemoFlags", "demo"]


@dataclass(frozen=True, kw_only=True)
class DemoFlags:
    """What the demo takes."""

    seconds: Annotated[float, typer.Option(min=1, max=600, help="About how long it takes.")] = 15.0
    seed: Annotated[int, typer.Option(help="Decides the moment of the kill.")] = 1
    keep: Annotated[bool, typer.Option("--keep", help="Leave the store's file behind.")] = False


async def demo(call: Call, flags: DemoFlags) -> int:
    """Answer, kill the worker in mid-sentence, recover, and show what the store holds.

    Needs no key and no network: a model that plays a script listens on loopback. Exits 0 only if every promise was
    kept. With --store the file is new and stays; otherwise it is thrown away unless --keep is given.

    Example: runlane demo --seconds 8
    """
    from runlane.cli._demo_run import run_demo  # noqa: PLC0415 - help and usage errors need nothing of a runtime

    return await run_demo(call, flags)
