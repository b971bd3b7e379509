"""Fragments, and the one form each of them can take in front of a model.

| trust | who wrote it | where it may go |
|---|---|---|
| `system` | the application's developers | system message, if it is text |
| `application` | the program (computed data) | user message, as a data block |
| `user` | the person | user message, as a data block (the question itself is the plan's prompt) |
| `external` | tools, documents, the web | user message, as a data block |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NoReturn, TypeAlias

from pydantic import Field, JsonValue, SkipValidation
from typing_extensions import override

from runlane.canonical import canonical_record_json
from runlane.contracts import Id, Issue, Record
from runlane.errors import CanonicalJsonError, CheckFailedError
from runlane.models import ModelImage

__all__ = [
    "ORDINARY_END",
    "SEPARATOR",
    "ContextFragment",
    "ContextFragmentUsage",
    "ContextLifetime",
    "ContextPlan",
    "ContextTrust",
    "OmittedFragment",
    "block_of",
    "check_text",
    "refuse",
    "text_of",
    "validate_context_fragment",
]

ContextTrust: TypeAlias = Literal["system", "application", "user", "external"]
"""Who wrote a fragment."""

ContextLifetime: TypeAlias = Literal["call", "run", "conversation", "static"]
"""How long a fragment stays true. Declared for caches and journals, enforced nowhere; `static` fragments first keep the
beginning of a request the same, which providers cache."""

_SHORTEST_FENCE: Final = "```"
SEPARATOR: Final = "\n\n"
"""Stands between the blocks of a message."""

ORDINARY_END: Final = f"\n{_SHORTEST_FENCE}{SEPARATOR}"
"""What ends a block of ordinary text, with the gap behind it."""

_UNTITLED: Final = f"{ORDINARY_END}{_SHORTEST_FENCE}\n"

_TICKS: Final = re.compile("`+")
_BREAKS: Final = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")
"""What would end the line of a title: control characters and the line and paragraph separators."""


class ContextFragment(Record):
    """A piece of input with its origin.

    Attributes:
        id: 1 to 512 characters, unique within a plan; never shown to a model, nor are trust, lifetime, priority and
            metadata.
        content: Text, or data, which is shown as canonical JSON. Checked when it is assembled.
        trust: Who wrote it; `external`, the least trusted, unless the program knows better.
        title: The only label a model sees; one line.
        required: Whether assembly fails rather than leave it out.
        priority: Among the optional ones, higher stays longer.
        metadata: The program's own.
    """

    id: Annotated[str, Field(min_length=1, max_length=512, strict=True)]
    content: SkipValidation[JsonValue]
    trust: ContextTrust = "external"
    lifetime: ContextLifetime = "call"
    title: str | None = None
    required: bool = True
    priority: int = 0
    metadata: SkipValidation[Mapping[str, JsonValue]] = Field(default_factory=dict)

    # What assembly writes for ordinary text that becomes data, which cannot change any more: the id; what stands before
    # the text if ordinary text stands before that; the text. What ends one block and begins the next is one piece, so
    # each text is joined with one other. Nothing where assembly has to look: at instructions, at data, at text that is
    # empty, holds back-ticks or could not be sent. Beside the fields, so that no copy shows what another fragment says.
    __slots__ = ("_ready",)
    if TYPE_CHECKING:
        _ready: ClassVar[tuple[str, ...]]

    @override
    def model_post_init(self, _context: object, /) -> None:
        facts = self.__dict__  # one look at the fields, not one for each
        text, title = facts["content"], facts["title"]
        if (
            type(text) is not str
            or facts["trust"] == "system"
            or "`" in text
            or "\0" in text
            or not text
            or text.isspace()
            or not (text.isascii() or _is_sendable(text))
        ):
            _keep_ready(self, ())
        elif title is None:
            _keep_ready(self, (facts["id"], _UNTITLED, text))
        elif title.isprintable():  # which no control character, separator or surrogate is
            _keep_ready(self, (facts["id"], f"{ORDINARY_END}[{title}]\n{_SHORTEST_FENCE}\n", text))
        else:
            _keep_ready(self, ())


_keep_ready: Final = ContextFragment.__dict__["_ready"].__set__


class ContextPlan(Record):
    """What one request shall hold. A plan is only data: replace, reorder or cut its fragments before assembly.

    Attributes:
        prompt: The person's question, after all data.
        images: After the prompt; they never count as characters.
        max_chars: Code points of the whole input, titles, fences, separators and prompt included.
    """

    fragments: tuple[ContextFragment, ...]
    prompt: str
    images: tuple[ModelImage, ...] = ()
    max_chars: Annotated[int, Field(ge=0, le=2**53 - 1, strict=True)]


@dataclass(frozen=True, slots=True)
class ContextFragmentUsage:
    """Where the characters of one fragment went.

    Attributes:
        position: From 0, in the order of the input.
        chars: Code points of the whole block, its title and fences included.
        role: The message it is in.
    """

    fragment_id: Id
    trust: ContextTrust
    lifetime: ContextLifetime
    position: int
    chars: int
    role: Literal["system", "user"]


@dataclass(frozen=True, slots=True)
class OmittedFragment:
    """A fragment that was left out.

    Attributes:
        reason: `empty` (it had no text) or `budget` (it was optional and did not fit).
        chars: Code points its block would have had.
    """

    fragment_id: Id
    reason: Literal["empty", "budget"]
    chars: int


def validate_context_fragment(fragment: ContextFragment, /) -> str:
    """Return the whole block as a model will see it.

    Instructions stand as they are. Everything else is a data block: the title in brackets on a line of its own, if
    there is one, and the content between two fences of back-ticks that are longer than any run inside, so no content
    can close its own block.

    Raises:
        CheckFailedError: The content is neither text nor JSON, holds a NUL or a lone surrogate, or the title is more
            than one line.

    Example:
        >>> print(validate_context_fragment(ContextFragment(id="d", content={"b": 1, "a": 2}, title="Data")))
        [Data]
        ```
        {"a":2,"b":1}
        ```
    """
    return "".join(block_of(fragment))


def block_of(fragment: ContextFragment, /) -> tuple[str, str, str]:
    """Return the block in three: what stands before the text, the text, and what stands after it."""
    text = text_of(fragment)
    if is_instruction(fragment):
        return "", text, ""
    fence = fence_of(text)
    return f"{head_of(fragment)}{fence}\n", text, f"\n{fence}"


def is_instruction(fragment: ContextFragment, /) -> bool:
    """Whether it becomes part of the system message: only text of the application's developers does."""
    return fragment.trust == "system" and isinstance(fragment.content, str)


def text_of(fragment: ContextFragment, /) -> str:
    """Return the text of a fragment: its own, or its data as canonical JSON with exact integers."""
    content = fragment.content
    if isinstance(content, str):
        check_text(content, fragment.id, "content")
        return content
    try:
        return canonical_record_json(content).decode()
    except CanonicalJsonError as error:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in error.path.split("/")[1:]]
        refuse(f"fragment {fragment.id!r}: {error.problem}", ("content", *steps))


def head_of(fragment: ContextFragment, /) -> str:
    """Return the line above a data block, or nothing if it has no title."""
    title = fragment.title
    if title is None:
        return ""
    if title.isprintable():  # which no control character, separator or surrogate is
        return f"[{title}]\n"
    check_text(title, fragment.id, "title")
    if _BREAKS.search(title):
        refuse(f"fragment {fragment.id!r}: a title is one line without control characters", ("title",))
    return f"[{title}]\n"


def fence_of(text: str, /) -> str:
    """Return back-ticks, at least three, that no run within the text is as long as."""
    if "`" not in text:  # one character is found several times faster than three
        return _SHORTEST_FENCE
    return max("`" * (max(map(len, _TICKS.findall(text))) + 1), _SHORTEST_FENCE)


def check_text(text: str, name: str, field: str, /) -> None:
    """Refuse text that no model could be sent.

    Raises:
        CheckFailedError: It holds a NUL or a lone surrogate.
    """
    if "\0" in text:
        refuse(f"{name!r} holds a NUL", (field,))
    if not (text.isascii() or _is_sendable(text)):
        refuse(f"{name!r} holds a lone surrogate", (field,))


def _is_sendable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refuse(message: str, path: tuple[str | int, ...], /) -> NoReturn:
    """Raise one issue."""
    raise CheckFailedError(issues=[Issue(code="context.fragment", message=message, path=path)])
