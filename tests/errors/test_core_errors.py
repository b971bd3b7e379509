"""The errors of the core half: class, base, code, whether to try again, and facts that survive a trip."""

import pickle

import pytest

from runlane.contracts import Issue
from runlane.errors import (
    AbortedError,
    BudgetError,
    CheckFailedError,
    CommandRefusedError,
    DuplicateRegistrationError,
    EngineBindingError,
    EngineBusyError,
    FormatError,
    MissingEntryError,
    ModelCallTimeoutError,
    ModelError,
    OutOfTurnError,
    PolicyRejectedError,
    PreparedCallError,
    ProviderStreamCutError,
    RegistrySealedError,
    RunlaneError,
    RunnerBusyError,
    SseIdleTimeoutError,
    UnknownTransportError,
    UsageError,
    WorkflowContractError,
)

ISSUE = Issue(code="too_long", message="too long", path=("title",))

ROWS: list[tuple[RunlaneError, type[Exception], str, bool | None, dict[str, object]]] = [
    (BudgetError(allowance="rounds", limit=3), RunlaneError, "budget.exhausted", False, {"allowance": "rounds"}),
    (CheckFailedError(issues=[ISSUE]), RunlaneError, "check.failed", False, {"issues": (ISSUE,)}),
    (
        WorkflowContractError("x", rule="node_id", workflow_id="w", node_id="n"),
        RunlaneError,
        "workflow.contract",
        False,
        {"rule": "node_id", "workflow_id": "w", "node_id": "n"},
    ),
    (AbortedError(reason="stop"), RunlaneError, "aborted", None, {"reason": "stop"}),
    (PolicyRejectedError("no"), RunlaneError, "policy.rejected", False, {}),
    (
        DuplicateRegistrationError(registry="r", key="k"),
        CommandRefusedError,
        "registry.duplicate",
        False,
        {"registry": "r", "key": "k"},
    ),
    (RegistrySealedError(registry="r", key="k"), CommandRefusedError, "registry.sealed", False, {"key": "k"}),
    (EngineBindingError("bound", slot="model"), CommandRefusedError, "engine.binding", False, {"slot": "model"}),
    (EngineBusyError(), CommandRefusedError, "engine.busy", False, {}),
    (RunnerBusyError(), CommandRefusedError, "model.runner_busy", False, {}),
    (PreparedCallError(problem="spent"), CommandRefusedError, "model.prepared_call", False, {"problem": "spent"}),
    (UnknownTransportError(transport="t"), ModelError, "model.unknown_transport", False, {"transport": "t"}),
    (ModelCallTimeoutError(timeout=2.5), ModelError, "model.call_timeout", True, {"timeout": 2.5}),
    (ProviderStreamCutError(), ModelError, "provider.stream_cut", True, {}),
    (OutOfTurnError("late", argument="report"), RuntimeError, "usage.out_of_turn", False, {"argument": "report"}),
    (MissingEntryError(argument="r", key="k"), KeyError, "usage.missing_entry", False, {"key": "k"}),
]


@pytest.mark.parametrize(
    ("error", "base", "code", "retryable", "facts"), ROWS, ids=[type(row[0]).__name__ for row in ROWS]
)
def test_each_row_of_the_table(
    error: RunlaneError, base: type[Exception], code: str, retryable: object, facts: dict[str, object]
) -> None:
    """Caught by its base, told by its code, with the facts it was made of, here and after pickling."""
    assert issubclass(type(error), base)
    copy: RunlaneError = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    for seen in (error, copy):
        assert (seen.code, seen.retryable) == (code, retryable)
        assert facts.items() <= vars(seen).items()
    assert str(copy) == str(error)
    assert "\n" not in str(error)


def test_c23_what_python_would_raise_is_caught_as_such() -> None:
    """Misuse that Python calls a RuntimeError or a KeyError is one of these, and a UsageError."""
    for kind, builtin in ((OutOfTurnError, RuntimeError), (MissingEntryError, KeyError)):
        assert issubclass(kind, UsageError)
        assert issubclass(kind, builtin)
        assert issubclass(kind, TypeError)


def test_s13_silence_is_no_time_out_of_another_kind() -> None:
    """It is neither a TimeoutError nor a failure of format or model."""
    assert not isinstance(SseIdleTimeoutError(idle_timeout=1.0), TimeoutError | FormatError | ModelError)


def test_e4_nothing_escapes_exception() -> None:
    """Every error of the table is an ordinary exception: none ends the program or poses as a cancellation."""
    assert all(isinstance(row[0], Exception) for row in ROWS)
