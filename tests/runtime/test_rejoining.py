"""A run that is cut off after an input joined it: what its model answered to is shown again, where it stood."""

from collections.abc import Sequence
from typing import Any, Literal

import anyio
import pytest

from runlane.errors import RunlaneError
from runlane.models import FinishReport, FunctionCallDelta, ModelMessage, TextDelta
from runlane.records import FilePart, JsonObject, Message, TextPart
from runlane.runtime import FilesConfig, HistoryConfig, RunResult, RuntimeConfig
from runlane.runtime._lane_records import LaneRecords
from runlane.runtime._rejoining import joined_before
from runlane.runtime._store_calls import StoreCalls
from runlane.store import MemoryStore
from runlane.testing import Fault, ScriptedCall, ScriptedModel, ScriptedStep, StoreCall
from runlane.tools import ToolDefinition, tool
from tests.runtime.scenes import CONVERSATION, Scene, asked, opened

pytestmark = pytest.mark.anyio


def _calling(text: str, call_id: str) -> list[ScriptedStep]:
    call = FunctionCallDelta(0, id=call_id, name="look", arguments=f'{{"at":"{call_id}"}}')
    return [TextDelta(text), call, FinishReport("tool-calls")]


def _reply(call: ScriptedCall) -> Sequence[ScriptedStep] | str:
    """Look once, look again once two inputs are there, then answer."""
    rounds = sum(message.role == "tool" for message in call.messages)
    if rounds == 0:
        return _calling("One. ", "a")
    if rounds == 1 and "second" in [getattr(message, "text", "") for message in call.messages]:
        return _calling("Both. ", "b")
    return "done"


class _Standing:
    """A tool that stands in its first call until it may go on."""

    def __init__(self) -> None:
        self.entered, self.go = anyio.Event(), anyio.Event()
        self.commits = 0

    def tool(self) -> ToolDefinition[Any, Any, Any]:
        @tool(idempotent=True)
        async def look(at: str) -> str:
            """Look."""
            if at == "a":
                self.entered.set()
                await self.go.wait()
            return at

        return look


async def _begin(scene: Scene, standing: _Standing) -> None:
    """Submit two inputs, of which the second joins the first one's run; whether they end or not."""
    first = scene.runtime.submit(CONVERSATION, "first", idempotency_key="1")
    await standing.entered.wait()
    second = scene.runtime.submit(CONVERSATION, "second", policy="inject", idempotency_key="2")
    await second.admission
    standing.commits = scene.store.count("apply")
    standing.go.set()
    for ticket in (first, second):
        try:
            await ticket.result
        except RunlaneError:
            continue


async def _answers(scene: Scene) -> list[RunResult]:
    """What became of the two inputs."""
    tickets = [
        scene.runtime.submit(CONVERSATION, text, idempotency_key=key) for key, text in (("1", "first"), ("2", "second"))
    ]
    return [await ticket.result for ticket in tickets]


async def _cut_off(store: MemoryStore, number: int, when: Literal["before", "after"] = "after") -> None:
    """Have a process die at a commit, counted from the one after both inputs are admitted and the tool returns."""
    standing = _Standing()

    def plan(call: StoreCall) -> Fault | None:
        dies = standing.go.is_set() and call.apply_number == standing.commits + number
        return Fault(when=when, kills=True) if dies else None

    async with opened(ScriptedModel(_reply), store=store, plan=plan, tools=[standing.tool()]) as scene:
        await _begin(scene, standing)


def _recovering(standing: _Standing) -> ToolDefinition[Any, Any, Any]:
    standing.go.set()
    return standing.tool()


async def test_what_joined_before_the_last_kept_call_is_shown_again_in_its_place() -> None:
    """Both rounds are kept: the continuation is shown the second input between them, and absorbs its run."""
    async with MemoryStore() as store:
        await _cut_off(store, 2)
        model = ScriptedModel(_reply)
        tools = [_recovering(_Standing())]
        async with opened(model, store=store, tools=tools, recover_on_start=True) as scene:
            first, second = await _answers(scene)
    assert [message.role for message in model.calls[0].messages] == [
        *("user", "assistant", "tool"),
        *("user", "assistant", "tool"),
    ]
    assert asked(model)[::3] == ["first", "second"]
    assert len(model.calls) == 1
    assert first.text == "One. Both. done"
    assert (first.run, first.message) == (second.run, second.message)
    assert first.run.input_message_ids == (*first.run.input_message_ids[:1], *second.run.input_message_ids[1:])
    assert len(first.run.input_message_ids) == 2


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
async def test_wherever_it_is_cut_off_nothing_is_answered_that_is_not_shown(
    number: int, when: Literal["before", "after"]
) -> None:
    """Every prompt that holds the answer to the second input holds that input before it; each input has its answer."""
    async with MemoryStore() as store:
        await _cut_off(store, number, when)
        model = ScriptedModel(_reply)
        tools = [_recovering(_Standing())]
        async with opened(model, store=store, tools=tools, recover_on_start=True) as scene:
            first, second = await _answers(scene)
        assert await store.list_active_runs(CONVERSATION) == ()
    assert (first.reason, second.reason) == ("success", "success")
    for number_of_call in range(len(model.calls)):
        texts = asked(model, number_of_call)
        both = [place for place, text in enumerate(texts) if "Both" in text]
        assert not both or "second" in texts[: both[0]]
    if "Both" in first.text:
        assert first.run == second.run
    else:
        assert len(first.run.input_message_ids) == 1


async def test_what_an_execution_left_out_is_not_taken_up_by_the_next_one() -> None:
    """The first request of an execution, or of an attempt, names all that joined; what it does not name is over."""
    async with opened(ScriptedModel("a")) as scene:
        run = (await scene.runtime.submit(CONVERSATION, "first").result).run

        def entry(after: int, run_id: str) -> JsonObject:
            return {"after": after, "run_id": run_id, "message_ids": [run.input_message_ids[0]]}

        requests: list[JsonObject] = [
            {"step_number": 0, "joined": [entry(0, "handed back")]},
            {"step_number": 0},
            {"step_number": 1, "joined": [entry(1, "kept")]},
            {"step_number": 2, "joined": [entry(3, "said nothing after")]},
            {"step_number": 0, "joined": [entry(1, "kept")]},
            {"step_number": 1, "joined": [entry(4, "later"), {**entry(4, "unknown"), "message_ids": ["?"]}]},
            {"step_number": 2, "joined": [entry(5, "too late"), {"after": "5"}, "?"]},
        ]
        for request in requests:
            for run_id in (run.id, "another"):
                payload: JsonObject = {**request, "run_id": run_id}
                await scene.store.append_event(conversation_id=CONVERSATION, kind="provider/request", payload=payload)
        calls = StoreCalls(scene.store, scene.clock)
        records = LaneRecords(calls, CONVERSATION, HistoryConfig())
        await records.catch_up()
        found = await joined_before(calls, records, run, [TextPart(text="x")] * 5)
    assert [(one.after, one.run_id) for one in found] == [(1, "kept"), (4, "later")]


async def test_an_input_that_joins_is_projected_by_the_applications_own_projection() -> None:
    """`history.project` is asked for what joins, too: with these records alone, after it made the prompt."""
    asked_for: list[list[str]] = []

    def project(messages: Sequence[Message], context: object) -> list[Any]:
        asked_for.append([message.text for message in messages])
        return [ModelMessage.user(f"<{message.text}> {context}") for message in messages]

    standing = _Standing()
    config = RuntimeConfig(history=HistoryConfig(project=project))
    model = ScriptedModel(_calling("One. ", "a"), "done")
    async with opened(model, tools=[standing.tool()], config=config) as scene:
        first = scene.runtime.submit(CONVERSATION, "first", context="ctx")
        await standing.entered.wait()
        second = scene.runtime.submit(CONVERSATION, "second", policy="inject")
        await second.admission
        standing.go.set()
        assert (await first.result).run == (await second.result).run
    assert asked_for == [["first"], ["second"]]
    assert asked(model, 1)[-1] == "<second> ctx"


async def test_a_file_is_fetched_once_in_a_run() -> None:
    """A run fetches a file once, even if its prompt is made again since others wrote; the next run does it anew."""
    fetched: list[str] = []
    part = FilePart(media_type="text/plain", reference="notes")
    async with MemoryStore() as store:

        async def resolve(file: FilePart, _: Message) -> bytes:
            fetched.append(file.reference)
            if len(fetched) == 1:
                await other.runtime.submit(CONVERSATION, "meanwhile").admission
            return b"the notes"

        config = RuntimeConfig(files=FilesConfig(resolve=resolve))
        async with (
            opened(ScriptedModel("b"), store=store) as other,
            opened(ScriptedModel("a"), store=store, config=config) as scene,
        ):
            ticket = scene.runtime.submit(CONVERSATION, [TextPart(text="Read this"), part])
            assert (await ticket.result).reason == "success"
            assert fetched == ["notes"]
            await scene.runtime.submit(CONVERSATION, "And?").result
    assert fetched == ["notes", "notes"]
