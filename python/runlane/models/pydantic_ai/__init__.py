"""Any model of pydantic-ai as a provider of runlane, for breadth; needs the `pydantic-ai` extra.

The protocols of runlane's own (`openai_chat`, `openai_responses`, `anthropic`, `google`) are faster and hold to more
promises: prefer them where they reach the model.
"""

from runlane.models.pydantic_ai._provider import PydanticAIModel

__all__ = ["PydanticAIModel"]
