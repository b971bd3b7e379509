"""Sections: the pieces a prompt is composed of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from runlane.contracts import CancelToken, MaybeAwaitable, resolve
from runlane.errors import InvalidValueError, UsageError
from runlane.models import TokenCounter
from runlane.prompt._instructions import check_text
from runlane.records import TokenCount

__all__ = [
    "ComposedSection",
    "PromptEvent",
    "PromptSection",
    "PromptSectionContext",
    "SectionRole",
    "Stability",
    "TokenEstimator",
    "count_text",
    "one_of",
    "render_section",
]

C = TypeVar("C")

PromptEvent: TypeAlias = Literal["session.started", "turn.started"]
"""Why a prompt is composed: for the first run of a conversation, or for any later one."""

Stability: TypeAlias = Literal["stable", "dynamic"]
"""Whether a section's text is the same at every turn; reported back, it reorders nothing."""

SectionRole: TypeAlias = Literal["system", "user"]
"""Where a section goes: into the instructions, or into the history, once per conversation."""

TokenEstimator: TypeAlias = Callable[[str], MaybeAwaitable[TokenCount]]
"""Counts a text, with the provenance of the count."""

_UNAVAILABLE: Final = TokenCount(provenance="unavailable")


@dataclass(frozen=True, kw_only=True)
class PromptSectionContext(Generic[C]):
    """What a section is rendered for.

    Attributes:
        context: The application's own value of the run.
        signal: Trips when the run must stop.
        event: `session.started` for the first run of a conversation, else `turn.started`.
    """

    context: C
    signal: CancelToken = field(default_factory=CancelToken)
    event: PromptEvent = "turn.started"


@dataclass(frozen=True, kw_only=True)
class PromptSection(Generic[C]):
    """One piece of a prompt.

    Attributes:
        name: For reports; not seen by the model.
        render: The text, or a function (plain or coroutine) that makes it for one run.
        stability: Whether the text is the same at every turn. Put stable sections first: providers cache equal heads.
        role: `system` joins the instructions of every request. `user` becomes a message at the head of the history,
            once per conversation.
        estimate_tokens: Counts this section's text, or None for the counter of the composition.

    Raises:
        UsageError: `name` is no text, or `render` neither text nor callable.
        InvalidValueError: `name` is empty, or a word that is not one of those an attribute takes.

    Example:
        >>> PromptSection(name="persona", render="You are a librarian.").role
        'system'
    """

    name: str
    render: str | Callable[[PromptSectionContext[C]], MaybeAwaitable[str]]
    stability: Stability = "stable"
    role: SectionRole = "system"
    estimate_tokens: TokenEstimator | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise UsageError(f"must be text, not {type(self.name).__name__}", argument="name")
        if not self.name:
            raise InvalidValueError("is empty", argument="name")
        if not isinstance(self.render, str) and not callable(self.render):
            raise UsageError("must be text or callable", argument=f"{self.name}.render")
        one_of(self.stability, ("stable", "dynamic"), f"{self.name}.stability")
        one_of(self.role, ("system", "user"), f"{self.name}.role")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedSection:
    """A section as it was rendered.

    Attributes:
        tokens: What the text counts; joiners between sections are not counted.
    """

    name: str
    role: SectionRole
    stability: Stability
    text: str
    tokens: TokenCount


def one_of(value: object, allowed: tuple[str, ...], argument: str, /) -> None:
    """Refuse a word that is not one of those allowed."""
    if value not in allowed:
        raise InvalidValueError(f"must be one of {', '.join(allowed)}, got {value!r}", argument=argument)


async def render_section(
    section: PromptSection[Any],
    context: PromptSectionContext[Any],
    fallback: TokenEstimator | TokenCounter | None,
    /,
) -> ComposedSection:
    """Render and count one section.

    Raises:
        UsageError: The section gave no text, or an estimator no `TokenCount`.
        InvalidValueError: It gave a text that no message can hold.
    """
    text: object = section.render
    if not isinstance(text, str):
        text = await resolve(section.render(context)) if callable(section.render) else text
    if not isinstance(text, str):
        raise UsageError(f"gave {type(text).__name__}, not text", argument=f"section {section.name!r}")
    check_text(text, f"section {section.name!r}")
    tokens = await count_text(text, section.estimate_tokens or fallback, argument=f"section {section.name!r}")
    return ComposedSection(name=section.name, role=section.role, stability=section.stability, text=text, tokens=tokens)


async def count_text(text: str, estimate: TokenEstimator | TokenCounter | None, /, *, argument: str) -> TokenCount:
    """Count a text; without anything that counts the answer is `unavailable`."""
    if estimate is None:
        return _UNAVAILABLE
    if callable(estimate):
        count: object = await resolve(estimate(text))
    else:
        count = TokenCount(value=estimate.count(text), provenance=estimate.provenance)
    if not isinstance(count, TokenCount):
        raise UsageError(f"was counted as {type(count).__name__}, not as a TokenCount", argument=argument)
    return count
