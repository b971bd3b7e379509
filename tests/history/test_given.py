"""Whatever is given to the history's questions: a wrong argument is refused by its name, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.history import (
    RUNTIME_EVIDENCE,
    History,
    ProjectionOptions,
    is_complete_turn,
    project_history_detailed,
    select_compactable_history,
    select_history,
)
from runlane.records import TokenCount
from tests.history.records import assistant, call, stored, user

RECORDS = [user("go"), assistant("1", call("a"), status="failed", run_id="r1"), user("x")]
LONE = "\ud800"
ONE = TokenCount(value=1, provenance="measured")
ANYTHING: Any = project_history_detailed


def _history() -> Any:  # noqa: ANN401 - it is given what its types forbid
    return History(map(stored, RECORDS))


_CASES: list[tuple[Callable[[], object], str]] = [
    (lambda: ANYTHING(RECORDS, active_runs="r1"), "active_runs"),
    (lambda: ANYTHING(RECORDS, active_runs={1}), "active_runs"),
    (lambda: ANYTHING(RECORDS, active_runs=None), "active_runs"),
    (lambda: ANYTHING(RECORDS, active_runs={LONE}), "active_runs"),
    (lambda: ANYTHING(RECORDS, effects=["a"]), "effects"),
    (lambda: ANYTHING(RECORDS, effects={1: "unknown"}), "effects"),
    (lambda: ANYTHING(RECORDS, effects={"a": 1}), "effects"),
    (lambda: ANYTHING(RECORDS, effects={"a": "perhaps"}), "effects"),
    (lambda: ANYTHING(RECORDS, effects={LONE: "unknown"}), "effects"),
    (lambda: ANYTHING(RECORDS, files=[1]), "files"),
    (lambda: ANYTHING(RECORDS, None), "options"),
    (lambda: ANYTHING(None), "messages"),
    (lambda: ANYTHING([RECORDS[0], {"id": "x"}]), "messages.1"),
    (lambda: _options(evidence_policy=None), "evidence_policy"),
    (lambda: _history().project(selection=5), "selection"),
    (lambda: _history().project(selection=_history().select(10)), "selection"),
    (lambda: _history().remove("go"), "message_ids"),
    (lambda: _history().remove([LONE]), "message_ids"),
    (lambda: _history().record("0"), "index"),
    (lambda: _history().message_id(1.0), "index"),
    (lambda: _history().insert("0", stored(user("y"))), "index"),
    (lambda: _history().index(5), "message_id"),
    (lambda: _history().select(10, actve_runs={"r1"}), "actve_runs"),
    (lambda: _history().select(10, active_runs=[1]), "active_runs"),
    (lambda: _history().select(10, evidence_policy=None), "evidence_policy"),
    (lambda: _history().select(10, counter=LONE), "counter"),
    (lambda: _history().compactable(1, keep=2), "keep"),
    (lambda: _history().give_counts(LONE, {}), "name"),
    (lambda: _history().give_counts("t", {"go": 5}), "counts"),
    (lambda: _history().give_counts("t", [("go", ONE)]), "counts"),
    (lambda: _select(RECORDS, 5, None), "estimate_message"),
    (lambda: _select(RECORDS, 5, _late), "estimate_message"),
    (lambda: _compactable(RECORDS, 1, active_runs={LONE}), "active_runs"),
    (lambda: _complete(RECORDS, RUNTIME_EVIDENCE, active_runs="r1"), "active_runs"),
]


@pytest.mark.parametrize("number", range(len(_CASES)))
def test_a_wrong_argument_is_refused_by_its_name(number: int) -> None:
    """The error says which argument, never what happened inside."""
    ask, argument = _CASES[number]
    with pytest.raises((UsageError, InvalidValueError)) as raised:
        ask()
    assert getattr(raised.value, "argument", None) == argument


async def _late(_: object) -> TokenCount:
    return ONE


_options: Any = ProjectionOptions
_select: Any = select_history
_compactable: Any = select_compactable_history
_complete: Any = is_complete_turn


@pytest.mark.parametrize("index", [-1, 3, 10**30])
def test_a_record_that_is_not_there_is_none(index: int) -> None:
    """An index beyond the records is an `IndexError`, however far; an id nothing can have is not in it."""
    with pytest.raises(IndexError):
        _history().record(index)
    with pytest.raises(IndexError):
        _history().message_id(index)
    with pytest.raises(InvalidValueError):
        _history().insert(10**30, stored(user("y")))
    assert LONE not in _history()
    assert _history().index(LONE) is None
