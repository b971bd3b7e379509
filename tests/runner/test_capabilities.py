"""What a model may choose, and what its choice is held to."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runlane.contracts import Id, Registry, schema_for
from runlane.errors import (
    CheckFailedError,
    DuplicateRegistrationError,
    InvalidValueError,
    MissingEntryError,
    ModelProtocolError,
    RegistrySealedError,
    UnknownTransportError,
    UsageError,
)
from runlane.models import FunctionCallDelta, ModelMessage, ModelUsage, TextDelta, UsageReport
from runlane.runner import (
    IntentOptions,
    ModelPrepareRequest,
    ModelSelection,
    ModelSessionResult,
    ModelTool,
    ModelToolRegistration,
    ModelToolRegistry,
    ModelToolSource,
    ModelTransportRegistration,
    ToolProposal,
    TransportKey,
    create_model_transport,
    json_object_interaction,
    native_function_interaction,
    selectable_tools,
)
from runlane.tools import ToolRegistry, ToolRegistryOptions, tool
from tests.runner.speaking import ASK, CALLS, STOP, Resolved, Speaker, calling, capabilities, runner, saying

pytestmark = pytest.mark.anyio

CHOICE: TransportKey[ModelSelection[str]] = TransportKey("app:choice")
SESSION: TransportKey[ModelSessionResult] = TransportKey("app:session")
NATIVE, JSON = native_function_interaction, json_object_interaction


def transport(source: Any, interaction: Any = NATIVE, **facts: Any) -> Any:  # noqa: ANN401 - parts of a registration
    """Return a transport; a session has the session's key."""
    key: TransportKey[Any] = SESSION if facts.get("mode") == "session" else CHOICE
    return create_model_transport(ModelTransportRegistration(key=key, interaction=interaction, source=source, **facts))


async def _choose(source: Any, *parts: Any, interaction: Any = NATIVE) -> ModelSelection[Any]:  # noqa: ANN401 - likewise
    result = await runner(Speaker(*parts), transport(source, interaction)).call(ASK, transport=CHOICE)
    return result.value


async def _talk(source: Any, *parts: Any, interaction: Any = NATIVE) -> ModelSessionResult:  # noqa: ANN401 - likewise
    speaks = runner(Speaker(*parts), transport(source, interaction, mode="session"))
    return (await speaks.call(ASK, transport=SESSION)).value


async def _code(*parts: Any, interaction: Any = NATIVE, session: bool = False) -> tuple[str, int]:  # noqa: ANN401
    """Return the code of the error, and how often anything was resolved."""
    resolved = Resolved()
    ask = _talk if session else _choose
    with pytest.raises(ModelProtocolError) as caught:
        await ask(capabilities(resolved, "a", "b"), *parts, interaction=interaction)
    return caught.value.code, len(resolved.arguments)


async def test_m21_a_registered_capability_is_a_snapshot() -> None:
    """Changing the schema it came with changes nothing, and the order of its properties is kept."""

    class Schema:
        def __init__(self) -> None:
            self.json_schema: dict[str, Any] = {"type": "object", "properties": {"b": {}, "a": {}}}

        def parse(self, value: object, /) -> object:
            return value

    schema = Schema()
    registry = ModelToolRegistry(
        [ModelToolRegistration(id=Id("a"), description="A.", schema=schema, resolve=lambda value: value)]
    )
    before = json.dumps(registry.require(Id("a")).json_schema)
    schema.json_schema["properties"]["c"] = {}
    assert json.dumps(registry.require(Id("a")).json_schema) == before
    assert before == '{"type": "object", "properties": {"b": {}, "a": {}}}'


@pytest.mark.parametrize(
    "facts",
    [
        {"id": ""},
        {"description": " "},
        {"schema": type("S", (), {"json_schema": [1], "parse": print})()},
        {"schema": type("S", (), {"json_schema": {"x": {1}}, "parse": print})()},
        {"schema": object()},
        {"resolve": 3},
    ],
    ids=["id", "description", "schema is a list", "schema is no JSON", "no schema", "resolve"],
)
def test_c12_a_malformed_capability_is_refused(facts: dict[str, Any]) -> None:
    """Of a schema only that it is a JSON object is checked; the registry stays as it was."""
    good: ModelToolRegistration[Any] = ModelToolRegistration(
        id=Id("a"), description="A.", schema=schema_for(dict[str, int]), resolve=lambda value: value
    )
    registry: ModelToolRegistry[Any] = ModelToolRegistry()
    with pytest.raises((InvalidValueError, UsageError, AttributeError)):
        registry.register(replace(good, **facts))
    assert registry.list() == ()


def test_m22_a_projection_is_sealed_and_keeps_the_order() -> None:
    """By ids or by a function; the registry filters nothing itself."""
    registry = capabilities(Resolved(), "a", "b", "c")
    for keep in ([Id("c"), Id("a")], {Id("a"), Id("c")}, lambda entry: entry.id != "b"):
        projected = registry.project(keep)
        assert [entry.id for entry in projected] == ["a", "c"]
        with pytest.raises(RegistrySealedError):
            projected.register(registry.require(Id("b")))
    assert not registry.sealed
    with pytest.raises(MissingEntryError):
        registry.project([Id("z")])

    async def later(_: object) -> bool:
        return True

    wrong: list[Any] = ["ab", later]
    for keep in wrong:
        with pytest.raises(UsageError):
            registry.project(keep)


class CapabilityMachine(RuleBasedStateMachine):
    """A registry of capabilities beside a list of ids: D13 holds for it as for any registry."""

    def __init__(self) -> None:
        super().__init__()
        self.registry: ModelToolRegistry[str] = ModelToolRegistry()
        self.known: list[str] = []

    @rule(name=st.sampled_from(["a", "b", "c"]))
    def register(self, name: str) -> None:
        """Appended, or refused and unchanged."""
        (entry,) = capabilities(Resolved(), name)
        refusal = RegistrySealedError if self.registry.sealed else DuplicateRegistrationError
        if self.registry.sealed or name in self.known:
            with pytest.raises(refusal):
                self.registry.register(entry)
        else:
            self.registry.register(entry)
            self.known.append(name)

    @rule()
    def seal(self) -> None:
        """Idempotent."""
        self.registry.seal()

    @rule(keep=st.sets(st.sampled_from(["a", "b", "c"])))
    def project(self, keep: set[str]) -> None:
        """A projection has what was kept of what is known, in order, and is itself sealed."""
        projected = self.registry.project(lambda entry: entry.id in keep)
        assert [entry.id for entry in projected.list_tools()] == [name for name in self.known if name in keep]
        assert projected.sealed

    @invariant()
    def reads_like_the_list(self) -> None:
        """In the order of registration."""
        assert [entry.id for entry in self.registry] == self.known


TestCapabilityMachine = CapabilityMachine.TestCase
TestCapabilityMachine.settings = settings(stateful_step_count=20)


async def test_m23_what_was_captured_judges() -> None:
    """The source is asked once per prepare, with the stage; later changes of it do not count."""
    resolved = Resolved()
    now = {"names": ["a", "b"]}
    stages: list[str] = []

    def source(stage: Id) -> ModelToolRegistry[Any]:
        stages.append(stage)
        return capabilities(resolved, *now["names"])

    for chosen, accepted in (("b", True), ("c", False)):
        speaks = runner(Speaker(*calling((chosen, '{"n":1}'))), transport(source))
        prepared = await speaks.prepare(ASK, ModelPrepareRequest(transport=CHOICE))
        for _ in range(5):
            await prepared.measure()
        now["names"] = ["a", "c"]
        if accepted:
            assert (await speaks.call(prepared)).value.tool_id == "b"
        else:
            with pytest.raises(ModelProtocolError) as caught:
                await speaks.call(prepared)
            assert caught.value.code == "model.unknown_capability"
        now["names"] = ["a", "b"]
        assert [function.name for function in prepared.functions] == ["a", "b"]
    assert stages == ["draft", "draft"]


async def test_m23_a_hosts_own_catalogue_is_a_source() -> None:
    """Whatever lists capabilities and resolves them qualifies, and each captured one resolves itself."""

    class Choice:
        id = Id("own")
        description = "Own."
        schema = schema_for(dict[str, int])
        intent = IntentOptions(title="Own")

        async def resolve(self, arguments: dict[str, int], /) -> int:
            return arguments["n"] * 2

    class Catalogue:
        def list_tools(self) -> Sequence[ModelTool[int]]:
            return [Choice()]

        def resolve(self, tool_id: Id, arguments: Any, /) -> int:  # noqa: ANN401 - parsed by the schema
            raise AssertionError(tool_id, arguments)

    source: ModelToolSource[int] = Catalogue()
    selection = await _choose(source, *calling(("own", '{"n":21}')))
    assert (selection.tool_id, selection.arguments, selection.value) == ("own", {"n": 21}, 42)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (("z", '{"n":1}'), "model.unknown_capability"),
        (("a", '{"n":"1"}'), "model.arguments_invalid"),
        (("a", '{"n":'), "model.arguments_invalid"),
        (("a", "[1]"), "model.arguments_invalid"),
        (("a", '"text"'), "model.arguments_invalid"),
    ],
)
async def test_m24_a_bad_choice_resolves_nothing(call: tuple[str, str], code: str) -> None:
    """An id that was not captured, or arguments its schema refuses, in a selection and in a session."""
    assert await _code(*calling(call)) == (code, 0)
    assert await _code(*calling(("b", '{"n":1}'), call), session=True) == (code, 0)


async def test_m24_refused_arguments_say_why() -> None:
    """The issues are the cause."""
    with pytest.raises(ModelProtocolError) as caught:
        await _choose(capabilities(Resolved(), "a"), *calling(("a", '{"n":"1"}')))
    cause = caught.value.__cause__
    assert isinstance(cause, CheckFailedError)
    assert cause.issues[0].path == ("n",)


def test_m25_strictness_needs_an_adapter_that_can() -> None:
    """Refused when the transport is made, long before any call."""
    with pytest.raises(UsageError, match="strict"):
        transport(capabilities(Resolved(), "a"), JSON, require_strict_arguments=True)


@pytest.mark.parametrize("strict", [True, False])
async def test_m25_strict_functions_are_sent_as_such(strict: object) -> None:
    """Every function, or none."""
    made = transport(capabilities(Resolved(), "a", "b"), require_strict_arguments=strict)
    prepared = made.prepare(Id("s"))
    assert [function.strict for function in prepared.functions] == [strict, strict]


async def test_m26_adapters_are_interchangeable() -> None:
    """One registry, asked in either way, gives the same choice."""
    registry = capabilities(Resolved(), "a", "b")
    native = await _choose(registry, *calling(("b", '{"n":7}')))
    told = await _choose(registry, TextDelta(' {"tool": "b", "arguments": {"n": 7}} \n'), STOP, interaction=JSON)
    assert native == told == ModelSelection(tool_id=Id("b"), arguments={"n": 7}, value="chose {'n': 7}")


async def test_m26_there_is_no_fallback() -> None:
    """Words instead of a call are no call, even if they are a perfect JSON object."""
    assert await _code(TextDelta('{"tool": "a", "arguments": {"n": 1}}'), STOP) == ("model.no_call", 0)


async def test_m27_a_stage_needs_capabilities_with_ids_of_their_own() -> None:
    """None, or two with one id, are refused when the call is prepared."""

    class Twice:
        def list_tools(self) -> list[Any]:
            return [*capabilities(Resolved(), "a"), *capabilities(Resolved(), "a")]

        def resolve(self, *_: object) -> None:
            """Never asked."""

    for source, error in ((capabilities(Resolved()), InvalidValueError), (Twice(), DuplicateRegistrationError)):
        provider = Speaker(*saying("x"))
        speaks = runner(provider, transport(source))
        with pytest.raises(error):
            await speaks.prepare(ASK, ModelPrepareRequest(transport=CHOICE))
        assert (speaks.call_count, provider.contexts) == (0, [])


async def test_m28_a_selection_is_exactly_one_choice() -> None:
    """More are too many, none is none; words beside it are dropped."""
    assert await _code(*calling(("a", "{}"), ("b", "{}"))) == ("model.multiple_calls", 0)
    assert await _code(*saying("none")) == ("model.no_call", 0)
    selection = await _choose(capabilities(Resolved(), "a"), TextDelta("I take a."), *calling(("a", "")))
    assert selection.arguments == {}


async def test_m29_a_session_is_words_and_any_number_of_calls() -> None:
    """In the order of their index, with usage and the reason; no call is fine."""
    registry = capabilities(Resolved(), "a", "b")
    usage = ModelUsage(input_tokens=3)
    result = await _talk(
        registry,
        TextDelta("Let me "),
        FunctionCallDelta(7, id="x7", name="b", arguments='{"n":'),
        FunctionCallDelta(2, id="x2", name="a", arguments='{"n":2512292042121000001}'),
        FunctionCallDelta(7, arguments="1}"),
        TextDelta("see."),
        UsageReport(usage),
        CALLS,
    )
    assert (result.text, result.finish_reason, result.usage) == ("Let me see.", "tool-calls", usage)
    assert [(call.call_id, call.tool_name, call.arguments, call.input) for call in result.calls] == [
        ("x2", "a", '{"n":2512292042121000001}', {"n": 2512292042121000001}),
        ("x7", "b", '{"n":1}', {"n": 1}),
    ]
    quiet = await _talk(registry, *saying("nothing to do"))
    assert (quiet.text, quiet.calls, quiet.finish_reason) == ("nothingtodo", (), "stop")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("I choose a", "model.protocol"),
        ('```json\n{"tool": "a", "arguments": {"n": 1}}\n```', "model.protocol"),
        ('{"tool": "a", "arguments": {"n": 1}, "why": "x"}', "model.protocol"),
        ('{"tool": "a"}', "model.protocol"),
        ('{"tool": "a", "tool": "b", "arguments": {}}', "model.protocol"),
        ('{"tool": "a", "arguments": {"n": 1, "n": 2}}', "model.protocol"),
        ('{"tool": "a", "arguments": {"n": NaN}}', "model.protocol"),
        ('{"tool": 1, "arguments": {}}', "model.protocol"),
        ('[{"tool": "a", "arguments": {"n": 1}}]', "model.protocol"),
        ("[" * 100_000, "model.protocol"),
        ("1" * 5_000, "model.protocol"),
        (
            '[{"tool": "a", "arguments": {"n": 1}}, {"tool": "b", "arguments": {"n": 1}}]',
            "model.multiple_calls",
        ),
        ('{"tool": "z", "arguments": {"n": 1}}', "model.unknown_capability"),
        ('{"tool": "a", "arguments": {"n": 1.5}}', "model.arguments_invalid"),
        ('{"tool": "a", "arguments": "{}"}', "model.arguments_invalid"),
        ('{"tool": "a", "arguments": [1]}', "model.arguments_invalid"),
        ("  ", "model.no_call"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_the_json_adapter_takes_one_object_and_nothing_else(said: str, code: str) -> None:
    """Duplicate or other keys, fences, prose and numbers without a form are violations, each with its code."""
    assert await _code(TextDelta(said), STOP, interaction=JSON) == (code, 0)


async def test_the_json_adapter_tells_capabilities_in_an_instruction() -> None:
    """No functions are sent; the answer is asked for as a JSON object; a native call is unexpected."""
    made = transport(capabilities(Resolved(), "a", "b"), JSON).prepare(Id("s"))
    assert (made.functions, made.function_choice, made.response_format) == ((), "none", "json_object")
    for word in ('"id": "a"', '"id": "b"', "Does a.", "additionalProperties"):
        assert word in made.instruction
    assert await _code(*calling(("a", "{}")), interaction=JSON) == ("model.unexpected_call", 0)


async def test_the_json_adapter_holds_sessions() -> None:
    """One object with words and a list of calls; nothing said is a session without either."""
    registry = capabilities(Resolved(), "a", "b")
    said = {"text": "Look:", "calls": [{"tool": "b", "arguments": {"n": 1}}, {"tool": "a", "arguments": {"n": 2}}]}
    result = await _talk(registry, TextDelta(json.dumps(said)), STOP, interaction=JSON)
    assert result.text == "Look:"
    assert [(call.tool_name, call.input, call.call_id) for call in result.calls] == [
        ("b", {"n": 1}, "call-1"),
        ("a", {"n": 2}, "call-2"),
    ]
    assert await _talk(registry, TextDelta(" "), STOP, interaction=JSON) == ModelSessionResult(
        text="", calls=(), finish_reason="stop"
    )
    for wrong in ({"text": "x"}, {"text": 1, "calls": []}, {"text": "x", "calls": {}}, {**said, "more": 1}):
        answer = TextDelta(json.dumps(wrong))
        assert await _code(answer, STOP, interaction=JSON, session=True) == ("model.protocol", 0)


async def test_the_native_adapter_asks_by_mode() -> None:
    """A selection requires one call; a session allows any number. Neither has an instruction."""
    registry = capabilities(Resolved(), "a")
    asked = [
        transport(registry).prepare(Id("s")),
        transport(registry, mode="session").prepare(Id("s")),
    ]
    assert [(made.function_choice, made.allow_multiple_calls, made.instruction) for made in asked] == [
        ("required", False, None),
        ("auto", True, None),
    ]


async def test_m30_a_transport_that_is_not_there_is_refused() -> None:
    """By key or by name, before anything is asked; the error is a model error with its code."""
    provider = Speaker(*saying("x"))
    speaks = runner(provider)
    for name in (CHOICE, "app:choice"):
        with pytest.raises(UnknownTransportError) as caught:
            await speaks.prepare(ASK, ModelPrepareRequest(transport=name))
        assert (caught.value.code, caught.value.transport) == ("model.unknown_transport", "app:choice")
    assert provider.contexts == []


def test_m31_an_intent_is_a_hint_and_nothing_else() -> None:
    """It stays on the one capability; it has no id and switches nothing."""
    hint = IntentOptions(title="Pay", examples=("pay the bill",))
    registry: ModelToolRegistry[str] = ModelToolRegistry(
        [
            ModelToolRegistration(
                id=Id("pay"), description="Pay.", schema=schema_for(dict[str, int]), resolve=Resolved(), intent=hint
            )
        ]
    )
    assert registry.require(Id("pay")).intent is hint
    assert not hasattr(hint, "id")
    assert capabilities(Resolved(), "a").require(Id("a")).intent is False


def test_c16_it_is_a_registry_like_any_other() -> None:
    """It satisfies the contract that all registries share."""
    registry: Registry[Any, Any] = capabilities(Resolved(), "a")
    assert (Id("a") in registry, len(registry), registry.get(Id("z"))) == (True, 1, None)


async def test_l8_choosing_a_tool_proposes_and_never_executes() -> None:
    """A tool registry projects to capabilities that check arguments as the tool would, and run nothing."""
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        """Pay an amount."""
        ran.append(amount)
        return "paid"

    @tool
    async def look(name: str) -> str:
        """Look something up."""
        return name

    registry: ToolRegistry[Any] = ToolRegistry(ToolRegistryOptions(tools=[pay, look]))
    chosen = selectable_tools(registry, keep=[Id("pay")])
    assert [entry.id for entry in chosen] == ["pay"]
    assert len(selectable_tools(registry)) == 2
    assert chosen.sealed
    selection = await _choose(chosen, *calling(("pay", '{"amount":3}')))
    assert selection.value == ToolProposal(tool_id=Id("pay"), arguments={"amount": 3})
    with pytest.raises(ModelProtocolError) as caught:
        await _choose(chosen, *calling(("pay", '{"amount":"much"}')))
    assert caught.value.code == "model.arguments_invalid"
    assert ran == []
    with pytest.raises(MissingEntryError):
        selectable_tools(registry, keep=[Id("z")])


def test_a_transport_has_a_name_of_its_own() -> None:
    """Names that begin with `core:` are runlane's; the source must be one."""
    registry = capabilities(Resolved(), "a")
    for name in ("", "core:mine"):
        registration: ModelTransportRegistration[Any] = ModelTransportRegistration(
            key=TransportKey(name), interaction=NATIVE, source=registry
        )
        with pytest.raises(InvalidValueError):
            create_model_transport(registration)
    with pytest.raises(UsageError):
        transport(object())


async def test_a_source_function_is_synchronous() -> None:
    """A coroutine is closed and refused."""

    async def source(_: Id) -> ModelToolRegistry[Any]:
        return capabilities(Resolved(), "a")

    with pytest.raises(UsageError, match="awaitable"):
        transport(source).prepare(Id("s"))


async def test_m36_an_instruction_stands_behind_the_leading_system_messages() -> None:
    """What the request says first stays first."""
    provider = Speaker(TextDelta('{"tool": "a", "arguments": {"n": 1}}'), STOP)
    speaks = runner(provider, transport(capabilities(Resolved(), "a"), JSON))
    messages = [ModelMessage.system("one"), ModelMessage.system("two"), ModelMessage.user("go")]
    await speaks.call(replace(ASK, prompt=None, messages=messages), transport=CHOICE)
    (told,) = provider.told
    assert [message.role for message in told] == ["system", "system", "system", "user"]
    assert isinstance(told[2], ModelMessage)
    assert "Capabilities:" in told[2].text
