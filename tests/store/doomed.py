"""What a process does until it is killed: turns on several lanes at once, each promise sent to its parent."""

from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import Final

import anyio

from runlane.records import Ownership
from runlane.store import Applied, Store
from runlane.store.sqlite import SqliteStore
from tests.store.turns import send, turn

LANES: Final = 4


def work_until_killed(parent: Connection, path: str, seed: int) -> None:
    """Work on a store without end; says `("ready", "")` first, then (conversation id, command id) for each promise."""
    anyio.run(_work, parent, path, seed)


async def _work(parent: Connection, path: str, seed: int) -> None:
    owner = f"process-{seed}"
    async with SqliteStore(path) as store, store.hold_lease(owner), anyio.create_task_group() as group:
        parent.send(("ready", ""))
        for lane in range(LANES):
            group.start_soon(partial(_lane, parent, store, f"{seed}-{lane}", owner))


async def _lane(parent: Connection, store: Store, conversation_id: str, owner: str) -> None:
    owned: dict[str, Ownership] = {}
    for number in count():
        for commands in turn(conversation_id, f"run-{number}", owner):
            assert isinstance(await send(store, conversation_id, commands, owned), Applied)
            for command in commands:
                parent.send((conversation_id, command.command_id))
