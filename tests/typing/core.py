"""What the type checkers must see of the core half. Checked by mypy and basedpyright, never executed."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, assert_type

from runlane.context import BuiltContext, ContextFragment, ContextJournal, ModelCallContext, assemble_fragments
from runlane.contracts import (
    AttemptBudget,
    CancelToken,
    ErrorContext,
    ErrorInfo,
    Id,
    InvocationResult,
    ModelCallRecord,
    ModelResult,
    OperationContext,
    OrderedRegistry,
    ProtocolRegistry,
    ReadonlyCatalog,
    RecordingScope,
    Registry,
    SchemaAdapter,
    SearchHit,
    ToolResult,
    annotate_error,
    get_error_info,
    resolve,
    schema_for,
)
from runlane.diagnostics import (
    CoreEvent,
    DiagnosticContext,
    DiagnosticSpanFields,
    NodeEntered,
    RecordedSubStep,
    ScopedSubFlowLogger,
    ScopedSubFlowStepInput,
    SubFlowLog,
    SubFlowLogger,
    SubFlowStepInput,
    as_diagnostics,
    create_diagnostics,
)
from runlane.errors import BudgetError
from runlane.policy import BreakCheck, MatchRule, WalkRule, break_while, match_rule, walk_rules
from runlane.runner import (
    ModelCallRequest,
    ModelRunner,
    ModelSelection,
    ModelSessionResult,
    ModelToolRegistration,
    ModelToolRegistry,
    PreparedModelCall,
    RegisteredModelTool,
    ToolProposal,
    TransportKey,
    retry_multiple_model_calls,
    selectable_tools,
)
from runlane.tools import ToolRegistry

ROUTE: TransportKey[ModelSelection[int]] = TransportKey("app:route")
TALK: TransportKey[ModelSessionResult] = TransportKey("app:talk")


class App:
    """A host's own object."""

    name: str = ""


def takes_wider_schema(schema: SchemaAdapter[float]) -> None:
    """A schema of integers is one of numbers."""
    assert_type(schema.parse(1), float)


def takes_wider_catalog(catalog: ReadonlyCatalog[float]) -> None:
    """A catalogue of integers is one of numbers."""
    assert_type(catalog.list(), tuple[float, ...])


def contracts(context: OperationContext[App], hit: SearchHit[dict[str, str]], call: ModelResult[str]) -> None:
    """Contracts keep the types they carry."""
    assert_type(context.app, App)
    assert_type(context.signal, CancelToken)
    assert_type(hit.document, dict[str, str])
    assert_type(call, InvocationResult[str, ModelCallRecord])
    assert_type(call.value, str)
    assert_type(call.receipt, ModelCallRecord)
    assert_type(AttemptBudget(1).take(), bool)
    assert_type(get_error_info(None), ErrorInfo)
    error = BudgetError()
    assert_type(annotate_error(error, ErrorContext(operation="x")), BudgetError)
    adapter = schema_for(int)
    assert_type(adapter.parse("1"), int)
    takes_wider_schema(adapter)


async def awaiting(now: int, later: Callable[[], Awaitable[int]]) -> None:
    """A value that may be awaitable is its own type once it is resolved."""
    assert_type(await resolve(now), int)
    assert_type(await resolve(later()), int)


def registries() -> None:
    """A registry takes items and shows entries; a sealed one is a catalogue."""
    numbers: OrderedRegistry[str, int] = OrderedRegistry("numbers", lambda text: (Id(text), int(text)))
    registry: Registry[str, int] = numbers
    assert_type(registry.register("1"), int)
    assert_type(registry.require(Id("1")), int)
    assert_type(registry.get(Id("1")), int | None)
    catalog: ReadonlyCatalog[int] = registry.seal()
    takes_wider_catalog(catalog)
    mapping: Mapping[str, int] = ProtocolRegistry[int]("formats")
    assert_type(mapping["x"], int)


async def diagnostics(scope: RecordingScope | None) -> None:
    """A scope in options is a scope of diagnostics; both recorders have one surface."""
    root = as_diagnostics(scope)
    assert_type(root, DiagnosticContext)
    narrow: RecordingScope = root
    assert_type(narrow.enabled, bool)
    child = create_diagnostics().child(DiagnosticSpanFields(node_id=Id("n"), visit=1))
    assert_type(await child.emit("node.entered", NodeEntered()), CoreEvent | None)
    assert_type(await child.emit("node.entered", NodeEntered), CoreEvent | None)
    whole: SubFlowLog[SubFlowStepInput] = SubFlowLogger()
    part: SubFlowLog[ScopedSubFlowStepInput] = SubFlowLogger().scope(Id("x"))
    assert_type(SubFlowLogger().scope(Id("x")), ScopedSubFlowLogger)
    assert_type(whole.write(SubFlowStepInput()), RecordedSubStep)
    assert_type(part.read(), tuple[RecordedSubStep, ...])


def policies(order: dict[str, int]) -> None:
    """Every form of a table."""
    break_while([lambda: True], "no", tags=["x"])
    break_while([BreakCheck(when=lambda: True, group="g")])
    break_while([BreakCheck(when=lambda: True, group="g")], ValueError)
    break_while(order, lambda: "no", tags=("x",))
    break_while(0, KeyError("no"))
    by_type: list[MatchRule[object, None, int]] = [MatchRule(handle=lambda _value, _state: 1)]
    assert_type(match_rule(by_type, "x"), int | None)
    with_state: list[MatchRule[int, str, float]] = [MatchRule(handle=lambda value, _state: value / 2)]
    assert_type(match_rule(with_state, 1, "state", default=0.0), float | None)
    rules: list[WalkRule[dict[str, int]]] = [WalkRule(apply=lambda found: found.clear())]
    assert_type(walk_rules(rules, order), dict[str, int])


def contexts(journal: ContextJournal, call: ModelResult[str], result: ToolResult[int]) -> None:
    """Assembly and journal."""
    assert_type(assemble_fragments([ContextFragment(id=Id("a"), content="x")], max_chars=9), BuiltContext)
    assert_type(journal.record_model(call), ModelCallContext)
    journal.record_tool_result(result)
    assert_type(journal.fragments(lambda _: None), tuple[ContextFragment, ...])


async def runners(runner: ModelRunner, request: ModelCallRequest, prepared: PreparedModelCall[int]) -> None:
    """The type of a call is that of its transport, and `object` for a name nobody typed."""
    assert_type((await runner.call(request)).value, str)
    assert_type((await runner.call(request, transport="core:plain-text")).value, str)
    assert_type((await runner.call(request, transport=ROUTE)).value, ModelSelection[int])
    assert_type((await runner.call(request, transport=ROUTE)).value.value, int)
    assert_type((await runner.call(request, transport=TALK)).value, ModelSessionResult)
    assert_type((await runner.call(prepared)).value, int)
    name: str = ROUTE.id
    assert_type((await runner.call(request, transport=name)).value, object)
    assert_type(await runner.prepare(request), PreparedModelCall[Any])
    assert_type(runner.child(), ModelRunner)

    async def ask() -> ModelResult[str]:
        return await runner.call(request)

    assert_type(await retry_multiple_model_calls(ask, ask), ModelResult[str])


def capabilities(tools: ToolRegistry[App], registration: ModelToolRegistration[int]) -> None:
    """Registration keeps the type of what a capability resolves to."""
    registry = ModelToolRegistry([registration])
    assert_type(registry, ModelToolRegistry[int])
    assert_type(registry.register(registration), RegisteredModelTool[int])
    assert_type(registry.project([Id("a")]), ModelToolRegistry[int])
    assert_type(registry.project(lambda entry: bool(entry.intent)), ModelToolRegistry[int])
    assert_type(selectable_tools(tools), ModelToolRegistry[ToolProposal])
