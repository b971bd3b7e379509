"""Every option of a runtime, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from runlane.contracts import require_sync
from runlane.errors import UsageError
from runlane.models import RetryPolicy
from runlane.observability import RunEventSink
from runlane.runtime._config_checks import check_observers, one_of, seconds, whole
from runlane.runtime._courier import OnPublishError, Publisher
from runlane.runtime._files import FilesConfig
from runlane.runtime._history_config import HistoryConfig, PromptConfig
from runlane.runtime._policies import ChoosePolicy, InputPolicy, LaneKey, Preflight, check_policy
from runlane.runtime._protocol import AgentProtocol
from runlane.runtime._steps import PrepareStep, StopPolicy, check_stop_policies
from runlane.runtime._tools_config import ToolsConfig
from runlane.runtime._turn import ChooseDriver, TurnDriver

__all__ = [
    "CloseConfig",
    "DeliveryConfig",
    "HistoryConfig",
    "LoopConfig",
    "PromptConfig",
    "RecoveryConfig",
    "RunsConfig",
    "RuntimeConfig",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopConfig:
    """How a run is answered.

    Attributes:
        checkpoint_every_events: Stream parts after which what streamed is made durable; 20. Tool calls, their results
            and the end of a step are made durable whatever the count.
        checkpoint_min_interval: Seconds between two such checkpoints at least, or None for no spacing. A larger value
            saves commits and costs that much more text after a crash.
        max_steps: Provider calls of one run at most; 50. A run that would need more ends as `policy_stop` with the
            policy name `max-steps`. A call that failed and is tried again counts once.
        idle_timeout: Seconds of silence of an open provider call after which the run ends with reason `timeout`; 60.
            None waits for ever. The time between steps does not count. A provider that watches its connection itself
            decides what silence is: comments that keep a stream alive are none.
        retry: Which failures of the provider are tried again, or None for none. An attempt that made a tool call is
            never repeated. Silence is such a failure too.
        stop_policies: Asked in this order after each step that is not the last by itself, once `max_steps` was; the
            first that says so ends the run as `policy_stop` under its name.
        prepare_step: Asked before each provider call what to change about it, or None. With it a run takes one commit
            more: its first request is recorded only once it is prepared.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    checkpoint_every_events: int = 20
    checkpoint_min_interval: float | None = None
    max_steps: int = 50
    idle_timeout: float | None = 60.0
    retry: RetryPolicy | None = None
    stop_policies: tuple[StopPolicy, ...] = ()
    prepare_step: PrepareStep | None = None

    def __post_init__(self) -> None:
        whole(self.checkpoint_every_events, "loop.checkpoint_every_events")
        seconds(self.checkpoint_min_interval, "loop.checkpoint_min_interval", optional=True)
        whole(self.max_steps, "loop.max_steps")
        seconds(self.idle_timeout, "loop.idle_timeout", optional=True)
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise UsageError("must be a RetryPolicy or None", argument="loop.retry")
        check_stop_policies(self.stop_policies, "loop.stop_policies")
        if self.prepare_step is not None and not callable(self.prepare_step):
            raise UsageError("must be callable or None", argument="loop.prepare_step")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryConfig:
    """How runs of executors that are gone are taken over.

    Attributes:
        max_takeovers: A run that was taken over this often already is abandoned instead of tried again; 3 (1 to 10).

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    max_takeovers: int = 3

    def __post_init__(self) -> None:
        whole(self.max_takeovers, "recovery.max_takeovers", most=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryConfig:
    """How events reach listeners.

    Attributes:
        capacity: Events a subscriber may be behind before it loses transient ones and gets a `Gap`, and a publisher
            before it misses some; 1,000.
        publisher: Called with every event, in order, or None. It may be a coroutine function: what it leaves to await
            is awaited beside the runs, one event after another. A plain function is called on the way of a run and
            must not block. What it raises never fails a run.
        on_publish_error: Called with the event and the error when the publisher raised, took longer than 30 seconds
            for an event, or was `capacity` events behind and missed one (a `BudgetError`); or None.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    capacity: int = 1000
    publisher: Publisher | None = None
    on_publish_error: OnPublishError | None = None

    def __post_init__(self) -> None:
        whole(self.capacity, "delivery.capacity")
        for name in ("publisher", "on_publish_error"):
            value: object = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError("must be callable or None", argument=f"delivery.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseConfig:
    """What leaving `async with AgentRuntime(...)` does to runs that still execute.

    Attributes:
        grace: Seconds they may finish by themselves; 0 by default: they are told to stop at once and end with reason
            `shutdown`, keeping what they said.
        force: Seconds to wait for them after that; 10. None waits as long as it takes.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    grace: float = 0.0
    force: float | None = 10.0

    def __post_init__(self) -> None:
        seconds(self.grace, "close.grace", optional=False, zero=True)
        seconds(self.force, "close.force", optional=True, zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsConfig:
    """How inputs become runs.

    Attributes:
        policy: What an input does to the run that executes when it comes in: an `InputPolicy`, or a function that
            chooses one for each `SubmittedInput`; `queue`. `submit` may say otherwise for one input.
        key: Names the lane of a conversation (`LaneKey`), or None: the conversation is the lane. It may put several
            conversations into one lane, never one into several; that is checked.
        coalesce_pending: Whether inputs that come in while a run executes share one successor, which answers them
            together; False. Inputs under `interrupt-next` keep a run of their own. A shared run has the context and
            the request of its first input.
        preflight: Checks an input before it is written, whether there is a model for it for instance, or None. It may
            be a coroutine function and may take its time, for which later inputs of the conversation wait. What it
            raises is what the ticket is rejected with, and then nothing is written.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    policy: InputPolicy | ChoosePolicy = "queue"
    key: LaneKey | None = None
    coalesce_pending: bool = False
    preflight: Preflight | None = None

    def __post_init__(self) -> None:
        if callable(self.policy):
            require_sync(self.policy, argument="runs.policy")
        else:
            check_policy(self.policy, "runs.policy")
        for name in ("key", "preflight"):
            value: object = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError("must be callable or None", argument=f"runs.{name}")
        if self.key is not None:
            require_sync(self.key, argument="runs.key")
        if not isinstance(self.coalesce_pending, bool):
            raise UsageError("must be True or False", argument="runs.coalesce_pending")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """The options of a runtime; every default is meant for production.

    Attributes:
        runs: How inputs become runs: their policy, their lane, whether they share one.
        loop: How a run is answered.
        prompt: What a model is told beside the history.
        history: How much of a conversation is read, kept at hand and shown, and how it is compacted.
        recovery: How runs of executors that are gone are taken over.
        delivery: How events reach listeners.
        files: What happens to files.
        tools: How tools behave: approvals, calls of unknown outcome, failures.
        close: What leaving the runtime's context does.
        observers: Who is told of executions, their calls of models and their spend (`runlane.observability`), in this
            order. What they raise is dropped; they are called on the way of a run, so they hand over and return.
        protocol: The shape of contexts and metadata, and what counts as an answer; by default anything does.
        key_reuse: What a repeated idempotency key with a *different* input gets: `return` the first admission (the
            ticket's `admission.input_matches` is False), or `refuse` with `RuntimeConflictError`.
        driver: Who answers a run: a `TurnDriver`, or a plain function that chooses one by the `RunContext` of each
            execution; None for the managed model loop.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.

    Example:
        >>> RuntimeConfig(loop=LoopConfig(max_steps=8)).loop.max_steps
        8
    """

    runs: RunsConfig = field(default_factory=RunsConfig)
    loop: LoopConfig = field(default_factory=LoopConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    delivery: DeliveryConfig = field(default_factory=DeliveryConfig)
    files: FilesConfig = field(default_factory=FilesConfig)
    close: CloseConfig = field(default_factory=CloseConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    observers: tuple[RunEventSink, ...] = ()
    protocol: AgentProtocol[Any] = field(default_factory=AgentProtocol)
    key_reuse: Literal["return", "refuse"] = "return"
    driver: TurnDriver | ChooseDriver | None = None

    def __post_init__(self) -> None:
        kinds: tuple[tuple[str, type], ...] = (
            ("runs", RunsConfig),
            ("loop", LoopConfig),
            ("prompt", PromptConfig),
            ("history", HistoryConfig),
            ("recovery", RecoveryConfig),
            ("delivery", DeliveryConfig),
            ("files", FilesConfig),
            ("tools", ToolsConfig),
            ("protocol", AgentProtocol),
            ("close", CloseConfig),
        )
        for name, kind in kinds:
            if not isinstance(getattr(self, name), kind):
                raise UsageError(f"must be a {kind.__name__}", argument=name)
        check_observers(self.observers, "observers")
        one_of(self.key_reuse, "key_reuse", ("return", "refuse"))
        drive: Callable[..., object] | None = getattr(self.driver, "drive", None)
        if self.driver is not None and not callable(drive):
            choose: Any = self.driver
            if not callable(choose):
                raise UsageError("must be a TurnDriver, or a function that chooses one", argument="driver")
            require_sync(choose, argument="driver")
