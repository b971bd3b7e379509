"""What the parts of one runtime share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio

from runlane.clock import Clock
from runlane.contracts import CancelToken, MaybeAwaitable, resolve, stray_ends, sync_result
from runlane.errors import UsageError
from runlane.ids import IdSource
from runlane.models import ChatProvider, ResolvedModel
from runlane.records import Message, Run
from runlane.runtime._announcing import Publishing
from runlane.runtime._config import RuntimeConfig
from runlane.runtime._conversations import Conversations
from runlane.runtime._coordinator import LaneCoordinator
from runlane.runtime._idle_watch import IdleWatch
from runlane.runtime._incarnation import Incarnation
from runlane.runtime._interrupt_watch import InterruptWatch
from runlane.runtime._steps import RunContext, resolved_model
from runlane.runtime._store_calls import StoreCalls
from runlane.runtime._turn import ChooseDriver, TurnDriver
from runlane.runtime._work import Work
from runlane.tools import ToolRegistry

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
    """What the recoveries of one conversation have yet to deal with; lets tasks wait for their next step.

    Attributes:
        left: By recovery, the runs it has not dealt with.
        passed: Runs that a recovery was to deal with, and does not come back to.
        held_up: Recoveries that come to no other run before this one is acquired, or found to have ended.
    """

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self._event = anyio.Event()
        self.left: dict[object, set[str]] = {}
        self.passed: set[str] = set()
        self.held_up: dict[object, Work] = {}

    def comes_to(self, run_id: str, /) -> bool:
        """Whether a recovery will deal with a run, whatever becomes of those that wait for it."""
        return any(run_id in run_ids for by, run_ids in self.left.items() if by not in self.held_up)

    def awaits(self, run_id: str, /) -> bool:
        """Whether a recovery has yet to deal with a run."""
        return any(run_id in run_ids for run_ids in self.left.values())

    def has_passed(self, run_id: str, work: Work, /) -> bool:
        """Whether a recovery's own work is behind a run that was left behind as well, and that nobody comes back to."""
        return run_id in self.passed and any(work is own for own in self.held_up.values())

    def pass_by(self, by: object, run_id: str, /) -> None:
        """Note that a recovery has dealt with a run."""
        self.left[by].discard(run_id)
        self.passed.add(run_id)
        self.step()

    def before(self, run_id: str, /) -> list[Work]:
        """Return what has to be acquired before a recovery deals with a run."""
        return [work for by, work in self.held_up.items() if run_id in self.left.get(by, ())]

    def step(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = anyio.Event()

    async def wait(self) -> None:
        """Wait for the next step."""
        await self._event.wait()


@dataclass(eq=False, slots=True, kw_only=True)
class RuntimeCore:
    """The tools and facts every part of a runtime works with.

    Attributes:
        incarnation: Who this runtime is in the store.
        here: Runs that wait or execute in this runtime, by (conversation id, run id).
        tools: What models may call, sealed; None for nothing.
        conversations: What is underway in each conversation.
        spoken: Of runs whose execution here was left without an end: its owner, and how many transient events it told.
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
    interrupt_watch: InterruptWatch
    driver: TurnDriver | ChooseDriver
    model: ModelSource
    instructions: str | None
    tools: ToolRegistry[Any] | None = None
    here: dict[tuple[str, str], Work] = field(default_factory=dict)
    conversations: Conversations = field(default_factory=Conversations)
    spoken: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    recovering: dict[str, Progress] = field(default_factory=dict)

    @property
    def owner_id(self) -> str:
        """Signs the runs it executes; also the epoch of their transient events."""
        return self.incarnation.owner_id

    @property
    def given_model(self) -> ResolvedModel | None:
        """The model that answers every run; None if a callable chooses."""
        model = self.model
        return resolved_model(model, "model") if isinstance(model, ChatProvider | ResolvedModel) else None

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
        current = None if work is None else self.lanes.current(work.lane)
        if work is None or current is None or current is not work.item:
            return None
        return current.token

    def lane_of(self, conversation_id: str, context: object, /) -> str:
        """Return the name of a conversation's lane.

        Raises:
            UsageError: `runs.key` gave something else than a name.
        """
        choose = self.config.runs.key
        if choose is None:
            return conversation_id
        with stray_ends("runs.key"):
            name: object = sync_result(choose(conversation_id, context), argument="runs.key")
        if not isinstance(name, str) or not name:
            got = "an empty one" if isinstance(name, str) else type(name).__name__
            raise UsageError(f"must give the name of a lane, not {got}", argument="runs.key")
        return name

    def waits(self, conversation_id: str, run_id: str, /) -> bool:
        """Whether a run waits in its lane here."""
        work = self.here.get((conversation_id, run_id))
        return work is not None and work.item is not None and self.lanes.is_waiting(work.lane, work.item)

    def driver_of(self, context: RunContext[object], /) -> TurnDriver:
        """Return who answers a run.

        Raises:
            UsageError: The function that chooses gave something else than a driver.
        """
        given: Any = self.driver
        if not callable(getattr(given, "drive", None)):
            given = sync_result(given(context), argument="driver")
        if not callable(getattr(given, "drive", None)):
            raise UsageError(f"must choose a TurnDriver, not {type(given).__name__}", argument="driver")
        driver: TurnDriver = given
        return driver
