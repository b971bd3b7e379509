"""A tool from a typed Python function: its schema out of annotations and docstring."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, NotRequired, ParamSpec, TypedDict, TypeVar, overload

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict as TypedDictOf
from typing_extensions import Unpack, override

from runlane.contracts import JsonSchema, MaybeAwaitable, SchemaAdapter, is_async_callable, require_kind, schema_for
from runlane.errors import UsageError
from runlane.tools._context import ToolExecutionContext
from runlane.tools._definition import AsIntent, InvocationHandler, ToolCondition, ToolDefinition
from runlane.tools._docstring import read_docstring
from runlane.tools._reconcile import Reconcile

__all__ = ["FunctionTool", "ToolOptions", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_VARIADIC: Final = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


class ToolOptions(TypedDict, total=False):
    """What `tool` takes beside the function; each as in `ToolDefinition`."""

    condition: ToolCondition | None
    as_intent: AsIntent
    strict: bool
    timeout: float | None
    before: Sequence[InvocationHandler]
    after: Sequence[InvocationHandler]
    present: Callable[[Any], JsonValue] | None
    identity: Callable[[dict[str, Any]], str] | None
    needs_approval: bool | Callable[[dict[str, Any], ToolExecutionContext[Any]], MaybeAwaitable[bool]]
    idempotent: bool
    reconcile: Reconcile[dict[str, Any], Any, Any] | None
    title: str | None
    metadata: Mapping[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class FunctionTool(ToolDefinition[dict[str, Any], Any, Any], Generic[P, R]):
    """A tool made of a function; calling it calls the function.

    Attributes:
        function: The function, as it was given.
    """

    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it had never become a tool."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    function: None = None, /, *, id: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    id: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> FunctionTool[P, R]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    id: str | None = None,  # noqa: A002 - the definition's own word
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a typed function; a decorator, with or without options.

    The parameters' annotations become the input's schema, their descriptions come from the docstring (or from
    `Annotated[..., Field(description=...)]`), their defaults make them optional. A parameter annotated with
    `ToolExecutionContext` gets the call's context and is not shown to the model. A plain function runs in a thread, a
    coroutine function in the run's own task.

    Args:
        function: The function.
        id: The name a model calls it by; the function's own by default.
        description: What a model is told; the docstring without its sections by default.
        **options: See `ToolDefinition`.

    Raises:
        UsageError: A parameter has no annotation or takes a variable number of arguments, or something is of the
            wrong kind; names it.
        InvalidValueError: There is no description, or a value is out of range; names it.

    Example:
        >>> @tool
        ... def add(left: int, right: int = 1) -> int:
        ...     '''Add two numbers.
        ...
        ...     Args:
        ...         left: The first.
        ...         right: The second.
        ...     '''
        ...     return left + right
        >>> add.id, add.input.json_schema["required"], add(2, 3)
        ('add', ['left'], 5)
    """
    require_kind(id, str | None, argument="id")
    require_kind(description, str | None, argument="description")
    if function is None:
        return lambda given: tool(given, id=id, description=description, **options)
    if isinstance(function, ToolDefinition):
        raise UsageError("is a tool already", argument="function")
    _check_function(function)
    name = getattr(function, "__name__", type(function).__name__) if id is None else id
    said, about = read_docstring(function)
    call = _Call(function, name)
    return FunctionTool(
        id=name,
        description=said if description is None else description,
        input=FunctionInput(name, call.parameters, about),
        run=call.run_async if is_async_callable(function) else call.run,
        function=function,
        **options,
    )


def _check_function(function: object) -> None:
    if not callable(function):
        raise UsageError(f"must be a function, not {type(function).__name__}", argument="function")
    if isinstance(function, functools.partial):
        # What is bound would be shown to the model as defaults, and could be set by it.
        raise UsageError("must not be a partial; write a function around it", argument="function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError("must return its output; report_progress tells how far it is", argument="function")


class _Untitled(GenerateJsonSchema):
    """Schemas without the titles pydantic makes of names: they cost tokens and say nothing."""

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    @override
    def generate(self, schema: CoreSchema, mode: Any = "validation") -> dict[str, Any]:
        made = super().generate(schema, mode)
        made.pop("title", None)
        return made


class FunctionInput:
    """The input of a function's tool: a JSON object with its parameters.

    Attributes:
        json_schema: What a model is shown.
    """

    __slots__ = ("_schema", "json_schema")

    json_schema: JsonSchema

    def __init__(self, name: str, parameters: Mapping[str, inspect.Parameter], about: Mapping[str, str]) -> None:
        """Compile the schema and its check together."""
        fields = {key: _field(parameter, about.get(key)) for key, parameter in parameters.items()}
        make: Any = TypedDictOf
        kind: Any = make(name, fields)
        kind.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        try:
            self._schema: SchemaAdapter[dict[str, Any]] = schema_for(kind)
            self.json_schema = TypeAdapter(kind).json_schema(schema_generator=_Untitled)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise UsageError(f"has a parameter without a JSON form: {error.message}", argument=name) from None

    def parse(self, value: object, /) -> dict[str, Any]:
        """Return the arguments, checked strictly: a text is never a number.

        Raises:
            CheckFailedError: They do not fit; with an issue for each fault.
        """
        return self._schema.parse(value)


def _field(parameter: inspect.Parameter, about: str | None) -> Any:  # noqa: ANN401 - an annotation
    extra: list[object] = []
    described = _described(parameter.annotation)
    if about and not described:
        extra.append(Field(description=about))
    has_default = parameter.default is not inspect.Parameter.empty
    if has_default:
        extra.extend(_shown_default(parameter.default))
    annotation: Any = parameter.annotation
    for item in extra:
        annotation = Annotated[annotation, item]
    return NotRequired[annotation] if has_default else annotation


def _described(annotation: object) -> bool:
    metadata: tuple[object, ...] = getattr(annotation, "__metadata__", ())
    return any(isinstance(item, FieldInfo) and item.description for item in metadata)


def _shown_default(default: object) -> list[object]:
    """Return what puts a default into the schema, if it has a JSON form."""
    try:
        return [Field(json_schema_extra={"default": to_jsonable_python(default)})]
    except PydanticSerializationError:
        return []


class _Call(Generic[R]):
    """How a function is called with parsed arguments."""

    def __init__(self, function: Callable[..., R], name: str) -> None:
        self._function = function
        self._context: str | None = None
        self._positional: list[str] = []
        self.parameters: dict[str, inspect.Parameter] = {}
        hints = _hints(function, name)
        for key, parameter in _parameters(function, name).items():
            if parameter.kind in _VARIADIC:
                raise UsageError("takes a variable number of arguments; name them", argument=f"{name}.{key}")
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                self._positional.append(key)
            if key not in hints:
                raise UsageError("needs an annotation", argument=f"{name}.{key}")
            if isinstance(parameter.default, FieldInfo):
                raise UsageError("give Field(...) within Annotated[...]", argument=f"{name}.{key}")
            if _is_context(hints[key]):
                if self._context is not None:
                    raise UsageError("is a second context", argument=f"{name}.{key}")
                self._context = key
            else:
                self.parameters[key] = parameter.replace(annotation=hints[key])

    def run(self, arguments: dict[str, Any], context: ToolExecutionContext[Any], /) -> R:
        args, named = self._bound(arguments, context)
        return self._function(*args, **named)

    async def run_async(self, arguments: dict[str, Any], context: ToolExecutionContext[Any], /) -> Any:  # noqa: ANN401
        args, named = self._bound(arguments, context)
        value: Any = self._function(*args, **named)
        return await value

    def _bound(self, arguments: dict[str, Any], context: ToolExecutionContext[Any]) -> tuple[list[Any], dict[str, Any]]:
        named = dict(arguments)
        if self._context is not None:
            named[self._context] = context
        args: list[Any] = []
        for key in self._positional:
            if key not in named:
                break
            args.append(named.pop(key))
        return args, named


def _parameters(function: Callable[..., Any], name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:
        raise UsageError("does not tell its parameters; wrap it in a typed function", argument=name) from None


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    source = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    try:
        return typing.get_type_hints(source, include_extras=True)
    except NameError as error:
        raise UsageError(f"has an annotation that cannot be resolved: {error}", argument=name) from None


def _is_context(annotation: object) -> bool:
    origin = typing.get_origin(annotation) or annotation
    if origin in (Annotated, typing.Union, types.UnionType):
        return any(_is_context(part) for part in typing.get_args(annotation))
    return isinstance(origin, type) and issubclass(origin, ToolExecutionContext)
