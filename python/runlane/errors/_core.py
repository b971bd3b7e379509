"""Checks, policies, registries, and the definition and running of workflows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from typing_extensions import override

from runlane.errors._base import CommandRefusedError, RunlaneError, UsageError

__all__ = [
    "CheckFailedError",
    "DuplicateRegistrationError",
    "EngineBindingError",
    "EngineBusyError",
    "EngineTimeoutError",
    "MissingEntryError",
    "OutOfTurnError",
    "PolicyRejectedError",
    "PreparedCallError",
    "RegistrySealedError",
    "RunnerBusyError",
    "WorkflowContractError",
]


class IssueFacts(Protocol):
    """What an error says of one thing that is wrong; `runlane.contracts.Issue` satisfies it."""

    @property
    def code(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def path(self) -> tuple[str | int, ...] | None: ...


class CheckFailedError(RunlaneError):
    """A value does not pass its checks. The message is always the same; the reasons are in `issues`.

    Attributes:
        issues: What is wrong, at least one.
    """

    code = "check.failed"
    retryable: bool | None = False

    def __init__(self, *, issues: Iterable[IssueFacts]) -> None:
        super().__init__("the value does not pass its checks; see issues")
        self.issues = tuple(issues)
        if not self.issues:
            raise UsageError("a failed check has at least one issue", argument="issues")


class PolicyRejectedError(RunlaneError):
    """A rule of the application refuses what was asked."""

    code = "policy.rejected"
    retryable: bool | None = False


class WorkflowContractError(RunlaneError):
    """The definition of a workflow, or the code it calls, breaks a rule. Nothing retries it, and no recovery sees it.

    Attributes:
        workflow_id: The workflow, if it has a name yet.
        node_id: The node at fault, if it is one node's.
        rule: Which rule, such as `unbounded_cycle`.
        others: What else is wrong with the same definition, each as an error of its own.
    """

    code = "workflow.contract"
    retryable: bool | None = False

    def __init__(
        self,
        message: str,
        *,
        rule: str,
        workflow_id: str | None = None,
        node_id: str | None = None,
        others: Iterable[WorkflowContractError] = (),
    ) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule
        self.workflow_id = workflow_id
        self.node_id = node_id
        self.others = tuple(others)


class DuplicateRegistrationError(CommandRefusedError):
    """A registry knows the key already; it was left as it is.

    Attributes:
        registry: The registry's name.
        key: The key.
    """

    code = "registry.duplicate"

    def __init__(self, *, registry: str, key: str) -> None:
        super().__init__(f"{registry} has {key!r} already; register it under another id")
        self.registry = registry
        self.key = key


class RegistrySealedError(CommandRefusedError):
    """A registry is sealed and takes no more.

    Attributes:
        registry: The registry's name.
        key: What should have been registered.
    """

    code = "registry.sealed"

    def __init__(self, *, registry: str, key: str) -> None:
        super().__init__(f"{registry} is sealed; register {key!r} before it is sealed")
        self.registry = registry
        self.key = key


class EngineBindingError(CommandRefusedError):
    """A slot of an engine cannot be bound: it is bound already, the engine has run, or the value does not fit.

    Attributes:
        slot: `model`, `tools` or `workflow`.
    """

    code = "engine.binding"

    def __init__(self, message: str, *, slot: str) -> None:
        super().__init__(f"{slot}: {message}")
        self.slot = slot


class EngineBusyError(CommandRefusedError):
    """An engine runs one run at a time; the one that is under way is unharmed."""

    code = "engine.busy"

    def __init__(self, message: str = "the engine is running; wait for the end of its run, or make another") -> None:
        super().__init__(message)


class EngineTimeoutError(RunlaneError, TimeoutError):
    """A run of an engine took longer than its caller allows.

    Attributes:
        timeout: The limit, in seconds.
    """

    code = "engine.timeout"
    retryable: bool | None = None

    def __init__(self, *, timeout: float) -> None:
        super().__init__(f"the run took longer than {timeout:g} s")
        self.timeout = timeout


class RunnerBusyError(CommandRefusedError):
    """A model runner makes one call at a time; the one that is under way is unharmed."""

    code = "model.runner_busy"

    def __init__(self, message: str = "a call is in flight; wait for its end, or use a child runner") -> None:
        super().__init__(message)


class PreparedCallError(CommandRefusedError):
    """A prepared call cannot be made.

    Attributes:
        problem: `spent` (it was made before) or `foreign` (another runner prepared it).
    """

    code = "model.prepared_call"

    def __init__(self, *, problem: str) -> None:
        super().__init__(f"the prepared call is {problem}; prepare a new one with this runner")
        self.problem = problem


class OutOfTurnError(UsageError, RuntimeError):
    """Something was used after its time, or from within itself. Also a `RuntimeError`."""

    code = "usage.out_of_turn"


class MissingEntryError(UsageError, KeyError):
    """Nothing is there under that id. Also a `KeyError`.

    Attributes:
        key: The id.
    """

    code = "usage.missing_entry"

    def __init__(self, *, argument: str, key: object) -> None:
        super().__init__(f"there is nothing under {key!r}", argument=argument)
        self.key = key

    @override
    def __str__(self) -> str:
        """Return the message, which a `KeyError` would show in quotes."""
        return Exception.__str__(self)
