"""Google's generateContent, at the Gemini API or at Vertex AI."""

from runlane.models.google._decoder import GoogleDecoder
from runlane.models.google._provider import Google
from runlane.models.google._request import encode_request

__all__ = ["Google", "GoogleDecoder", "encode_request"]
