"""What the parts of one runtime share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from runlane.clock import Clock
from runlane.contracts import CancelToken, MaybeAwaitable, resolve
from runlane.ids import IdSource
from runlane.models import ChatProvider, ResolvedModel
from runlane.records import Message, Run
from runlane.runtime._announcing import Publishing
from runlane.runtime._config import RuntimeConfig
from runlane.runtime._coordinator import LaneCoordinator, LaneItem
from runlane.runtime._idle_watch import IdleWatch
from runlane.runtime._incarnation import Incarnation
from runlane.runtime._promise import Promise
from runlane.runtime._steps import resolved_model
from runlane.runtime._store_calls import StoreCalls
from runlane.runtime._tickets import RunResult
from runlane.runtime._turn import TurnDriver

__all__ = ["ModelRequest", "ModelSource", "Progress", "RuntimeCore", "Work"]

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class ModelRequest(Generic[C]):
    """What a model callable is told of the run that needs a model.

    Attributes:
        context: The application's own value, as given to `submit`.
        inputs: The run's own input messages; their metadata may pin a model.
    """

    context: C
    conversation_id: str
    run: Run
    inputs: Sequence[Message]


ModelSource = (
    ChatProvider | ResolvedModel | Callable[[ModelRequest[object]], MaybeAwaitable[ChatProvider | ResolvedModel]]
)
"""A model, or a function (plain or coroutine) that chooses one for each run."""


class Progress:
    """Lets tasks wait for the next step of something."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._event = anyio.Event()

    def step(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait for the next step."""
        await self._event.wait()


@dataclass(eq=False, slots=True, kw_only=True)
class Work:
    """A run that is to be executed here.

    Attributes:
        run: As last known.
        context: The application's own value.
        item: Its place in the lane, once it has one.
    """

    run: Run
    context: object
    result: Promise[RunResult] = field(default_factory=Promise)
    accepted: Promise[object] = field(default_factory=Promise)
    item: LaneItem | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class RuntimeCore:
    """The tools and facts every part of a runtime works with.

    Attributes:
        incarnation: Who this runtime is in the store.
        here: Runs that wait or execute in this runtime, by (conversation id, run id).
        recovering: Conversations whose leftover runs are being dealt with at this moment.
    """

    incarnation: Incarnation
    calls: StoreCalls
    clock: Clock
    ids: IdSource
    config: RuntimeConfig
    publishing: Publishing
    lanes: LaneCoordinator
    idle_watch: IdleWatch
    driver: TurnDriver
    model: ModelSource
    instructions: str | None
    here: dict[tuple[str, str], Work] = field(default_factory=dict)
    recovering: dict[str, Progress] = field(default_factory=dict)

    @property
    def owner_id(self) -> str:
        """Signs the runs it executes; also the epoch of their transient events."""
        return self.incarnation.owner_id

    async def resolve_model(self, request: ModelRequest[object], /) -> ResolvedModel:
        """Return the model that answers a run.

        Raises:
            UsageError: The callable returned something else than a model.
        """
        model: object = self.model
        if not isinstance(model, ChatProvider | ResolvedModel) and callable(model):
            chosen: Awaitable[object] | object = model(request)
            model = await resolve(chosen)
        return resolved_model(model, "model")

    def token_of(self, conversation_id: str, run_id: str, /) -> CancelToken | None:
        """Return the token of a run that executes in this runtime at this moment."""
        work = self.here.get((conversation_id, run_id))
        current = self.lanes.current(conversation_id)
        if work is None or current is None or current is not work.item:
            return None
        return current.token
