"""Every name that spans use: change one here and nowhere else.

The `gen_ai.*` names are those of the OpenTelemetry semantic conventions for generative AI, status development. Their
repository has no schema address of its own yet: `SCHEMA_URL` is that of the general conventions, whose Python package
has the same names. What has no name there is `runlane.*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from runlane.records import TerminalReason, message_status_for_terminal_reason

__all__ = [
    "INSTRUMENTATION",
    "OTHER_ERROR",
    "SCHEMA_URL",
    "AttributeName",
    "is_failure",
    "named",
    "provider_name",
]

INSTRUMENTATION: Final = "runlane"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
OTHER_ERROR: Final = "_OTHER"
"""What `error.type` says of a failure whose kind is not known, by the conventions."""


class AttributeName:
    """The names of attributes and span events."""

    OPERATION = "gen_ai.operation.name"
    CONVERSATION = "gen_ai.conversation.id"
    AGENT = "gen_ai.agent.name"
    PROVIDER = "gen_ai.provider.name"
    REQUEST_MODEL = "gen_ai.request.model"
    STREAM = "gen_ai.request.stream"
    RESPONSE_ID = "gen_ai.response.id"
    RESPONSE_MODEL = "gen_ai.response.model"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
    TOOL = "gen_ai.tool.name"
    TOOL_CALL = "gen_ai.tool.call.id"
    TOOL_TYPE = "gen_ai.tool.type"
    ERROR = "error.type"

    # Content: only if it was asked for.
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"

    RUN = "runlane.run.id"
    RUN_STATE = "runlane.run.state"
    RUN_EPOCH = "runlane.run.epoch"
    RUN_WINNER = "runlane.run.is_winner"
    QUEUE_WAIT = "runlane.run.queue_wait_ms"
    REASON = "runlane.run.terminal_reason"
    POLICY = "runlane.run.policy_name"
    STATUS = "runlane.status"
    STEP = "runlane.step.index"
    ATTEMPT = "runlane.step.attempt"
    PROVENANCE = "runlane.usage.provenance"
    COST = "runlane.usage.cost"
    CURRENCY = "runlane.usage.currency"
    OPERATION_ID = "runlane.operation.id"
    OPERATION_CODE = "runlane.operation.code"
    WORKFLOW = "runlane.workflow.id"
    NODE = "runlane.node.id"
    VISIT = "runlane.node.visit"
    ROUND = "runlane.round"
    STAGE = "runlane.stage"
    TRANSPORT = "runlane.transport"
    CALL_NUMBER = "runlane.call_number"
    INVOCATION = "runlane.invocation.id"

    ATTEMPT_RESET = "runlane.attempt_reset"
    INTERRUPT = "runlane.interrupt_requested"


_PROVIDERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "openai-chat": "openai",
        "openai-responses": "openai",
        "anthropic": "anthropic",
        "google": "gcp.gemini",
    }
)


def provider_name(provider_id: str, /) -> str:
    """Return the conventions' name of the provider whose wire protocol was spoken.

    Example:
        >>> provider_name("google"), provider_name("my-own")
        ('gcp.gemini', 'my-own')
    """
    return _PROVIDERS.get(provider_id, provider_id)


def named(kind: Literal["invoke_agent", "invoke_workflow", "chat", "execute_tool"], subject: str | None, /) -> str:
    """Return the name of a span of the conventions."""
    return f"{kind} {subject}" if subject else kind


def is_failure(reason: TerminalReason, /) -> bool:
    """Whether a run that ended for this reason failed; one that was interrupted, superseded or cancelled did not."""
    return message_status_for_terminal_reason(reason) == "failed"
