"""OpenAI's chat completions, and the many endpoints that speak it in their own dialects."""

from runlane.models.openai_chat._decoder import OpenAIChatDecoder
from runlane.models.openai_chat._provider import OpenAIChat, openai_compatible
from runlane.models.openai_chat._request import OpenAIChatDialect, encode_message, encode_request

__all__ = [
    "OpenAIChat",
    "OpenAIChatDecoder",
    "OpenAIChatDialect",
    "encode_message",
    "encode_request",
    "openai_compatible",
]
