"""What came of an answer so far, held to the limits of a runner."""

from __future__ import annotations

from runlane.contracts import ModelUsage
from runlane.errors import BudgetError
from runlane.models import (
    FinishReport,
    FunctionCallDelta,
    ModelPart,
    ReasoningDelta,
    TextDelta,
    UsageReport,
    model_protocol_error,
)
from runlane.runner._config import ModelRunnerSettings

__all__ = ["Heard"]


class Heard:
    """Counts the parts of one answer.

    Attributes:
        parts: Parts of any kind.
        chars: Code points of words, thoughts, and names and arguments of calls.
        first_output: When the first of these came, by the runner's clock.
        usage: What was reported last.
        finish: Why the answer ended, once it did.
        kept: The parts themselves, if somebody may want them.
    """

    def __init__(self, settings: ModelRunnerSettings, *, keep: bool) -> None:
        self.parts = 0
        self.chars = 0
        self.first_output: float | None = None
        self.usage: ModelUsage | None = None
        self.finish: FinishReport | None = None
        self.kept: list[ModelPart] | None = [] if keep else None
        self._settings = settings
        self._arguments: dict[int, int] = {}

    def take(self, part: ModelPart) -> None:
        """Count a part.

        Raises:
            BudgetError: There is more text than the runner takes.
            ModelProtocolError: More or larger calls than it takes, or a part behind the finish report.
        """
        if self.finish is not None:
            model_protocol_error("a part follows the finish report")
        self.parts += 1
        if self.kept is not None:
            self.kept.append(part)
        match part:
            case TextDelta() | ReasoningDelta():
                self._count(len(part.text))
            case FunctionCallDelta():
                self._count(len(part.name or "") + len(part.arguments or ""))
                self._take_call(part)
            case UsageReport():
                self.usage = part.usage
            case FinishReport():
                self.finish = part
            case _:
                pass

    def _count(self, chars: int) -> None:
        self.chars += chars
        limit = self._settings.max_output_chars
        if self.chars > limit:
            raise BudgetError(
                f"the answer is longer than {limit} characters", allowance="model_output_chars", limit=limit
            )

    def _take_call(self, delta: FunctionCallDelta) -> None:
        size = self._arguments.get(delta.index, 0)
        size += len((delta.arguments or "").encode("utf-8", "surrogatepass"))
        self._arguments[delta.index] = size
        if len(self._arguments) > self._settings.max_tool_calls:
            model_protocol_error(f"a response has more than {self._settings.max_tool_calls} calls")
        if size > self._settings.max_arguments_bytes:
            model_protocol_error(
                f"the arguments of call {delta.index} are longer than {self._settings.max_arguments_bytes} bytes"
            )
