"""Operator events on their way out of the process, without a run waiting for them or failing with them.

What comes twice is left out, internal causes are taken off, the filter is asked, then there must be room.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from runlane.contracts import MaybeAwaitable, require_kind
from runlane.delivery import BoundedSink, SinkDrop, SinkError, SinkLimits, let_go
from runlane.errors import UsageError
from runlane.observability._events import RunEvent, RunStartedEvent, RunTerminalEvent, StepFinishedEvent

__all__ = ["Observability", "RunEventSink", "RunSinkConfig", "RunSinkDrop", "RunSinkError"]

RunSinkDrop: TypeAlias = SinkDrop[RunEvent]
"""An operator event that was not written, and why."""

RunSinkError: TypeAlias = SinkError[RunEvent]
"""An operator event whose filter or write failed."""

_REMEMBERED: Final = 10_000
_KINDS: Final = RunStartedEvent | StepFinishedEvent | RunTerminalEvent


class RunEventSink(Protocol):
    """Takes operator events; what it raises never reaches a run.

    A sink with a true attribute `takes_causes` is also told the error behind a failed run.
    """

    def emit(self, event: RunEvent, /) -> None:
        """Take an event at once: a run waits for the call to return."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSinkConfig(SinkLimits):
    """Where operator events go, and what happens to those that do not get there.

    Attributes:
        write: Brings an event to where it belongs; may be a coroutine function. A plain function must not block.
        filter: Whether an event is written at all; may be a coroutine function. None writes every one.
        deduplicate: Whether an event whose id is among the last 10,000 is left out.
        include_internal_causes: Whether the end of a failed run says what failed, messages of errors included.
        on_drop: Told of every event for which there was no room, or which came after the end; a plain function.
        on_sink_error: Told of every event whose filter or write failed; a plain function.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    write: Callable[[RunEvent], MaybeAwaitable[object]]
    filter: Callable[[RunEvent], MaybeAwaitable[bool]] | None = None
    deduplicate: bool = True
    include_internal_causes: bool = False
    on_drop: Callable[[RunSinkDrop], object] | None = None
    on_sink_error: Callable[[RunSinkError], object] | None = None


class Observability(BoundedSink[RunEvent]):
    """Takes the operator events of a runtime and writes them somewhere slow.

    Attributes:
        takes_causes: Whether it is told the errors behind failed runs.

    Example:
        >>> async def main(log: Log) -> None:
        ...     async with Observability(RunSinkConfig(write=log.append)) as operators:
        ...         config = RuntimeConfig(observers=(operators,))
        ...         async with AgentRuntime(store, model=model, config=config) as runtime:
        ...             await runtime.submit("a conversation", "Hi").result
    """

    def __init__(self, config: RunSinkConfig, /) -> None:
        """Prepare a sink; enter it before the first event.

        Raises:
            UsageError: `config` is none, or its filter cannot be called.
        """
        require_kind(config, RunSinkConfig, argument="config")
        if config.filter is not None and not callable(config.filter):
            raise UsageError("must be callable or None", argument="filter")
        super().__init__(
            config.write,
            limits=config,
            prepare=None if config.filter is None else _filtering(config.filter),
            on_drop=config.on_drop,
            on_sink_error=config.on_sink_error,
        )
        self.takes_causes = config.include_internal_causes
        self._seen: dict[str, None] | None = {} if config.deduplicate else None

    def emit(self, event: RunEvent, /) -> None:
        """Take an event; never waits for the write.

        Raises:
            UsageError: It is no operator event, or the sink was not entered yet.
        """
        given: object = event
        if not isinstance(given, _KINDS):
            raise UsageError(f"must be a RunEvent, not {type(given).__name__}", argument="event")
        self.require_entered()
        if self._is_known(event.event_id):
            self.leave_out("duplicates")
            return
        if isinstance(event, RunTerminalEvent) and event.internal_cause is not None and not self.takes_causes:
            event = event.model_copy(update={"internal_cause": None})
        self.offer(event)

    def _is_known(self, event_id: str) -> bool:
        """Remember an event; whether it came before. The oldest are forgotten."""
        if self._seen is None:
            return False
        if event_id in self._seen:
            return True
        self._seen[event_id] = None
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return False


class _Filtered:
    """An event on which a filter has not decided yet."""

    __slots__ = ("_answer", "_event")

    def __init__(self, event: RunEvent, answer: Awaitable[bool]) -> None:
        self._event = event
        self._answer = answer

    def __await__(self) -> Generator[Any, Any, RunEvent | None]:
        answer = yield from self._answer.__await__()
        return self._event if answer else None

    def close(self) -> None:
        """Let go of the decision; nobody will await it."""
        let_go(self._answer)


def _filtering(
    wanted: Callable[[RunEvent], MaybeAwaitable[bool]],
) -> Callable[[RunEvent], MaybeAwaitable[RunEvent | None]]:
    def prepare(event: RunEvent) -> MaybeAwaitable[RunEvent | None]:
        answer = wanted(event)
        if inspect.isawaitable(answer):
            return _Filtered(event, answer)
        return event if answer else None

    return prepare
