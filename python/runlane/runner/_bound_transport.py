"""A transport over capabilities: an adapter asks and reads, the captured capabilities judge and resolve."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from pydantic import JsonValue
from typing_extensions import override

from runlane.contracts import Id, ModelUsage, resolve, sync_result
from runlane.errors import CheckFailedError, DuplicateRegistrationError, InvalidValueError, UsageError
from runlane.models import FinishReport, ModelPart, UsageReport, model_protocol_error, parse_arguments
from runlane.records import ToolCallPart
from runlane.runner._capabilities import (
    ModelSelection,
    ModelSessionResult,
    ModelToolCatalog,
    RegisteredModelTool,
    ToolProposal,
    capture,
)
from runlane.runner._transports import (
    ModelTransportDefinition,
    ModelTransportRegistration,
    PreparedModelTransport,
    ProposalCollector,
    TransportKey,
)

__all__ = ["create_model_transport"]

Out = TypeVar("Out")


def create_model_transport(registration: ModelTransportRegistration[Any], /) -> ModelTransportDefinition[Any]:
    """Make a transport over capabilities.

    It gives a `ModelSelection` in mode `selection` (exactly one choice; words beside it are dropped) and a
    `ModelSessionResult` in mode `session`. The capabilities are captured once per prepared call: the same set is told
    to the model and judges what it chose. There is no fallback to another way of asking.

    Raises:
        InvalidValueError: The key is empty or begins with `core:`.
        UsageError: Strict arguments are required of an adapter that cannot ask for them, or the source is none.
    """
    _check(registration)
    return _CapabilityTransport(registration)


def _check(registration: ModelTransportRegistration[Any]) -> None:
    key = registration.key.id
    if not key or key.startswith("core:"):
        raise InvalidValueError("must not be empty nor begin with 'core:'", argument="registration.key")
    if registration.require_strict_arguments and not registration.interaction.supports_strict_arguments:
        raise UsageError(
            f"{registration.interaction.id} cannot ask for strict arguments",
            argument="registration.require_strict_arguments",
        )
    if not callable(registration.source) and not hasattr(registration.source, "list_tools"):
        raise UsageError("must be a catalogue or a function of the stage", argument="registration.source")


class _CapabilityTransport(Generic[Out]):
    def __init__(self, registration: ModelTransportRegistration[Out]) -> None:
        self._registration = registration

    @property
    def key(self) -> TransportKey[Any]:
        return self._registration.key

    def prepare(self, stage: Id, /) -> PreparedModelTransport[Any]:
        registration = self._registration
        tools = self._capture(stage)
        asked = registration.interaction.prepare(
            tuple(tools.values()),
            stage=stage,
            strict=registration.require_strict_arguments,
            mode=registration.mode,
        )
        kind = _Selecting if registration.mode == "selection" else _Talking

        def create_collector() -> _Selecting[Out] | _Talking:
            return kind(asked.create_collector(), tools)

        return PreparedModelTransport(
            instruction=asked.instruction,
            functions=asked.functions,
            function_choice=asked.function_choice,
            allow_multiple_calls=asked.allow_multiple_calls,
            response_format=asked.response_format,
            options=registration.options,
            create_collector=create_collector,
        )

    def _capture(self, stage: Id) -> dict[Id, RegisteredModelTool[Out]]:
        source = self._registration.source
        if not hasattr(source, "list_tools"):
            source = sync_result(source(stage), argument="registration.source")
        catalog = cast("ModelToolCatalog[Out]", source)
        tools: dict[Id, RegisteredModelTool[Out]] = {}
        for item in sync_result(catalog.list_tools(), argument="source.list_tools"):
            tool = capture(item)
            if tool.id in tools:
                raise DuplicateRegistrationError(registry=f"the capabilities of stage {stage!r}", key=tool.id)
            tools[tool.id] = tool
        if not tools:
            raise InvalidValueError(f"has no capabilities for stage {stage!r}", argument="registration.source")
        return tools


class _Judging(Generic[Out]):
    """Collects proposals, and holds them to what was captured."""

    def __init__(self, proposals: ProposalCollector, tools: Mapping[Id, RegisteredModelTool[Out]]) -> None:
        self._proposals = proposals
        self._tools = tools

    def add(self, part: ModelPart, /) -> None:
        self._proposals.add(part)

    def _judge(self, proposal: ToolProposal) -> tuple[RegisteredModelTool[Out], JsonValue, object]:
        """Return the capability, its arguments as JSON, and as its schema parsed them."""
        tool = self._tools.get(proposal.tool_id)
        if tool is None:
            model_protocol_error(f"there is no capability {proposal.tool_id!r}", code="model.unknown_capability")
        given = _as_object(proposal)
        try:
            return tool, given, sync_result(tool.schema.parse(given), argument=f"{tool.id}.schema.parse")
        except CheckFailedError as error:
            model_protocol_error(
                f"the arguments of {tool.id!r} do not follow its schema", code="model.arguments_invalid", cause=error
            )


class _Selecting(_Judging[Out]):
    async def finish(self) -> ModelSelection[Out]:
        proposals = await self._proposals.finish()
        if len(proposals) > 1:
            model_protocol_error(f"{len(proposals)} calls where one was asked for", code="model.multiple_calls")
        if not proposals:
            model_protocol_error("no call where one was asked for", code="model.no_call")
        tool, _, arguments = self._judge(proposals[0])
        return ModelSelection(tool_id=tool.id, arguments=arguments, value=await resolve(tool.resolve(arguments)))


class _Talking(_Judging[Any]):
    def __init__(self, proposals: ProposalCollector, tools: Mapping[Id, RegisteredModelTool[Any]]) -> None:
        super().__init__(proposals, tools)
        self._usage: ModelUsage | None = None
        self._reason = "other"

    @override
    def add(self, part: ModelPart, /) -> None:
        super().add(part)
        if isinstance(part, UsageReport):
            self._usage = part.usage
        elif isinstance(part, FinishReport):
            self._reason = part.reason

    async def finish(self) -> ModelSessionResult:
        proposals = await self._proposals.finish()
        calls = tuple(self._call(number, proposal) for number, proposal in enumerate(proposals, start=1))
        return ModelSessionResult(text=self._proposals.text, calls=calls, finish_reason=self._reason, usage=self._usage)

    def _call(self, number: int, proposal: ToolProposal) -> ToolCallPart:
        tool, given, _ = self._judge(proposal)
        written = proposal.arguments
        return ToolCallPart(
            call_id=proposal.call_id or f"call-{number}",
            tool_name=tool.id,
            arguments=written if isinstance(written, str) else json.dumps(written, ensure_ascii=False),
            input=given,
        )


def _as_object(proposal: ToolProposal) -> JsonValue:
    value = proposal.arguments
    if isinstance(value, str):
        try:
            value = parse_arguments(value)
        except ValueError as error:
            model_protocol_error(
                f"the arguments of {proposal.tool_id!r} are not JSON", code="model.arguments_invalid", cause=error
            )
    if not isinstance(value, dict):
        model_protocol_error(f"the arguments of {proposal.tool_id!r} are no object", code="model.arguments_invalid")
    return value
