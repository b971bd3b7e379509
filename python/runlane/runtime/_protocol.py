"""`AgentProtocol`: the shape of what comes into an agent, and what counts as an answer of it.

| finished answer | asked for acceptance |
|---|---|
| reason `success`, `policy_stop` or `provider_stop` | yes, before it is committed |
| any other reason | no |
| holds a request for an approval | no: it goes on once somebody answered |

| `terminal_acceptance` | accepts |
|---|---|
| `allow-empty` | everything |
| `require-output` | text that is not blank, a file, structured provider output; under a stop policy also tool parts |
| a function | what it says True to |

An answer that is refused ends its run as `output_rejected`, run and message failed; a committed success is never
rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, Unpack, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from runlane.contracts import MaybeAwaitable, require_kind, resolve
from runlane.errors import InvalidValueError, UsageError
from runlane.records import (
    COMPLETING_REASONS,
    FilePart,
    Message,
    ProviderPart,
    TerminalReason,
    TextPart,
    ToolApprovalRequestPart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime._inputs import InputLike, RuntimeInput, read_object

__all__ = [
    "AgentProtocol",
    "ProtocolConfig",
    "ProtocolInput",
    "TerminalAcceptance",
    "TerminalAcceptanceInput",
    "define_protocol",
    "has_terminal_output",
    "is_accepted",
]

C = TypeVar("C")

_WORDS: Final = ("allow-empty", "require-output")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalAcceptanceInput:
    """A finished answer that is about to be committed.

    Attributes:
        message: The answer, already of status `completed`.
        reason: `success`, `policy_stop` or `provider_stop`.
        policy_name: The stop policy that fired, with reason `policy_stop`.
    """

    message: Message
    reason: TerminalReason
    policy_name: str | None = None


TerminalAcceptance: TypeAlias = (
    Literal["allow-empty", "require-output"] | Callable[[TerminalAcceptanceInput], MaybeAwaitable[bool]]
)
"""What counts as an answer; a function may be plain or a coroutine function."""


ProtocolInput: TypeAlias = InputLike
"""What may be submitted under a protocol: the same as without one, but for what it says of metadata."""


class ProtocolConfig(TypedDict, total=False):
    """Options of `define_protocol`; see `AgentProtocol`."""

    context: Any
    input_metadata: Any
    terminal_acceptance: TerminalAcceptance


class AgentProtocol(Generic[C]):
    """What an application and its agent agree on.

    Attributes:
        terminal_acceptance: What counts as an answer.

    Example:
        >>> protocol = AgentProtocol(context=dict[str, int], terminal_acceptance="require-output")
        >>> protocol.parse_context({"user": "7"})
        {'user': 7}
    """

    def __init__(
        self,
        *,
        context: type[C] | TypeAdapter[C] | None = None,
        input_metadata: type[object] | TypeAdapter[Any] | None = None,
        terminal_acceptance: TerminalAcceptance = "allow-empty",
    ) -> None:
        """Define a protocol.

        Args:
            context: A type that pydantic can read, for the `context` of `submit` and of recovered runs; None takes
                anything as it is.
            input_metadata: The same for the metadata of an input, which must be an object; what was read is stored in
                its JSON form.
            terminal_acceptance: See the table of this module.

        Raises:
            UsageError: `terminal_acceptance` is none of its forms, or pydantic cannot read a type.
        """
        if not callable(terminal_acceptance) and terminal_acceptance not in _WORDS:
            raise UsageError(f"must be {' or '.join(_WORDS)} or a function", argument="terminal_acceptance")
        self._context: TypeAdapter[C] | None = _adapter(context, "context")
        self._metadata: TypeAdapter[Any] | None = _adapter(input_metadata, "input_metadata")
        self.terminal_acceptance: TerminalAcceptance = terminal_acceptance

    def parse_context(self, raw: object, /) -> C:
        """Return the context of a run as its callbacks get it.

        Raises:
            InvalidValueError: It is not what the protocol says; names the field.
        """
        if self._context is None:
            return cast("C", raw)
        return _read(self._context, raw, "context")

    def read_metadata(self, given: RuntimeInput, /) -> RuntimeInput:
        """Return an input with its metadata as they are stored.

        Raises:
            InvalidValueError: They are not what the protocol says, or no JSON object; names the field.
        """
        if self._metadata is None:
            return given
        parsed = _read(self._metadata, given.metadata, "metadata")
        stored = None if parsed is None else self._metadata.dump_python(parsed, mode="json")
        return replace(given, metadata=read_object(stored, "metadata"))


def define_protocol(**options: Unpack[ProtocolConfig]) -> AgentProtocol[Any]:
    """Return an `AgentProtocol`."""
    return AgentProtocol(**options)


def has_terminal_output(message: Message, /, *, reason: TerminalReason = "success") -> bool:
    """Whether an answer says something: what `require-output` asks for."""
    require_kind(message, Message, argument="message")
    kinds: tuple[type[object], ...] = (FilePart, ProviderPart)
    if reason == "policy_stop":
        kinds = (*kinds, ToolCallPart, ToolResultPart)
    return any(
        isinstance(part, kinds) or (isinstance(part, TextPart) and bool(part.text.strip())) for part in message.parts
    )


async def is_accepted(acceptance: TerminalAcceptance, answer: TerminalAcceptanceInput, /) -> bool:
    """Whether an answer may be committed as it is.

    Raises:
        UsageError: The function did not say True or False.
    """
    message, reason = answer.message, answer.reason
    if reason not in COMPLETING_REASONS or any(isinstance(part, ToolApprovalRequestPart) for part in message.parts):
        return True
    if acceptance == "allow-empty":
        return True
    if acceptance == "require-output":
        return has_terminal_output(message, reason=reason)
    verdict: object = await resolve(acceptance(answer))
    if not isinstance(verdict, bool):
        raise UsageError(f"must answer True or False, not {type(verdict).__name__}", argument="terminal_acceptance")
    return verdict


def _adapter(kind: type[C] | TypeAdapter[C] | None, argument: str) -> TypeAdapter[C] | None:
    if kind is None or isinstance(kind, TypeAdapter):
        return kind
    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise UsageError(f"must be a type pydantic can read: {error.message}", argument=argument) from error


def _read(adapter: TypeAdapter[C], raw: object, argument: str) -> C:
    try:
        return adapter.validate_python(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join([argument, *(str(step) for step in first["loc"])])
        raise InvalidValueError(first["msg"], argument=place[:200]) from None
