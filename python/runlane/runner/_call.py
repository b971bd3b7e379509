"""One charged call, from opening the provider to its receipt.

Whatever happens in between, the stream is closed before the call ends, the end is told exactly once, and what leaves is
the first thing that went wrong: a failure to close or to tell never takes its place.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from runlane.contracts import (
    CancelToken,
    DurationMs,
    Id,
    InvocationResult,
    InvocationStatus,
    ModelCallRecord,
    ModelResult,
    elapsed_ms,
    get_error_info,
    sync_result,
    timestamp_ms,
)
from runlane.diagnostics import (
    CoreEventName,
    CoreEventPayload,
    DiagnosticContext,
    ErrorFacts,
    ModelFinished,
    ModelInput,
    ModelOutput,
    ModelStarted,
)
from runlane.errors import ModelCallTimeoutError, ModelError, ProviderStreamCutError
from runlane.models import (
    ChatProvider,
    FunctionCallDelta,
    ModelPart,
    ModelProviderContext,
    ReasoningDelta,
    TextDelta,
)
from runlane.runner._config import ModelRunnerPorts, ModelRunnerSettings
from runlane.runner._heard import Heard
from runlane.runner._measurement import ModelInputMeasurement
from runlane.runner._prepared import PreparedModelCall
from runlane.runner._trace import ModelCallTrace, ModelOutputEvent, OutputPart
from runlane.runner._transports import ModelResponseCollector

__all__ = ["CallFacts", "ChargedCall"]

Out = TypeVar("Out")

_TELL_WITHIN: Final = 1.0
"""Seconds in which the end of a call that failed or was cancelled must be told."""


@dataclass(frozen=True, kw_only=True)
class CallFacts:
    """What a runner knows of a call when it is charged."""

    provider: ChatProvider
    settings: ModelRunnerSettings
    ports: ModelRunnerPorts
    token: CancelToken
    timeout: float | None
    invocation_id: Id
    call_number: int
    scope: DiagnosticContext | None
    measurement: ModelInputMeasurement
    journal: list[ModelCallRecord] = field(repr=False)

    @property
    def told(self) -> DiagnosticContext | None:
        """Where events go, if anybody listens."""
        return self.scope if self.scope is not None and self.scope.enabled else None


class ChargedCall(Generic[Out]):
    """Makes one call that is paid for."""

    def __init__(self, prepared: PreparedModelCall[Out], facts: CallFacts, /) -> None:
        self._prepared = prepared
        self._facts = facts
        self._heard = Heard(facts.settings, keep=facts.told is not None)
        self._started_at = timestamp_ms(facts.ports.clock.now())
        self._started = facts.ports.clock.monotonic()
        self._scope = anyio.CancelScope()
        self._values: list[Out] = []
        self._failure: Exception | None = None
        self._timed_out = False
        self._sequence = 0

    async def run(self) -> ModelResult[Out]:
        """Make the call.

        Raises:
            ModelCallTimeoutError: It took too long.
            Exception: The token's error, or whatever provider, sink, collector or observer raised.
        """
        token = self._facts.token
        try:
            await self._within_deadline()
        except BaseException as error:
            await self._end_badly("cancelled", error)
            raise
        if token.cancelled:
            await self._end_badly("cancelled", token.error())
            await checkpoint_if_cancelled()
            token.raise_if_cancelled()
        failure = self._verdict()
        if failure is not None:
            await self._end_badly("failed", failure)
            raise failure
        return await self._end_well(self._values[0])

    def _verdict(self) -> Exception | None:
        """Return what the call failed of, if it did."""
        if self._values:
            return None
        if self._timed_out and self._facts.timeout is not None:
            return ModelCallTimeoutError(timeout=self._facts.timeout)
        return self._failure

    # ---- the work

    async def _within_deadline(self) -> None:
        timeout = self._facts.timeout
        if timeout is None:
            await self._guarded()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._expire, timeout)
            await self._guarded()
            tasks.cancel_scope.cancel()

    async def _expire(self, seconds: float) -> None:
        await self._facts.ports.clock.sleep(seconds)
        self._timed_out = True
        self._scope.cancel()

    async def _guarded(self) -> None:
        """Keep failures inside: none of them may meet a task group on its way."""
        with self._scope, self._facts.token.bind(self._scope):
            try:
                self._values.append(await self._work())
            except Exception as error:  # noqa: BLE001 - raised by `run`, with the end told
                self._failure = error

    async def _work(self) -> Out:
        prepared, facts = self._prepared, self._facts
        await self._tell_start()
        collector = prepared._asking.create_collector()  # noqa: SLF001 - one object in two modules
        await self._stream(facts.provider.open_stream(prepared.messages, self._context()), collector)
        if self._heard.finish is None:
            raise ProviderStreamCutError
        return await collector.finish()

    async def _stream(
        self, manager: AbstractAsyncContextManager[AsyncIterator[ModelPart]], collector: ModelResponseCollector[Out]
    ) -> None:
        """Read a stream to its end and close it, in time whatever ended it."""
        failure: BaseException | None = None
        # The scope is around the opening too: what a provider opens may hold scopes of its own until it is closed.
        with anyio.CancelScope() as closing:
            parts = await manager.__aenter__()
            try:
                await self._read(parts, collector)
            except BaseException as error:  # noqa: BLE001 - raised below, once the stream is closed
                failure = error
            closing.shield = True
            closing.deadline = anyio.current_time() + self._facts.settings.close_timeout
            is_swallowed, answer = await self._close(manager, failure)
            closing.shield = False
            if issubclass(type(failure), anyio.get_cancelled_exc_class()) and not _is_cancelled():
                # The provider's own scope was cancelled, by a deadline of its own: what it makes of that counts.
                failure = answer if is_swallowed or issubclass(type(answer), ModelError) else failure
        if failure is not None:
            raise failure

    def _context(self) -> ModelProviderContext:
        prepared, facts = self._prepared, self._facts
        asking = prepared._asking  # noqa: SLF001 - likewise
        return ModelProviderContext(
            signal=facts.token,
            options=prepared.options,
            functions=prepared.functions,
            function_choice=asking.function_choice,
            allow_multiple_calls=asking.allow_multiple_calls,
            response_format=asking.response_format,
            stage=prepared.stage,
            invocation_id=facts.invocation_id,
            call_number=facts.call_number,
        )

    async def _read(self, parts: AsyncIterator[ModelPart], collector: ModelResponseCollector[Out]) -> None:
        token = self._facts.token
        async for part in parts:
            token.raise_if_cancelled()
            self._heard.take(part)
            if isinstance(part, TextDelta | ReasoningDelta | FunctionCallDelta):
                await self._deliver(part)
            take: Callable[[ModelPart], object] = collector.add
            sync_result(take(part), argument="collector.add")

    async def _deliver(self, part: OutputPart) -> None:
        facts, heard = self._facts, self._heard
        if heard.first_output is None:
            heard.first_output = facts.ports.clock.monotonic()
        if facts.ports.output is None:
            return
        self._sequence += 1
        event = ModelOutputEvent(
            facts.invocation_id, self._prepared.stage, self._prepared.transport, self._sequence, part
        )
        await facts.ports.output(event)

    async def _close(self, manager: Any, error: BaseException | None) -> tuple[bool, Exception | None]:  # noqa: ANN401 - a context manager
        """Close the stream; return whether it took the error for its own affair, and what it raised instead."""
        kind = None if error is None else type(error)
        traceback = None if error is None else error.__traceback__
        try:
            return bool(await manager.__aexit__(kind, error, traceback)), None
        except Exception as raised:  # noqa: BLE001 - of an error or an end, the outcome of the call is decided
            return False, raised
        except BaseException as raised:
            if raised is not error:
                raise
            return False, None

    # ---- telling

    async def _emit(self, name: CoreEventName, payload: CoreEventPayload | Callable[[], CoreEventPayload]) -> None:
        scope = self._facts.told
        if scope is not None:
            await scope.emit(name, payload)

    async def _tell_start(self) -> None:
        if self._facts.told is None:
            return
        prepared = self._prepared
        provider = self._facts.provider
        started = ModelStarted(
            transport=prepared.transport,
            call_number=self._facts.call_number,
            provider_id=provider.provider_id,
            model_id=provider.model_id,
        )
        await self._emit("model.started", started)
        await self._emit("model.input", lambda: ModelInput(messages=prepared.messages))

    async def _end_well(self, value: Out) -> ModelResult[Out]:
        receipt = self._receipt(self._duration())
        self._facts.journal.append(receipt)
        problem = await self._tell_end("succeeded", None)
        if problem is not None:
            raise problem
        return InvocationResult(value, receipt)

    async def _end_badly(self, status: InvocationStatus, error: BaseException) -> None:
        with anyio.move_on_after(_TELL_WITHIN, shield=True):
            await self._tell_end(status, error)

    async def _tell_end(self, status: InvocationStatus, error: BaseException | None) -> Exception | None:
        """Tell the end to everybody, also if it is cancelled meanwhile; return what the first of them raised."""
        duration = self._duration()
        tells = deque[Callable[[], Awaitable[None]]](
            (
                self._tell_output,
                lambda: self._tell_finished(status, error, duration),
                lambda: self._trace(status, error, duration),
            )
        )
        first: Exception | None = None
        try:
            while tells:
                try:
                    await tells.popleft()()
                except Exception as problem:  # noqa: BLE001 - raised by the caller, unless something came before
                    first = problem if first is None else first
        except BaseException:
            with anyio.move_on_after(_TELL_WITHIN, shield=True):
                while tells:
                    with suppress(Exception):
                        await tells.popleft()()
            raise
        return first

    async def _tell_output(self) -> None:
        kept = self._heard.kept
        if kept is not None:
            await self._emit("model.output", lambda: ModelOutput(parts=tuple(kept)))

    async def _tell_finished(self, status: InvocationStatus, error: BaseException | None, duration: DurationMs) -> None:
        heard = self._heard
        finished = ModelFinished(
            status=status,
            duration_ms=duration,
            # What else the provider said of its usage may be anything: it stays with the receipt.
            usage=None if heard.usage is None else replace(heard.usage, raw=None),
            finish_reason=None if heard.finish is None else heard.finish.reason,
            error=None if error is None else ErrorFacts.of(error),
        )
        await self._emit("model.finished", finished)

    async def _trace(self, status: InvocationStatus, error: BaseException | None, duration: DurationMs) -> None:
        observer = self._facts.ports.on_trace
        if observer is None:
            return
        given: object = observer(self._trace_of(status, error, duration))
        if hasattr(type(given), "__await__"):
            await cast("Awaitable[object]", given)

    def _trace_of(self, status: InvocationStatus, error: BaseException | None, duration: DurationMs) -> ModelCallTrace:
        prepared, facts, heard = self._prepared, self._facts, self._heard
        info = None if error is None else get_error_info(error).model_copy(update={"message": ""})
        return ModelCallTrace(
            invocation_id=facts.invocation_id,
            stage=prepared.stage,
            transport=prepared.transport,
            call_number=facts.call_number,
            started_at=self._started_at,
            duration_ms=duration,
            first_output_ms=None if heard.first_output is None else elapsed_ms(self._started, heard.first_output),
            status=status,
            measurement=facts.measurement,
            parts=heard.parts,
            output_chars=heard.chars,
            usage=heard.usage,
            finish_reason=None if heard.finish is None else heard.finish.reason,
            error=info,
        )

    def _receipt(self, duration: DurationMs) -> ModelCallRecord:
        prepared, facts, heard = self._prepared, self._facts, self._heard
        identity = None if facts.scope is None else facts.scope.identity
        return ModelCallRecord(
            invocation_id=facts.invocation_id,
            span_id=None if identity is None else identity.span_id,
            run_id=None if identity is None else identity.run_id,
            started_at=self._started_at,
            duration_ms=duration,
            stage=prepared.stage,
            transport=prepared.transport,
            call_number=facts.call_number,
            model_id=getattr(facts.provider, "model_id", None),
            finish_reason=None if heard.finish is None else heard.finish.reason,
            input_chars=facts.measurement.text_chars + facts.measurement.function_chars,
            output_chars=heard.chars,
            usage=heard.usage,
        )

    def _duration(self) -> DurationMs:
        return elapsed_ms(self._started, self._facts.ports.clock.monotonic())


def _is_cancelled() -> bool:
    """Whether a scope around this is cancelled."""
    return anyio.current_effective_deadline() == -math.inf
