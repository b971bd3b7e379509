"""What an application and its agent agree on."""

import pytest
from pydantic import BaseModel, TypeAdapter

from runlane.errors import InvalidValueError, UsageError
from runlane.models import FinishReport, FunctionCallDelta, TextDelta
from runlane.records import (
    FilePart,
    Message,
    Part,
    ProviderEnvelope,
    ProviderPart,
    TerminalReason,
    TextPart,
    ToolApprovalRequestPart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime import (
    AgentProtocol,
    AgentRuntime,
    ModelRequest,
    RuntimeConfig,
    TerminalAcceptance,
    TerminalAcceptanceInput,
    define_protocol,
    has_terminal_output,
)
from runlane.runtime._protocol import is_accepted
from runlane.store import MemoryStore
from runlane.testing import FakeClock, ScriptedModel, ScriptedStep
from tests.runtime.scenes import CONVERSATION, heard, held_after, opened

pytestmark = pytest.mark.anyio

_CALL = ToolCallPart(call_id="c", tool_name="t", arguments="{}", input={})
_RESULT = ToolResultPart(call_id="c", tool_name="t", outcome="success", output=1)
_APPROVAL = ToolApprovalRequestPart(approval_id="a", call_id="c")


class _User(BaseModel):
    user: int


def _config(acceptance: TerminalAcceptance) -> RuntimeConfig:
    return RuntimeConfig(protocol=AgentProtocol(terminal_acceptance=acceptance))


def _message(*parts: Part) -> Message:
    at = FakeClock().now()
    return Message(
        id="m",
        conversation_id="c",
        run_id="r",
        role="assistant",
        status="completed",
        parts=parts,
        created_at=at,
        updated_at=at,
    )


@pytest.mark.parametrize(
    ("parts", "reason", "expected"),
    [
        ((), "success", False),
        ((TextPart(text=" \n"),), "success", False),
        ((TextPart(text="x"),), "success", True),
        ((FilePart(media_type="image/png", reference="r"),), "success", True),
        ((ProviderPart(envelope=ProviderEnvelope(provider="p", data={})),), "provider_stop", True),
        ((_CALL, _RESULT), "success", False),
        ((_CALL, _RESULT), "policy_stop", True),
        ((_RESULT,), "policy_stop", True),
        ((), "policy_stop", False),
    ],
    ids=["nothing", "blank", "text", "file", "provider-part", "tools", "tools-policy", "result-policy", "empty-policy"],
)
def test_what_counts_as_output(parts: tuple[Part, ...], reason: TerminalReason, expected: object) -> None:
    """Text that is not blank, a file, structured output; tool activity only when a policy stopped the run."""
    assert has_terminal_output(_message(*parts), reason=reason) is expected


@pytest.mark.parametrize("reason", ["interrupted", "timeout", "provider_failure", "shutdown"])
async def test_only_a_finished_answer_is_asked_about(reason: TerminalReason) -> None:
    """An answer that was cut off or failed is never refused."""
    answer = TerminalAcceptanceInput(message=_message(), reason=reason)
    assert await is_accepted("require-output", answer) is True


async def test_an_answer_that_waits_for_an_approval_is_not_asked_about() -> None:
    """It has a request without a result; it goes on once somebody answered."""
    answer = TerminalAcceptanceInput(message=_message(_CALL, _APPROVAL), reason="provider_stop")
    assert await is_accepted("require-output", answer) is True
    assert await is_accepted(lambda _: False, answer) is True


@pytest.mark.parametrize("acceptance", ["allow-empty", "require-output"])
async def test_an_empty_answer_is_a_success_unless_output_is_required(acceptance: TerminalAcceptance) -> None:
    """By default it is accepted; with `require-output` run and message are failed, in the record and the event too."""
    async with opened(ScriptedModel([TextDelta("  "), FinishReport("stop")]), config=_config(acceptance)) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        events = await heard(ticket)
        result = await ticket.result
        stored = await scene.store.inner.load_run(CONVERSATION, ticket.run_id)
    expected = ("success", "completed") if acceptance == "allow-empty" else ("output_rejected", "failed")
    assert (result.reason, result.message.status) == expected
    assert stored is not None
    assert (stored.run.terminal_reason, stored.assistant) == (result.reason, result.message)
    assert [getattr(event, "reason", None) for event in events][-1] == result.reason


async def test_a_function_decides_on_the_answer_as_it_would_be_committed() -> None:
    """It sees the completed message, the reason and the policy; it may be a coroutine function."""
    asked: list[TerminalAcceptanceInput] = []

    async def accept(answer: TerminalAcceptanceInput) -> bool:
        asked.append(answer)
        return "yes" in answer.message.text

    async with opened(ScriptedModel("yes", "no"), config=_config(accept)) as scene:
        first = await scene.runtime.submit(CONVERSATION, "Hi").result
        second = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (first.reason, second.reason, second.text) == ("success", "output_rejected", "no")
    assert [(answer.message.status, answer.reason, answer.policy_name) for answer in asked] == [
        ("completed", "success", None),
        ("completed", "success", None),
    ]


async def test_a_policy_stop_with_tools_only_is_output() -> None:
    """A named stop after tool activity is accepted although nothing was said."""
    call: list[ScriptedStep] = [
        FunctionCallDelta(0, id="c", name="look_up", arguments="{}"),
        FinishReport("tool-calls"),
    ]
    config = _config("require-output")
    config = RuntimeConfig(protocol=config.protocol, loop=type(config.loop)(max_steps=1))
    async with opened(ScriptedModel(call), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.policy_name) == ("policy_stop", "max-steps")


@pytest.mark.parametrize("wrong", ["breaks", "answers-text"])
async def test_a_function_that_cannot_decide_is_a_runtime_failure(wrong: str) -> None:
    """What it raises, or an answer that is neither True nor False, ends the run; nothing counts as accepted."""

    def accept(_: TerminalAcceptanceInput) -> bool:
        if wrong == "breaks":
            raise ZeroDivisionError
        return "yes"  # type: ignore[return-value]

    async with opened(ScriptedModel("text"), config=_config(accept)) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, result.text) == ("runtime_failure", "text")
    assert isinstance(result.error, ZeroDivisionError if wrong == "breaks" else UsageError)


async def test_a_context_is_parsed_when_it_is_submitted() -> None:
    """Callbacks get what the protocol made of it; what it does not take is refused at once and nothing is written."""
    seen: list[object] = []

    def choose(request: ModelRequest[object]) -> ScriptedModel:
        seen.append(request.context)
        return ScriptedModel("Hello")

    config = RuntimeConfig(protocol=AgentProtocol(context=_User))
    async with MemoryStore() as store, AgentRuntime(store, model=choose, config=config) as runtime:
        await runtime.submit(CONVERSATION, "Hi", context={"user": "7"}).result
        for wrong in (None, {"user": "x"}, {}):
            with pytest.raises(InvalidValueError, match="context"):
                runtime.submit(CONVERSATION, "Hi", context=wrong)
        assert len((await store.load_snapshot(CONVERSATION)).runs) == 1
    assert seen == [_User(user=7)]


async def test_metadata_are_stored_as_the_protocol_reads_them() -> None:
    """Their JSON form is kept with the input; what the protocol does not take is refused."""
    config = RuntimeConfig(protocol=AgentProtocol(input_metadata=TypeAdapter(_User)))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        admission = await scene.runtime.submit(CONVERSATION, "Hi", metadata={"user": "7"}).admission
        with pytest.raises(InvalidValueError, match=r"metadata\.user"):
            scene.runtime.submit(CONVERSATION, "Hi", metadata={"user": "x"})
        with pytest.raises(InvalidValueError, match="metadata"):
            scene.runtime.submit(CONVERSATION, "Hi")
    assert admission.input.metadata == {"user": 7}


async def test_metadata_that_are_no_object_are_refused() -> None:
    """A protocol whose metadata have another JSON form cannot store them."""
    config = RuntimeConfig(protocol=AgentProtocol(input_metadata=type(None) | int | dict[str, int]))  # type: ignore[arg-type]
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        assert (await scene.runtime.submit(CONVERSATION, "Hi").result).reason == "success"
        assert (await scene.runtime.submit(CONVERSATION, "Hi", metadata={"a": 1}).result).reason == "success"


async def test_the_context_of_a_resumed_run_is_parsed_too() -> None:
    """A recovered run gets its stored request through the same protocol."""
    seen: list[object] = []

    hold, model = held_after("one")

    def choose(request: ModelRequest[object]) -> ScriptedModel:
        seen.append(request.context)
        return model

    config = RuntimeConfig(protocol=AgentProtocol(context=_User))
    async with MemoryStore() as store:
        async with AgentRuntime(store, model=choose, config=config) as runtime:
            runtime.submit(CONVERSATION, "Hi", context={"user": 1})
            await hold.reached()
            await runtime.submit(CONVERSATION, "Wait", context={"user": 1}, request={"user": 2}).admission
        async with AgentRuntime(store, model=choose, config=config) as runtime:
            for outcome in await runtime.recover():
                if outcome.result is not None:
                    await outcome.result
    assert seen == [_User(user=1), _User(user=2)]


def test_a_protocol_is_defined_by_its_options() -> None:
    """The function is the class under another name; without options everything is taken as it is."""
    protocol = define_protocol(context=list[int], terminal_acceptance="require-output")
    assert (protocol.parse_context(["1"]), protocol.terminal_acceptance) == ([1], "require-output")
    thing = object()
    assert AgentProtocol[object]().parse_context(thing) is thing
    with pytest.raises(UsageError, match="terminal_acceptance"):
        AgentProtocol(terminal_acceptance="sometimes")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="protocol"):
        RuntimeConfig(protocol=None)  # type: ignore[arg-type]
