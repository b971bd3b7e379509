"""The one provider port and message vocabulary.

A wire protocol is imported by its name: `from runlane.models.openai_chat import OpenAIChat`.
"""

from runlane.models._calls import (
    NativeFunctionCall,
    ToolCallCollector,
    ToolCallFailure,
    create_tool_call_collector,
    parse_arguments,
)
from runlane.models._collect import CollectedResponse, collect
from runlane.models._failure import (
    ProviderFailure,
    ProviderFailureReason,
    classify_provider_failure,
    is_tool_result_failure,
)
from runlane.models._messages import (
    AnyModelMessage,
    FileItem,
    ModelAssistantToolMessage,
    ModelFunction,
    ModelImage,
    ModelMessage,
    ModelToolCall,
    ModelToolResultMessage,
    model_protocol_error,
    validate_messages,
)
from runlane.models._port import (
    ChatProvider,
    ModelOptions,
    ModelProviderContext,
    ResolvedModel,
    ResponseProviderResolver,
    UsageNormalizer,
)
from runlane.models._repair import repair_object, repair_text, repair_value
from runlane.models._retry import Backoff, RetryDecision, RetryPolicy, RetryRequest, decide_retry
from runlane.models._stream import (
    FileOutput,
    FinishReason,
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ModelUsage,
    OpaqueOutput,
    ReasoningDelta,
    ResponseInfo,
    SourceOutput,
    StreamNote,
    TextDelta,
    UsageReport,
)
from runlane.models._tokens import BYTE_BOUND, ByteBound, OpenAITokens, TokenCounter, count_tool_schemas
from runlane.models._usage import add_usage, usage_from_model

__all__ = [
    "BYTE_BOUND",
    "AnyModelMessage",
    "Backoff",
    "ByteBound",
    "ChatProvider",
    "CollectedResponse",
    "FileItem",
    "FileOutput",
    "FinishReason",
    "FinishReport",
    "FunctionCallDelta",
    "ModelAssistantToolMessage",
    "ModelFunction",
    "ModelImage",
    "ModelMessage",
    "ModelOptions",
    "ModelPart",
    "ModelProviderContext",
    "ModelToolCall",
    "ModelToolResultMessage",
    "ModelUsage",
    "NativeFunctionCall",
    "OpaqueOutput",
    "OpenAITokens",
    "ProviderFailure",
    "ProviderFailureReason",
    "ReasoningDelta",
    "ResolvedModel",
    "ResponseInfo",
    "ResponseProviderResolver",
    "RetryDecision",
    "RetryPolicy",
    "RetryRequest",
    "SourceOutput",
    "StreamNote",
    "TextDelta",
    "TokenCounter",
    "ToolCallCollector",
    "ToolCallFailure",
    "UsageNormalizer",
    "UsageReport",
    "add_usage",
    "classify_provider_failure",
    "collect",
    "count_tool_schemas",
    "create_tool_call_collector",
    "decide_retry",
    "is_tool_result_failure",
    "model_protocol_error",
    "parse_arguments",
    "repair_object",
    "repair_text",
    "repair_value",
    "usage_from_model",
    "validate_messages",
]
