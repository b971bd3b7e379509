"""Which error ends a command with which exit code."""

import pytest

from runlane import errors
from runlane.cli._exits import Exit, exit_for, telling_error

_DOCUMENTED = {
    "usage": 2,
    "value.invalid": 2,
    "dependency.missing": 2,
    "runtime.conflict": 5,
    "runtime.closed": 5,
    "run.unsettled": 5,
    "conversation.purged": 5,
    "command.refused": 5,
    "store.too_new": 5,
    "model.credential_missing": 6,
    "store": 7,
    "store.unavailable": 7,
    "store.busy": 7,
    "store.full": 7,
    "store.commit_unknown": 7,
    "model.idle_timeout": 8,
    "provider.failure": 10,
    "provider.stream_cut": 10,
    "model.protocol": 10,
    "store.foreign": 74,
    "store.damaged": 74,
    "store.record_corrupt": 74,
    "aborted": 130,
    "error.unknown": 1,
    "storefront": 1,
}


@pytest.mark.parametrize(("code", "exit_code"), _DOCUMENTED.items())
def test_an_errors_code_decides_the_exit_code(code: str, exit_code: int) -> None:
    """Each code ends a command with the documented exit code; one nobody planned for ends it with 1."""
    assert exit_for(code) == exit_code


def test_every_error_a_command_can_meet_is_placed() -> None:
    """No store, runtime, model or usage error of the tree ends as if it were a bug."""
    families = (
        *(errors.StoreError, errors.ModelError, errors.UsageError, errors.InvalidValueError),
        *(errors.CommandRefusedError, errors.RuntimeConflictError, errors.RunUnsettledError),
    )
    placed = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, families) and "code" in vars(kind)
    ]
    assert len(placed) > 20
    assert {kind.__name__ for kind in placed if exit_for(kind.code) is Exit.UNEXPECTED} == set()


def test_of_many_errors_the_typed_one_is_told() -> None:
    """When several tasks fail at once, the error that runlane raised on purpose is the one to tell."""
    typed = errors.StoreBusyError("busy")
    group = ExceptionGroup("all", [ValueError("x"), ExceptionGroup("inner", [OSError("y"), typed])])
    assert telling_error(group) is typed
    assert isinstance(telling_error(ExceptionGroup("all", [ValueError("x"), OSError("y")])), ValueError)
