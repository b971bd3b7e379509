"""Preparing a call decides everything and spends nothing."""

from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from runlane.canonical import canonical_record_json
from runlane.contracts import CancelToken, Id, error_contexts
from runlane.errors import (
    BudgetError,
    DuplicateRegistrationError,
    InvalidValueError,
    ModelProtocolError,
    UnknownTransportError,
    UsageError,
)
from runlane.models import (
    AnyModelMessage,
    ModelAssistantToolMessage,
    ModelFunction,
    ModelImage,
    ModelMessage,
    ModelOptions,
    ModelToolResultMessage,
)
from runlane.records import ReasoningPart, ToolCallPart, ToolResultPart
from runlane.runner import (
    MODEL_RUNNER_DEFAULTS,
    ModelCallRequest,
    ModelPrepareRequest,
    ModelRunnerSettings,
    ModelSelection,
    ModelTransportRegistration,
    PreparedModelTransport,
    TransportKey,
    create_model_transport,
    native_function_interaction,
)
from tests.runner.speaking import ASK, Resolved, Speaker, capabilities, runner, saying

pytestmark = pytest.mark.anyio

CHOICE: TransportKey[ModelSelection[str]] = TransportKey("app:choice")
IMAGE = ModelImage(media_type="image/png", data=b"x" * 10)


def _choice(**facts: Any) -> Any:  # noqa: ANN401 - parts of a registration
    return create_model_transport(
        ModelTransportRegistration(
            key=CHOICE,
            interaction=native_function_interaction,
            source=capabilities(Resolved(), "a"),
            **facts,
        )
    )


class Tokens:
    """Counts tokens, and how often it was asked."""

    def __init__(self, max_tokens: int, answer: Any = 7) -> None:  # noqa: ANN401 - right and wrong answers
        self.max_tokens = max_tokens
        self.asked = 0
        self._answer = answer

    async def count(self, messages: Sequence[AnyModelMessage], functions: Sequence[ModelFunction], /) -> int:
        """Answer after a moment."""
        self.asked += 1
        await checkpoint()
        assert messages
        assert isinstance(functions, tuple)
        answer: int = self._answer
        return answer


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "x", "messages": [ModelMessage.user("y")]},
        {},
        {"messages": [], "system": "x"},
        {"messages": [], "images": [IMAGE]},
    ],
)
def test_m33_a_request_is_a_prompt_or_messages(fields: dict[str, Any]) -> None:
    """Both, neither, or what belongs to a prompt beside messages, is misuse."""
    with pytest.raises(UsageError):
        ModelCallRequest(stage=Id("s"), **fields)


async def test_m33_a_prompt_becomes_messages() -> None:
    """A system message if there is one, then the person's words with the images after them."""
    prepared = await runner(Speaker()).prepare(replace(ASK, system="Be brief.", images=[IMAGE]))
    assert prepared.messages == (ModelMessage.system("Be brief."), ModelMessage.user("Hello?", (IMAGE,)))
    empty = await runner(Speaker()).prepare(replace(ASK, prompt=""))
    assert empty.messages == (ModelMessage.user(""),)


async def test_m34_plain_text_is_always_there() -> None:
    """It is the default; names that begin with `core:`, empty and repeated names are refused."""
    assert (await runner(Speaker()).prepare(ASK)).transport == "core:plain-text"
    taken = type("T", (), {"key": TransportKey("core:mine"), "prepare": print})()
    nameless = type("T", (), {"key": TransportKey(""), "prepare": print})()
    for wrong in (taken, nameless):
        with pytest.raises(InvalidValueError):
            runner(Speaker(), wrong)
    with pytest.raises(DuplicateRegistrationError):
        runner(Speaker(), _choice(), _choice())
    with pytest.raises(UnknownTransportError):
        runner(Speaker(), default_transport="app:choice")


async def test_c9_the_default_transport_is_for_preparing_only() -> None:
    """A request that is called is plain text unless it names a transport."""
    speaks = runner(Speaker(*saying("words")), _choice(), default_transport="app:choice")
    assert (await speaks.prepare(ASK)).transport == "app:choice"
    assert (await speaks.call(ASK)).value == "words"


async def test_m35_options_are_merged_field_by_field() -> None:
    """Request, then selection, then transport, then runner; extra fields by name."""
    speaks = runner(
        Speaker(),
        _choice(options=ModelOptions(temperature=0.3, top_p=0.3, extra={"c": 3, "d": 3})),
        options=ModelOptions(temperature=0.4, top_p=0.4, seed=4, stop=("4",), extra={"d": 4, "e": 4}),
    )
    request = replace(ASK, options=ModelOptions(temperature=7, extra={"a": 1}))
    selection = ModelPrepareRequest(
        transport=CHOICE, options=ModelOptions(temperature=0.2, max_output_tokens=2, extra={"a": 2, "c": 2})
    )
    prepared = await speaks.prepare(request, selection)
    assert prepared.options == ModelOptions(
        temperature=7,
        max_output_tokens=2,
        top_p=0.3,
        seed=4,
        stop=("4",),
        extra={"a": 1, "c": 2, "d": 3, "e": 4},
    )


async def test_m37_preparing_spends_nothing() -> None:
    """Ten times, also while a call is in flight; nothing is opened or charged."""
    gate = anyio.Event()
    provider = Speaker(*saying("x"), before=lambda _: gate.wait())
    speaks = runner(provider)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: speaks.call(ASK))
        await anyio.wait_all_tasks_blocked()
        assert speaks.busy
        for _ in range(10):
            await speaks.prepare(ASK)
        assert (speaks.call_count, speaks.budget.available) == (1, 31)
        gate.set()
    assert not speaks.busy
    assert len(provider.contexts) == 1


async def test_m37_a_prepared_call_is_frozen() -> None:
    """Messages, functions and options are decided; only whether it was made changes."""
    prepared = await runner(Speaker(*saying("x"))).prepare(ASK)
    with pytest.raises(FrozenInstanceError):
        prepared.options = ModelOptions()  # type: ignore[misc]
    assert not prepared.spent


async def test_m38_measuring_prepares_and_asks_once() -> None:
    """Repeating it, or asking from two tasks at once, counts tokens once; calling uses the same counts."""
    tokens = Tokens(100)
    stages: list[str] = []

    def source(stage: Id) -> Any:  # noqa: ANN401 - a registry
        stages.append(stage)
        return capabilities(Resolved(), "a")

    chooses = create_model_transport(
        ModelTransportRegistration(key=CHOICE, interaction=native_function_interaction, source=source)
    )
    speaks = runner(Speaker(*saying("x")), chooses, tokens=tokens)
    prepared = await speaks.prepare(ASK, ModelPrepareRequest(transport=CHOICE))
    assert tokens.asked == 0
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(prepared.measure)
    with pytest.raises(ModelProtocolError):
        await speaks.call(prepared)
    assert (tokens.asked, stages) == (1, ["draft"])


async def test_m38_a_count_that_was_cancelled_is_asked_again() -> None:
    """Nothing half-counted is kept."""
    tokens = Tokens(100)
    prepared = await runner(Speaker(), tokens=tokens).prepare(ASK)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await prepared.measure()
    assert (await prepared.measure()).input_tokens == 7


async def test_the_measurement_counts_what_will_be_sent() -> None:
    """All text, the functions on a line of their own, and images by number and bytes."""
    messages: list[AnyModelMessage] = [
        ModelMessage.system("ab"),
        ModelMessage.user("😀é", [IMAGE, ModelImage(media_type="image/png", url="https://example.org/x.png")]),
        ModelAssistantToolMessage(
            (ReasoningPart(text="cde"), ToolCallPart(call_id="1", tool_name="go", arguments='{"n":1}', input={"n": 1}))
        ),
        ModelToolResultMessage((ToolResultPart(call_id="1", tool_name="go", outcome="success", output=[1]),)),
    ]
    speaks = runner(Speaker(), _choice())
    prepared = await speaks.prepare(replace(ASK, prompt=None, messages=messages), ModelPrepareRequest(transport=CHOICE))
    measured = await prepared.measure()
    shown = [
        {
            "name": function.name,
            "description": function.description,
            "parameters": function.parameters,
            "strict": function.strict,
        }
        for function in prepared.functions
    ]
    assert measured.text_chars == 2 + 2 + 3 + 2 + 7 + 3
    assert measured.function_chars == len(canonical_record_json(shown))
    assert (measured.message_count, measured.function_count) == (4, 1)
    assert (measured.image_count, measured.image_bytes) == (2, 10)
    assert (measured.fits, measured.over) == (True, ())


class _Waits:
    """A transport and a token counter that wait for ever."""

    key: TransportKey[str] = TransportKey("app:waits")
    max_tokens = 1

    async def prepare(self, _stage: Id, /) -> Any:  # noqa: ANN401 - never gives anything
        await anyio.sleep_forever()

    async def count(self, *_: object) -> int:
        await anyio.sleep_forever()
        return 0


@pytest.mark.parametrize("transport", ["app:waits", "core:plain-text"], ids=["transport", "counter"])
async def test_a_token_ends_what_waits_before_the_charge(transport: str) -> None:
    """A transport being prepared, a counter being asked: the reason leaves, nothing is charged, nothing is busy."""
    token, reason = CancelToken(), KeyError("stop")
    provider = Speaker(*saying("x"))
    speaks = runner(provider, _Waits(), tokens=_Waits(), signal=token)
    ends: list[Exception] = []

    async def ask() -> None:
        with pytest.raises(KeyError) as caught:
            await speaks.call(ASK, transport=transport)
        ends.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        token.cancel(reason)
    assert ends == [reason]
    assert (reason.__context__, error_contexts(reason)) == (None, ())
    assert (speaks.call_count, speaks.busy, provider.contexts) == (0, False, [])


async def test_m39_token_figures_need_a_token_budget() -> None:
    """Without one there are none: characters are never converted."""
    without = await (await runner(Speaker()).prepare(ASK)).measure()
    assert (without.input_tokens, without.token_limit) == (None, None)
    assert "input_tokens" not in without.to_json()
    counted = await (await runner(Speaker(), tokens=Tokens(100)).prepare(ASK)).measure()
    assert (counted.input_tokens, counted.token_limit) == (7, 100)


@pytest.mark.parametrize("answer", [-1, 1.5, True, "7", None])
async def test_a_token_count_is_a_number(answer: object) -> None:
    """What is no count is the host's mistake."""
    prepared = await runner(Speaker(), tokens=Tokens(100, answer)).prepare(ASK)
    with pytest.raises(InvalidValueError, match="tokens"):
        await prepared.measure()


@pytest.mark.parametrize(("reserve", "fits"), [(3, True), (4, False), (None, True)])
async def test_m40_what_the_answer_needs_is_reserved_per_call(reserve: int | None, fits: object) -> None:
    """Input and reserve must fit the token limit together."""
    prepared = await runner(Speaker(), tokens=Tokens(10)).prepare(replace(ASK, reserve_output_tokens=reserve))
    measured = await prepared.measure()
    assert (measured.fits, measured.over) == ((True, ()) if fits else (False, ("model_input_tokens",)))


@pytest.mark.parametrize(
    ("limits", "over"),
    [
        ({"max_input_chars": 5}, "model_input_chars"),
        ({"max_images": 0}, "model_images"),
        ({"max_image_bytes": 9}, "model_image_bytes"),
    ],
)
async def test_what_is_over_a_limit_is_named(limits: dict[str, int], over: str) -> None:
    """Equal to the limit passes, one more does not; the call ends with that allowance and nothing is charged."""
    request = replace(ASK, images=[IMAGE])
    provider = Speaker(*saying("x"))
    speaks = runner(provider, **limits)
    prepared = await speaks.prepare(request)
    assert (await prepared.measure()).over == (over,)
    with pytest.raises(BudgetError) as caught:
        await speaks.call(prepared)
    (name,) = limits
    assert (caught.value.allowance, caught.value.limit) == (over, limits[name])
    assert (speaks.call_count, speaks.budget.available, provider.contexts, prepared.spent) == (0, 32, [], False)
    exact = runner(Speaker(*saying("x")), **{name: limits[name] + 1})
    assert (await exact.call(request)).value == "x"


async def test_the_limit_holds_for_text_and_functions_together() -> None:
    """Functions count as characters too."""
    speaks = runner(Speaker(), _choice(), max_input_chars=20)
    assert (await (await speaks.prepare(ASK)).measure()).fits
    measured = await (await speaks.prepare(ASK, ModelPrepareRequest(transport=CHOICE))).measure()
    assert measured.over == ("model_input_chars",)


async def test_m45_failures_of_preparing_are_annotated() -> None:
    """With the operation and the stage, and the transport once it is known; the same object leaves."""
    broken = KeyError("broken")

    class Broken:
        key: TransportKey[str] = TransportKey("app:broken")

        def prepare(self, _stage: Id, /) -> PreparedModelTransport[str]:
            raise broken

    speaks = runner(Speaker(), Broken())
    orphan = ModelToolResultMessage((ToolResultPart(call_id="x", tool_name="go", outcome="success", output=1),))
    cases: list[tuple[Any, Any, type[Exception], str | None]] = [
        (ASK, ModelPrepareRequest(transport="app:broken"), KeyError, "app:broken"),
        (ASK, ModelPrepareRequest(transport="app:none"), UnknownTransportError, None),
        (replace(ASK, prompt=None, messages=[orphan]), None, ModelProtocolError, "core:plain-text"),
    ]
    for request, selection, kind, transport in cases:
        with pytest.raises(kind) as caught:
            await speaks.prepare(request, selection)
        (context,) = error_contexts(caught.value)
        assert (context.operation, context.stage, context.transport) == ("model", "draft", transport)
    assert error_contexts(broken)
    with pytest.raises(UsageError) as misuse:
        await speaks.prepare("Hello?")  # type: ignore[arg-type]
    assert error_contexts(misuse.value)[0].stage is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_calls": -1},
        {"max_input_chars": 1.5},
        {"max_images": True},
        {"call_timeout": float("inf")},
        {"close_timeout": -1},
        {"close_timeout": None},
    ],
)
def test_settings_are_limits(wrong: dict[str, Any]) -> None:
    """What is no limit is refused where it is written."""
    with pytest.raises(InvalidValueError):
        ModelRunnerSettings(**wrong)


def test_the_defaults_are_written_down() -> None:
    """Calls, characters, images, calls per response and children."""
    defaults = MODEL_RUNNER_DEFAULTS
    assert (defaults.max_calls, defaults.call_timeout, defaults.close_timeout) == (32, None, 1.0)
    assert (defaults.max_input_chars, defaults.max_output_chars) == (400_000, 200_000)
    assert (defaults.max_images, defaults.max_image_bytes) == (16, 20 * 2**20)
    assert (defaults.max_tool_calls, defaults.max_arguments_bytes) == (64, 2**20)
    children = defaults.children
    assert (children.max_depth, children.max_children, children.max_concurrent_calls, children.max_calls) == (
        2,
        16,
        4,
        None,
    )
