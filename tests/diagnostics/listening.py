"""Consumers that write down what they get."""

from collections.abc import Awaitable, Callable

from runlane.diagnostics import CoreEvent, CoreEventDescriptor, ExecutionEventDescriptor


class Watcher:
    """An observer that takes what `wanted` says and keeps it."""

    def __init__(
        self,
        wanted: Callable[[ExecutionEventDescriptor], bool] = lambda _: True,
        then: Callable[[CoreEvent], Awaitable[None] | None] = lambda _: None,
    ) -> None:
        self.events: list[CoreEvent] = []
        self._wanted = wanted
        self._then = then

    def accepts(self, descriptor: ExecutionEventDescriptor, /) -> bool:
        """Ask `wanted`."""
        return self._wanted(descriptor)

    def on_event(self, event: CoreEvent, /) -> Awaitable[None] | None:
        """Keep the event, then do what the test wants."""
        self.events.append(event)
        return self._then(event)


class Log:
    """An output that takes what `wanted` says and keeps it."""

    def __init__(
        self,
        wanted: Callable[[CoreEventDescriptor], bool] = lambda _: True,
        then: Callable[[CoreEvent], None] = lambda _: None,
    ) -> None:
        self.events: list[CoreEvent] = []
        self._wanted = wanted
        self._then = then

    def accepts(self, descriptor: CoreEventDescriptor, /) -> bool:
        """Ask `wanted`."""
        return self._wanted(descriptor)

    async def write(self, event: CoreEvent, /) -> None:
        """Keep the event, then do what the test wants."""
        self.events.append(event)
        self._then(event)
