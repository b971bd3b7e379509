"""What all rounds, visits and nested workflows of one run of an engine share."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from runlane.clock import Clock
from runlane.contracts import (
    AttemptBudget,
    CancelToken,
    ExecutionOptions,
    Id,
    InvocationStatus,
    sync_result,
)
from runlane.diagnostics import BudgetRefused, DiagnosticContext
from runlane.errors import BudgetError, UsageError, WorkflowContractError
from runlane.flow._bindings import AgentModelRuntime, ModelSlot, ToolInvoker
from runlane.flow._branch import AgentBranch, AgentCheckpoint
from runlane.flow._cache import AgentCachePort, EngineMemory
from runlane.flow._telling import Telling
from runlane.ids import IdSource

__all__ = ["EngineErrors", "RunState", "made_error", "status_of"]


class EngineErrors:
    """How a host words two ends of a run as errors of its own.

    Args:
        aborted: Makes the error of a run that its token ended, from the token's reason; by default the token's own.
        rounds_exhausted: Makes the error of a run that used up its rounds, from their number; by default a
            `BudgetError` with the allowance `rounds`.

    Example:
        >>> EngineErrors(rounds_exhausted=lambda rounds: RuntimeError(f"gave up after {rounds}")).aborted is None
        True
    """

    __slots__ = ("aborted", "rounds_exhausted")

    def __init__(
        self,
        *,
        aborted: Callable[[object], Exception] | None = None,
        rounds_exhausted: Callable[[int], Exception] | None = None,
    ) -> None:
        self.aborted = aborted
        self.rounds_exhausted = rounds_exhausted


class RunState:
    """One run: its token, its rounds and its calls, and whoever is told of them.

    Attributes:
        rounds: How many have begun.
        fatal: An error that ends the run whatever recovery there is: the rounds are used up.
    """

    __slots__ = (
        "app",
        "branch",
        "calls",
        "clock",
        "errors",
        "fatal",
        "ids",
        "max_rounds",
        "memory",
        "models",
        "persistent",
        "rounds",
        "run_id",
        "runtimes",
        "scope",
        "telling",
        "token",
        "tools",
    )

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        *,
        scope: DiagnosticContext,
        token: CancelToken,
        branch: AgentBranch,
        max_rounds: int,
        max_calls: int,
        errors: EngineErrors,
        telling: Telling,
        app: object,
        models: ModelSlot | None,
        tools: ToolInvoker | None,
        memory: EngineMemory,
        persistent: AgentCachePort | None,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self.scope = scope
        self.run_id = scope.identity.run_id
        self.token = token
        self.branch = branch
        self.max_rounds = max_rounds
        self.rounds = 0
        self.calls = AttemptBudget(max_calls)
        self.errors = errors
        self.fatal: Exception | None = None
        self.telling = telling
        self.app = app
        self.models = models
        self.runtimes: dict[str | None, AgentModelRuntime] = {}
        self.tools = tools
        self.memory = memory
        self.persistent = persistent
        self.clock = clock
        self.ids = ids

    def begin_round(self) -> int:
        """Spend a round and return its number, from 1.

        Raises:
            BudgetError: There are none left, or what the host has for that.
            Exception: The token's error.
        """
        token = self.token
        if token.cancelled:
            raise token.error()
        if self.rounds >= self.max_rounds:
            self.refuse(self.scope, "rounds", self.max_rounds)
            self.fatal = self._rounds_exhausted()
            raise self.fatal
        self.rounds += 1
        return self.rounds

    def take_call(self, scope: DiagnosticContext) -> None:
        """Spend one call of a model or a tool.

        Raises:
            BudgetError: There are none left (`workflow_calls`).
        """
        if not self.calls.take():
            self.refuse(scope, "workflow_calls", self.calls.limit)
            text = f"the workflow's {self.calls.limit} calls are spent"
            raise BudgetError(text, allowance="workflow_calls", limit=self.calls.limit)

    def refuse(self, scope: DiagnosticContext, allowance: str, limit: int) -> None:
        """Tell that an allowance is spent."""
        if scope.enabled:
            scope.note("budget.refused", BudgetRefused(allowance=allowance, limit=limit))

    def runtime(self, name: str | None) -> AgentModelRuntime:
        """Return the model of a name, made for this run when it is first asked for.

        Raises:
            WorkflowContractError: There is no model (`no_model`), or none of that name (`unknown_model`).
        """
        known = self.runtimes.get(name)
        if known is None:
            if self.models is None:
                raise WorkflowContractError("the engine has no model; bind one before the run", rule="no_model")
            known = self.runtimes[name] = self.models.binding(name).start(clock=self.clock, ids=self.ids)
        return known

    def options(self, scope: DiagnosticContext) -> ExecutionOptions:
        """Return what every call of this run is given."""
        return ExecutionOptions(signal=self.token, diagnostics=scope)

    def checkpoint(self, data: object, round_number: int) -> AgentCheckpoint:
        """Remember data."""
        return AgentCheckpoint(
            data,
            checkpoint_id=Id(self.ids.new("checkpoint")),
            run_id=self.run_id,
            branch=self.branch,
            round=round_number,
            created_at=self.telling.now(),
        )

    def raise_if_cancelled(self) -> None:
        """Raise the token's error if it tripped; the one object, outside of any handler of another."""
        if self.token.cancelled:
            raise self.token.error()

    def _rounds_exhausted(self) -> Exception:
        make = self.errors.rounds_exhausted
        if make is None:
            text = f"the {self.max_rounds} rounds of the run are used up"
            return BudgetError(text, allowance="rounds", limit=self.max_rounds)
        return made_error(make(self.max_rounds), "errors.rounds_exhausted")


def made_error(value: object, argument: str) -> Exception:
    """Return the error a host's factory made.

    Raises:
        UsageError: It is none.
    """
    value = sync_result(value, argument=argument)
    if not isinstance(value, Exception):
        raise UsageError(f"must return an exception, not {type(value).__name__}", argument=argument)
    return value


def status_of(error: BaseException | None, token: CancelToken) -> InvocationStatus:
    """Say how something ended that left with this error.

    It is cancelled if the loop cancelled it or its own token did; a look-alike is a failure.
    """
    if error is None:
        return "succeeded"
    if issubclass(type(error), anyio.get_cancelled_exc_class()) or (token.cancelled and error is token.error()):
        return "cancelled"
    return "failed"
