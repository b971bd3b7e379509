"""What the demo's model says, in the wire format of chat completions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["FIRST", "MODEL", "SECOND", "Chance", "Exchange", "chunks", "pieces"]

MODEL: Final = "demo-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One question of the demo, and the answer its model gives to it.

    Attributes:
        key: The idempotency key it is submitted under.
    """

    key: str
    question: str
    answer: str


FIRST: Final = Exchange(
    key="demo-first",
    question="In two sentences: what is a durable agent runtime?",
    answer=(
        "It is a program that writes down what you asked before it says yes, and writes down the answer while the "
        "model is still speaking. If it dies in between, whoever starts next reads the book and carries on: your "
        "question is still there, and it gets one answer, not two."
    ),
)

SECOND: Final = Exchange(
    key="demo-second",
    question="And what happens if somebody kills you in the middle of a sentence?",
    answer=(
        "Then this very sentence stops where it is, and nobody has to apologise for it. The question was committed "
        "before the first word went out, so it waits in the store with my half answer beside it. The next process "
        "sees that I am gone, takes the question over under a new fencing token, and asks the model again. What you "
        "read now is that second telling, whole from the first word to the last."
    ),
)

_PIECE = re.compile(r"\s*\S{1,6}")
_CREATED: Final = 1_767_225_600
_ROLE: Final = {"role": "assistant", "content": ""}


def pieces(text: str, /) -> tuple[str, ...]:
    """Cut a text as a tokenizer might: short pieces, each with the space before it; joined they give the text."""
    found = tuple(_PIECE.findall(text))
    return (*found[:-1], found[-1] + text[len("".join(found)) :]) if found else ()


def chunks(exchange: Exchange, /) -> tuple[bytes, ...]:
    """Return the event stream of one answer, an event at a time: the role, the pieces, the end, the usage, `[DONE]`."""
    spoken = pieces(exchange.answer)
    prompt = len(pieces(exchange.question))
    usage = {"prompt_tokens": prompt, "completion_tokens": len(spoken), "total_tokens": prompt + len(spoken)}
    body: Sequence[dict[str, object]] = (
        _choice(exchange, _ROLE),
        *(_choice(exchange, {"content": piece}) for piece in spoken),
        _choice(exchange, {}, finish="stop"),
        {**_head(exchange), "choices": [], "usage": usage},
    )
    return (*(_event(json.dumps(item, separators=(",", ":"))) for item in body), _event("[DONE]"))


class Chance:
    """Numbers in [0, 1) that look like chance and are the same for the same seed.

    Example:
        >>> Chance(7).number("kill") == Chance(7).number("kill")
        True
    """

    def __init__(self, seed: int, /) -> None:
        """Start from a seed."""
        self._seed = seed

    def number(self, name: str, turn: int = 0, /) -> float:
        """Return the number that goes with a name and a turn."""
        digest = hashlib.sha256(f"{self._seed}/{name}/{turn}".encode()).digest()
        return int.from_bytes(digest[:6]) / 2**48


def _head(exchange: Exchange) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{exchange.key}",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": MODEL,
        "system_fingerprint": "fp_demo",
    }


def _choice(exchange: Exchange, delta: dict[str, str], *, finish: str | None = None) -> dict[str, object]:
    return {
        **_head(exchange),
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
    }


def _event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()
