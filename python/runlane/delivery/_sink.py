"""Delivery events on their way out of the process: checked, shaped, and written without a run waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runlane.contracts import MaybeAwaitable, require_kind
from runlane.delivery._bounded import BoundedSink, SinkDrop, SinkError, SinkLimits
from runlane.delivery._events import DurableEvent, RuntimeEvent, TransientEvent
from runlane.errors import InvalidValueError, UsageError

__all__ = ["EventSink", "EventSinkConfig", "check_event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSinkConfig(SinkLimits):
    """Where events go, and what happens to those that do not get there.

    Attributes:
        write: Brings an event to its transport; may be a coroutine function. A plain function must not block.
        project: Changes an event before it is written, or leaves it out by returning None; may be a coroutine
            function. What it returns is checked again. None writes events as they are.
        on_drop: Told of every event for which there was no room, or which came after the end; a plain function.
        on_sink_error: Told of every event that could not be projected or written; a plain function.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    write: Callable[[RuntimeEvent], MaybeAwaitable[object]]
    project: Callable[[RuntimeEvent], MaybeAwaitable[RuntimeEvent | None]] | None = None
    on_drop: Callable[[SinkDrop[RuntimeEvent]], object] | None = None
    on_sink_error: Callable[[SinkError[RuntimeEvent]], object] | None = None


class EventSink(BoundedSink[RuntimeEvent]):
    """Takes the events of a runtime and writes them somewhere slow; `publish` is a `DeliveryConfig.publisher`.

    Example:
        >>> async def main(transport: Transport) -> None:
        ...     async with EventSink(EventSinkConfig(write=transport.send)) as sink:
        ...         config = RuntimeConfig(delivery=DeliveryConfig(publisher=sink.publish))
        ...         async with AgentRuntime(store, model=model, config=config) as runtime:
        ...             await runtime.submit("a conversation", "Hi").result
    """

    def __init__(self, config: EventSinkConfig, /) -> None:
        """Prepare a sink; enter it before the first event."""
        require_kind(config, EventSinkConfig, argument="config")
        super().__init__(
            config.write,
            limits=config,
            prepare=config.project,
            check=check_event,
            on_drop=config.on_drop,
            on_sink_error=config.on_sink_error,
        )

    def publish(self, event: RuntimeEvent, /) -> None:
        """Take an event; never waits for the transport.

        Raises:
            UsageError: It is no event, or the sink was not entered yet.
            InvalidValueError: A field of it has no meaning; names the field.
        """
        check_event(event)
        self.offer(event)


_KINDS: Final = DurableEvent | TransientEvent


def check_event(event: RuntimeEvent, /) -> RuntimeEvent:
    """Return an event as it is, if it is one.

    Raises:
        UsageError: It is no event, or a field has the wrong type; names the field.
        InvalidValueError: A field has no meaning; names the field.
    """
    given: object = event
    if not isinstance(given, _KINDS):
        raise UsageError(f"must be a RuntimeEvent, not {type(given).__name__}", argument="event")
    _check_text(event.conversation_id, "event.conversation_id")
    _check_text(event.run_id, "event.run_id")
    if event.emitted_at.tzinfo is None:
        raise InvalidValueError("must be aware", argument="event.emitted_at")
    if isinstance(event, DurableEvent):
        _check_number(event.snapshot_version, "event.snapshot_version", least=0)
    else:
        _check_text(event.runtime_epoch, "event.runtime_epoch")
        _check_number(event.sequence, "event.sequence", least=1)
    return event


def _check_text(value: object, argument: str) -> None:
    if not isinstance(value, str):
        raise UsageError("must be a text", argument=argument)
    if not value:
        raise InvalidValueError("is empty", argument=argument)


def _check_number(value: object, argument: str, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError("must be an integer", argument=argument)
    if value < least:
        raise InvalidValueError(f"must be at least {least}", argument=argument)
