"""Who this runtime is in the store: an owner with a lease, and another one if that is ever lost.

A lease that lapsed (the machine slept, the process was stopped) is lost for good: what it held may belong to somebody
else. The runtime then goes on as a new owner; runs that were executing end by what the store says of them.
"""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup, TaskStatus

from runlane.errors import RuntimeClosedError
from runlane.ids import IdSource
from runlane.store import Lease, Store

__all__ = ["Incarnation"]


class Incarnation:
    """The owner this runtime acts as."""

    def __init__(self, store: Store, ids: IdSource, /) -> None:
        """Choose an id; nothing is registered before `begin`."""
        self._store = store
        self._ids = ids
        self._lease: Lease | None = None
        self._tasks: TaskGroup | None = None
        self._closed: anyio.Event | None = None
        self._changing: anyio.Lock | None = None
        self.owner_id = ids.new("owner")
        self._former: set[str] = set()

    def is_own(self, owner_id: str | None, /) -> bool:
        """Whether an owner is, or was, this runtime."""
        return owner_id == self.owner_id or owner_id in self._former

    @property
    def is_held(self) -> bool:
        """Whether the present owner's lease is held, as far as is known without asking."""
        return self._lease is not None and self._lease.held

    async def begin(self, tasks: TaskGroup, /) -> None:
        """Register as a living owner.

        Raises:
            StoreError: The store cannot be used.
        """
        self._tasks = tasks
        self._closed, self._changing = anyio.Event(), anyio.Lock()
        self._lease = await self._register(tasks, self.owner_id)

    async def ensure(self, *, lost: bool = False) -> str:
        """Return the id of an owner whose lease is held.

        Args:
            lost: The store said that the present one is not.

        Raises:
            RuntimeClosedError: The runtime is closed.
            StoreError: The store cannot be used.
        """
        if self._changing is None:
            raise RuntimeClosedError
        async with self._changing:
            if self._lease is not None and self._lease.held and not lost:
                return self.owner_id
            if self._tasks is None:
                raise RuntimeClosedError
            owner_id = self._ids.new("owner")
            self._lease = await self._register(self._tasks, owner_id)
            self._former.add(self.owner_id)
            self.owner_id = owner_id
            return owner_id

    async def _register(self, tasks: TaskGroup, owner_id: str) -> Lease:
        with anyio.CancelScope(shield=True):  # cancelled, it would wait for the task, which waits for the end
            lease: Lease = await tasks.start(self._hold, owner_id)
        return lease

    def end(self) -> None:
        """Release every lease."""
        self._tasks = None
        if self._closed is not None:
            self._closed.set()

    async def _hold(self, owner_id: str, *, task_status: TaskStatus[Lease]) -> None:
        closed = self._closed or anyio.Event()
        with anyio.CancelScope(shield=True):
            async with self._store.hold_lease(owner_id) as lease:
                task_status.started(lease)
                await closed.wait()
