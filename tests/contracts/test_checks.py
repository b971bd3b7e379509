"""Checks: failed, passed, and the two ways of not knowing."""

import enum
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, ValidationError

from runlane.contracts import CheckResult, Id, Issue, require_passed, schema_for
from runlane.errors import CheckFailedError, UsageError

ISSUE = Issue(code="too_long", message="too long", path=("title", 0))
PASSED = CheckResult(check_id=Id("a"), verdict="passed")
FAILED = CheckResult(check_id=Id("b"), verdict="failed", issues=(ISSUE,))
UNAVAILABLE = CheckResult(check_id=Id("c"), verdict="unavailable", reason="the service is down")
NOT_RUN = CheckResult(check_id=Id("d"), verdict="not-run", reason="not asked")


def test_d2_no_answer_is_neither_failure_nor_pass() -> None:
    """Only `failed` is a failure and only `passed` a pass."""
    results = (PASSED, FAILED, UNAVAILABLE, NOT_RUN)
    assert [result.is_failure for result in results] == [False, True, False, False]
    assert [result.is_pass for result in results] == [True, False, False, False]


@pytest.mark.parametrize(
    "fields",
    [
        {"verdict": "failed"},
        {"verdict": "passed", "issues": (ISSUE,)},
        {"verdict": "unavailable", "reason": "x", "issues": (ISSUE,)},
        {"verdict": "unavailable"},
        {"verdict": "not-run"},
        {"verdict": "not-run", "reason": ""},
        {"verdict": "passed", "reason": "x"},
        {"verdict": "maybe"},
        {"verdict": "passed", "extra": 1},
        {"verdict": "passed", "check_id": ""},
    ],
)
def test_d3_a_contradiction_is_refused_at_construction(fields: dict[str, object]) -> None:
    """Issues belong to failures, reasons to the two kinds of no answer."""
    with pytest.raises(ValidationError):
        CheckResult.model_validate({"check_id": "x", **fields})


@pytest.mark.parametrize("code", ["", "x" * 129])
def test_an_issue_has_a_code_of_1_to_128_characters(code: str) -> None:
    """A code can be compared and indexed."""
    with pytest.raises(ValidationError):
        Issue(code=code, message="m")


def test_d4_only_failures_fail() -> None:
    """Issues of failed results are raised in their order; results without an answer do not matter."""
    second = FAILED.model_copy(update={"issues": (Issue(code="x", message="m"), ISSUE)})
    require_passed([PASSED, UNAVAILABLE, NOT_RUN])
    with pytest.raises(CheckFailedError) as caught:
        require_passed([UNAVAILABLE, FAILED, PASSED, second])
    assert caught.value.issues == (ISSUE, *second.issues)


def test_d4_what_is_needed_must_have_passed() -> None:
    """A needed check without an answer, or without a result, is an issue of its own."""
    require_passed([PASSED], need=[Id("a")])
    with pytest.raises(CheckFailedError) as caught:
        require_passed([UNAVAILABLE, NOT_RUN, FAILED], need=[Id("a"), Id("b"), Id("c"), Id("d")])
    assert [issue.code for issue in caught.value.issues] == [
        "check.unavailable",
        "check.not_run",
        "too_long",
        "check.not_run",
    ]


def test_e2_the_message_of_a_failed_check_is_always_the_same() -> None:
    """Reasons live in `issues`, of which there is at least one."""
    messages = {str(CheckFailedError(issues=[Issue(code="x", message=text)])) for text in ("one", "two")}
    assert len(messages) == 1
    with pytest.raises(UsageError):
        CheckFailedError(issues=[])


class Colour(enum.StrEnum):
    """Something with a value."""

    RED = "red"


class Order(BaseModel):
    """Something to parse."""

    id: int
    size: tuple[int, int] = (0, 0)
    colour: Colour = Colour.RED
    count: Annotated[int, Field(ge=1)] = 1


def test_a_schema_and_its_parser_are_made_together() -> None:
    """The adapter shows what it checks, and reads strict JSON: exact integers, lists as tuples, names as enums."""
    adapter = schema_for(Order)
    assert adapter.json_schema["required"] == ["id"]
    order = adapter.parse({"id": 2512292042121000001, "size": [1, 2], "colour": "red"})
    assert (order.id, order.size, order.colour) == (2512292042121000001, (1, 2), Colour.RED)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"id": "5"}, ("id",)),
        ({}, ("id",)),
        ({"id": 1, "count": 0}, ("count",)),
        ({"id": 1.5}, ("id",)),
        ({"id": 1, "size": [1]}, ("size", 1)),
        ([], None),
        ({"id": object()}, ("id",)),
        ({"id": float("nan")}, ("id",)),
        ({"id": 1, 2: 3}, None),
        ({"id": 1, "x": "\ud800"}, ("x",)),
    ],
)
def test_a_refusal_names_the_place(value: object, path: tuple[str | int, ...] | None) -> None:
    """`CheckFailedError` carries an issue with the path, and nothing of the value."""
    with pytest.raises(CheckFailedError) as caught:
        schema_for(Order).parse(value)
    assert caught.value.issues[0].path == path
    assert caught.value.__cause__ is None


def test_a_cyclic_value_is_refused() -> None:
    """A value inside itself ends at a depth, with an error."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(CheckFailedError):
        schema_for(list[object]).parse(value)
