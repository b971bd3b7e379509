"""Assembly: fragments in, messages out, under one limit. It is the border: after it nothing is added.

Each message is joined once, from blocks that are ready since their fragments were made: the cost is that of joining the
texts, and a little per fragment.
Who used how many characters is worked out when it is asked for. Only if the whole is too large, the optional fragments
are put in the order they go, and what is left is joined again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import NamedTuple

from runlane.context._fragments import (
    ORDINARY_END,
    SEPARATOR,
    ContextFragment,
    ContextFragmentUsage,
    ContextPlan,
    OmittedFragment,
    block_of,
    check_text,
    refuse,
    text_of,
)
from runlane.contracts import Id, require_limit
from runlane.errors import BudgetError
from runlane.models import AnyModelMessage, ModelImage, ModelMessage, count_text_chars
from runlane.records import TextPart

__all__ = ["BuiltContext", "assemble_context_plan", "assemble_fragments", "validate_context_budget"]


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
    _draft: _Draft = field(repr=False, compare=False)
    _dropped: Sequence[ContextFragment] = field(repr=False, compare=False)

    @cached_property
    def usages(self) -> tuple[ContextFragmentUsage, ...]:
        """One entry per fragment that entered, in the order of the input."""
        first_data = len(self._draft.instructions)
        return tuple(
            ContextFragmentUsage(
                Id(fragment.id),
                fragment.trust,
                fragment.lifetime,
                position,
                _chars(fragment),
                "system" if position < first_data else "user",
            )
            for position, fragment in enumerate((*self._draft.instructions, *self._draft.data))
        )

    @cached_property
    def omitted(self) -> tuple[OmittedFragment, ...]:
        """What was left out: the empty ones in the order given, then the others in the order they were dropped."""
        empty = (OmittedFragment(Id(fragment.id), "empty", 0) for fragment in self._draft.empty)
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
    draft = _Draft(fragments, "" if prompt.isspace() else prompt)
    dropped: list[ContextFragment] = []
    if max_chars is not None and draft.chars > max_chars:
        dropped = _too_much(draft, fragments, max_chars)
        gone = set(map(id, dropped))
        draft = _Draft([fragment for fragment in fragments if id(fragment) not in gone], draft.prompt)
    messages = _messages(draft.system, draft.user, images)
    return BuiltContext(messages, draft.system, draft.chars, max_chars, draft, dropped)


class _Draft:
    """The two texts as they would be sent, and what is in which of them.

    Each text of a fragment is copied once. Ordinary text goes by in bulk, as its fragments have it ready; the others
    are looked at one by one.
    """

    def __init__(self, fragments: Sequence[ContextFragment], prompt: str) -> None:
        self.prompt = prompt
        self.instructions: list[ContextFragment] = []
        self.empty: list[ContextFragment] = []
        self._fragments = tuple(fragments)
        pieces = _ready_pieces(self._fragments)
        others = self._take_others(len(self._fragments) - len(pieces) // 3)
        pieces, end = _woven(pieces, others)
        self._refuse_equal_ids(pieces[::3])
        del pieces[::3]
        if pieces:
            pieces.append(f"{end}{prompt}" if prompt else end.removesuffix(SEPARATOR))
        self.system = SEPARATOR.join([text_of(fragment) for fragment in self.instructions])
        self.user = "".join(pieces) if pieces else prompt

    @property
    def chars(self) -> int:
        return len(self.system) + len(self.user)

    @property
    def data(self) -> list[ContextFragment]:
        aside = set(map(id, (*self.instructions, *self.empty)))
        return [fragment for fragment in self._fragments if id(fragment) not in aside]

    def _take_others(self, count: int) -> list[_Other]:
        """Sort the fragments that are not ready; return those that become data."""
        others: list[_Other] = []
        seen = 0
        for place, fragment in enumerate(self._fragments):
            if seen == count:  # where rules come first, as they do, few are looked at
                break
            if getattr(fragment, "_ready", ()):
                continue
            before, text, after = block_of(fragment)
            if not text or text.isspace():
                self.empty.append(fragment)
            elif before:
                others.append(_Other(place - seen, fragment.id, before, text, f"{after}{SEPARATOR}"))
            else:
                self.instructions.append(fragment)
            seen += 1
        return others

    def _refuse_equal_ids(self, ids: list[str]) -> None:
        ids += [fragment.id for fragment in (*self.instructions, *self.empty)]
        if len(set(ids)) == len(ids):
            return
        known: set[str] = set()
        for position, fragment in enumerate(self._fragments):
            if fragment.id in known:
                refuse(f"two fragments have the id {fragment.id!r}", ("fragments", position, "id"))
            known.add(fragment.id)


class _Other(NamedTuple):
    """Data that is no ordinary text: how many fragments were ready before it, and its block."""

    ready: int
    id: str
    before: str
    text: str
    end: str


def _ready_pieces(fragments: Sequence[ContextFragment]) -> list[str]:
    """Return what is ready, three pieces for each fragment that has it."""
    try:
        return list(chain.from_iterable(map(attrgetter("_ready"), fragments)))
    except AttributeError:  # a copy of a fragment has nothing at hand
        return list(chain.from_iterable(getattr(fragment, "_ready", ()) for fragment in fragments))


def _woven(pieces: list[str], others: list[_Other]) -> tuple[list[str], str]:
    """Put other data between ordinary text; return all of it, and what ends the last block."""
    if not others:
        return pieces, _follow(pieces, 0, "")
    woven: list[str] = []
    end, done = "", 0
    for other in (*others, None):
        first = len(woven)
        woven += pieces[done : None if other is None else 3 * other.ready]
        end = _follow(woven, first, end)
        if other is not None:
            woven += (other.id, f"{end}{other.before}", other.text)
            end, done = other.end, 3 * other.ready
    return woven, end


def _follow(pieces: list[str], first: int, end: str) -> str:
    """Let ordinary text, if there is any, follow a block that ends so; return what ends the last block."""
    if first == len(pieces):
        return end
    pieces[first + 1] = end + pieces[first + 1].removeprefix(ORDINARY_END)
    return ORDINARY_END


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
        chars -= _chars(fragment) + (len(SEPARATOR) if blocks[place] else 0)
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
