"""Model calls within bounds: prepared, measured and charged before anything is sent, typed by their transport."""

from runlane.models import (
    ModelToolCall as AggregatedToolCall,
)
from runlane.models import (
    NativeFunctionCall,
    ToolCallCollector,
    ToolCallFailure,
    create_tool_call_collector,
)
from runlane.runner._bound_transport import (
    create_model_transport,
)
from runlane.runner._capabilities import (
    ModelSelection,
    ModelSessionCall,
    ModelSessionResult,
    ModelTool,
    ModelToolCatalog,
    ModelToolRegistration,
    ModelToolRegistry,
    ModelToolSource,
    RegisteredModelTool,
    ToolProposal,
)
from runlane.runner._config import (
    MODEL_RUNNER_DEFAULTS,
    ModelCallRequest,
    ModelChildOptions,
    ModelChildPolicy,
    ModelPrepareRequest,
    ModelRunnerOptions,
    ModelRunnerPorts,
    ModelRunnerSettings,
    ModelRuntimeConfig,
    ModelTokenBudget,
)
from runlane.runner._json_object import (
    json_object_interaction,
)
from runlane.runner._measurement import (
    ModelInputMeasurement,
)
from runlane.runner._native import (
    native_function_interaction,
)
from runlane.runner._prepared import (
    PreparedModelCall,
)
from runlane.runner._retry import (
    retry_multiple_model_calls,
)
from runlane.runner._runner import (
    ModelRunner,
)
from runlane.runner._selectable import selectable_tools
from runlane.runner._trace import (
    ModelCallTrace,
    ModelOutputEvent,
)
from runlane.runner._transports import (
    PLAIN_TEXT,
    InteractionMode,
    ModelInteractionAdapter,
    ModelResponseCollector,
    ModelTransportDefinition,
    ModelTransportRegistration,
    PreparedModelInteraction,
    PreparedModelTransport,
    ProposalCollector,
    RegisteredTransportOutput,
    TransportKey,
)
from runlane.tools import AsIntent, IntentOptions, ToolCondition, ToolContext

__all__ = [
    "MODEL_RUNNER_DEFAULTS",
    "PLAIN_TEXT",
    "AggregatedToolCall",
    "AsIntent",
    "IntentOptions",
    "InteractionMode",
    "ModelCallRequest",
    "ModelCallTrace",
    "ModelChildOptions",
    "ModelChildPolicy",
    "ModelInputMeasurement",
    "ModelInteractionAdapter",
    "ModelOutputEvent",
    "ModelPrepareRequest",
    "ModelResponseCollector",
    "ModelRunner",
    "ModelRunnerOptions",
    "ModelRunnerPorts",
    "ModelRunnerSettings",
    "ModelRuntimeConfig",
    "ModelSelection",
    "ModelSessionCall",
    "ModelSessionResult",
    "ModelTokenBudget",
    "ModelTool",
    "ModelToolCatalog",
    "ModelToolRegistration",
    "ModelToolRegistry",
    "ModelToolSource",
    "ModelTransportDefinition",
    "ModelTransportRegistration",
    "NativeFunctionCall",
    "PreparedModelCall",
    "PreparedModelInteraction",
    "PreparedModelTransport",
    "ProposalCollector",
    "RegisteredModelTool",
    "RegisteredTransportOutput",
    "ToolCallCollector",
    "ToolCallFailure",
    "ToolCondition",
    "ToolContext",
    "ToolProposal",
    "TransportKey",
    "create_model_transport",
    "create_tool_call_collector",
    "json_object_interaction",
    "native_function_interaction",
    "retry_multiple_model_calls",
    "selectable_tools",
]
