"""What `submit` hands back: a ticket, and what its promises hold."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Protocol

from runlane.delivery import Subscription
from runlane.records import (
    AssistantPlaceholder,
    Message,
    Run,
    RunMetrics,
    TerminalReason,
    ToolApprovalRequestPart,
)
from runlane.runtime._promise import Promise

__all__ = ["Admission", "Listening", "RecordIds", "RunResult", "RunTicket"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIds:
    """The ids of the records a submission creates, when the application chooses them: all three or none."""

    input_message_id: str
    run_id: str
    assistant_message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """An input is durable: from here on it is not lost.

    Attributes:
        input: The input as stored; of a repeated key, the first one's.
        run: The run that answers it, as it was at admission; of a repeated key, as it is now.
        assistant: A placeholder for the answer, or the answer if a repeated key's run has ended.
        snapshot_version: The conversation version of the admission; of a repeated key, the current one.
        is_duplicate: Whether the idempotency key was known.
        input_matches: Of a repeated key: whether the repeated input says the same as the first.
    """

    input: Message
    run: Run
    assistant: AssistantPlaceholder | Message
    snapshot_version: int
    is_duplicate: bool = False
    input_matches: bool = True

    @property
    def input_message_id(self) -> str:
        """The input's id."""
        return self.input.id

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.run.id

    @property
    def assistant_message_id(self) -> str:
        """The id reserved for the answer."""
        return self.run.assistant_message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """How a run ended.

    Attributes:
        message: The answer as stored; of a run that failed or was cut off, what there is of it.
        reason: Why it ended; `success`, `policy_stop` and `provider_stop` are completed answers.
        snapshot_version: The conversation version the end was read or written at.
        policy_name: The stop policy that fired, with reason `policy_stop`.
        metrics: Spend and durations; only from the execution that wrote the end.
        error: What failed, as far as this execution saw it; never stored, so it may be None for a failed run.
    """

    run: Run
    message: Message
    reason: TerminalReason
    snapshot_version: int
    policy_name: str | None = None
    metrics: RunMetrics | None = None
    error: Exception | None = None

    @property
    def text(self) -> str:
        """The visible text of the answer."""
        return self.message.text

    @property
    def approvals(self) -> tuple[ToolApprovalRequestPart, ...]:
        """What somebody has to agree to before the model goes on; see `AgentRuntime.respond_to_approval`."""
        parts = self.message.parts
        requests = (part for part in parts if isinstance(part, ToolApprovalRequestPart))
        return tuple(request for request in requests if not request.is_automatic)


class Listening(Protocol):
    """How a ticket starts to listen."""

    def __call__(self, conversation_id: str, run_id: str, after: int | None, /) -> Subscription: ...


class RunTicket:
    """A submitted input on its way: three promises and the events of its run.

    Each promise may be awaited by several tasks, or by nobody: then a failure is never reported anywhere.

    Attributes:
        conversation_id: The conversation.
        idempotency_key: The key under which the input was submitted, given or made.
        admission: Settles with the `Admission` once the input is committed.
        accepted: The same, once its events were also published.
        result: Settles with the `RunResult` once the run has ended, whatever its reason; rejects when the run did not
            end here: the store refused the input, the runtime closed, or another executor holds the run.
    """

    __slots__ = (
        "__weakref__",
        "_listen",
        "_replay_from",
        "_run_id",
        "_subscriptions",
        "accepted",
        "admission",
        "conversation_id",
        "idempotency_key",
        "result",
    )

    def __init__(self, conversation_id: str, idempotency_key: str, run_id: str, listen: Listening, /) -> None:
        """Made by `AgentRuntime.submit`."""
        self.conversation_id = conversation_id
        self.idempotency_key = idempotency_key
        self.admission: Promise[Admission] = Promise()
        self.accepted: Promise[Admission] = Promise()
        self.result: Promise[RunResult] = Promise()
        self._run_id = run_id
        self._replay_from = 0
        self._listen = listen
        self._subscriptions: weakref.WeakSet[Subscription] | None = None

    @property
    def run_id(self) -> str:
        """The run that answers; final once `admission` settled, for a repeated key names the first one's."""
        return self._run_id

    def events(self) -> Subscription:
        """Listen to this run until it ends.

        Called right after `submit` nothing is missed. Called later, the durable events from before are rebuilt first.
        The iteration also ends when the ticket fails; `await ticket.result` then says why.

        Example:
            >>> async def show(ticket: RunTicket) -> None:
            ...     async for event in ticket.events():
            ...         print(event)
        """
        after = None
        if self.admission.done and self.admission.error is None:
            after = self._replay_from
        subscription = self._listen(self.conversation_id, self._run_id, after)
        if self.result.done:
            subscription.close_source()
        elif self._subscriptions is None:
            self._subscriptions = weakref.WeakSet((subscription,))
        else:
            self._subscriptions.add(subscription)
        return subscription

    def admit(self, admission: Admission, replay_from: int, /) -> None:
        """Settle `admission`, and turn listeners to the run that really answers."""
        self._run_id = admission.run_id
        self._replay_from = replay_from
        for subscription in tuple(self._subscriptions or ()):
            subscription.narrow(admission.run_id)
            if admission.is_duplicate:
                subscription.rewind(replay_from)
        self.admission.resolve(admission)

    def resolve(self, result: RunResult, /) -> None:
        """Settle `result` with what is known."""
        self.result.resolve(result)
        self._hang_up()

    def follow(self, result: Promise[RunResult], /) -> None:
        """Settle `result` as another one did."""
        self.result.follow(result)
        self._hang_up()

    def reject(self, error: Exception, /) -> None:
        """Reject what is not settled yet."""
        self.admission.reject(error)
        self.accepted.reject(error)
        self.result.reject(error)
        self._hang_up()

    def _hang_up(self) -> None:
        for subscription in tuple(self._subscriptions or ()):
            subscription.close_source()
        self._subscriptions = None
