"""Options of what a model is told: the history, and the prompt around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from runlane.contracts import MaybeAwaitable, require_port
from runlane.errors import UsageError
from runlane.models import BYTE_BOUND, AnyModelMessage, TokenCounter
from runlane.prompt import AdaptInstructions, OversizePolicy, PromptSection
from runlane.records import Message, TokenCount
from runlane.runtime._compaction_values import Compact
from runlane.runtime._config_checks import one_of, seconds, whole

__all__ = ["HistoryConfig", "ProjectHistory", "PromptConfig"]

ProjectHistory: TypeAlias = Callable[[Sequence[Message], Any], MaybeAwaitable[Sequence[AnyModelMessage]]]
"""Makes the messages of a request out of the records a run may see, given the run's context."""

_NOTHING: Final = TokenCount(value=0, provenance="computed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryConfig:
    """How much of a conversation is read for a prompt, and how long it is kept at hand.

    Attributes:
        max_messages: A conversation that is not at hand is read from its newest record back to its last summary, this
            many records or `max_bytes`, whichever comes first; 1,000. What is at hand may grow to twice that before it
            is read anew.
        max_bytes: See `max_messages`; 4 MiB of stored records.
        idle: Seconds after which a lane without work forgets its records; 60.
        max_idle_lanes: Lanes without work that keep their records, the most recent ones; 1,000.
        max_idle_bytes: Stored bytes all of these may keep together; 64 MiB.
        max_tokens: The newest whole turns of what was read that count this many tokens are shown to the model; None
            shows all of it. `window` shows what the model's window leaves room for, if that is known (`PromptConfig`).
            The newest `keep_recent_turns` complete turns are always shown, and what is not a complete turn.
        keep_recent_turns: See `max_tokens`; 1.
        counter: Counts the tokens of the history; by default a bound in bytes, never too low.
        compact: Called at the start of a run when its probe says so, such as a `StructuredCompaction`; or None. It
            costs the run commits of its own.
        project: Makes the messages itself, of the records and the run's context, in place of the projection; or None.
            Nothing of the history is then carried into the instructions. Of inputs that join a run it is asked again,
            with these records alone.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    max_messages: int = 1000
    max_bytes: int = 4 * 1024 * 1024
    idle: float = 60.0
    max_idle_lanes: int = 1000
    max_idle_bytes: int = 64 * 1024 * 1024
    max_tokens: int | Literal["window"] | None = None
    keep_recent_turns: int = 1
    counter: TokenCounter = BYTE_BOUND
    compact: Compact | None = None
    project: ProjectHistory | None = None

    def __post_init__(self) -> None:
        whole(self.max_messages, "history.max_messages")
        whole(self.max_bytes, "history.max_bytes")
        seconds(self.idle, "history.idle", optional=False)
        whole(self.max_idle_lanes, "history.max_idle_lanes", least=0)
        whole(self.max_idle_bytes, "history.max_idle_bytes", least=0)
        if self.max_tokens is not None and self.max_tokens != "window":
            whole(self.max_tokens, "history.max_tokens", least=0)
        whole(self.keep_recent_turns, "history.keep_recent_turns", least=0)
        require_port(self.counter, TokenCounter, argument="history.counter")
        for name in ("compact", "project"):
            value: object = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError("must be callable or None", argument=f"history.{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """What a model is told beside the history.

    The request is measured against the model's window when that is known and a `counter` is given; a request that does
    not fit ends its run as `context_overflow` without asking the provider.

    Attributes:
        sections: Pieces of the prompt, behind the runtime's `instructions`. User-role sections are put at the head of
            the history, once per conversation.
        adapt_instructions: Turns the composed instructions into system messages, or None.
        counter: Counts sections and tool schemas, or None: then nothing is measured.
        reserved_output: Tokens kept free for the answer; 0.
        attachments: What files and images of a request count.
        provider_overhead: What the provider adds by itself.
        oversize_policy: What is said of a history that is too large: `reject`, or `compact`, if a compaction should
            have made room.

    Raises:
        UsageError, InvalidValueError: A value of the wrong type or outside its range; names the field.
    """

    sections: tuple[PromptSection[Any], ...] = ()
    adapt_instructions: AdaptInstructions | None = None
    counter: TokenCounter | None = None
    reserved_output: int = 0
    attachments: TokenCount = _NOTHING
    provider_overhead: TokenCount = _NOTHING
    oversize_policy: OversizePolicy = "reject"

    def __post_init__(self) -> None:
        sections: object = self.sections
        if not isinstance(sections, tuple) or not all(isinstance(one, PromptSection) for one in sections):
            raise UsageError("must be a tuple of PromptSection", argument="prompt.sections")
        if self.adapt_instructions is not None and not callable(self.adapt_instructions):
            raise UsageError("must be callable or None", argument="prompt.adapt_instructions")
        if self.counter is not None:
            require_port(self.counter, TokenCounter, argument="prompt.counter")
        whole(self.reserved_output, "prompt.reserved_output", least=0)
        for name in ("attachments", "provider_overhead"):
            if not isinstance(getattr(self, name), TokenCount):
                raise UsageError("must be a TokenCount", argument=f"prompt.{name}")
        one_of(self.oversize_policy, "prompt.oversize_policy", ("reject", "compact"))
