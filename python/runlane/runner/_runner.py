"""The model runner: prepares calls, charges them before any I/O, makes them one at a time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar, overload

from runlane.contracts import (
    AttemptBudget,
    CancelToken,
    ErrorContext,
    ExecutionOptions,
    Id,
    ModelCallRecord,
    ModelResult,
    annotate_error,
    require_id,
    require_kind,
    resolve,
)
from runlane.diagnostics import BudgetRefused, DiagnosticContext, DiagnosticSpanFields, ModelPrepared, as_diagnostics
from runlane.errors import (
    BudgetError,
    PreparedCallError,
    RunnerBusyError,
    UnknownTransportError,
    UsageError,
)
from runlane.models import validate_messages
from runlane.runner._call import CallFacts, ChargedCall
from runlane.runner._config import (
    ModelCallRequest,
    ModelChildOptions,
    ModelPrepareRequest,
    ModelRunnerOptions,
    ModelRunnerSettings,
    instructed,
    merge_options,
    messages_of,
    narrowed,
)
from runlane.runner._heeding import heeding
from runlane.runner._measurement import ModelInputMeasurement
from runlane.runner._prepared import Asking, Meter, PreparedModelCall, refuse_too_large
from runlane.runner._transports import (
    PLAIN_TEXT,
    ModelTransportDefinition,
    PreparedModelTransport,
    TransportKey,
    named_transports,
)
from runlane.runner._tree import RequestTree

__all__ = ["ModelRunner"]

Out = TypeVar("Out")

_NO_OPTIONS: Final = ExecutionOptions()


class _Place:
    """Where a call is on its way, for the error that may leave it."""

    __slots__ = ("invocation_id", "stage", "token", "transport")

    def __init__(self, stage: Id | None, token: CancelToken) -> None:
        self.stage = stage
        self.token = token
        self.transport: str | None = None
        self.invocation_id: Id | None = None

    def note(self, error: Exception) -> None:
        """Annotate a failure; being cancelled is none."""
        if self.token.cancelled and error is self.token.error():
            return
        context = ErrorContext(
            operation="model", stage=self.stage, transport=self.transport, invocation_id=self.invocation_id
        )
        annotate_error(error, context)


class ModelRunner:
    """Calls one provider on behalf of one request.

    A call is prepared, which spends nothing, and then made, which spends one attempt before anything is sent, whatever
    comes of it. One call is in flight per runner; a child runner is another runner. Nothing is retried, no prompt is
    added and no other provider is asked.

    Example:
        >>> async def ask(provider: ChatProvider) -> str:
        ...     runner = ModelRunner(ModelRunnerOptions(provider=provider))
        ...     return (await runner.call(ModelCallRequest(stage=Id("greet"), prompt="Hello"))).value
    """

    def __init__(self, options: ModelRunnerOptions, /) -> None:
        """Make the root runner of a request.

        Raises:
            DuplicateRegistrationError: Two transports have one name.
            InvalidValueError: A transport's name is empty or begins with `core:`.
            UnknownTransportError: There is no transport of the default's name.
            UsageError: `options` is none.
        """
        self._options = require_kind(options, ModelRunnerOptions, argument="options")
        self._tree = RequestTree(options.settings)
        self._parent: ModelRunner | None = None
        self._depth = 0
        self._own_budget: AttemptBudget | None = None
        self._transports = named_transports(options.transports)
        if options.default_transport not in self._transports:
            raise UnknownTransportError(transport=options.default_transport)
        self._calls = 0
        self._total_calls = 0
        self._journal: list[ModelCallRecord] = []
        self._busy = False

    # ---- what it has

    @property
    def call_count(self) -> int:
        """The charged calls of this runner."""
        return self._calls

    @property
    def total_call_count(self) -> int:
        """The charged calls of this runner and of all its descendants."""
        return self._total_calls

    @property
    def journal(self) -> tuple[ModelCallRecord, ...]:
        """The receipts of this runner's successful calls, in the order they completed."""
        return tuple(self._journal)

    @property
    def busy(self) -> bool:
        """Whether a call is in flight."""
        return self._busy

    @property
    def settings(self) -> ModelRunnerSettings:
        """The limits that hold here."""
        return self._options.settings

    @property
    def budget(self) -> AttemptBudget:
        """The call budget of the whole request, shared by all runners of the tree."""
        return self._tree.budget

    @property
    def signal(self) -> CancelToken | None:
        """What ends its calls, if its ports say so."""
        return self._options.ports.signal

    @property
    def diagnostics(self) -> DiagnosticContext | None:
        """Where its calls are recorded, if its ports say so."""
        return self._options.ports.diagnostics

    # ---- preparing

    async def prepare(
        self,
        request: ModelCallRequest,
        selection: ModelPrepareRequest | None = None,
        /,
        *,
        options: ExecutionOptions | None = None,
    ) -> PreparedModelCall[Any]:
        """Decide everything about a call and spend nothing; it may be done while another is in flight.

        Raises:
            ModelProtocolError: The messages do not add up.
            UnknownTransportError: This runner has no transport of that name.
            UsageError: The request is none.
            Exception: Whatever the transport raised, or the token's error.
        """
        given = options or _NO_OPTIONS
        place = _Place(_stage_of(request), self._token(given))
        try:
            return await self._prepare(request, selection or ModelPrepareRequest(), given, place)
        except Exception as error:
            place.note(error)
            raise

    async def _prepare(
        self, request: ModelCallRequest, selection: ModelPrepareRequest, options: ExecutionOptions, place: _Place
    ) -> PreparedModelCall[Any]:
        if not isinstance(request, ModelCallRequest):
            raise UsageError(f"must be ModelCallRequest, not {type(request).__name__}", argument="request")
        place.token.raise_if_cancelled()
        transport = self._transport(selection.transport)
        place.transport = transport.key.id
        messages = messages_of(request)
        validate_messages(messages)
        made: PreparedModelTransport[Any] = await heeding(
            place.token, lambda: resolve(transport.prepare(Id(request.stage)))
        )
        if made.instruction is not None:
            messages = instructed(messages, made.instruction)
        prepared: PreparedModelCall[Any] = PreparedModelCall(
            stage=Id(request.stage),
            transport=transport.key.id,
            messages=messages,
            functions=tuple(made.functions),
            options=merge_options(request.options, selection.options, made.options, self._options.options),
            _owner=self,
            _asking=Asking(
                function_choice=made.function_choice,
                allow_multiple_calls=made.allow_multiple_calls,
                response_format=made.response_format,
                create_collector=made.create_collector,
            ),
            _meter=Meter(
                messages,
                tuple(made.functions),
                self.settings,
                self._options.ports.tokens,
                request.reserve_output_tokens,
            ),
        )
        scope = self._scope(options, prepared.stage, options.invocation_id)
        if scope is not None and scope.enabled:
            size = prepared._meter.without_tokens().to_json()  # noqa: SLF001 - one object in two modules
            await scope.emit("model.prepared", ModelPrepared(transport=prepared.transport, measurement=size))
        return prepared

    def _transport(self, wanted: str | TransportKey[Any] | None) -> ModelTransportDefinition[Any]:
        name = wanted.id if isinstance(wanted, TransportKey) else wanted
        if name is None:
            name = self._options.default_transport
        transport = self._transports.get(name)
        if transport is None:
            raise UnknownTransportError(transport=str(name))
        return transport

    # ---- calling

    @overload
    async def call(
        self, call: PreparedModelCall[Out], /, *, options: ExecutionOptions | None = None
    ) -> ModelResult[Out]: ...

    @overload
    async def call(self, call: ModelCallRequest, /, *, options: ExecutionOptions | None = None) -> ModelResult[str]: ...

    @overload
    async def call(
        self, call: ModelCallRequest, /, *, transport: TransportKey[Out], options: ExecutionOptions | None = None
    ) -> ModelResult[Out]: ...

    @overload
    async def call(
        self,
        call: ModelCallRequest,
        /,
        *,
        transport: Literal["core:plain-text"],
        options: ExecutionOptions | None = None,
    ) -> ModelResult[str]: ...

    @overload
    async def call(
        self, call: ModelCallRequest, /, *, transport: str, options: ExecutionOptions | None = None
    ) -> ModelResult[object]: ...

    async def call(
        self,
        call: PreparedModelCall[Any] | ModelCallRequest,
        /,
        *,
        transport: str | TransportKey[Any] | None = None,
        options: ExecutionOptions | None = None,
    ) -> ModelResult[Any]:
        """Make a call: one that was prepared, or a request.

        Args:
            call: A prepared call of this runner, made at most once; or a request, which is plain text unless a
                transport is named.
            transport: For a request only.
            options: Signal, diagnostics, name and time limit of this call.

        Returns:
            What the transport made of the answer, with the receipt.

        Raises:
            BudgetError: The input is too large, or an allowance is spent; then nothing was charged. Or the output is
                too large.
            ModelCallTimeoutError: It took too long.
            PreparedCallError: It was made before, or prepared by another runner.
            ProviderStreamCutError: The answer ended without a finish report.
            RunnerBusyError: A call is in flight; it is unharmed.
            Exception: Whatever provider, transport, sink or observer raised, or the token's error.
        """
        given = options or _NO_OPTIONS
        place = _Place(_stage_of(call), self._token(given))
        try:
            prepared = await self._prepared(call, transport, given, place)
            return await self._make(prepared, given, place)
        except Exception as error:
            place.note(error)
            raise

    async def _prepared(
        self,
        call: PreparedModelCall[Any] | ModelCallRequest,
        transport: str | TransportKey[Any] | None,
        options: ExecutionOptions,
        place: _Place,
    ) -> PreparedModelCall[Any]:
        if not isinstance(call, PreparedModelCall):
            self._refuse_busy()
            selection = ModelPrepareRequest(transport=PLAIN_TEXT if transport is None else transport)
            return await self._prepare(call, selection, options, place)
        place.transport = call.transport
        if transport is not None:
            raise UsageError("was decided when the call was prepared", argument="transport")
        return call

    async def _make(
        self, prepared: PreparedModelCall[Out], options: ExecutionOptions, place: _Place
    ) -> ModelResult[Out]:
        cell = prepared._cell  # noqa: SLF001 - one object in two modules
        if prepared._owner is not self:  # noqa: SLF001 - likewise
            raise PreparedCallError(problem="foreign")
        if cell.spent:
            raise PreparedCallError(problem="spent")
        self._refuse_busy()
        self._busy = True
        try:
            place.token.raise_if_cancelled()
            place.invocation_id = self._invocation_id(options)
            scope = self._scope(options, prepared.stage, place.invocation_id)
            measurement = await heeding(place.token, prepared.measure)
            await self._charge(scope, measurement)
            facts = CallFacts(
                provider=self._options.provider,
                settings=self.settings,
                ports=self._options.ports,
                token=place.token,
                timeout=_sooner(self.settings.call_timeout, options.timeout),
                invocation_id=place.invocation_id,
                call_number=self._calls,
                scope=scope,
                measurement=measurement,
                journal=self._journal,
            )
            cell.spent = True
            try:
                return await ChargedCall(prepared, facts).run()
            finally:
                self._tree.leave(self._depth)
        finally:
            self._busy = False

    async def _charge(self, scope: DiagnosticContext | None, measurement: ModelInputMeasurement) -> None:
        """Spend one attempt, or refuse; nothing is awaited between the decision and the spending."""
        try:
            refuse_too_large(measurement, self.settings)
            self._tree.charge(self._own_budget, self._depth)
        except BudgetError as refused:
            if scope is not None and scope.enabled:
                with suppress(Exception):  # the refusal came first
                    await scope.emit("budget.refused", BudgetRefused(allowance=refused.allowance, limit=refused.limit))
            raise
        self._calls += 1
        self._count_call()

    def _count_call(self) -> None:
        self._total_calls += 1
        if self._parent is not None:
            self._parent._count_call()  # noqa: SLF001 - of the same class

    def _refuse_busy(self) -> None:
        if self._busy:
            raise RunnerBusyError

    def _invocation_id(self, options: ExecutionOptions) -> Id:
        if options.invocation_id is not None:
            return require_id(options.invocation_id, argument="options.invocation_id")
        return Id(self._options.ports.ids.new("invocation"))

    def _token(self, options: ExecutionOptions) -> CancelToken:
        return CancelToken.any(self._options.ports.signal, options.signal)

    def _scope(self, options: ExecutionOptions, stage: Id, invocation_id: Id | None) -> DiagnosticContext | None:
        recorder = self._options.ports.diagnostics if options.diagnostics is None else options.diagnostics
        if recorder is None:
            return None
        return as_diagnostics(recorder).child(DiagnosticSpanFields(stage=stage, invocation_id=invocation_id))

    # ---- children

    def child(self, options: ModelChildOptions | None = None, /) -> ModelRunner:
        """Make a runner below this one: same provider and shared budget, its own counters, journal and call in flight.

        It has no lifetime of its own: when the token of any ancestor trips its calls end, and nothing needs closing.

        Raises:
            BudgetError: It would be too deep (`model_child_depth`) or one too many (`model_children`).
            DuplicateRegistrationError, InvalidValueError: See `ModelRunner`.
            UnknownTransportError: The transports given lack the default one.
            UsageError: A setting is no numeric limit of a runner.
        """
        asked = options or ModelChildOptions()
        settings = narrowed(self.settings, asked.settings or {})
        ports = self._options.ports
        made = ModelRunner(
            replace(
                self._options,
                settings=settings,
                transports=self._options.transports if asked.transports is None else asked.transports,
                ports=replace(
                    ports,
                    signal=_either(ports.signal, asked.signal),
                    output=ports.output if asked.output is None else asked.output,
                ),
            )
        )
        self._tree.admit_child(self._depth + 1)
        made._tree = self._tree
        made._parent = self
        made._depth = self._depth + 1
        made._own_budget = AttemptBudget(settings.max_calls) if "max_calls" in (asked.settings or {}) else None
        return made


def _stage_of(call: object) -> Id | None:
    return Id(call.stage) if isinstance(call, ModelCallRequest | PreparedModelCall) else None


def _either(first: CancelToken | None, second: CancelToken | None) -> CancelToken | None:
    return first if second is None else CancelToken.any(first, second)


def _sooner(first: float | None, second: float | None) -> float | None:
    given = [limit for limit in (first, second) if limit is not None]
    return min(given, default=None)
