"""From an input to its durable admission."""

import gc

import anyio
import pytest

from runlane.delivery import RuntimeEvent
from runlane.errors import InvalidValueError, RunlaneError, RuntimeClosedError, StoreUnavailableError, UsageError
from runlane.records import AssistantPlaceholder, FilePart, TextPart, ToolApprovalResponsePart
from runlane.runtime import AgentRuntime, DeliveryConfig, RecordIds, RunTicket, RuntimeConfig, RuntimeInput
from runlane.store import MemoryStore
from runlane.testing import Fault, Hold, ScriptedModel, StoreCall
from tests.runtime.scenes import CONVERSATION, heard, held_after, names, opened

pytestmark = pytest.mark.anyio


async def _reject(ticket: RunTicket, error: type[Exception]) -> None:
    for promise in (ticket.admission, ticket.accepted, ticket.result):
        with pytest.raises(error):
            await promise


async def test_a_closed_runtime_rejects_all_three_promises_and_writes_nothing() -> None:
    """After close, and before entering, `admission`, `accepted` and `result` reject and the store is untouched."""
    async with opened(ScriptedModel("Hi")) as scene:
        await scene.runtime.close()
        await _reject(scene.runtime.submit(CONVERSATION, "late"), RuntimeClosedError)
        assert scene.store.applied == []
    unopened = AgentRuntime(MemoryStore(), model=ScriptedModel("Hi"))
    await _reject(unopened.submit(CONVERSATION, "early"), RuntimeClosedError)


@pytest.mark.parametrize(
    ("given", "error", "field"),
    [
        ([], InvalidValueError, "input.parts"),
        ([{"type": "text"}], InvalidValueError, "input.parts.0.text"),
        ([{"type": "nonsense"}], InvalidValueError, "input.parts.0"),
        (7, UsageError, "input"),
        ({"role": "assistant", "parts": [{"type": "text", "text": "x"}]}, UsageError, "input.role"),
        ({"role": "tool", "parts": [{"type": "text", "text": "x"}]}, UsageError, "input.parts"),
        ({"role": "tool", "parts": []}, InvalidValueError, "input.parts"),
    ],
)
async def test_a_malformed_input_is_refused_at_once_by_name(given: object, error: type[Exception], field: str) -> None:
    """A bad input raises from `submit` itself, names the field, and nothing is written."""
    async with opened(ScriptedModel("Hi")) as scene:
        with pytest.raises(error) as caught:
            scene.runtime.submit(CONVERSATION, given)  # type: ignore[arg-type]
        await anyio.wait_all_tasks_blocked()
        assert getattr(caught.value, "argument", None) == field
        assert scene.store.calls == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"metadata": {"when": object()}}, "metadata.when"),
        ({"request": ["no object"]}, "request"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"record_ids": ("a", "b", "c")}, "record_ids"),
        ({"record_ids": RecordIds(input_message_id="m", run_id="", assistant_message_id="a")}, "record_ids.run_id"),
    ],
)
async def test_a_malformed_option_is_refused_at_once_by_name(options: dict[str, object], field: str) -> None:
    """Metadata, request, key and ids are checked before anything is written; the error names which."""
    async with opened(ScriptedModel("Hi")) as scene:
        with pytest.raises(RunlaneError) as caught:
            scene.runtime.submit(CONVERSATION, "Hi", **options)  # type: ignore[arg-type]
        assert str(getattr(caught.value, "argument", None)).startswith(field)
        assert scene.store.calls == []


@pytest.mark.parametrize(
    "given",
    [
        "Hi",
        TextPart(text="Hi"),
        [TextPart(text="Hi")],
        {"type": "text", "text": "Hi"},
        [{"type": "text", "text": "Hi"}],
        {"role": "user", "parts": [{"type": "text", "text": "Hi"}]},
        RuntimeInput(parts=(TextPart(text="Hi"),)),
    ],
)
async def test_an_input_may_be_text_parts_or_a_message(given: object) -> None:
    """Every form of one and the same input is stored alike."""
    async with opened(ScriptedModel("Hello")) as scene:
        admission = await scene.runtime.submit(CONVERSATION, given).admission  # type: ignore[arg-type]
    assert (admission.input.role, admission.input.parts) == ("user", (TextPart(text="Hi"),))


async def test_parts_metadata_and_request_are_stored() -> None:
    """A file part, the message's metadata and the run's request come back from the store as they were given."""
    async with opened(ScriptedModel("Hello")) as scene:
        ticket = scene.runtime.submit(
            CONVERSATION,
            [TextPart(text="See"), FilePart(media_type="text/plain", reference="r1")],
            metadata={"from": "a test"},
            request={"agent": "x"},
        )
        await ticket.result
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
    assert [part.type for part in snapshot.messages[0].parts] == ["text", "file"]
    assert (snapshot.messages[0].metadata, snapshot.runs[0].request) == ({"from": "a test"}, {"agent": "x"})


async def test_an_approval_answer_is_a_valid_tool_input() -> None:
    """A tool-role input of approval responses is admitted."""
    answer = ToolApprovalResponsePart(approval_id="a1", approved=True)
    async with opened(ScriptedModel("Hello")) as scene:
        admission = await scene.runtime.submit(CONVERSATION, RuntimeInput(role="tool", parts=(answer,))).admission
    assert admission.input.role == "tool"


async def test_record_ids_may_be_chosen() -> None:
    """The application's three ids are the ids of the records."""
    ids = RecordIds(input_message_id="m1", run_id="r1", assistant_message_id="a1")
    async with opened(ScriptedModel("Hello")) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi", record_ids=ids)
        result = await ticket.result
    assert (ticket.run_id, result.run.id, result.message.id, result.run.input_message_ids) == (
        "r1",
        "r1",
        "a1",
        ("m1",),
    )


async def test_admission_holds_a_placeholder_and_the_version_of_the_admission() -> None:
    """`admission` names input, run and reserved answer, with a pending placeholder."""
    async with opened(ScriptedModel("Hello")) as scene:
        admission = await scene.runtime.submit(CONVERSATION, "Hi").admission
    assert isinstance(admission.assistant, AssistantPlaceholder)
    assert admission.assistant.id == admission.assistant_message_id == admission.run.assistant_message_id
    assert (admission.snapshot_version, admission.is_duplicate) == (1, False)
    assert admission.run.input_message_ids == (admission.input_message_id,)


async def test_admission_then_run_state_are_told_at_the_admissions_version() -> None:
    """The first two events are `admission` and `run-state` with one version, and different ids."""
    async with opened(ScriptedModel("Hello")) as scene:
        events = await heard(scene.runtime.submit(CONVERSATION, "Hi"))
    first, second = events[:2]
    assert (first.type, second.type) == ("admission", "run-state")
    assert (first.snapshot_version, second.snapshot_version) == (1, 1)  # type: ignore[union-attr]
    assert first.event_id != second.event_id  # type: ignore[union-attr]


async def test_accepted_waits_for_the_publisher_and_admission_does_not() -> None:
    """With a slow publisher `admission` settles first, `accepted` once both events were published."""
    hold = Hold()

    async def publish(event: RuntimeEvent) -> None:
        if event.type == "admission":
            await hold.stand()

    config = RuntimeConfig(delivery=DeliveryConfig(publisher=publish))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await ticket.admission
        await hold.reached()
        assert ticket.accepted.done is False
        hold.release()
        assert (await ticket.accepted).run_id == ticket.run_id


async def test_a_failing_publisher_never_fails_a_run() -> None:
    """What a publisher raises goes to `on_publish_error`, whose own failure is swallowed."""
    reported: list[str] = []

    def publish(event: RuntimeEvent) -> None:
        raise ZeroDivisionError(event.type)

    def report(event: RuntimeEvent, error: Exception) -> None:
        reported.append(f"{event.type}: {error}")
        raise KeyError

    config = RuntimeConfig(delivery=DeliveryConfig(publisher=publish, on_publish_error=report))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert result.reason == "success"
    assert reported[0] == "admission: admission"
    assert reported[-1] == "terminal: terminal"


async def test_inputs_are_admitted_and_answered_in_the_order_of_submission() -> None:
    """Ten inputs submitted at once are stored and answered in that order."""
    model = ScriptedModel("ok")
    async with opened(model) as scene:
        tickets = [scene.runtime.submit(CONVERSATION, str(number)) for number in range(10)]
        for ticket in tickets:
            await ticket.result
        versions = [(await ticket.admission).snapshot_version for ticket in tickets]
    assert versions == sorted(versions)
    assert [call.messages[-1].text for call in model.calls] == [str(number) for number in range(10)]  # type: ignore[union-attr]


async def test_inputs_of_later_runs_are_invisible() -> None:
    """An input that is durable but waits is not part of the executing run's prompt."""
    hold, model = held_after("one")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        second = scene.runtime.submit(CONVERSATION, "second")
        await second.admission
        hold.release()
        await first.result
        await second.result
    assert [message.text for message in model.calls[0].messages] == ["first"]  # type: ignore[union-attr]
    assert [message.text for message in model.calls[1].messages] == ["first", "one.", "second"]  # type: ignore[union-attr]


async def test_a_store_that_refuses_an_input_rejects_all_three_promises() -> None:
    """When the store cannot be written, the ticket rejects with its typed error once the retries are spent."""

    def plan(call: StoreCall) -> Fault | None:
        return Fault(error=StoreUnavailableError("gone")) if call.method == "apply" else None

    async with opened(ScriptedModel("Hello"), plan=plan) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        await scene.clock.advance(1.0)
        await _reject(ticket, StoreUnavailableError)
        # Together with the acquisition, and then by itself.
        assert scene.store.count("apply") == 12


async def test_rejections_nobody_awaits_are_never_reported() -> None:
    """Ignored tickets and results leave no warning behind (the suite turns warnings into errors)."""
    async with opened(ScriptedModel("Hello")) as scene:
        await scene.runtime.close()
        scene.runtime.submit(CONVERSATION, "late")
    gc.collect()


async def test_a_result_may_be_awaited_by_several_tasks() -> None:
    """Three tasks awaiting one result get the same object; a cancelled one disturbs nobody."""
    hold, model = held_after("one")
    found: list[object] = []

    async def wait(ticket: RunTicket) -> None:
        found.append(await ticket.result)

    async with opened(model) as scene:
        ticket = scene.runtime.submit(CONVERSATION, "Hi")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(wait, ticket)
            await hold.reached()
            with anyio.move_on_after(0):
                await ticket.result
            hold.release()
    assert len(found) == 3
    assert all(result is found[0] for result in found)


async def test_a_text_turn_costs_two_commits() -> None:
    """Accept and acquire with draft and request; closing operation with the terminal record."""
    async with opened(ScriptedModel("Hello there")) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        assert [names(call.commands) for call in scene.store.applied] == [
            ["AcceptInput", "AcquireRun", "CheckpointRunAssistant", "AppendEvent", "RecordRunOperation"],
            ["AppendEvent", "RecordRunOperation", "CommitRunTerminal"],
        ]


async def test_an_ordinary_turn_reads_nothing() -> None:
    """A turn of a conversation that is at hand makes no read at all, and never loads a snapshot."""
    async with opened(ScriptedModel("Hello there")) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
        await scene.runtime.submit(CONVERSATION, "Again").result
        assert {call.method for call in scene.store.calls} == {"apply"}
