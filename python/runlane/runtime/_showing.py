"""How the records of a run are shown to its model: its history, and inputs that join it later.

Files are fetched before a projection, each once in a run, however often its prompt is made.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from runlane.contracts import resolve
from runlane.history import RUNTIME_EVIDENCE, History, ProjectionOptions, ResolvedFiles, resolve_files
from runlane.models import AnyModelMessage
from runlane.records import Message
from runlane.runtime._config import RuntimeConfig
from runlane.runtime._steps import checked_messages
from runlane.runtime._work import Work

__all__ = ["Showing"]

UnresolvedFile: TypeAlias = Literal["omit", "text", "error"]


@functools.lru_cache(maxsize=64)
def _projection(unresolved_file: UnresolvedFile, provider: str | None) -> ProjectionOptions:
    """Return how a prompt is projected: opaque output goes back to the wire protocol that gave it."""
    return ProjectionOptions(evidence_policy=RUNTIME_EVIDENCE, unresolved_file=unresolved_file, provider=provider)


class Showing:
    """Shows records to the model of one run, as the configuration says."""

    def __init__(self, config: RuntimeConfig, work: Work, /) -> None:
        """Show records for a run."""
        self._config = config
        self._work = work

    def options(self, provider: str | None = None, /) -> ProjectionOptions:
        """Return how records are projected for a wire protocol."""
        return _projection(self._config.files.unresolved, provider)

    async def files(self, records: History | Iterable[Message], /) -> ResolvedFiles | None:
        """Return the files of records that the run did not fetch before, with those it did; None without a resolver.

        Raises:
            Exception: What the resolver raised.
        """
        resolver = self._config.files.resolve
        if resolver is None:
            return None
        self._work.files = await resolve_files(records, resolver, known=self._work.files)
        return self._work.files

    async def own(self, messages: Sequence[Message], /) -> tuple[AnyModelMessage, ...] | None:
        """Return what the application's own projection makes of records; None if there is none.

        Raises:
            UsageError: It made something no provider would take.
            Exception: What it raised.
        """
        project = self._config.history.project
        if project is None:
            return None
        return checked_messages(await resolve(project(messages, self._work.context)), "history.project")

    async def inputs(self, messages: Sequence[Message], /) -> tuple[AnyModelMessage, ...]:
        """Return how inputs are shown that join the run: by themselves, after what was said already.

        Raises:
            Exception: A file of theirs is missing and may not be, or a callback of the application raised.
        """
        own = await self.own(messages)
        if own is not None:
            return own
        history = History([message.model_dump_json(exclude_none=True).encode() for message in messages])
        return tuple(history.project(self.options(), files=await self.files(history)).messages)
