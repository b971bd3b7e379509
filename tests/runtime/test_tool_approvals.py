"""Consent: asked for durably, answered durably, across restarts; a denied or forged call has no effect."""

from typing import Any

import pytest

from runlane.errors import (
    ApprovalRejectedError,
    InvalidValueError,
    RuntimeConflictError,
    ToolApprovalError,
    UsageError,
)
from runlane.models import (
    AnyModelMessage,
    FinishReport,
    ModelMessage,
    ModelToolResultMessage,
    TextDelta,
    validate_messages,
)
from runlane.records import (
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolResultPart,
)
from runlane.runtime import ApprovalAnswer, InputPolicy, RunResult, RunsConfig, RuntimeConfig, RuntimeInput, ToolsConfig
from runlane.store import BranchConversation, MemoryStore, ReadEvents
from runlane.testing import Hold, ScriptedModel
from runlane.tools import ToolAuthorization, ToolDefinition, ToolRegistry, ToolRegistryOptions, ToolRegistryPorts, tool
from tests.runtime.scenes import CONVERSATION, Scene, opened
from tests.runtime.test_tools import called, results_of

pytestmark = pytest.mark.anyio

_KEY = b"0123456789abcdef"


def _mailer(sent: list[str]) -> ToolDefinition[Any, Any, Any]:
    @tool(id="send", needs_approval=True)
    async def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    return send


def _answer(approval_id: str, *, approved: bool, reason: str | None = None) -> RuntimeInput:
    part = ToolApprovalResponsePart(approval_id=approval_id, approved=approved, reason=reason)
    return RuntimeInput(role="tool", parts=(part,))


def requests_of(result: RunResult) -> list[ToolApprovalRequestPart]:
    """Return the requests for approval of a run."""
    return [part for part in result.message.parts if isinstance(part, ToolApprovalRequestPart)]


def told(messages: tuple[AnyModelMessage, ...]) -> list[tuple[str, str, object]]:
    """Return the results among messages."""
    return [
        entry
        for message in messages
        if isinstance(message, ModelToolResultMessage)
        for entry in results_of(message.items)
    ]


async def _asked(scene: Scene) -> tuple[RunResult, str]:
    result = await scene.runtime.submit(CONVERSATION, "Write to a.").result
    [request] = requests_of(result)
    return result, request.approval_id


async def test_a_call_that_needs_consent_ends_the_run_with_a_signed_request() -> None:
    """The run ends as `provider_stop`, completed, with the call and a signed request and no result; nothing ran."""
    sent: list[str] = []
    async with opened(ScriptedModel(called(("c1", "send", '{"to":"a"}')), "."), tools=[_mailer(sent)]) as scene:
        result, _ = await _asked(scene)
    assert (result.reason, result.message.status, sent) == ("provider_stop", "completed", [])
    assert [part.type for part in result.message.parts] == ["tool-call", "tool-approval-request"]
    assert requests_of(result)[0].signature


async def test_an_agreed_call_runs_once_and_the_model_goes_on() -> None:
    """The answer is an input of its own; its run carries the call out, first of all, and asks the model then."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        asked, approval_id = await _asked(scene)
        result = await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=True)).result
    assert (result.reason, result.text, sent) == ("success", "Done.", ["a"])
    assert [part.type for part in result.message.parts] == ["tool-result", "text"]
    assert told(model.calls[1].messages) == [("c1", "success", "sent to a")]
    assert result.run.id != asked.run.id


async def test_pending_consent_survives_a_restart() -> None:
    """Another process, which never saw the question, carries the answered call out; the request is unchanged."""
    sent: list[str] = []
    config = RuntimeConfig(tools=ToolsConfig(approval_key=_KEY))
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with MemoryStore() as store:
        async with opened(model, store=store, tools=[_mailer(sent)], config=config) as scene:
            asked, approval_id = await _asked(scene)
        async with opened(model, store=store, tools=[_mailer(sent)], config=config) as scene:
            stored = await store.load_snapshot(CONVERSATION)
            assert stored.messages[1].parts == asked.message.parts
            result = await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=True)).result
    assert (result.reason, sent) == ("success", ["a"])


async def test_a_denied_call_ends_with_an_error_result_and_no_effect() -> None:
    """The model learns that the call was refused, and why; the tool never ran."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Fine.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        _, approval_id = await _asked(scene)
        result = await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=False, reason="no")).result
    [(call_id, outcome, output)] = told(model.calls[1].messages)
    assert isinstance(output, dict)
    assert (call_id, outcome, output["error"], output["details"]) == ("c1", "error", "tool.denied", {"reason": "no"})
    assert (result.reason, sent) == ("success", [])


@pytest.mark.parametrize("first", [True, False])
async def test_answering_twice_is_refused(*, first: bool) -> None:
    """A second answer ends its run as `runtime_failure` before any provider call, and nothing runs again."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        _, approval_id = await _asked(scene)
        await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=first)).result
        calls = len(model.calls)
        second = await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=True)).result
    assert second.reason == "runtime_failure"
    assert isinstance(second.error, ToolApprovalError)
    assert second.error.problem == "answered"
    assert (len(model.calls), sent) == (calls, ["a"] if first else [])


async def test_an_approval_is_answered_by_its_id_and_the_first_answer_counts() -> None:
    """The runtime takes the answer; the same decision again returns its run, whatever its words."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        asked = await scene.runtime.submit(CONVERSATION, "Write to a.").result
        [request] = asked.approvals
        first = scene.runtime.respond_to_approval(CONVERSATION, request.approval_id, approved=True)
        result = await first.result
        second = scene.runtime.respond_to_approval(CONVERSATION, request.approval_id, approved=True, reason="late")
        assert (await second.result).run.id == result.run.id
        assert not (await second.admission).input_matches
    assert (result.text, sent) == ("Done.", ["a"])


@pytest.mark.parametrize("waits", [True, False])
async def test_the_opposite_of_a_decision_is_refused(*, waits: bool) -> None:
    """Whoever decides the other way is told so, while the first answer is underway and after it was carried out."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        _, approval_id = await _asked(scene)
        first = scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=False)
        if not waits:
            await first.result
        second = scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True)
        with pytest.raises(RuntimeConflictError, match="was denied before"):
            await second.result
        await first.result
    assert sent == []


async def test_who_may_not_answer_changes_nothing_and_is_on_record() -> None:
    """The refused answer leaves an entry and a call that waits; whoever may answer answers it."""
    sent: list[str] = []
    asked_about: list[ApprovalAnswer[object]] = []

    async def authorize(answer: ApprovalAnswer[object]) -> str | None:
        asked_about.append(answer)
        return None if answer.context == "boss" else f"{answer.context} is not the boss"

    config = RuntimeConfig(tools=ToolsConfig(authorize_answer=authorize))
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=[_mailer(sent)], config=config) as scene:
        _, approval_id = await _asked(scene)
        runs = len((await scene.store.load_snapshot(CONVERSATION)).runs)
        # Side by side: neither shares what becomes of the other's answer.
        refused, agreed = (
            scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True, context=who)
            for who in ("clerk", "boss")
        )
        with pytest.raises(ApprovalRejectedError, match="clerk is not the boss") as caught:
            await refused.result
        assert (await agreed.result).text == "Done."
        # Answered: the same decision again is nobody's business any more.
        again = scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True, context="clerk")
        assert (await again.result).run == (await agreed.result).run
        page = await scene.store.read_events(ReadEvents(conversation_id=CONVERSATION))
        assert len((await scene.store.load_snapshot(CONVERSATION)).runs) == runs + 1
    assert (caught.value.approval_id, caught.value.retryable, sent) == (approval_id, False, ["a"])
    [entry] = [event.payload for event in page.items if event.kind == "approval/response-rejected"]
    assert entry == {
        "approval_id": approval_id,
        "call_id": "c1",
        "tool_name": "send",
        "reason": "clerk is not the boss",
    }
    assert [(answer.call.input, answer.approved) for answer in asked_about] == [({"to": "a"}, True)] * 2


@pytest.mark.parametrize("answer", [True, "", 5])
async def test_an_authorizer_that_gives_no_reason_is_told_so(answer: object) -> None:
    """What is neither None nor a text is a mistake of the application; the call still waits."""
    config = RuntimeConfig(tools=ToolsConfig(authorize_answer=lambda _: answer))  # type: ignore[arg-type, return-value]
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=[_mailer([])], config=config) as scene:
        _, approval_id = await _asked(scene)
        ticket = scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True)
        with pytest.raises(UsageError) as caught:
            await ticket.result
    assert caught.value.argument == "tools.authorize_answer"


async def test_the_key_of_an_answer_cannot_be_taken_by_another_input() -> None:
    """An ordinary input, or the answer to another approval, under a reserved key is refused, naming the field."""
    async with opened(ScriptedModel("a")) as scene:
        for given in ("Hi", _answer("y", approved=True), [TextPart(text="Hi")]):
            with pytest.raises(InvalidValueError, match="tool-approval:") as caught:
                scene.runtime.submit(CONVERSATION, given, idempotency_key="tool-approval:x")
            assert caught.value.argument == "idempotency_key"
        await scene.runtime.submit(
            CONVERSATION, _answer("x", approved=True), idempotency_key="tool-approval:x"
        ).admission


async def test_an_answer_that_another_process_carries_out_is_told_of_that() -> None:
    """The second process is told who executes the run, and gets its answer by the same call once it has ended."""
    hold = Hold()
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), [TextDelta("Done"), hold, FinishReport("stop")])
    async with (
        MemoryStore() as store,
        opened(model, store=store, tools=[_mailer([])]) as one,
        opened(ScriptedModel("never"), store=store, tools=[_mailer([])]) as two,
    ):
        _, approval_id = await _asked(one)
        first = one.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True)
        await hold.reached()
        second = two.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True)
        with pytest.raises(RuntimeConflictError, match=f"executed by another runtime, '{one.runtime.owner_id}'"):
            await second.result
        assert (await second.admission).run.id == first.run_id
        hold.release()
        await first.result
        third = two.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True)
        assert (await third.result).text == "Done"


async def test_an_unknown_approval_is_refused() -> None:
    """An answer nobody asked for ends its run as `runtime_failure`, without a provider call."""
    model = ScriptedModel("Hello.")
    async with opened(model, tools=[_mailer([])]) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        result = await scene.runtime.submit(CONVERSATION, _answer("approval_0", approved=True)).result
    assert (result.reason, len(model.calls)) == ("runtime_failure", 1)
    assert isinstance(result.error, ToolApprovalError)
    assert result.error.problem == "unknown"


async def test_a_request_signed_by_another_key_is_refused() -> None:
    """With a key of its own a runtime trusts only requests that were signed with it; nothing runs."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with MemoryStore() as store:
        async with opened(model, store=store, tools=[_mailer(sent)]) as scene:
            _, approval_id = await _asked(scene)
        config = RuntimeConfig(tools=ToolsConfig(approval_key=_KEY))
        async with opened(model, store=store, tools=[_mailer(sent)], config=config) as scene:
            result = await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=True)).result
    assert (result.reason, sent, len(model.calls)) == ("runtime_failure", [], 1)
    assert isinstance(result.error, ToolApprovalError)
    assert result.error.problem == "forged"


async def test_a_later_message_runs_nothing_and_the_answer_still_reaches_its_call() -> None:
    """An ordinary message while consent is pending is answered; the later answer then carries the call out, once."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Waiting.", "Done.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        _, approval_id = await _asked(scene)
        between = await scene.runtime.submit(CONVERSATION, "Hello?").result
        assert (between.text, sent) == ("Waiting.", [])
        result = await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=True)).result
    assert (result.reason, result.text, sent) == ("success", "Done.", ["a"])


async def test_each_of_two_answers_reaches_its_own_call_and_the_model_waits_for_both() -> None:
    """With two calls pending, the first answer runs its call and asks no model; the second does both."""
    sent: list[str] = []
    script = called(("c1", "send", '{"to":"a"}'), ("c2", "send", '{"to":"b"}'))
    model = ScriptedModel(script, "Done.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        asked = await scene.runtime.submit(CONVERSATION, "Write to both.").result
        first, second = requests_of(asked)
        one = await scene.runtime.submit(CONVERSATION, _answer(second.approval_id, approved=True)).result
        assert (one.reason, sent, len(model.calls)) == ("provider_stop", ["b"], 1)
        two = await scene.runtime.submit(CONVERSATION, _answer(first.approval_id, approved=True)).result
    assert (two.reason, two.text, sent) == ("success", "Done.", ["b", "a"])
    assert told(model.calls[1].messages) == [("c2", "success", "sent to b"), ("c1", "success", "sent to a")]


async def test_calls_beside_a_pending_one_are_carried_out() -> None:
    """Of two calls the one that needs no consent runs at once; its result is on record while the other waits."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(called(("c1", "send", '{"to":"a"}'), ("c2", "look", "{}")), "Done.")
    async with opened(model, tools=[_mailer([]), look]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Both.").result
    assert result.reason == "provider_stop"
    assert [part.type for part in result.message.parts] == [
        "tool-call",
        "tool-call",
        "tool-approval-request",
        "tool-result",
    ]


async def test_an_automatic_approval_is_on_record() -> None:
    """Where the host approves in a person's place, request, response and result stand in the same record."""
    sent: list[str] = []
    ports: ToolRegistryPorts[object] = ToolRegistryPorts(authorize=lambda *_: ToolAuthorization.approve())
    registry: ToolRegistry[object] = ToolRegistry(ToolRegistryOptions(tools=[_mailer(sent)], ports=ports))
    registry.seal()
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with opened(model, tools=registry) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Write.").result
    assert (result.reason, sent) == ("success", ["a"])
    types = [part.type for part in result.message.parts]
    assert types == ["tool-call", "tool-approval-request", "tool-approval-response", "tool-result", "text"]
    assert requests_of(result)[0].is_automatic is True


async def test_whether_consent_is_needed_may_depend_on_the_input() -> None:
    """A function of the parsed input decides call by call."""
    paid: list[int] = []

    @tool(needs_approval=lambda given, _: given["amount"] > 10)
    async def pay(amount: int) -> None:
        """Pay."""
        paid.append(amount)

    model = ScriptedModel(called(("c1", "pay", '{"amount":5}'), ("c2", "pay", '{"amount":50}')), "Done.")
    async with opened(model, tools=[pay]) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Pay.").result
    assert (result.reason, paid) == ("provider_stop", [5])
    assert [part.call_id for part in result.message.parts if isinstance(part, ToolCallPart)] == ["c1", "c2"]
    assert [part.call_id for part in result.message.parts if isinstance(part, ToolResultPart)] == ["c1"]


async def test_a_pending_call_and_its_late_result_have_a_form_every_provider_takes() -> None:
    """While it waits a note stands at the call's place; the late result comes as a message where it came."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Waiting.", "Done.", "Bye.")
    async with opened(model, tools=[_mailer(sent)]) as scene:
        _, approval_id = await _asked(scene)
        await scene.runtime.submit(CONVERSATION, "Hello?").result
        await scene.runtime.submit(CONVERSATION, _answer(approval_id, approved=True)).result
        await scene.runtime.submit(CONVERSATION, "Bye").result
    for call in model.calls:
        validate_messages(call.messages)
    assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "tool", "user"]
    [(call_id, outcome, _)] = told(model.calls[1].messages)
    assert (call_id, outcome) == ("c1", "interrupted")
    late = '[late tool result] {"call_id":"c1","outcome":"success","output":"sent to a","tool":"send"}'
    assert model.calls[2].messages[: len(model.calls[1].messages)] == model.calls[1].messages
    assert model.calls[2].messages[-1] == ModelMessage.user(late)
    assert ModelMessage.user(late) in model.calls[3].messages


async def test_a_provider_that_repeats_ids_cannot_confuse_calls_that_wait() -> None:
    """While one call waits, another of the same id in a later run gets an id of its own; each answer finds its call."""
    sent: list[str] = []
    script = ScriptedModel(
        called(("call_0", "send", '{"to":"a"}')), called(("call_0", "send", '{"to":"b"}')), "Done.", "Done."
    )
    async with opened(script, tools=[_mailer(sent)]) as scene:
        first = await scene.runtime.submit(CONVERSATION, "Write to a.").result
        second = await scene.runtime.submit(CONVERSATION, "And to b.").result
        for asked in (second, first):
            answer = _answer(asked.approvals[0].approval_id, approved=True)
            assert (await scene.runtime.submit(CONVERSATION, answer).result).reason == "success"
    assert [asked.approvals[0].call_id for asked in (first, second)] == ["call_0", "call_0~2"]
    assert sent == ["b", "a"]


@pytest.mark.parametrize("policy", ["inject", "interrupt", "interrupt-next", "supersede"])
async def test_an_answer_stops_nothing_whatever_inputs_do(policy: InputPolicy) -> None:
    """The policy of inputs does not hold for answers: what executes goes on, then the call is carried out."""
    sent: list[str] = []
    hold = Hold()
    model = ScriptedModel(
        called(("c1", "send", '{"to":"a"}')),
        [TextDelta("half "), hold, TextDelta("whole"), FinishReport("stop")],
        "Done.",
    )
    config = RuntimeConfig(runs=RunsConfig(policy=policy))
    async with opened(model, tools=[_mailer(sent)], config=config) as scene:
        _, approval_id = await _asked(scene)
        other = scene.runtime.submit(CONVERSATION, "Something else.")
        await hold.reached()
        answer = scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True)
        await answer.admission
        assert not other.result.done
        hold.release()
        assert ((await other.result).text, (await answer.result).text) == ("half whole", "Done.")
    assert sent == ["a"]


@pytest.mark.parametrize("denied", [False, True])
async def test_a_request_that_waits_stays_with_the_source_of_a_branch(*, denied: bool) -> None:
    """The branch cannot answer it and tells its model of no result to come; the source still carries the call out."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with MemoryStore() as store, opened(model, store=store, tools=[_mailer(sent)]) as scene:
        asked, approval_id = await _asked(scene)
        request = BranchConversation(request_key="k", destination_id="branch", source_id=CONVERSATION)
        await store.branch_conversation(request)
        view = await store.load_run("branch", asked.run.id)
        assert view is not None
        assert view.assistant is not None
        assert [part.type for part in view.assistant.parts] == ["tool-call"]
        if denied:
            answer = await scene.runtime.respond_to_approval("branch", approval_id, approved=False).result
            assert isinstance(answer.error, ToolApprovalError)
            assert answer.error.problem == "unknown"
        assert (await scene.runtime.submit("branch", "Go on.").result).reason == "success"
        assert told(model.calls[-1].messages) == [("c1", "interrupted", {"message": "not started"})]
        assert sent == []
        result = await scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=True).result
    assert (result.reason, sent) == ("success", ["a"])


@pytest.mark.parametrize("approved", [True, False])
async def test_a_request_that_was_answered_comes_along_into_a_branch(*, approved: bool) -> None:
    """With its answer; at the boundary before the answer it does not."""
    sent: list[str] = []
    model = ScriptedModel(called(("c1", "send", '{"to":"a"}')), "Done.")
    async with MemoryStore() as store, opened(model, store=store, tools=[_mailer(sent)]) as scene:
        asked, approval_id = await _asked(scene)
        await scene.runtime.respond_to_approval(CONVERSATION, approval_id, approved=approved).result
        for run_id, kept in ((asked.run.id, 0), (None, 1)):
            name = f"branch {kept}"
            request = BranchConversation(request_key=name, destination_id=name, source_id=CONVERSATION, run_id=run_id)
            await store.branch_conversation(request)
            messages = (await store.load_snapshot(name)).messages
            parts = [part for message in messages for part in message.parts]
            assert sum(isinstance(part, ToolApprovalRequestPart) for part in parts) == kept
