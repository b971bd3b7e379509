"""One definition of a tool, written out or made of a typed function."""

import functools
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from runlane.errors import InvalidValueError, ToolArgumentsError, UsageError
from runlane.tools import IntentOptions, ToolDefinition, ToolExecutionContext, ToolOptions, tool
from tests.tools.scenes import asking, registry_of

pytestmark = pytest.mark.anyio


class Place(BaseModel):
    """Where something is."""

    city: str
    zip_code: str | None = None


def test_a_functions_annotations_and_docstring_become_its_schema() -> None:
    """Types, defaults, descriptions and required fields come out of the function; titles do not."""

    @tool
    def find(
        place: Place, kind: Literal["a", "b"] = "a", *, limit: Annotated[int, Field(ge=1, description="How many.")] = 5
    ) -> None:
        """Find something.

        It may take a while.

        Args:
            place: Where to look,
                roughly.
            kind: Of what sort.
            limit: This is not used.

        Raises:
            KeyError: Never.
        """

    assert (find.id, find.description) == ("find", "Find something.\n\nIt may take a while.")
    registry = registry_of(find)
    schema = registry.require("find").input_schema
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    properties: Any = schema["properties"]
    assert properties["kind"] == {"default": "a", "description": "Of what sort.", "enum": ["a", "b"], "type": "string"}
    assert properties["limit"] == {"default": 5, "description": "How many.", "minimum": 1, "type": "integer"}
    assert properties["place"]["description"] == "Where to look, roughly."


async def test_arguments_arrive_as_the_annotated_types() -> None:
    """Models, dates and big integers are what the function says; a default is the function's own."""
    seen: list[object] = []

    @tool
    async def take(place: Place, day: date, number: int, note: str = "none") -> None:
        """Take things."""
        seen.extend([place, day, number, note])

    big = 2512292042121000001
    await registry_of(take).invoke(asking("take", place={"city": "Bern"}, day="2026-01-02", number=big))
    assert seen == [Place(city="Bern"), date(2026, 1, 2), big, "none"]


@pytest.mark.parametrize("number", ["1", 1.5, True, None])
async def test_arguments_are_checked_strictly(number: object) -> None:
    """A text, a fraction, a bool and null are no integer."""

    @tool
    async def take(number: int) -> None:
        """Take a number."""

    with pytest.raises(ToolArgumentsError) as refused:
        await registry_of(take).invoke(asking("take", number=number))
    assert [issue.path for issue in refused.value.issues] == [("number",)]


async def test_positional_and_awkward_names_are_passed_on() -> None:
    """A positional-only parameter, and names pydantic uses itself, reach the function."""

    @tool
    async def take(schema: str, /, json: int = 2, model_config: int = 3) -> list[object]:
        """Take things."""
        return [schema, json, model_config]

    result = await registry_of(take).invoke(asking("take", schema="a", model_config=4))
    assert result.value == ["a", 2, 4]


async def test_the_context_is_passed_and_not_shown() -> None:
    """A parameter of the context's type is filled in, under whatever name, and is not part of the schema."""

    @tool
    async def take(number: int, where: ToolExecutionContext[str]) -> tuple[int, str]:
        """Take a number."""
        return number, where.app

    registry = registry_of(take)
    assert list(registry.require("take").input_schema["properties"]) == ["number"]  # type: ignore[call-overload]
    request = asking("take", number=1)
    result = await registry.invoke(type(request)(tool_id="take", input={"number": 1}, app="host"))
    assert result.value == (1, "host")


async def test_the_context_may_be_optional() -> None:
    """A function that is also called by hand may default its context to None."""

    @tool
    async def take(number: int, where: ToolExecutionContext[str] | None = None) -> bool:
        """Take a number."""
        return number == 1 and where is not None

    registry = registry_of(take)
    assert list(registry.require("take").input_schema["properties"]) == ["number"]  # type: ignore[call-overload]
    assert (await registry.invoke(asking("take", number=1))).value is True
    assert await take(1) is False


def test_a_decorated_function_is_still_a_function() -> None:
    """It can be called as before, options or not."""

    @tool(id="plus", title="Plus", as_intent=IntentOptions(keywords=("sum",)), idempotent=True)
    def add_up(left: int, right: int) -> int:
        """Add."""
        return left + right

    assert add_up(1, right=2) == 3
    assert (add_up.id, add_up.title, add_up.idempotent) == ("plus", "Plus", True)


def _no_annotation(value) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Take something."""


def _variadic(*values: int) -> None:
    """Take many."""


def _nameless(value: int) -> None: ...


def _two_contexts(one: ToolExecutionContext[int], two: ToolExecutionContext[int]) -> None:
    """Take two."""


def _field_default(value: int = Field(default=1)) -> None:
    """Take one."""


class _Opaque:
    """No type pydantic knows."""


def _opaque(value: _Opaque) -> None:
    """Take one."""


def _generates(value: int) -> Iterator[int]:
    """Give many."""
    yield value


async def _streams(value: int) -> AsyncIterator[int]:
    """Give many."""
    yield value


_MISUSE: list[Any] = [
    _no_annotation,
    _variadic,
    _nameless,
    _two_contexts,
    _field_default,
    _opaque,
    _generates,
    _streams,
    functools.partial(print, "bound"),
]


@pytest.mark.parametrize("function", _MISUSE, ids=lambda function: getattr(function, "__name__", "partial"))
def test_a_function_that_cannot_be_a_tool_is_refused_at_once(function: Any) -> None:  # noqa: ANN401 - misuse
    """Missing annotations, variable arguments, no description and the like name the function or its parameter."""
    with pytest.raises((UsageError, InvalidValueError)):
        tool(function)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"id": "no spaces"}, "id"),
        ({"id": "x" * 65}, "id"),
        ({"description": "  "}, "description"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1.0}, "timeout"),
        ({"needs_approval": "yes"}, "needs_approval"),
        ({"condition": 1}, "condition"),
    ],
)
def test_a_malformed_field_is_named(options: dict[str, Any], argument: str) -> None:
    """Bad values are refused when the definition is made, naming the field (L2 for the description)."""
    fields: dict[str, Any] = {"id": "t", "description": "A tool.", "input": int, "run": lambda *_: None, **options}
    with pytest.raises((UsageError, InvalidValueError)) as refused:
        ToolDefinition(**fields)
    assert isinstance(refused.value, UsageError | InvalidValueError)
    assert refused.value.argument == argument


def test_what_must_be_synchronous_is() -> None:
    """A coroutine function as identity, presenter, or handler around a plain function is refused."""

    async def later(*_: object) -> Any:  # noqa: ANN401 - misuse
        return ""

    def now(*_: object) -> None:
        return None

    class Late:
        name = "late"

        async def handle(self, value: object, _: object, /) -> object:
            return value

    for options in ({"identity": later}, {"present": later}, {"before": [Late()]}):
        fields: dict[str, Any] = {"id": "t", "description": "A tool.", "input": int, "run": now, **options}
        with pytest.raises(UsageError):
            ToolDefinition(**fields)
    assert "timeout" in ToolOptions.__annotations__


async def test_l2_schemas_are_snapshots() -> None:
    """Changing a schema after the registration changes nothing for anybody."""

    @dataclass
    class Adapter:
        json_schema: dict[str, Any]

        def parse(self, value: object, /) -> object:
            return value

    adapter = Adapter({"type": "object", "properties": {"a": {"type": "string"}}})
    definition: Any = ToolDefinition(id="t", description="A tool.", input=adapter, run=lambda value, _: value)
    registry = registry_of(definition)
    adapter.json_schema["properties"]["a"]["type"] = "integer"
    assert registry.require("t").input_schema["properties"] == {"a": {"type": "string"}}


@pytest.mark.parametrize("schema", [{"a": float("nan")}, {"a": {1}}, [], None])
def test_c12_a_schema_must_be_a_json_object(schema: object) -> None:
    """What does not canonicalise is refused when it is registered; no keyword is read."""

    class Adapter:
        json_schema: Any = schema

        def parse(self, value: object, /) -> object:
            return value

    definition: Any = ToolDefinition(id="t", description="A tool.", input=Adapter(), run=lambda *_: None)
    with pytest.raises(InvalidValueError):
        registry_of(definition)


@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\nArgs:\n    a (int): The first.\n    b: The second,\n        longer.\n\nReturns:\n    Nothing.",
        "Do it.\n\nParameters\n---\na : int\n    The first.\nb\n    The second,\n    longer.\n\nReturns\n---\nint",
        "Do it.\n\n:param a: The first.\n:param int b: The second, longer.\n:returns: Nothing.",
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_three_forms_of_docstrings_are_read(docstring: str) -> None:
    """Google's, NumPy's and Sphinx' parameters describe the schema, and are no part of the description."""

    def take(a: int, b: int) -> None: ...

    take.__doc__ = docstring
    made = tool(take)
    properties: Any = registry_of(made).require("take").input_schema["properties"]
    assert made.description == "Do it."
    assert [properties[name]["description"] for name in "ab"] == ["The first.", "The second, longer."]


def test_what_does_not_tell_its_parameters_is_no_tool() -> None:
    """A built-in class has no signature."""
    with pytest.raises(UsageError) as caught:
        tool(int, id="number", description="Make a number.")
    assert caught.value.argument == "number"
