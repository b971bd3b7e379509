"""Where the runtime's tasks live: beside whoever entered it, not inside.

A task group entered by the runtime itself would shield its user's code, or hand the user's cancellation to runs in the
middle of a commit. So the group lives in a task of its own: the user's code stays cancellable, and the tasks end when
they are told to, with a reason.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup, TaskStatus

__all__ = ["TaskHost"]


class TaskHost:
    """A task group that the cancellation of its surroundings does not reach; leaving waits for its tasks."""

    def __init__(self) -> None:
        """Prepare; nothing starts before it is entered."""
        self._outer: TaskGroup | None = None
        self._stopped: anyio.Event | None = None
        self._tasks: TaskGroup | None = None

    @property
    def tasks(self) -> TaskGroup | None:
        """The group, while it is entered."""
        return self._tasks

    async def __aenter__(self) -> Self:
        """Start."""
        self._stopped = anyio.Event()
        self._outer = anyio.create_task_group()
        await self._outer.__aenter__()
        with anyio.CancelScope(shield=True):  # a start that is cancelled waits for the task, which waits for the end
            self._tasks = await self._outer.start(self._live)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Wait for the tasks that are left; what the surroundings raise goes on as it is."""
        if self._outer is not None and self._stopped is not None:
            self._stopped.set()
            await self._outer.__aexit__(None, None, None)
        self._tasks = None

    def cancel(self) -> None:
        """Cancel every task."""
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _live(self, *, task_status: TaskStatus[TaskGroup]) -> None:
        stopped = self._stopped or anyio.Event()
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                task_status.started(tasks)
                await stopped.wait()
