"""What a model is told beside the history: sections, instructions, and whether all of it fits the window."""

from runlane.prompt._compose import ComposedPrompt, ComposePromptOptions, SeededWindow, compose_prompt
from runlane.prompt._instructions import (
    AdaptInstructions,
    Instructions,
    carry_into_instructions,
    checked_instructions,
    system_messages,
)
from runlane.prompt._sections import (
    ComposedSection,
    PromptEvent,
    PromptSection,
    PromptSectionContext,
    SectionRole,
    Stability,
    TokenEstimator,
)
from runlane.prompt._seed import USER_INSTRUCTIONS_SEED, UserInstruction, user_instruction_messages
from runlane.prompt._window import (
    ContextDecision,
    OversizePolicy,
    PromptBudget,
    available_history_tokens,
    decide_window,
    sum_tokens,
)

__all__ = [
    "USER_INSTRUCTIONS_SEED",
    "AdaptInstructions",
    "ComposePromptOptions",
    "ComposedPrompt",
    "ComposedSection",
    "ContextDecision",
    "Instructions",
    "OversizePolicy",
    "PromptBudget",
    "PromptEvent",
    "PromptSection",
    "PromptSectionContext",
    "SectionRole",
    "SeededWindow",
    "Stability",
    "TokenEstimator",
    "UserInstruction",
    "available_history_tokens",
    "carry_into_instructions",
    "checked_instructions",
    "compose_prompt",
    "decide_window",
    "sum_tokens",
    "system_messages",
    "user_instruction_messages",
]
