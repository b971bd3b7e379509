"""A prepared call: everything decided, nothing spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import anyio

from runlane.contracts import Id, require_limit, resolve
from runlane.errors import BudgetError
from runlane.models import AnyModelMessage, ModelFunction, ModelOptions
from runlane.runner._config import ModelRunnerSettings, ModelTokenBudget
from runlane.runner._measurement import ModelInputMeasurement, size_of
from runlane.runner._transports import FunctionChoice, ModelResponseCollector

__all__ = ["Asking", "Meter", "PreparedModelCall", "refuse_too_large"]

Out = TypeVar("Out")


class Meter:
    """Counts one input, once."""

    __slots__ = ("_functions", "_lock", "_measured", "_messages", "_reserve", "_settings", "_tokens")

    def __init__(
        self,
        messages: tuple[AnyModelMessage, ...],
        functions: tuple[ModelFunction, ...],
        settings: ModelRunnerSettings,
        tokens: ModelTokenBudget | None,
        reserve: int | None,
    ) -> None:
        self._messages = messages
        self._functions = functions
        self._settings = settings
        self._tokens = tokens
        self._reserve = reserve
        self._measured: ModelInputMeasurement | None = None
        self._lock = anyio.Lock()

    async def measure(self) -> ModelInputMeasurement:
        """Return the counts; a token counter is asked the first time only, also by tasks that ask at once."""
        if self._measured is None:
            async with self._lock:
                if self._measured is None:
                    self._measured = self.without_tokens(await self._count())
        return self._measured

    def without_tokens(self, tokens: int | None = None) -> ModelInputMeasurement:
        """Return the counts that need nobody's help, with a token figure if there is one."""
        size = size_of(self._messages, self._functions)
        settings = self._settings
        limit = None if self._tokens is None or tokens is None else self._tokens.max_tokens
        over = {
            "model_input_chars": size.text_chars + size.function_chars > settings.max_input_chars,
            "model_images": size.image_count > settings.max_images,
            "model_image_bytes": size.largest_image > settings.max_image_bytes,
            "model_input_tokens": tokens is not None and limit is not None and tokens + (self._reserve or 0) > limit,
        }
        return ModelInputMeasurement(
            text_chars=size.text_chars,
            function_chars=size.function_chars,
            message_count=size.message_count,
            function_count=size.function_count,
            image_count=size.image_count,
            image_bytes=size.image_bytes,
            input_tokens=tokens,
            token_limit=limit,
            reserve_output_tokens=self._reserve,
            over=tuple(name for name, exceeded in over.items() if exceeded),
        )

    async def _count(self) -> int | None:
        if self._tokens is None:
            return None
        counted = await resolve(self._tokens.count(self._messages, self._functions))
        return require_limit(counted, argument="tokens.count")


def refuse_too_large(measurement: ModelInputMeasurement, settings: ModelRunnerSettings) -> None:
    """Refuse an input over a limit.

    Raises:
        BudgetError: It is; names the first limit that is exceeded.
    """
    if measurement.fits:
        return
    allowance = measurement.over[0]
    limits = {
        "model_input_chars": settings.max_input_chars,
        "model_images": settings.max_images,
        "model_image_bytes": settings.max_image_bytes,
        "model_input_tokens": measurement.token_limit,
    }
    limit = limits[allowance]
    raise BudgetError(f"the input exceeds {allowance}: the limit is {limit}", allowance=allowance, limit=limit)


@dataclass(frozen=True, kw_only=True)
class Asking(Generic[Out]):
    """How the answer is asked for and read."""

    function_choice: FunctionChoice
    allow_multiple_calls: bool
    response_format: Literal["text", "json_object"]
    create_collector: Callable[[], ModelResponseCollector[Out]]


class Cell:
    """Whether a prepared call was made; the one thing about it that changes."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = False


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedModelCall(Generic[Out]):
    """One call, prepared by a runner and made by it at most once.

    Attributes:
        transport: The name of the transport.
        messages: Exactly what will be sent, the transport's instruction included.
        functions: What a model is told it may choose.
        options: Those of request, selection, transport and runner, merged.
    """

    stage: Id
    transport: str
    messages: tuple[AnyModelMessage, ...] = field(repr=False)
    functions: tuple[ModelFunction, ...] = field(repr=False)
    options: ModelOptions
    _owner: object = field(repr=False)
    _asking: Asking[Out] = field(repr=False)
    _meter: Meter = field(repr=False)
    _cell: Cell = field(default_factory=Cell, init=False, repr=False)

    @property
    def spent(self) -> bool:
        """Whether it was made, in whichever way it ended."""
        return self._cell.spent

    async def measure(self) -> ModelInputMeasurement:
        """Return the exact counts of what will be sent. Repeating it neither prepares again nor spends."""
        return await self._meter.measure()
