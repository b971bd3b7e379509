"""OpenAI's responses, and the endpoints that speak it."""

from runlane.models.openai_responses._decoder import OpenAIResponsesDecoder
from runlane.models.openai_responses._provider import OpenAIResponses
from runlane.models.openai_responses._request import OpenAIResponsesDialect, encode_request

__all__ = ["OpenAIResponses", "OpenAIResponsesDecoder", "OpenAIResponsesDialect", "encode_request"]
