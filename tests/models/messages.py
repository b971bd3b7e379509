"""Small messages for tests of the encoders."""

import json

from pydantic import JsonValue

from runlane.models import ModelFunction
from runlane.records import JsonObject, ProviderEnvelope, ProviderPart, ToolCallPart, ToolResultPart

FUNCTION = ModelFunction(name="f", description="Finds.", parameters={"type": "object"})


def envelope(provider: str, **data: JsonValue) -> ProviderEnvelope:
    """What a provider attached."""
    return ProviderEnvelope(provider=provider, data=data)


def call(call_id: str, provider: ProviderEnvelope | None = None, **arguments: JsonValue) -> ToolCallPart:
    """A call of the tool `f`."""
    return ToolCallPart(
        call_id=call_id, tool_name="f", arguments=json.dumps(arguments), input=arguments, provider=provider
    )


def broken_call(call_id: str) -> ToolCallPart:
    """A call of the tool `f` whose arguments are not JSON."""
    return ToolCallPart(call_id=call_id, tool_name="f", arguments='{"a": ')


def result(call_id: str, output: JsonValue, outcome: str = "success") -> ToolResultPart:
    """What the tool `f` gave."""
    return ToolResultPart.model_validate({"call_id": call_id, "tool_name": "f", "outcome": outcome, "output": output})


def opaque(provider: str, data: JsonObject) -> ProviderPart:
    """A part without a neutral form."""
    return ProviderPart(envelope=ProviderEnvelope(provider=provider, data=data))
