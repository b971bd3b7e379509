"""The parts a message is made of: a closed union on `type`."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import (
    AnyUrl,
    Field,
    JsonValue,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    StrictBool,
    TypeAdapter,
    field_validator,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from runlane.records._base import JsonObject, Record, RecordId, Text

__all__ = [
    "ControlPart",
    "FilePart",
    "Part",
    "ProviderEnvelope",
    "ProviderPart",
    "ReasoningPart",
    "SourcePart",
    "TextPart",
    "ToolApprovalRequestPart",
    "ToolApprovalResponsePart",
    "ToolCallPart",
    "ToolOutcome",
    "ToolResultPart",
]

NonEmpty: TypeAlias = Annotated[Text, Field(min_length=1)]

ToolOutcome: TypeAlias = Literal["success", "error", "interrupted"]

_URL = TypeAdapter(AnyUrl)


class ProviderEnvelope(Record):
    """What a provider attached to its output, kept untouched and given back to the same provider only.

    Attributes:
        provider: The wire protocol's key: `openai-chat`, `openai-responses`, `anthropic` or `google`.
        data: The provider's own object.
    """

    schema_version: Annotated[int, Field(ge=1, strict=True)] = 1
    provider: NonEmpty
    data: JsonObject


class TextPart(Record):
    """Visible text; may be empty."""

    type: Literal["text"] = "text"
    text: Text


class ReasoningPart(Record):
    """What a model wrote while thinking, with the provider's signature in the envelope if it gave one."""

    type: Literal["reasoning"] = "reasoning"
    text: Text
    provider: ProviderEnvelope | None = None


class FilePart(Record):
    """A file, by reference: binary data is never part of a message.

    Attributes:
        media_type: Such as `image/png`.
        reference: Where the application keeps the file; never sent to a model.
        filename: A name for people.
    """

    type: Literal["file"] = "file"
    media_type: NonEmpty
    reference: NonEmpty
    filename: NonEmpty | None = None


class SourcePart(Record):
    """A source the model cites."""

    type: Literal["source"] = "source"
    source_id: NonEmpty
    url: str | None = None
    title: Text | None = None

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        """Refuse what is not a URL, and keep the spelling of what is."""
        if value is not None:
            _URL.validate_python(value)
        return value


class ToolCallPart(Record):
    """A call the model asked for.

    Attributes:
        arguments: The arguments exactly as the model wrote them; this text is what is sent back to the provider.
        input: The parsed arguments, integers exact. Absent, not null, when the text is not valid JSON: then no tool
            runs; `has_input` tells the two apart.
    """

    type: Literal["tool-call"] = "tool-call"
    call_id: RecordId
    tool_name: NonEmpty
    arguments: Text
    input: SerializeAsAny[JsonValue] = None
    provider: ProviderEnvelope | None = None

    @property
    def has_input(self) -> bool:
        """Whether the arguments are valid JSON."""
        return "input" in self.model_fields_set

    @model_serializer(mode="wrap")
    def _keep_null_input(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _with_null(self, handler(self), "input")


class ToolResultPart(Record):
    """What a call gave.

    Attributes:
        output: Any JSON; absent when there was none. For `error` an object with at least `error` or `message`.
    """

    type: Literal["tool-result"] = "tool-result"
    call_id: RecordId
    tool_name: NonEmpty
    outcome: ToolOutcome
    output: SerializeAsAny[JsonValue] = None

    @property
    def has_output(self) -> bool:
        """Whether an output was given, null included."""
        return "output" in self.model_fields_set

    @model_serializer(mode="wrap")
    def _keep_null_output(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _with_null(self, handler(self), "output")


class ToolApprovalRequestPart(Record):
    """A call waits for somebody's consent."""

    type: Literal["tool-approval-request"] = "tool-approval-request"
    approval_id: RecordId
    call_id: RecordId
    is_automatic: StrictBool | None = None
    signature: NonEmpty | None = None


class ToolApprovalResponsePart(Record):
    """The consent, or its refusal. It names only the approval; the call is found through the request."""

    type: Literal["tool-approval-response"] = "tool-approval-response"
    approval_id: RecordId
    approved: StrictBool
    reason: NonEmpty | None = None


class ProviderPart(Record):
    """Structured output of a provider that has no neutral form."""

    type: Literal["provider"] = "provider"
    envelope: ProviderEnvelope


class ControlPart(Record):
    """A mark the runtime leaves on an answer that was cut off."""

    type: Literal["control"] = "control"
    reason: Literal["run-interrupted", "stale-run"]


Part: TypeAlias = Annotated[
    TextPart
    | ReasoningPart
    | FilePart
    | SourcePart
    | ToolCallPart
    | ToolResultPart
    | ToolApprovalRequestPart
    | ToolApprovalResponsePart
    | ProviderPart
    | ControlPart,
    Field(discriminator="type"),
]


def _with_null(part: Record, dumped: object, field: str) -> dict[str, object]:
    """Give back a null that was really said and that leaving out absent fields dropped."""
    if not isinstance(dumped, dict):
        raise PydanticCustomError("record", "a part is dumped as an object")
    if field in part.model_fields_set:
        dumped.setdefault(field, None)
    else:
        dumped.pop(field, None)
    return dumped
