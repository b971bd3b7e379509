"""Checks of values: what was found, and what nobody could or did look at."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Generic, Literal, Protocol, Self, TypeAlias, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from runlane.contracts._issues import Issue, json_text
from runlane.contracts._record import Record
from runlane.contracts._scalars import Id, IdField, JsonSchema
from runlane.errors import CheckFailedError

__all__ = [
    "CheckResult",
    "SchemaAdapter",
    "Verdict",
    "require_passed",
    "schema_for",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Verdict: TypeAlias = Literal["passed", "failed", "unavailable", "not-run"]
"""`unavailable`: the check could not answer; `not-run`: it was not asked. Neither says anything of the value."""


class CheckResult(Record):
    """What one check said of one value.

    Attributes:
        check_id: The check.
        verdict: A failed check has at least one issue; the others have none.
        issues: What is wrong.
        reason: Why there is no answer; present exactly for `unavailable` and `not-run`.

    Raises:
        ValidationError: The verdict, the issues and the reason contradict each other.
    """

    check_id: IdField
    verdict: Verdict
    issues: tuple[Issue, ...] = ()
    reason: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if (self.verdict == "failed") != bool(self.issues):
            raise PydanticCustomError("check", "issues are given exactly when a check failed")
        if (self.verdict in {"unavailable", "not-run"}) != (self.reason is not None):
            raise PydanticCustomError("check", "a reason is given exactly when a check has no answer")
        return self

    @property
    def is_failure(self) -> bool:
        """Whether the check looked and refused; False when nobody knows."""
        return self.verdict == "failed"

    @property
    def is_pass(self) -> bool:
        """Whether the check looked and agreed; False when nobody knows."""
        return self.verdict == "passed"


def require_passed(results: Iterable[CheckResult], /, *, need: Collection[Id] = ()) -> None:
    """Raise the issues of all failed checks, in their order.

    Args:
        results: What the checks said.
        need: Checks that must have passed. One without an answer adds an issue `check.unavailable` or
            `check.not_run`; one without a result counts as not run.

    Raises:
        CheckFailedError: A check failed, or one of `need` did not pass.
    """
    issues: list[Issue] = []
    missing = dict.fromkeys(need)
    for result in results:
        issues.extend(result.issues)
        if result.check_id in missing:
            del missing[result.check_id]
            if not (result.is_pass or result.is_failure):
                issues.append(_unanswered(result))
    issues.extend(Issue(code="check.not_run", message=f"check {check!r} was not run") for check in missing)
    if issues:
        raise CheckFailedError(issues=issues)


def _unanswered(result: CheckResult) -> Issue:
    code = "check.unavailable" if result.verdict == "unavailable" else "check.not_run"
    return Issue(code=code, message=f"check {result.check_id!r} has no answer: {result.reason}")


class SchemaAdapter(Protocol[T_co]):
    """A schema and its parser, made together: what a model is shown, and what the program checks."""

    @property
    def json_schema(self) -> JsonSchema:
        """What a model is shown."""
        ...

    def parse(self, value: object, /) -> T_co:
        """Return a JSON value as what it stands for.

        Raises:
            CheckFailedError: The value does not follow the schema.
        """
        ...


def schema_for(kind: type[T], /) -> SchemaAdapter[T]:
    """Make an adapter of anything pydantic can validate.

    Values are read as strict JSON: `"5"` is no integer, a list of the right shape is a tuple, and an integer of any
    size keeps its digits.

    Args:
        kind: A type, annotated or generic ones included.

    Example:
        >>> schema_for(dict[str, int]).parse({"id": 2512292042121000001})
        {'id': 2512292042121000001}
    """
    return _PydanticSchema(kind)


class _PydanticSchema(Generic[T]):
    def __init__(self, kind: type[T]) -> None:
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)
        self._schema: JsonSchema = self._adapter.json_schema()

    @property
    def json_schema(self) -> JsonSchema:
        return self._schema

    def parse(self, value: object, /) -> T:
        text = json_text(value)
        try:
            return self._adapter.validate_json(text, strict=True)
        except ValidationError as error:
            issues = [_issue(cast("dict[str, object]", found)) for found in error.errors(include_url=False)]
            raise CheckFailedError(issues=issues) from None


def _issue(found: dict[str, object]) -> Issue:
    path = cast("tuple[str | int, ...]", found["loc"])
    return Issue(code=str(found["type"]), message=str(found["msg"]), path=path or None)
