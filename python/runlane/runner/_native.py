"""Capabilities as a provider's own functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from runlane.contracts import Id
from runlane.models import (
    FunctionCallDelta,
    ModelFunction,
    ModelPart,
    TextDelta,
    create_tool_call_collector,
)
from runlane.runner._capabilities import RegisteredModelTool, ToolProposal
from runlane.runner._transports import InteractionMode, PreparedModelInteraction

__all__ = ["native_function_interaction"]

_UNLIMITED: Final = 2**53 - 1
"""A runner holds its own limits over what is streamed."""


class _NativeFunctions:
    id: Final = "core:native-function"
    supports_strict_arguments: Final = True

    def prepare(
        self, tools: Sequence[RegisteredModelTool[Any]], /, *, stage: Id, strict: bool, mode: InteractionMode
    ) -> PreparedModelInteraction:
        del stage  # the functions are the same in every stage
        functions = tuple(
            ModelFunction(name=tool.id, description=tool.description, parameters=tool.json_schema, strict=strict)
            for tool in tools
        )
        return PreparedModelInteraction(
            functions=functions,
            function_choice="required" if mode == "selection" else "auto",
            allow_multiple_calls=mode == "session",
            create_collector=_NativeCollector,
        )


class _NativeCollector:
    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._calls = create_tool_call_collector(max_calls=_UNLIMITED, max_arguments_bytes=_UNLIMITED)

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def add(self, part: ModelPart, /) -> None:
        if isinstance(part, TextDelta):
            self._pieces.append(part.text)
        elif isinstance(part, FunctionCallDelta):
            self._calls.add(part)

    async def finish(self) -> tuple[ToolProposal, ...]:
        return tuple(
            ToolProposal(tool_id=Id(call.tool_name), arguments=call.arguments, call_id=call.call_id)
            for call in self._calls.finish()
        )


native_function_interaction: Final = _NativeFunctions()
"""Capabilities are sent as functions, and choices are the provider's own calls. Words instead of a call are no choice,
however well they are written: nothing is tried again in another way."""
