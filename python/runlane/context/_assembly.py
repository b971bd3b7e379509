"""Assembly: fragments in, messages out, under one limit. It is the border: after it nothing is added.

Each message is joined once, from the texts as they are: the cost is that of joining them, and a little per fragment.
Who used how many characters is worked out when it is asked for. Only if the whole is too large, the optional fragments
are put in the order they go, and what is left is joined again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import Final

from runlane.context._fragments import (
    SHORTEST_FENCE,
    ContextFragment,
    ContextFragmentUsage,
    ContextPlan,
    OmittedFragment,
    block_of,
    check_text,
    head_of,
    refuse,
    text_of,
)
from runlane.contracts import Id, require_limit
from runlane.errors import BudgetError
from runlane.models import AnyModelMessage, ModelImage, ModelMessage, count_text_chars
from runlane.records import TextPart

__all__ = ["BuiltContext", "assemble_context_plan", "assemble_fragments", "validate_context_budget"]

_SEPARATOR: Final = "\n\n"


@dataclass(frozen=True)
class BuiltContext:
    """What one request holds, and where its characters went.

    Attributes:
        messages: At most one system message, then at most one user message.
        system: The text of the system message, or nothing.
        text_chars: Code points of all texts, separators included.
        max_chars: The limit that held, or None.
    """

    messages: tuple[ModelMessage, ...]
    system: str
    text_chars: int
    max_chars: int | None
    _instructions: Sequence[ContextFragment] = field(repr=False, compare=False)
    _data: Sequence[ContextFragment] = field(repr=False, compare=False)
    _empty: Sequence[ContextFragment] = field(repr=False, compare=False)
    _dropped: Sequence[ContextFragment] = field(repr=False, compare=False)

    @cached_property
    def usages(self) -> tuple[ContextFragmentUsage, ...]:
        """One entry per fragment that entered, in the order of the input."""
        first_data = len(self._instructions)
        return tuple(
            ContextFragmentUsage(
                Id(fragment.id),
                fragment.trust,
                fragment.lifetime,
                position,
                _chars(fragment),
                "system" if position < first_data else "user",
            )
            for position, fragment in enumerate((*self._instructions, *self._data))
        )

    @cached_property
    def omitted(self) -> tuple[OmittedFragment, ...]:
        """What was left out: the empty ones in the order given, then the others in the order they were dropped."""
        empty = (OmittedFragment(Id(fragment.id), "empty", 0) for fragment in self._empty)
        return (*empty, *(OmittedFragment(Id(fragment.id), "budget", _chars(fragment)) for fragment in self._dropped))


def assemble_fragments(fragments: Sequence[ContextFragment], /, *, max_chars: int | None = None) -> BuiltContext:
    """Put fragments together without a question.

    Args:
        fragments: In the order they shall stand: instructions among themselves, data among itself.
        max_chars: Code points of the whole input; None for no limit.

    Raises:
        BudgetError: What is required does not fit (`allowance="context_chars"`).
        CheckFailedError: A fragment cannot be shown, or two have one id.
        InvalidValueError: The limit is no integer of at least 0.

    Example:
        >>> built = assemble_fragments([ContextFragment(id="r", content="Be brief.", trust="system")])
        >>> built.messages[0].role, built.text_chars
        ('system', 9)
    """
    if max_chars is not None:
        require_limit(max_chars, argument="max_chars")
    return _assemble(fragments, "", (), max_chars)


def assemble_context_plan(plan: ContextPlan, /) -> BuiltContext:
    """Put a plan together: instructions, then data, then the prompt, then images. The plan is unchanged.

    If it is too large, optional fragments are left out whole, one by one, the lowest priority first and of equals the
    later one first.

    Raises:
        BudgetError: What is required does not fit (`allowance="context_chars"`).
        CheckFailedError: A fragment or the prompt cannot be shown, or two fragments have one id.
    """
    check_text(plan.prompt, "prompt", "prompt")
    return _assemble(plan.fragments, plan.prompt, plan.images, plan.max_chars)


def validate_context_budget(text_or_messages: str | Sequence[AnyModelMessage], max_chars: int, /) -> int:
    """Return how many characters of text there are; nothing is left out.

    Args:
        text_or_messages: A text, or messages, counted with everything a model reads of them as text.
        max_chars: Code points.

    Raises:
        BudgetError: There are more (`allowance="context_chars"`).
        InvalidValueError: The limit is no integer of at least 0.
    """
    require_limit(max_chars, argument="max_chars")
    chars = len(text_or_messages) if isinstance(text_or_messages, str) else count_text_chars(text_or_messages)
    if chars > max_chars:
        raise _too_large(chars, max_chars)
    return chars


def _assemble(
    fragments: Sequence[ContextFragment], prompt: str, images: tuple[ModelImage, ...], max_chars: int | None
) -> BuiltContext:
    _refuse_equal_ids(fragments)
    draft = _Draft("" if prompt.isspace() else prompt)
    draft.take(fragments)
    dropped: list[ContextFragment] = []
    if max_chars is not None and draft.chars > max_chars:
        dropped = _too_much(draft, fragments, max_chars)
        gone = set(map(id, dropped))
        draft = _Draft(draft.prompt)
        draft.take([fragment for fragment in fragments if id(fragment) not in gone])
    messages = _messages(draft.system, draft.user, images)
    return BuiltContext(
        messages, draft.system, draft.chars, max_chars, draft.instructions, draft.data, draft.empty, dropped
    )


class _Draft:
    """The two texts as they would be sent, and what is in which of them."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt
        self.instructions: list[ContextFragment] = []
        self.data: list[ContextFragment] = []
        self.empty: list[ContextFragment] = []
        self.system = ""
        self.user = prompt

    @property
    def chars(self) -> int:
        return len(self.system) + len(self.user)

    def take(self, fragments: Sequence[ContextFragment]) -> None:
        """Sort fragments and write both texts; each text of a fragment is copied once.

        What ends one block and begins the next is one piece, so that the text of a block is joined with one other.
        """
        parts: list[str] = []
        keep, write = self.data.append, parts.extend
        end = ""
        for fragment in fragments:
            # One look at the fields, not one for each; and ordinary text, the common case, written out.
            facts = fragment.__dict__
            text = facts["content"]
            if (
                type(text) is not str
                or not text.isascii()
                or "`" in text
                or "\0" in text
                or text.isspace()
                or not text
                or facts["trust"] == "system"
            ):
                end = self._take_with_care(fragment, parts, end)
                continue
            title = facts["title"]
            keep(fragment)
            if title is not None and title.isprintable():  # no control character, separator or surrogate is
                write((f"{end}[{title}]\n{SHORTEST_FENCE}\n", text))
            else:
                write((f"{end}{head_of(fragment)}{SHORTEST_FENCE}\n", text))
            end = _PLAIN_END
        self.system = _SEPARATOR.join([text_of(fragment) for fragment in self.instructions])
        if parts:
            parts.append(f"{end}{self.prompt}" if self.prompt else end.removesuffix(_SEPARATOR))
            self.user = "".join(parts)

    def _take_with_care(self, fragment: ContextFragment, parts: list[str], end: str) -> str:
        """Sort a fragment of any kind; return what ends the last block, with the gap to the next."""
        before, text, after = block_of(fragment)
        if not text or text.isspace():
            self.empty.append(fragment)
        elif before:
            self.data.append(fragment)
            parts += (f"{end}{before}", text)
            end = f"{after}{_SEPARATOR}"
        else:
            self.instructions.append(fragment)
        return end


_PLAIN_END: Final = f"\n{SHORTEST_FENCE}{_SEPARATOR}"


def _refuse_equal_ids(fragments: Sequence[ContextFragment]) -> None:
    ids = {fragment.__dict__["id"] for fragment in fragments}
    if len(ids) == len(fragments):
        return
    for position, fragment in enumerate(fragments):
        if fragment.id not in ids:
            refuse(f"two fragments have the id {fragment.id!r}", ("fragments", position, "id"))
        ids.discard(fragment.id)


def _chars(fragment: ContextFragment) -> int:
    return sum(map(len, block_of(fragment)))


def _too_much(draft: _Draft, fragments: Sequence[ContextFragment], max_chars: int) -> list[ContextFragment]:
    """Return the optional fragments to leave out, in the order they go, until the rest fits."""
    entered = set(map(id, (*draft.instructions, *draft.data)))
    optional = [
        (fragment.priority, -position, fragment)
        for position, fragment in enumerate(fragments)
        if not fragment.required and id(fragment) in entered
    ]
    instructions = set(map(id, draft.instructions))
    blocks = {True: len(instructions), False: len(draft.data) + bool(draft.prompt)}
    chars = draft.chars
    dropped: list[ContextFragment] = []
    for _, _, fragment in sorted(optional, key=itemgetter(0, 1)):
        if chars <= max_chars:
            break
        place = id(fragment) in instructions
        blocks[place] -= 1
        # The last block of a message has no separator beside it.
        chars -= _chars(fragment) + (len(_SEPARATOR) if blocks[place] else 0)
        dropped.append(fragment)
    if chars > max_chars:
        raise _too_large(chars, max_chars)
    return dropped


def _messages(system: str, user: str, images: tuple[ModelImage, ...]) -> tuple[ModelMessage, ...]:
    messages: list[ModelMessage] = []
    if system:
        messages.append(ModelMessage.system(system))
    text = (TextPart(text=user),) if user else ()
    if text or images:
        messages.append(ModelMessage("user", (*text, *images)))
    return tuple(messages)


def _too_large(chars: int, max_chars: int) -> BudgetError:
    return BudgetError(
        f"the input has {chars} characters and may have {max_chars}; shorten it or raise max_chars",
        allowance="context_chars",
        limit=max_chars,
    )
