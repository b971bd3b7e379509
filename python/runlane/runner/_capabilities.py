"""Capabilities: what a model may choose. Choosing resolves to a value; nothing is executed."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from pydantic import JsonValue

from runlane.canonical import canonical_record_json
from runlane.contracts import (
    Id,
    JsonSchema,
    MaybeAwaitable,
    ModelUsage,
    OrderedRegistry,
    ReadonlyCatalog,
    SchemaAdapter,
    require_id,
    require_sync,
    sync_result,
)
from runlane.errors import (
    CanonicalJsonError,
    InvalidValueError,
    MissingEntryError,
    UsageError,
)
from runlane.models import ModelToolCall
from runlane.tools import AsIntent

__all__ = [
    "ModelSelection",
    "ModelSessionCall",
    "ModelSessionResult",
    "ModelTool",
    "ModelToolCatalog",
    "ModelToolRegistration",
    "ModelToolRegistry",
    "ModelToolSource",
    "RegisteredModelTool",
    "ToolProposal",
    "capture",
]

Out = TypeVar("Out")
Out_co = TypeVar("Out_co", covariant=True)


class ModelTool(Protocol[Out_co]):
    """Something a model may choose."""

    @property
    def id(self) -> Id:
        """The name a model chooses it by."""
        ...

    @property
    def description(self) -> str:
        """What a model is told of it."""
        ...

    @property
    def schema(self) -> SchemaAdapter[Any]:
        """Its arguments."""
        ...

    @property
    def intent(self) -> AsIntent:
        """Whether it takes part in the discovery of demand."""
        ...

    def resolve(self, arguments: Any, /) -> MaybeAwaitable[Out_co]:  # noqa: ANN401 - what its own schema parsed
        """Return what choosing it means."""
        ...


class ModelToolSource(Protocol[Out_co]):
    """A catalogue of capabilities that may change; a transport captures it anew for each call."""

    def list_tools(self) -> Sequence[ModelTool[Out_co]]:
        """Return what there is at this moment."""
        ...

    def resolve(self, tool_id: Id, arguments: Any, /) -> MaybeAwaitable[Out_co]:  # noqa: ANN401 - see above
        """Return what choosing a tool means. For code that holds an id; a transport asks the tool it captured."""
        ...


@dataclass(frozen=True, kw_only=True)
class ModelToolRegistration(Generic[Out]):
    """A capability as a host writes it down.

    Attributes:
        id: 1 to 512 characters.
        schema: What the arguments are, and how they are checked.
        resolve: Given the parsed arguments, returns what choosing it means; may be asynchronous.
        intent: A hint for finding demand; it is never registered, looked up or called by itself.
    """

    id: str
    description: str
    schema: SchemaAdapter[Any]
    resolve: Callable[[Any], MaybeAwaitable[Out]]
    intent: AsIntent = False


@dataclass(frozen=True, kw_only=True)
class RegisteredModelTool(Generic[Out]):
    """A capability as a registry keeps it: a snapshot, so changing the schema it came with changes nothing.

    Attributes:
        json_schema: The arguments as a model is shown them.
    """

    id: Id
    description: str
    schema: SchemaAdapter[Any] = field(repr=False)
    json_schema: JsonSchema
    resolve: Callable[[Any], MaybeAwaitable[Out]] = field(repr=False)
    intent: AsIntent = False


def capture(tool: ModelTool[Out] | ModelToolRegistration[Out], /) -> RegisteredModelTool[Out]:
    """Take the snapshot of a capability.

    Raises:
        InvalidValueError: Its id or description is empty, or its schema is no JSON object; names the tool.
        UsageError: `resolve` or the schema's `parse` is missing, or `parse` is a coroutine function.
    """
    if isinstance(tool, RegisteredModelTool):
        return tool
    tool_id = require_id(tool.id, argument="tool.id")
    if not tool.description.strip():
        raise InvalidValueError("needs a description a model can read", argument=f"{tool_id}.description")
    if not callable(tool.resolve):
        raise UsageError("must be callable", argument=f"{tool_id}.resolve")
    require_sync(getattr(tool.schema, "parse", cast("Any", None)), argument=f"{tool_id}.schema.parse")
    return RegisteredModelTool(
        id=tool_id,
        description=tool.description,
        schema=tool.schema,
        json_schema=_snapshot(tool.schema.json_schema, tool_id),
        resolve=tool.resolve,
        intent=tool.intent,
    )


def _snapshot(schema: object, tool_id: Id) -> JsonSchema:
    """Copy a schema, in its own order, once it has proved to be a JSON object."""
    try:
        given = dict(cast("JsonSchema", schema))
        canonical_record_json(given)
    except (CanonicalJsonError, TypeError, ValueError) as error:
        raise InvalidValueError(f"must be a JSON object: {error}", argument=f"{tool_id}.schema") from error
    copied: JsonSchema = json.loads(json.dumps(given))
    return copied


class ModelToolRegistry(Generic[Out]):
    """Capabilities in the order of registration: a `runlane.contracts.Registry`, and a `ModelToolSource`.

    It filters nothing: a host decides what is available before it projects.

    Example:
        >>> nothing = schema_for(dict[str, str])
        >>> registry = ModelToolRegistry(
        ...     [ModelToolRegistration(id=Id("stop"), description="Stop.", schema=nothing, resolve=lambda _: None)]
        ... )
        >>> [tool.id for tool in registry.project([Id("stop")])]
        ['stop']
    """

    def __init__(self, tools: Iterable[ModelToolRegistration[Out] | ModelTool[Out]] = (), /) -> None:
        """Register these; more may follow until it is sealed."""
        self._entries: OrderedRegistry[ModelToolRegistration[Out] | ModelTool[Out], RegisteredModelTool[Out]]
        self._entries = OrderedRegistry("model tools", _admit)
        for item in tools:
            self.register(item)

    @property
    def sealed(self) -> bool:
        """Whether it takes no more."""
        return self._entries.sealed

    def register(self, item: ModelToolRegistration[Out] | ModelTool[Out], /) -> RegisteredModelTool[Out]:
        """Append a capability and return its snapshot. A refused one changes nothing.

        Raises:
            DuplicateRegistrationError: The id is known.
            RegistrySealedError: The registry takes no more.
            InvalidValueError, UsageError: See `ModelToolRegistration`; names the tool.
        """
        return self._entries.register(item)

    def seal(self) -> ReadonlyCatalog[RegisteredModelTool[Out]]:
        """Take no more from now on, and return what is there."""
        return self._entries.seal()

    def project(self, keep: Collection[Id] | Callable[[RegisteredModelTool[Out]], bool], /) -> ModelToolRegistry[Out]:
        """Return a sealed registry of some of these, in the same order.

        Args:
            keep: The ids, or what says yes to a capability; synchronous.

        Raises:
            MissingEntryError: One of the ids is unknown.
            UsageError: `keep` is a text, or a function that would have to be awaited.
        """
        if isinstance(keep, str):
            raise UsageError("must be a collection of ids, not one text", argument="keep")
        projected: ModelToolRegistry[Out] = ModelToolRegistry(_kept(self._entries, keep))
        projected.seal()
        return projected

    def list_tools(self) -> tuple[RegisteredModelTool[Out], ...]:
        """Return all capabilities, in order."""
        return self._entries.list()

    def resolve(self, tool_id: Id, arguments: Any, /) -> MaybeAwaitable[Out]:  # noqa: ANN401 - what its schema parsed
        """Return what choosing a capability with these parsed arguments means.

        Raises:
            MissingEntryError: There is no such capability. Also a `KeyError`.
        """
        return self.require(tool_id).resolve(arguments)

    def get(self, tool_id: Id, /) -> RegisteredModelTool[Out] | None:
        """Return a capability, or None."""
        return self._entries.get(tool_id)

    def require(self, tool_id: Id, /) -> RegisteredModelTool[Out]:
        """Return a capability.

        Raises:
            MissingEntryError: There is none. Also a `KeyError`.
        """
        return self._entries.require(tool_id)

    def list(self) -> tuple[RegisteredModelTool[Out], ...]:
        """Return all capabilities, in order."""
        return self._entries.list()

    def __contains__(self, tool_id: object, /) -> bool:
        return tool_id in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RegisteredModelTool[Out]]:
        return iter(self._entries)


ModelToolCatalog: TypeAlias = ModelToolRegistry[Out] | ModelToolSource[Out]
"""Where a transport takes its capabilities from."""


def _admit(item: ModelToolRegistration[Out] | ModelTool[Out]) -> tuple[Id, RegisteredModelTool[Out]]:
    entry = capture(item)
    return entry.id, entry


def _kept(
    entries: ReadonlyCatalog[RegisteredModelTool[Out]],
    keep: Collection[Id] | Callable[[RegisteredModelTool[Out]], bool],
) -> list[RegisteredModelTool[Out]]:
    if callable(keep):
        require_sync(keep, argument="keep")
        return [entry for entry in entries if sync_result(keep(entry), argument="keep")]
    for tool_id in keep:
        if tool_id not in entries:
            raise MissingEntryError(argument="keep", key=tool_id)
    return [entry for entry in entries if entry.id in keep]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProposal:
    """What a model asked for: neither permission nor receipt.

    Attributes:
        arguments: JSON, or the raw text of it as the model wrote it.
        call_id: The provider's id of the call, if it has one.
    """

    tool_id: Id
    arguments: JsonValue
    call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelSelection(Generic[Out]):
    """The capability a model chose.

    Not to be mistaken for `runlane.models.ModelSelection`, the model a person chose.

    Attributes:
        arguments: As the capability's schema parsed them.
        value: What the capability resolved to.
    """

    tool_id: Id
    arguments: object
    value: Out


ModelSessionCall: TypeAlias = ModelToolCall
"""A call within a session result is the record's own part: the text as written beside the parsed input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSessionResult:
    """What a model said in a session: words, and any number of calls, each checked.

    Attributes:
        calls: In the provider's order.
        finish_reason: Why the answer ended.
        usage: What was reported, or None.
    """

    text: str
    calls: tuple[ModelSessionCall, ...]
    finish_reason: str
    usage: ModelUsage | None = None
