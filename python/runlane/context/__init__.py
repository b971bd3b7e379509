"""Pieces of input with a known origin, put together into messages under one limit; and what a request has seen so far.

What may instruct a model is decided by who wrote it: only text of trust `system` becomes an instruction, everything
else is shown as data that cannot leave its block.
"""

from runlane.context._assembly import (
    BuiltContext,
    assemble_context_plan,
    assemble_fragments,
    validate_context_budget,
)
from runlane.context._fragments import (
    ContextFragment,
    ContextFragmentUsage,
    ContextLifetime,
    ContextPlan,
    ContextTrust,
    OmittedFragment,
    validate_context_fragment,
)
from runlane.context._journal import (
    ContextJournal,
    ContextRecord,
    ModelCallContext,
    ToolRequestContext,
    ToolResultContext,
)

__all__ = [
    "BuiltContext",
    "ContextFragment",
    "ContextFragmentUsage",
    "ContextJournal",
    "ContextLifetime",
    "ContextPlan",
    "ContextRecord",
    "ContextTrust",
    "ModelCallContext",
    "OmittedFragment",
    "ToolRequestContext",
    "ToolResultContext",
    "assemble_context_plan",
    "assemble_fragments",
    "validate_context_budget",
    "validate_context_fragment",
]
