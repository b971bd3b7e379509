"""The one definition of a tool."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from pydantic import JsonValue

from runlane.contracts import (
    Id,
    JsonSchema,
    MaybeAwaitable,
    SchemaAdapter,
    is_async_callable,
    require_kind,
    require_seconds,
    require_sync,
)
from runlane.errors import InvalidValueError, UsageError
from runlane.tools._context import ToolExecutionContext
from runlane.tools._reconcile import Reconcile

__all__ = [
    "AsIntent",
    "ErasedTool",
    "ExecutableTool",
    "IntentOptions",
    "InvocationHandler",
    "RegisteredTool",
    "ToolCondition",
    "ToolContext",
    "ToolDefinition",
]

In = TypeVar("In")
Out = TypeVar("Out")
Ctx = TypeVar("Ctx")
Out_co = TypeVar("Out_co", covariant=True)
IdT_co = TypeVar("IdT_co", bound=str, covariant=True)

ToolContext: TypeAlias = Any
"""The host's own value, passed through as it is; read it, do not change it."""

ToolCondition: TypeAlias = Callable[[ToolContext], MaybeAwaitable[bool]]
"""Whether a tool is switched on for a host context; asked at every call."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOTHING: Final[Mapping[str, JsonValue]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentOptions:
    """Hints for finding a tool by what somebody wants; they switch nothing on or off."""

    title: str | None = None
    description: str | None = None
    examples: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()


AsIntent: TypeAlias = bool | IntentOptions
"""Whether a tool takes part in the discovery of demand, and with which hints."""


class InvocationHandler(Protocol):
    """A named step before or after a tool's own function."""

    @property
    def name(self) -> str:
        """For logs."""
        ...

    def handle(self, value: Any, context: ToolExecutionContext[Any], /) -> MaybeAwaitable[Any]:  # noqa: ANN401
        """Return the value to go on with: the input of a `before` handler, the output of an `after` handler.

        None keeps the value. Around a function that runs in a thread this must not be a coroutine function.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ToolDefinition(Generic[In, Out, Ctx]):
    """A tool: what a model is told of it, what it does, and under which conditions.

    Most are made by `tool` from a typed function.

    Attributes:
        id: 1 to 64 letters, digits, `_` or `-`: the name a model calls it by.
        description: What a model is told of it; not blank.
        input: The type of the input (anything pydantic can validate), or a schema with its parser.
        run: Does it. A coroutine function runs in the calling task, a plain one in a thread of its own.
        output: The type of the output, if it is to be checked.
        identity: What makes two calls the same; a hash of tool and input by default.
        condition: Switches the tool on or off for a host context.
        as_intent: See `AsIntent`.
        strict: Asks the provider to hold arguments to the schema.
        timeout: Seconds for `before`, `run` and `after` together; None for no limit. A thread that overruns is left
            to finish and keeps its slot; its result is dropped.
        before: Steps that see the parsed input first.
        after: Steps that see the output before it is checked.
        present: What the model and the record get of an output, in durable runs; JSON made of the output by default.
        needs_approval: Whether somebody has to agree before it runs, in durable runs; or a function of the parsed
            input that says so.
        idempotent: Calling it again with the same idempotency key has no second effect. After a crash in the middle
            of a call such a tool is called again; any other is not, unless somebody agrees.
        reconcile: Finds out, after a crash in the middle of a call, what came of it (`Reconcile`); for a tool that is
            not `idempotent`. With proof the call has its result; without, nobody knows.
        title: A name for people.
        metadata: Facts for the host; never shown to a model.

    Raises:
        InvalidValueError, UsageError: A field is malformed; names it.
    """

    id: str
    description: str
    input: SchemaAdapter[In] | type[In]
    run: Callable[[In, ToolExecutionContext[Ctx]], MaybeAwaitable[Out]]
    output: SchemaAdapter[Out] | type[Out] | None = None
    identity: Callable[[In], str] | None = None
    condition: ToolCondition | None = None
    as_intent: AsIntent = False
    strict: bool = False
    timeout: float | None = None
    before: Sequence[InvocationHandler] = ()
    after: Sequence[InvocationHandler] = ()
    present: Callable[[Out], JsonValue] | None = None
    needs_approval: bool | Callable[[In, ToolExecutionContext[Ctx]], MaybeAwaitable[bool]] = False
    idempotent: bool = False
    reconcile: Reconcile[In, Ctx, Out] | None = None
    title: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        _check_words(self.id, self.description)
        for name in ("run", "identity", "condition", "present", "reconcile"):
            value: object = getattr(self, name)
            if not callable(value) and (value is not None or name == "run"):
                raise UsageError(f"of tool {self.id!r} must be callable", argument=name)
        for name in ("strict", "idempotent"):
            require_kind(getattr(self, name), bool, argument=name)
        for name in ("before", "after"):
            require_kind(getattr(self, name), Sequence, argument=name)
        require_kind(self.title, str | None, argument="title")
        require_kind(self.metadata, Mapping, argument="metadata")
        if not isinstance(self.needs_approval, bool) and not callable(self.needs_approval):
            raise UsageError(f"of tool {self.id!r} must be a bool or callable", argument="needs_approval")
        if self.timeout is not None and not require_seconds(self.timeout, argument="timeout"):
            raise InvalidValueError(f"of tool {self.id!r} must be above 0 seconds or None", argument="timeout")
        self._check_sync()

    def _check_sync(self) -> None:
        for name in ("identity", "present"):
            function: Callable[..., object] | None = getattr(self, name)
            if function is not None:
                require_sync(function, argument=f"{self.id}.{name}")
        handlers = (*self.before, *self.after) if self.blocking else ()
        for handler in handlers:
            require_sync(handler.handle, argument=f"{self.id}.{handler.name}")

    @property
    def blocking(self) -> bool:
        """Whether `run` is a plain function, which needs a thread of its own."""
        return not is_async_callable(self.run)


def _check_words(tool_id: object, description: object) -> None:
    if not isinstance(tool_id, str) or _ID.fullmatch(tool_id) is None:
        raise InvalidValueError(f"must be 1 to 64 letters, digits, _ or -, got {tool_id!r}", argument="id")
    if not isinstance(description, str) or not description.strip():
        raise InvalidValueError(f"tool {tool_id!r} needs a description a model can read", argument="description")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTool:
    """What readers see of a tool in a registry: a snapshot without anything that can be called.

    Attributes:
        input_schema: The JSON Schema of its input.
        output_schema: That of its output, if it is checked.
        idempotent: Whether calling it again with the same idempotency key has no second effect.
        reconciles: Whether it can find out what came of a call that a crash cut off.
    """

    id: Id
    title: str | None
    description: str
    input_schema: JsonSchema
    output_schema: JsonSchema | None
    strict: bool
    as_intent: AsIntent
    idempotent: bool
    reconciles: bool
    metadata: Mapping[str, JsonValue]


class ExecutableTool(Protocol[In, Out_co, Ctx, IdT_co]):
    """A tool as code calls it, with its types."""

    @property
    def id(self) -> IdT_co:
        """The tool's id, a literal."""
        ...

    def parse(self, value: object, /) -> In:
        """Return a value as the tool's input.

        Raises:
            CheckFailedError: It is none.
        """
        ...

    def execute(self, value: In, context: ToolExecutionContext[Ctx], /) -> MaybeAwaitable[Out_co]:
        """Do it."""
        ...


class ErasedTool(Protocol):
    """A tool as a registry runs it. `execute` only ever gets what `parse` of the same tool returned."""

    @property
    def id(self) -> Id:
        """The tool's id."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether `execute` must run in a thread."""
        ...

    def parse(self, value: object, /) -> object:
        """Return a value as the tool's input, or raise `CheckFailedError`."""
        ...

    def execute(self, value: Any, context: ToolExecutionContext[Any], /) -> MaybeAwaitable[object]:  # noqa: ANN401
        """Do it."""
        ...

    def parse_output(self, value: Any, /) -> object:  # noqa: ANN401 - whatever it returned
        """Return the output as its declared type, or raise `CheckFailedError`; without one, as it is."""
        ...
