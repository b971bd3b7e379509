"""A summariser that asks a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from runlane.errors import UsageError
from runlane.models import (
    ChatProvider,
    ModelMessage,
    ModelProviderContext,
    ResolvedModel,
    collect,
    model_protocol_error,
)
from runlane.runtime._compaction_values import Summarised, SummaryRequest
from runlane.runtime._config_checks import seconds
from runlane.runtime._steps import resolved_model

__all__ = ["summarize_with"]

_INSTRUCTIONS: Final = """\
You keep the memory of a conversation between a user and an assistant. What you write replaces the messages you are \
shown, so whatever you leave out is forgotten. Keep names, numbers, dates, identifiers, decisions and their reasons, \
what was promised, and what is still open. Say plainly what failed, was cut off, or may have happened without anybody \
knowing; never call it done. Write notes, not a letter. Do not answer the user."""

_ASK: Final = "Write the notes that replace everything above, together with the earlier notes if there are any."


def summarize_with(
    model: ChatProvider | ResolvedModel,
    /,
    *,
    instructions: str = _INSTRUCTIONS,
    idle_timeout: float | None = 60.0,
) -> Callable[[SummaryRequest[str]], Awaitable[Summarised[str]]]:
    """Return a `summarize` for a `StructuredCompactionConfig` of `str` that has a model write the summary.

    The model is told the messages as they were told before, failures marked and calls without a result closed, and an
    earlier summary ahead of them. What it spends counts for the run.

    Args:
        model: Who writes; a small one will do, if its window holds what is to be replaced.
        instructions: What a summary is to keep.
        idle_timeout: Seconds of silence after which the summary fails; None waits for ever.

    Raises:
        UsageError, InvalidValueError: `model` is no model, `instructions` no text, or `idle_timeout` no time.

    Example:
        >>> from runlane.runtime import StructuredCompaction, StructuredCompactionConfig
        >>> from runlane.testing import ScriptedModel
        >>> compact = StructuredCompaction(
        ...     StructuredCompactionConfig(
        ...         schema=str,
        ...         summarize=summarize_with(ScriptedModel("They said hello.")),
        ...         due=lambda probe: (probe.tokens.value or 0) > 100_000,
        ...         keep_recent_turns=10,
        ...     )
        ... )
    """
    writer = resolved_model(model, "model")
    if not isinstance(instructions, str):
        raise UsageError("must be text", argument="instructions")
    seconds(idle_timeout, "idle_timeout", optional=True)

    async def summarize(request: SummaryRequest[str]) -> Summarised[str]:
        projection = request.project()
        earlier = request.previous_summary
        head = [instructions, *(() if earlier is None else (f"Earlier notes:\n\n{earlier}",)), *projection.system]
        messages = (*map(ModelMessage.system, head), *projection.messages, ModelMessage.user(_ASK))
        context = ModelProviderContext(signal=request.signal, options=writer.options, idle_timeout=idle_timeout)
        async with writer.provider.open_stream(messages, context) as parts:
            answer = await collect(parts)
        if answer.finish.reason != "stop":
            model_protocol_error(f"the summary was not finished ({answer.finish.reason})")
        return Summarised(summary=answer.text, usage=writer.usage_of(answer.usage))

    return summarize
