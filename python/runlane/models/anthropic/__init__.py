"""Anthropic's messages, and the endpoints that speak it."""

from runlane.models.anthropic._decoder import AnthropicDecoder
from runlane.models.anthropic._provider import Anthropic
from runlane.models.anthropic._request import encode_request

__all__ = ["Anthropic", "AnthropicDecoder", "encode_request"]
