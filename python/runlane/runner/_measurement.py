"""How large an input is, before anything is spent on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from runlane.canonical import canonical_record_json
from runlane.contracts import JsonObject
from runlane.models import AnyModelMessage, ModelFunction, ModelImage, ModelMessage, count_text_chars

__all__ = ["InputSize", "ModelInputMeasurement", "size_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSize:
    """What can be counted without anybody's help.

    Attributes:
        text_chars: Code points of all text: words, reasoning, names and arguments of calls, results, instruction.
        function_chars: Code points of the functions as canonical JSON; a line of their own.
        image_bytes: Bytes of all images given as data.
        largest_image: Bytes of the largest of them.
    """

    text_chars: int
    function_chars: int
    message_count: int
    function_count: int
    image_count: int
    image_bytes: int
    largest_image: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInputMeasurement:
    """The exact counts of one prepared call, and what they exceed.

    Attributes:
        text_chars: Code points of all text: words, reasoning, names and arguments of calls, results, instruction.
        function_chars: Code points of the functions as canonical JSON.
        image_bytes: Bytes of all images given as data.
        input_tokens: Only with a token budget.
        over: The names of the exceeded limits; `model_input_chars`, `model_images`, `model_image_bytes` and
            `model_input_tokens`, which are also the allowances of the `BudgetError` a call then ends with.
    """

    text_chars: int
    function_chars: int
    message_count: int
    function_count: int
    image_count: int
    image_bytes: int
    input_tokens: int | None = None
    token_limit: int | None = None
    reserve_output_tokens: int | None = None
    over: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether no limit is exceeded."""
        return not self.over

    def to_json(self) -> JsonObject:
        """Return the counts as JSON, without those that are not known."""
        given: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: value for name, value in given.items() if value is not None}
        return {**known, "over": list(self.over), "fits": self.fits}


def size_of(messages: Sequence[AnyModelMessage], functions: Sequence[ModelFunction], /) -> InputSize:
    """Count an input."""
    images = [image for message in messages if isinstance(message, ModelMessage) for image in message.images]
    sizes = [_bytes(image) for image in images]
    return InputSize(
        text_chars=count_text_chars(messages),
        function_chars=_function_chars(functions),
        message_count=len(messages),
        function_count=len(functions),
        image_count=len(images),
        image_bytes=sum(sizes),
        largest_image=max(sizes, default=0),
    )


def _function_chars(functions: Sequence[ModelFunction]) -> int:
    return len(canonical_record_json([_shown(function) for function in functions]).decode()) if functions else 0


def _bytes(image: ModelImage) -> int:
    return len(image.data or b"")


def _shown(function: ModelFunction) -> dict[str, object]:
    return {
        "name": function.name,
        "description": function.description,
        "parameters": dict(function.parameters),
        "strict": function.strict,
    }
