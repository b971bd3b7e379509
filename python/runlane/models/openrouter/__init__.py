"""OpenRouter: its models over chat completions, its reports of usage and cost, its catalogue."""

from runlane.models.openrouter._catalog import CatalogReplies, read_catalog
from runlane.models.openrouter._provider import OpenRouterProvider
from runlane.models.openrouter._usage import normalize_openrouter_usage

__all__ = ["CatalogReplies", "OpenRouterProvider", "normalize_openrouter_usage", "read_catalog"]
