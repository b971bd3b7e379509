"""Step durability: named work of one run whose results outlive the process."""

from runlane.durability._effects import Effect, EffectOutcome
from runlane.durability._records import DURABILITY_STEP_EVENT_KIND, AppendRecord, DurabilityStore
from runlane.durability._steps import StepDurability, StepRunOptions

__all__ = [
    "DURABILITY_STEP_EVENT_KIND",
    "AppendRecord",
    "DurabilityStore",
    "Effect",
    "EffectOutcome",
    "StepDurability",
    "StepRunOptions",
]
