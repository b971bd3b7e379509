"""Counting tokens before anything is sent: exactly with an offline tokenizer, else by a bound that is never too low."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from runlane.canonical import canonical_record_json
from runlane.errors import InvalidValueError, MissingDependencyError
from runlane.models._messages import ModelFunction
from runlane.records import TokenCount

__all__ = [
    "BOUND_FRAME",
    "BYTE_BOUND",
    "FRAME_TOKENS",
    "ByteBound",
    "OpenAITokens",
    "TokenCounter",
    "count_tool_schemas",
]

FRAME_TOKENS: Final = 4
"""What the framing of a message, and of each call or result in it, costs in the published chat formats."""

BOUND_FRAME: Final = 8
"""The same, rounded up, for the byte bound; the native half uses the same number."""


class TokenCounter(Protocol):
    """Something that counts the tokens of a text, at once and without I/O.

    Attributes:
        name: Counts of records are kept under it; two counters that count alike may share it.
        provenance: `measured` for a tokenizer that counts exactly, `estimated` for a rule of thumb.
    """

    @property
    def name(self) -> str: ...
    @property
    def provenance(self) -> Literal["measured", "computed", "estimated"]: ...
    def count(self, text: str, /) -> int:
        """Return how many tokens the text has, at least 0."""
        ...


@dataclass(frozen=True, slots=True)
class ByteBound:
    r"""Counts the bytes of the UTF-8 text: an estimate that no byte-level tokenizer can exceed.

    A token is at least one byte, so a text that tokenizes badly (digits, code, rare scripts) is never underestimated.
    Ordinary English has about four bytes to a token; install the `tokens` extra for exact counts.

    Example:
        >>> ByteBound().count("1\n" * 30_000)
        60000
    """

    name: str = "bytes"
    provenance: Literal["measured", "computed", "estimated"] = "estimated"

    def count(self, text: str, /) -> int:
        """Return the number of bytes."""
        return len(text.encode())


BYTE_BOUND: Final = ByteBound()


@functools.cache
def _tokenizer(vocabulary: str) -> Callable[[str], int]:
    try:
        import bpe_openai  # noqa: PLC0415 - only with the extra
    except ImportError:
        raise MissingDependencyError(package="bpe-openai", extra="tokens") from None
    if vocabulary not in {"cl100k_base", "o200k_base"}:
        raise InvalidValueError("must be cl100k_base or o200k_base", argument="vocabulary")
    encode: Callable[[str], Sequence[int]] = bpe_openai.get_encoding(vocabulary).encode_ordinary
    return lambda text: len(encode(text))


class OpenAITokens:
    """Counts exactly, with the vocabulary of OpenAI's models and no network; needs the `tokens` extra.

    Args:
        vocabulary: `o200k_base` (models since GPT-4o) or `cl100k_base` (GPT-4, GPT-3.5).

    Raises:
        MissingDependencyError: The extra is not installed.
        InvalidValueError: An unknown vocabulary.

    Example:
        >>> OpenAITokens().count("Hello, world!")
        4
    """

    __slots__ = ("_count", "name")

    provenance: Final = "measured"

    def __init__(self, vocabulary: Literal["o200k_base", "cl100k_base"] = "o200k_base") -> None:
        """Load the vocabulary, once per process."""
        self._count = _tokenizer(vocabulary)
        self.name = vocabulary

    def count(self, text: str, /) -> int:
        """Return the number of tokens; words that look like special tokens count as ordinary text."""
        return self._count(text)


def count_tool_schemas(functions: Sequence[ModelFunction], counter: TokenCounter = BYTE_BOUND, /) -> TokenCount:
    """Count what a request says of its tools: names, descriptions and schemas, written as JSON.

    Providers write tools into the prompt in forms of their own, which no tokenizer knows, so the figure is at best
    `computed`, and `estimated` if the counter is.

    Example:
        >>> count_tool_schemas([]).value
        0
    """
    frame = BOUND_FRAME if counter.provenance == "estimated" else FRAME_TOKENS
    total = 0
    for function in functions:
        schema = canonical_record_json(dict(function.parameters)).decode()
        total += sum(counter.count(text) for text in (function.name, function.description, schema)) + frame
    return TokenCount(value=total, provenance="estimated" if counter.provenance == "estimated" else "computed")
