"""Composing a prompt: sections in, instructions and a decision about the window out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypedDict

from typing_extensions import Unpack

from runlane.contracts import CancelToken, resolve
from runlane.errors import UsageError
from runlane.models import TokenCounter
from runlane.prompt._instructions import AdaptInstructions, Instructions, checked_instructions
from runlane.prompt._sections import (
    ComposedSection,
    PromptEvent,
    PromptSection,
    PromptSectionContext,
    TokenEstimator,
    one_of,
    render_section,
)
from runlane.prompt._seed import UserInstruction
from runlane.prompt._window import (
    ContextDecision,
    OversizePolicy,
    PromptBudget,
    available_history_tokens,
    decide_window,
    sum_tokens,
)
from runlane.records import TokenCount

__all__ = ["ComposePromptOptions", "ComposedPrompt", "SeededWindow", "compose_prompt"]

_NOTHING: Final = TokenCount(value=0, provenance="computed")


class ComposePromptOptions(TypedDict, total=False):
    """Options of `compose_prompt`.

    Attributes:
        context: The application's own value; handed to every section.
        signal: Trips when the run must stop; asked before each section.
        event: `turn.started` by default; `session.started` for the first run of a conversation.
        estimate: Counts sections that do not count themselves: a `TokenCounter` such as
            `runlane.models.OpenAITokens()` (exact) or `BYTE_BOUND` (never too low), or a function. Without one such a
            section's count is unknown, and so is whether the request fits.
        adapt_instructions: Turns the composed text into system messages; not asked when no section is a system one.
        budget: The window; without one nothing is decided.
        history_tokens: What the history counts.
        oversize_policy: What a history that is too large calls for; `reject` by default.
    """

    context: Any
    signal: CancelToken
    event: PromptEvent
    estimate: TokenEstimator | TokenCounter | None
    adapt_instructions: AdaptInstructions | None
    budget: PromptBudget | None
    history_tokens: TokenCount | None
    oversize_policy: OversizePolicy


class SeededWindow(NamedTuple):
    """The window once it is known whether user instructions came on top of the history."""

    available_history_tokens: int | None
    context_decision: ContextDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedPrompt:
    """A composed prompt.

    Attributes:
        sections: Every section as rendered, in the order of their declaration.
        instructions: The texts of the system sections, joined by blank lines, or what `adapt_instructions` made of it.
        instruction_tokens: Their sum; unknown if one is unknown.
        user_instructions: The user-role sections that are not blank: to be seeded, never part of the instructions.
        user_instruction_tokens: Their sum.
        budget: The window and its reservations, each with its own provenance.
        history_tokens: What the history was said to count.
        available_history_tokens: What the window leaves for the history, with its sign; None if it is not known.
        context_decision: Whether the history fits.
    """

    sections: tuple[ComposedSection, ...]
    instructions: Instructions
    instruction_tokens: TokenCount
    user_instructions: tuple[UserInstruction, ...]
    user_instruction_tokens: TokenCount
    budget: PromptBudget | None
    history_tokens: TokenCount | None
    oversize_policy: OversizePolicy
    available_history_tokens: int | None
    context_decision: ContextDecision

    def finalize_seed(self, inserted: bool, /) -> SeededWindow:  # noqa: FBT001 - the one thing it is told
        """Decide again once the user instructions are durable.

        Args:
            inserted: They were put into the history just now, so the history that was counted did not hold them.
        """
        seeded = self.user_instruction_tokens if inserted else _NOTHING
        available = self.available_history_tokens
        left = None if available is None or seeded.value is None else available - seeded.value
        return SeededWindow(left, decide_window(left, self.history_tokens, self.oversize_policy))

    @property
    def lines(self) -> Mapping[str, TokenCount]:
        """What takes room in the window, line by line with the source of each figure; for reports.

        Lines that are not known here, such as the tools without a budget, are left out; nothing is added up.
        """
        lines = {"instructions": self.instruction_tokens, "user_instructions": self.user_instruction_tokens}
        if self.budget is not None:
            lines["tool_schemas"] = self.budget.tool_schemas
            lines["attachments"] = self.budget.attachments
            lines["provider_overhead"] = self.budget.provider_overhead
            lines["reserved_output"] = TokenCount(value=self.budget.reserved_output, provenance="computed")
        if self.history_tokens is not None:
            lines["history"] = self.history_tokens
        return lines


async def compose_prompt(
    sections: Sequence[PromptSection[Any]], /, **options: Unpack[ComposePromptOptions]
) -> ComposedPrompt:
    """Render sections one after another in the order of their declaration, and see what the window leaves.

    Nothing is sent, stored or seeded here. What a section raises leaves as it is.

    Args:
        sections: The pieces. Their stability is reported, it reorders nothing.
        options: See `ComposePromptOptions`.

    Raises:
        UsageError: A section gave no text, an estimator no `TokenCount`, or the adapter no instructions.
        InvalidValueError: An option holds a word it does not take.
        AbortedError: The signal tripped.

    Example:
        >>> import anyio
        >>> persona = PromptSection(name="persona", render="You are a librarian.")
        >>> anyio.run(compose_prompt, [persona]).instructions
        'You are a librarian.'
    """
    event, policy = options.get("event", "turn.started"), options.get("oversize_policy", "reject")
    one_of(event, ("session.started", "turn.started"), "event")
    one_of(policy, ("reject", "compact"), "oversize_policy")
    budget, history_tokens = options.get("budget"), options.get("history_tokens")
    if history_tokens is not None and not isinstance(history_tokens, TokenCount):
        raise UsageError("must be a TokenCount", argument="history_tokens")
    rendered = await _render(sections, event, options)
    system = tuple(section for section in rendered if section.role == "system")
    user = tuple(section for section in rendered if section.role == "user" and section.text.strip())
    instruction_tokens = sum_tokens(section.tokens for section in system)
    available = available_history_tokens(budget, instruction_tokens)
    return ComposedPrompt(
        sections=rendered,
        instructions=await _instructions(system, options.get("adapt_instructions")),
        instruction_tokens=instruction_tokens,
        user_instructions=tuple(UserInstruction(section.name, section.text) for section in user),
        user_instruction_tokens=sum_tokens(section.tokens for section in user),
        budget=budget,
        history_tokens=history_tokens,
        oversize_policy=policy,
        available_history_tokens=available,
        context_decision=decide_window(available, history_tokens, policy),
    )


async def _render(
    sections: Sequence[PromptSection[Any]], event: PromptEvent, options: ComposePromptOptions
) -> tuple[ComposedSection, ...]:
    signal = options.get("signal") or CancelToken()
    context = PromptSectionContext(context=options.get("context"), signal=signal, event=event)
    rendered: list[ComposedSection] = []
    for section in sections:
        signal.raise_if_cancelled()
        rendered.append(await render_section(section, context, options.get("estimate")))
    signal.raise_if_cancelled()
    return tuple(rendered)


async def _instructions(system: Sequence[ComposedSection], adapt: AdaptInstructions | None) -> Instructions:
    text = "\n\n".join(section.text for section in system)
    if adapt is None or not system:
        return text
    return checked_instructions(await resolve(adapt(text)))
