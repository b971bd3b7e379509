"""A definition made ready to run: its schemas compiled, its snapshot taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast

from runlane.canonical import canonical_record_hash, canonical_record_json
from runlane.contracts import Id, JsonSchema, MaybeAwaitable, SchemaAdapter, require_kind, schema_for, sync_result
from runlane.errors import CanonicalJsonError, CheckFailedError, InvalidValueError, ToolArgumentsError, UsageError
from runlane.models import ModelFunction
from runlane.tools._context import ToolExecutionContext
from runlane.tools._definition import RegisteredTool, ToolDefinition

__all__ = ["AnyTool", "CompiledTool"]

In = TypeVar("In")
Out = TypeVar("Out")
Ctx = TypeVar("Ctx")


class CompiledTool(Generic[In, Out, Ctx]):
    """A definition with its schemas compiled: an `ErasedTool` for a registry, an `ExecutableTool` for typed code.

    Attributes:
        definition: As it was registered.
        registered: What readers see.
        function: What a model is told.
    """

    __slots__ = ("_input", "_output", "blocking", "definition", "function", "id", "registered")

    def __init__(self, definition: ToolDefinition[In, Out, Ctx], /) -> None:
        """Compile a definition.

        Raises:
            InvalidValueError: A schema is no JSON object.
            UsageError: `input` or `output` is no type and no schema adapter.
        """
        self.definition = require_kind(definition, ToolDefinition, argument="definition")
        self.id = Id(definition.id)
        self.blocking = definition.blocking
        self._input: SchemaAdapter[In] = _adapter(definition, "input")
        self._output = None if definition.output is None else _adapter(definition, "output")
        self.registered = RegisteredTool(
            id=self.id,
            title=definition.title,
            description=definition.description,
            input_schema=_snapshot(self._input.json_schema, f"{definition.id}.input"),
            output_schema=None
            if self._output is None
            else _snapshot(self._output.json_schema, f"{definition.id}.output"),
            strict=definition.strict,
            as_intent=definition.as_intent,
            idempotent=definition.idempotent,
            reconciles=definition.reconcile is not None,
            metadata=MappingProxyType(dict(definition.metadata)),
        )
        self.function = ModelFunction(
            name=self.id,
            description=definition.description,
            parameters=self.registered.input_schema,
            strict=definition.strict,
        )

    def parse(self, value: object, /) -> In:
        """Return a value as the tool's input.

        Raises:
            ToolArgumentsError: It is none.
        """
        try:
            return self._input.parse(value)
        except CheckFailedError as error:
            raise ToolArgumentsError(tool_id=self.id, issues=error.issues) from None

    def execute(self, value: In, context: ToolExecutionContext[Ctx], /) -> MaybeAwaitable[Out]:
        """Do it."""
        return self.definition.run(value, context)

    def parse_output(self, value: Any, /) -> object:  # noqa: ANN401 - whatever it returned
        """Return the output as its declared type; without one, as it is.

        Raises:
            CheckFailedError: It is not of that type.
        """
        return value if self._output is None else self._output.parse(value)

    def identity(self, given: object, parsed: object, otherwise: str, /) -> str:
        """Return what makes two calls the same.

        Args:
            given: The input as it came.
            parsed: The input as the tool gets it.
            otherwise: Stands in for an input that is no JSON.
        """
        if self.definition.identity is not None:
            name = f"{self.id}.identity"
            resolver: Callable[[Any], object] = self.definition.identity
            found = sync_result(resolver(parsed), argument=name)
            if not isinstance(found, str):
                raise UsageError(f"must return text, not {type(found).__name__}", argument=name)
            return found
        try:
            return canonical_record_hash([self.id, given])
        except CanonicalJsonError:
            return otherwise


AnyTool: TypeAlias = CompiledTool[Any, Any, Any]


def _adapter(definition: ToolDefinition[Any, Any, Any], name: str) -> SchemaAdapter[Any]:
    given: Any = getattr(definition, name)
    if callable(getattr(given, "parse", None)) and hasattr(given, "json_schema") and not isinstance(given, type):
        return cast("SchemaAdapter[Any]", given)
    try:
        return schema_for(given)
    except Exception as error:
        raise UsageError(f"must be a type or a schema adapter: {error}", argument=f"{definition.id}.{name}") from error


def _snapshot(schema: object, argument: str) -> JsonSchema:
    """Return a copy of a schema that later changes do not reach; its keywords are not read."""
    if not isinstance(schema, Mapping):
        raise InvalidValueError("a schema is a JSON object", argument=argument)
    copy: JsonSchema = _copied(schema)
    try:
        canonical_record_json(copy)
    except CanonicalJsonError as error:
        raise InvalidValueError(f"a schema is a JSON object: {error}", argument=argument) from None
    return copy


def _copied(value: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if isinstance(value, Mapping):
        return {key: _copied(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(held) for held in value]
    return value
