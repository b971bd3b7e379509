"""The one message vocabulary: what a model is told, in no provider's format.

A neutral message is an ordered tuple of the records' own parts, plus the little a request needs beyond them: images
and files whose data has been fetched. History projects into it, every provider encodes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NoReturn, TypeAlias, final, overload

from typing_extensions import override

from runlane.contracts import JsonSchema
from runlane.errors import ModelProtocolError
from runlane.records import (
    JsonObject,
    ProviderEnvelope,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)

__all__ = [
    "AnyModelMessage",
    "FileItem",
    "MessageChain",
    "ModelAssistantToolMessage",
    "ModelFunction",
    "ModelImage",
    "ModelMessage",
    "ModelToolCall",
    "ModelToolResultMessage",
    "StoredMessages",
    "model_protocol_error",
    "validate_messages",
]

ModelToolCall: TypeAlias = ToolCallPart
"""A tool call inside a message is the record's own part."""

_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


def model_protocol_error(
    detail: str, /, *, code: str = "model.protocol", cause: BaseException | None = None
) -> NoReturn:
    """Raise `ModelProtocolError`; the only place that builds one.

    Args:
        detail: What is wrong.
        code: `model.protocol`, `model.multiple_calls`, `model.no_call`, `model.unexpected_call`,
            `model.unknown_capability` or `model.arguments_invalid`.
        cause: The error that revealed it.
    """
    raise ModelProtocolError(detail=detail, code=code) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelImage:
    """An image in a user message: exactly one of `data` and `url`."""

    media_type: str
    data: bytes | None = field(default=None, repr=False)
    url: str | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if self.media_type not in _IMAGE_TYPES:
            model_protocol_error(f"{self.media_type!r} is not an image type; use png, jpeg, webp or gif")
        if (self.data is None) == (self.url is None):
            model_protocol_error("an image needs exactly one of data and url")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileItem:
    """A file in a user message: exactly one of `data`, `url`, `text` and `provider_file`.

    Attributes:
        provider_file: The provider's own reference to a file it already holds.
    """

    media_type: str
    data: bytes | None = field(default=None, repr=False)
    url: str | None = None
    text: str | None = field(default=None, repr=False)
    provider_file: str | None = None
    filename: str | None = None

    def __post_init__(self) -> None:
        given = sum(value is not None for value in (self.data, self.url, self.text, self.provider_file))
        if given != 1:
            model_protocol_error("a file needs exactly one of data, url, text and provider_file")


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """A system, user or assistant message without tool traffic.

    Text may stand in any of them, images and files only in a user message, reasoning only in an assistant message. A
    `ProviderPart` is opaque output in an assistant message, and in a system message a provider's own options for it,
    such as a mark for its cache; providers of another name leave it out.

    Raises:
        ModelProtocolError: An item does not belong into a message of this role.

    Example:
        >>> ModelMessage.user("Hello").text
        'Hello'
    """

    role: Literal["system", "user", "assistant"]
    items: tuple[TextPart | ReasoningPart | ProviderPart | ModelImage | FileItem, ...]

    def __post_init__(self) -> None:
        role: object = self.role
        allowed = _ALLOWED.get(role) if isinstance(role, str) else None
        if allowed is None:
            model_protocol_error(f"{role!r} is no role of such a message; it is system, user or assistant")
        for item in self.items:
            if type(item) not in allowed:
                model_protocol_error(f"a {self.role} message cannot hold {type(item).__name__}")

    @classmethod
    def system(cls, text: str, /, provider: ProviderEnvelope | None = None) -> ModelMessage:
        """Return an instruction.

        Args:
            text: What it says.
            provider: A provider's own options for it, in an envelope with that provider's name.

        Example:
            >>> cached = ProviderEnvelope(provider="anthropic", data={"cache_control": {"type": "ephemeral"}})
            >>> ModelMessage.system("You are a librarian.", cached).text
            'You are a librarian.'
        """
        return cls("system", (TextPart(text=text), *(() if provider is None else (ProviderPart(envelope=provider),))))

    def provider_options(self, provider: str, /) -> JsonObject:
        """Return the options that the provider parts under one provider's name hold, the last one winning."""
        options: JsonObject = {}
        for item in self.items:
            if isinstance(item, ProviderPart) and item.envelope.provider == provider:
                options |= item.envelope.data
        return options

    @classmethod
    def user(cls, text: str, /, images: Iterable[ModelImage] = ()) -> ModelMessage:
        """Return a user's words, images after them."""
        return cls("user", (TextPart(text=text), *images))

    @classmethod
    def assistant(cls, text: str, /) -> ModelMessage:
        """Return a model's words."""
        return cls("assistant", (TextPart(text=text),))

    @property
    def text(self) -> str:
        """The text items, joined without a separator."""
        return _joined_text(self.items)

    @property
    def images(self) -> tuple[ModelImage, ...]:
        """The images, in order."""
        return tuple(item for item in self.items if isinstance(item, ModelImage))


@dataclass(frozen=True, slots=True)
class ModelAssistantToolMessage:
    """An assistant message with tool calls (or approval requests); the text may be empty.

    Raises:
        ModelProtocolError: It is empty, holds something else, or two calls share one id.
    """

    items: tuple[TextPart | ReasoningPart | ProviderPart | ToolCallPart | ToolApprovalRequestPart, ...]
    role: Literal["assistant"] = field(default="assistant", init=False)

    def __post_init__(self) -> None:
        if not self.items:
            model_protocol_error("an assistant tool message needs at least one item")
        seen: set[str] = set()
        for item in self.items:
            if type(item) not in _ASSISTANT_TOOL_ITEMS:
                model_protocol_error(f"an assistant tool message cannot hold {type(item).__name__}")
            if isinstance(item, ToolCallPart):
                if item.call_id in seen:
                    model_protocol_error(f"two calls of one message have the id {item.call_id!r}")
                seen.add(item.call_id)

    @classmethod
    def of(cls, text: str, tool_calls: Iterable[ToolCallPart], /) -> ModelAssistantToolMessage:
        """Return text followed by calls."""
        return cls((TextPart(text=text), *tool_calls))

    @property
    def text(self) -> str:
        """The text items, joined without a separator."""
        return _joined_text(self.items)

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls, in the provider's order."""
        return tuple(item for item in self.items if isinstance(item, ToolCallPart))


@dataclass(frozen=True, slots=True)
class ModelToolResultMessage:
    """Results of calls and answers to approvals.

    Raises:
        ModelProtocolError: It is empty or holds something else.
    """

    items: tuple[ToolResultPart | ToolApprovalResponsePart, ...]
    role: Literal["tool"] = field(default="tool", init=False)

    def __post_init__(self) -> None:
        if not self.items:
            model_protocol_error("a tool message needs at least one result")
        for item in self.items:
            if type(item) not in _TOOL_ITEMS:
                model_protocol_error(f"a tool message cannot hold {type(item).__name__}")

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        """The results, in order."""
        return tuple(item for item in self.items if isinstance(item, ToolResultPart))


AnyModelMessage: TypeAlias = ModelMessage | ModelAssistantToolMessage | ModelToolResultMessage


class StoredMessages(ABC):
    """Messages of a stored history, which can write themselves without being made into objects."""

    __slots__ = ()

    @abstractmethod
    def openai_chat_fragments(
        self, encode_file: Callable[[FileItem | ModelImage], bytes], /, *, send_reasoning: bool
    ) -> bytes:
        """Write them in the form of chat completions, with commas between.

        Args:
            encode_file: Writes the content piece of a file.
            send_reasoning: Whether reasoning of this protocol's providers is given back beside the calls it led to.
        """


@final
class MessageChain(Sequence[AnyModelMessage]):
    """Several sequences of messages as one, none of them copied: instructions, a stored history, and what is new.

    A request made from it costs what is new where its protocol can write a stored history straight from the records.
    Equal to any sequence of equal messages.

    Attributes:
        pieces: The sequences, empty ones left out and chains taken apart.

    Example:
        >>> chain = MessageChain([ModelMessage.system("Be brief.")], [ModelMessage.user("Hello")])
        >>> len(chain), chain[1].text
        (2, 'Hello')
    """

    __slots__ = ("pieces",)

    pieces: tuple[Sequence[AnyModelMessage], ...]

    def __init__(self, *pieces: Sequence[AnyModelMessage]) -> None:
        """Put sequences one behind the other."""
        flat: list[Sequence[AnyModelMessage]] = []
        for piece in pieces:
            # By its type alone: asking an abstract class for its instances costs more than the rest.
            if type(piece) is MessageChain:
                flat += piece.pieces
            elif len(piece):
                flat.append(piece)
        self.pieces = tuple(flat)

    @override
    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    @overload
    def __getitem__(self, index: int, /) -> AnyModelMessage: ...
    @overload
    def __getitem__(self, index: slice, /) -> tuple[AnyModelMessage, ...]: ...
    @override
    def __getitem__(self, index: int | slice, /) -> AnyModelMessage | tuple[AnyModelMessage, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = index if index >= 0 else index + len(self)
        for piece in self.pieces if place >= 0 else ():
            if place < len(piece):
                return piece[place]
            place -= len(piece)
        raise IndexError(index)

    @override
    def __iter__(self) -> Iterator[AnyModelMessage]:
        return chain.from_iterable(self.pieces)

    @override
    def __reversed__(self) -> Iterator[AnyModelMessage]:
        return chain.from_iterable(map(reversed, reversed(self.pieces)))

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return tuple(self) == tuple(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have no hash

    @override
    def __repr__(self) -> str:
        return f"MessageChain({list(self)!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFunction:
    """A tool as a model is told of it; nothing executable hangs on it."""

    name: str
    description: str
    parameters: JsonSchema
    strict: bool = False


_ALLOWED: dict[str, frozenset[type]] = {
    "system": frozenset({TextPart, ProviderPart}),
    "user": frozenset({TextPart, ModelImage, FileItem}),
    "assistant": frozenset({TextPart, ReasoningPart, ProviderPart}),
}
_ASSISTANT_TOOL_ITEMS = frozenset({TextPart, ReasoningPart, ProviderPart, ToolCallPart, ToolApprovalRequestPart})
_TOOL_ITEMS = frozenset({ToolResultPart, ToolApprovalResponsePart})


def _joined_text(items: Iterable[object]) -> str:
    return "".join(item.text for item in items if isinstance(item, TextPart))


def validate_messages(messages: Sequence[AnyModelMessage], /) -> None:
    """Refuse a request whose tool traffic does not add up across messages.

    Raises:
        ModelProtocolError: A result names a call nobody declared or one already answered, or a declared call is still
            unanswered when a message other than a tool message follows (a pending approval excepted).
    """
    traffic = _ToolTraffic()
    for message in messages:
        if isinstance(message, ModelToolResultMessage):
            traffic.answer(message)
            continue
        traffic.expect_no_debt()
        if isinstance(message, ModelAssistantToolMessage):
            traffic.declare(message)


class _ToolTraffic:
    """Which calls were declared, and which are still owed a result."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._open: set[str] = set()
        self._waiting: set[str] = set()

    def declare(self, message: ModelAssistantToolMessage) -> None:
        for item in message.items:
            if isinstance(item, ToolCallPart):
                self._known.add(item.call_id)
                self._open.add(item.call_id)
            elif isinstance(item, ToolApprovalRequestPart):
                self._waiting.add(item.call_id)

    def answer(self, message: ModelToolResultMessage) -> None:
        for result in message.results:
            if result.call_id not in self._known:
                model_protocol_error(f"a result names the unknown call {result.call_id!r}")
            if result.call_id not in self._open:
                model_protocol_error(f"the call {result.call_id!r} is answered twice")
            self._open.discard(result.call_id)

    def expect_no_debt(self) -> None:
        unanswered = self._open - self._waiting
        if unanswered:
            model_protocol_error(f"the call {min(unanswered)!r} has no result before the next message")
