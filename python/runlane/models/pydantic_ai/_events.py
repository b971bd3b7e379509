"""The events of pydantic-ai's stream as neutral parts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from runlane.errors import ModelError, ProviderStreamCutError
from runlane.models._failure import ErrorReply, provider_error, status_phrase
from runlane.models._messages import model_protocol_error
from runlane.models._repair import repair_object, repair_text
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
    TextDelta,
    UsageReport,
)
from runlane.models.pydantic_ai._package import exceptions, models
from runlane.models.pydantic_ai._package import messages as theirs
from runlane.models.pydantic_ai._request import PROVIDER_ID, RESPONSE_PART
from runlane.records import JsonObject

__all__ = ["EventReader", "failure_of"]

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_call": "tool-calls",
}


class EventReader:
    """Reads the events of one response.

    Args:
        new_call_id: Names a call whose provider does not.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._calls: dict[int, int] = {}
        self._streamed: set[int] = set()

    def read(self, event: object) -> list[ModelPart]:
        """Return what an event says."""
        if isinstance(event, theirs.PartStartEvent):
            return self._begin(event.index, event.part)
        if isinstance(event, theirs.PartDeltaEvent):
            return self._go_on(event.index, event.delta)
        if isinstance(event, theirs.PartEndEvent):
            return self._end(event.part)
        return []

    def finish(self, response: models.StreamedResponse, *, needs_reason: bool) -> list[ModelPart]:
        """Return what stands at the end of a response.

        Raises:
            ProviderError: The provider says that it failed.
            ProviderStreamCutError: Nothing says that the answer is complete.
            ModelProtocolError: A call changed into something else.
        """
        reason = response.finish_reason
        if reason == "error":
            reply = ErrorReply(where="gave the finish reason 'error'", fallback="stream-error")
            raise provider_error(reply, provider=PROVIDER_ID)
        known = reason is not None and not (needs_reason and _is_made_up(response))
        if not known and (needs_reason or response.state != "complete"):
            raise ProviderStreamCutError
        told = response.get().parts
        parts: list[ModelPart] = [
            *(self._close_call(index, told[index]) for index in self._calls),
            ResponseInfo(
                response_id=response.provider_response_id or None,
                model=response.model_name or None,
                upstream_provider=response.provider_name or None,
            ),
        ]
        usage = _usage(response.usage)
        if usage is not None:
            parts.append(UsageReport(usage))
        neutral = _REASONS.get(reason or "stop", "other")
        neutral = "tool-calls" if neutral == "stop" and self._calls else neutral
        raw = (response.provider_details or {}).get("finish_reason", reason)
        return [*parts, FinishReport(neutral, raw if isinstance(raw, str) else reason)]

    def _begin(self, index: int, part: theirs.ModelResponsePart) -> list[ModelPart]:
        if isinstance(part, theirs.TextPart):
            return [TextDelta(repair_text(part.content))] if part.content else []
        if isinstance(part, theirs.ThinkingPart):
            return [ReasoningDelta(repair_text(part.content), "start")]
        if isinstance(part, theirs.ToolCallPart):
            call = self._calls[index] = len(self._calls)
            return [FunctionCallDelta(call), *self._arguments(index, part.args)]
        if isinstance(part, theirs.NativeToolCallPart):
            return []  # its end has it whole
        if isinstance(part, theirs.FilePart):
            return [FileOutput(part.content.media_type, part.content.data)]
        return [OpaqueOutput(PROVIDER_ID, _dumped(part))]

    def _go_on(self, index: int, delta: object) -> list[ModelPart]:
        if isinstance(delta, theirs.TextPartDelta):
            return [TextDelta(repair_text(delta.content_delta))] if delta.content_delta else []
        if isinstance(delta, theirs.ThinkingPartDelta):
            return [ReasoningDelta(repair_text(delta.content_delta))] if delta.content_delta else []
        if isinstance(delta, theirs.ToolCallPartDelta):
            return self._arguments(index, delta.args_delta)
        return []

    def _arguments(self, index: int, arguments: object) -> list[ModelPart]:
        """Give text at once; an object, to which more may be added, is given when the part ends."""
        if not isinstance(arguments, str) or not arguments or index not in self._calls:
            return []
        self._streamed.add(index)
        return [FunctionCallDelta(self._calls[index], arguments=repair_text(arguments))]

    def _end(self, part: theirs.ModelResponsePart) -> list[ModelPart]:
        if isinstance(part, theirs.ThinkingPart):
            options = _attached(part, signature=part.signature)
            return [ReasoningDelta("", "end", options)]
        if isinstance(part, theirs.NativeToolCallPart):
            return [OpaqueOutput(PROVIDER_ID, _dumped(part))]
        return []

    def _close_call(self, index: int, part: theirs.ModelResponsePart) -> FunctionCallDelta:
        """Say what names a call, and its arguments if they did not come as text.

        The event that ends a part may come before the last deltas of a call, where calls are told side by side.
        """
        if not isinstance(part, theirs.ToolCallPart):
            model_protocol_error("a call of pydantic-ai is no call in the end")
        arguments = None if index in self._streamed or part.args is None else repair_text(part.args_as_json_str())
        name, call_id = repair_text(part.tool_name), part.tool_call_id or self._new_call_id()
        return FunctionCallDelta(self._calls[index], repair_text(call_id), name, arguments, _attached(part))


def failure_of(error: Exception) -> ModelError:
    """Return an exception of pydantic-ai as one of ours; ours are returned as they are."""
    if isinstance(error, ModelError):
        return error
    reply = ErrorReply(where=f"failed ({type(error).__name__})")
    if isinstance(error, exceptions.ModelHTTPError):
        where = f"answered {status_phrase(error.status_code)}"
        reply = ErrorReply(where=where, message=_words(error.body), status=error.status_code)
    elif isinstance(error, exceptions.ModelConnectionError):
        reply = ErrorReply(where="could not be reached", fallback="unreachable")
    elif isinstance(error, exceptions.AgentRunError):
        reply = ErrorReply(where=f"failed ({type(error).__name__})", message=error.message)
    return provider_error(reply, provider=PROVIDER_ID)


def _words(body: object) -> str:
    """Find the sentence for people in the body of a refusal."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        return message if isinstance(message, str) else ""
    return body if isinstance(body, str) else ""


def _is_made_up(response: models.StreamedResponse) -> bool:
    """Whether a finish reason is pydantic-ai's own: its reader of chat completions says `stop` where none came."""
    module = sys.modules.get("pydantic_ai.models.openai")
    reader = getattr(module, "OpenAIStreamedResponse", None)
    told = (response.provider_details or {}).get("finish_reason")
    return isinstance(reader, type) and isinstance(response, reader) and response.finish_reason == "stop" and not told


def _usage(usage: Any) -> ModelUsage | None:  # noqa: ANN401 - of pydantic-ai, whose zero may mean unknown
    if not usage.has_values():
        return None
    return ModelUsage(
        input_tokens=usage.input_tokens or None,
        output_tokens=usage.output_tokens or None,
        reasoning_tokens=usage.output_reasoning_tokens or usage.details.get("reasoning_tokens") or None,
        cache_read_tokens=usage.cache_read_tokens or None,
        cache_write_tokens=usage.cache_write_tokens or None,
        raw=dict(usage.details) or None,
    )


def _attached(part: theirs.ThinkingPart | theirs.ToolCallPart, **more: str | None) -> JsonObject | None:
    """Return what pydantic-ai wants to see again with a part."""
    given: dict[str, Any] = {
        "id": part.id,
        "provider_name": part.provider_name,
        "provider_details": part.provider_details,
        **more,
    }
    return repair_object({name: value for name, value in given.items() if value is not None}) or None


def _dumped(part: object) -> JsonObject:
    dumped: JsonObject = RESPONSE_PART.dump_python(part, mode="json")  # type: ignore[arg-type]  # one of its parts
    return repair_object(dumped)
