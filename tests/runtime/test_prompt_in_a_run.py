"""What the model of a run is told beside the history, and whether it fits."""

from typing import Any

import pytest

from runlane.errors import ContextOverflowError, InvalidValueError, UsageError
from runlane.models import BYTE_BOUND, FileItem, ModelMessage, ModelToolResultMessage, ResolvedModel
from runlane.prompt import PromptSection, PromptSectionContext
from runlane.records import FilePart, Message, TextPart, ToolResultPart
from runlane.runtime import (
    AgentRuntime,
    FilesConfig,
    HistoryConfig,
    LoopConfig,
    PromptConfig,
    RuntimeConfig,
    StepChanges,
)
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, heard, names, opened

pytestmark = pytest.mark.anyio


def _prompted(*sections: PromptSection[object], **options: object) -> RuntimeConfig:
    return RuntimeConfig(prompt=PromptConfig(sections=sections, **options))  # type: ignore[arg-type]


def _texts(model: ScriptedModel, call: int) -> list[tuple[str, str]]:
    told = [message for message in model.calls[call].messages if isinstance(message, ModelMessage)]
    return [(message.role, message.text) for message in told]


async def test_sections_are_rendered_for_each_run() -> None:
    """They learn the run's context and whether it is the conversation's first; their texts are one system message."""
    asked: list[tuple[object, str]] = []

    async def render(about: PromptSectionContext[object]) -> str:
        asked.append((about.context, about.event))
        return f"Call the user {about.context}."

    config = _prompted(PromptSection(name="user", render=render), PromptSection(name="tone", render="Be kind."))
    model = ScriptedModel("Hello")
    async with (
        MemoryStore() as store,
        AgentRuntime(store, model=model, instructions="You are a librarian.", config=config) as runtime,
    ):
        for name in ("Ada", "Bob"):
            await runtime.submit(CONVERSATION, "Hi", context=name).result
        await runtime.submit("another", "Hi", context="Cid").result
    async with MemoryStore() as store, AgentRuntime(store, model=model, config=config) as runtime:
        await runtime.submit(CONVERSATION, "Hi", context="Dan").result
    assert asked == [
        ("Ada", "session.started"),
        ("Bob", "turn.started"),
        ("Cid", "session.started"),
        ("Dan", "session.started"),
    ]
    assert _texts(model, 1)[0] == ("system", "You are a librarian.\n\nCall the user Bob.\n\nBe kind.")
    assert _texts(model, 3)[0] == ("system", "Call the user Dan.\n\nBe kind.")


async def test_a_conversation_that_goes_on_in_another_runtime_is_not_new() -> None:
    """What was answered before counts, whoever answered it."""
    events: list[str] = []

    def render(about: PromptSectionContext[object]) -> str:
        events.append(about.event)
        return "x"

    config = _prompted(PromptSection(name="s", render=render))
    async with MemoryStore() as store:
        for _ in range(2):
            async with AgentRuntime(store, model=ScriptedModel("Hello"), config=config) as runtime:
                await runtime.submit(CONVERSATION, "Hi").result
    assert events == ["session.started", "turn.started"]


async def test_user_instructions_are_seeded_once_ahead_of_the_conversation() -> None:
    """A user-role section becomes the first message, once for ever, and never part of the instructions."""
    config = _prompted(PromptSection(name="brief", render="Answer in French.", role="user"))
    model = ScriptedModel("Oui")
    async with MemoryStore() as store:
        for _ in range(2):
            async with AgentRuntime(store, model=model, config=config) as runtime:
                for _ in range(2):
                    assert (await runtime.submit(CONVERSATION, "Hi").result).reason == "success"
        messages = (await store.load_snapshot(CONVERSATION)).messages
    assert [message.text for message in messages] == ["Answer in French.", *["Hi", "Oui"] * 4]
    assert _texts(model, 0) == [("user", "Answer in French."), ("user", "Hi")]
    assert [text for _, text in _texts(model, 3)] == ["Answer in French.", *["Hi", "Oui"] * 3, "Hi"]


async def test_a_run_that_seeds_is_acquired_first() -> None:
    """Acquisition and seed are commits of their own; the next run needs neither."""
    config = _prompted(PromptSection(name="brief", render="Answer in French.", role="user"))
    async with opened(ScriptedModel("Oui"), config=config) as scene:
        for _ in range(2):
            await scene.runtime.submit(CONVERSATION, "Hi").result
        commits = [names(call.commands) for call in scene.store.applied]
    assert [commit[0] for commit in commits] == [
        "AcceptInput",
        "AcquireRun",
        "SeedConversation",
        "AppendEvent",
        "AppendEvent",
        "AcceptInput",
        "AcquireRun",
        "AppendEvent",
    ]
    assert commits[1] == ["AcquireRun", "CheckpointRunAssistant"]
    assert commits[6] == ["AcquireRun", "CheckpointRunAssistant", "AppendEvent", "RecordRunOperation"]


async def test_instructions_may_be_adapted_for_the_provider() -> None:
    """What the adapter makes of the composed text is passed on unchanged."""
    system = (ModelMessage.system("one"), ModelMessage.system("two"))
    config = _prompted(PromptSection(name="s", render="text"), adapt_instructions=lambda _: system)
    model = ScriptedModel("Hello")
    async with opened(model, config=config) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi").result
    assert model.calls[0].messages == (*system, ModelMessage.user("Hi"))


async def test_a_section_that_fails_is_a_runtime_failure() -> None:
    """A prompt callback that raises ends the run before any provider call."""

    def render(_: object) -> str:
        raise ZeroDivisionError

    model = ScriptedModel("never asked")
    async with opened(model, config=_prompted(PromptSection(name="s", render=render))) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert (result.reason, len(model.calls), type(result.error)) == ("runtime_failure", 0, ZeroDivisionError)


@pytest.mark.parametrize(
    ("window", "policy", "reason"),
    [
        (10_000, "reject", "success"),
        (300, "reject", "context_overflow"),
        (300, "compact", "context_overflow"),
        (10, "reject", "context_overflow"),
        (None, "reject", "success"),
    ],
)
async def test_a_request_that_does_not_fit_is_never_sent(window: int | None, policy: str, reason: str) -> None:
    """An oversized request, or one that needed compaction, ends as `context_overflow` everywhere, with no call."""
    model = ScriptedModel("Hello")
    resolved = ResolvedModel(model="m", provider=model, context_window=window)
    config = _prompted(
        PromptSection(name="s", render="Be kind."), counter=BYTE_BOUND, reserved_output=20, oversize_policy=policy
    )
    async with MemoryStore() as store, AgentRuntime(store, model=resolved, config=config) as runtime:
        ticket = runtime.submit(CONVERSATION, "Hi " * 200)
        events = await heard(ticket)
        result = await ticket.result
        view = await store.load_run(CONVERSATION, ticket.run_id)
    assert (result.reason, len(model.calls)) == (reason, int(reason == "success"))
    assert view is not None
    assert (view.run.terminal_reason, getattr(events[-1], "reason", None)) == (reason, reason)
    if reason == "context_overflow":
        assert isinstance(result.error, ContextOverflowError)
        assert not [event for event in events if event.type == "run-operation"]


@pytest.mark.parametrize("max_tokens", [150, "window"])
async def test_a_history_is_cut_to_its_newest_turns(max_tokens: int | str) -> None:
    """With a budget the oldest whole turns are left out, and the request fits."""
    model = ScriptedModel("Hello")
    resolved = ResolvedModel(model="m", provider=model, context_window=260)
    config = RuntimeConfig(
        prompt=PromptConfig(counter=BYTE_BOUND),
        history=HistoryConfig(max_tokens=max_tokens),  # type: ignore[arg-type]
    )
    async with MemoryStore() as store, AgentRuntime(store, model=resolved, config=config) as runtime:
        for number in range(6):
            result = await runtime.submit(CONVERSATION, f"Question {number} " + "x" * 20).result
            assert result.reason == "success"
    told = [text for _, text in _texts(model, 5)]
    assert told[-1].startswith("Question 5")
    assert 3 <= len(told) < 11
    assert not any("Question 0" in text for text in told)


async def test_an_application_may_project_the_history_itself() -> None:
    """It gets the records a run may see and the run's context; nothing else is told."""

    def project(records: object, context: object) -> list[ModelMessage]:
        assert isinstance(records, tuple)
        assert all(isinstance(record, Message) for record in records)
        return [ModelMessage.user(f"{context}: {len(records)} records")]

    model = ScriptedModel("Hello")
    config = RuntimeConfig(history=HistoryConfig(project=project))
    async with opened(model, config=config) as scene:
        await scene.runtime.submit(CONVERSATION, "Hi", context="mine").result
        await scene.runtime.submit(CONVERSATION, "Hi", context="mine").result
    assert [_texts(model, call) for call in (0, 1)] == [[("user", "mine: 1 records")], [("user", "mine: 3 records")]]


async def test_a_projection_that_no_provider_would_take_is_a_runtime_failure() -> None:
    """What an application makes is checked before the provider is asked: the failure is not the provider's."""
    orphan = ModelToolResultMessage((ToolResultPart(call_id="c", tool_name="t", outcome="success", output=1),))
    made: list[Any] = ["text", [orphan]]

    def project(_records: object, _context: object) -> Any:  # noqa: ANN401 - what it gives is wrong
        return made.pop()

    model = ScriptedModel("never asked")
    async with opened(model, config=RuntimeConfig(history=HistoryConfig(project=project))) as scene:
        for _ in range(2):
            result = await scene.runtime.submit(CONVERSATION, "Hi").result
            assert (result.reason, type(result.error), len(model.calls)) == ("runtime_failure", UsageError, 0)
            assert "history.project" in str(result.error)


async def test_files_that_users_send_are_fetched_for_the_prompt() -> None:
    """The resolver gets the part and its message; the storage address is never told."""
    part = FilePart(media_type="text/plain", reference="s3://secret/1", filename="notes.txt")

    async def resolve(file: FilePart, _: Message) -> FileItem:
        return FileItem(media_type=file.media_type, text="the notes", filename=file.filename)

    model = ScriptedModel("Hello")
    async with opened(model, config=RuntimeConfig(files=FilesConfig(resolve=resolve))) as scene:
        await scene.runtime.submit(CONVERSATION, [TextPart(text="Read this"), part]).result
    [told] = model.calls[0].messages
    assert FileItem(media_type="text/plain", text="the notes", filename="notes.txt") in told.items
    assert "s3://" not in repr(model.calls[0].messages)


@pytest.mark.parametrize(
    ("unresolved", "reason"), [("omit", "success"), ("text", "success"), ("error", "runtime_failure")]
)
async def test_a_file_without_data_is_left_out_named_or_refused(unresolved: str, reason: str) -> None:
    """`omit` says nothing of it, `text` names it, `error` ends the run before the provider is called."""
    part = FilePart(media_type="text/plain", reference="s3://secret/1", filename="notes.txt")
    model = ScriptedModel("Hello")
    config = RuntimeConfig(files=FilesConfig(unresolved=unresolved))  # type: ignore[arg-type]
    async with opened(model, config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, [TextPart(text="Read this"), part]).result
    assert (result.reason, len(model.calls)) == (reason, int(reason == "success"))
    assert ("notes.txt" in repr(model.calls)) is (unresolved == "text")


@pytest.mark.parametrize("place", ["section", "adapter", "prepared"])
async def test_a_text_that_no_message_can_hold_fails_its_run_and_names_its_place(place: str) -> None:
    """A lone surrogate in what an application writes is refused; no run is left without an end, no lane is blocked."""
    bad = "a\ud800"
    config = {
        "section": RuntimeConfig(prompt=PromptConfig(sections=(PromptSection(name="s", render=lambda _: bad),))),
        "adapter": RuntimeConfig(
            prompt=PromptConfig(sections=(PromptSection(name="s", render="Hi"),), adapt_instructions=lambda _: bad)
        ),
        "prepared": RuntimeConfig(loop=LoopConfig(prepare_step=lambda _: StepChanges(instructions=bad))),
    }[place]
    argument = {"section": "section 's'", "adapter": "adapt_instructions", "prepared": "prepare_step.instructions"}
    model = ScriptedModel("Hello")
    async with opened(model, config=config) as scene:
        for conversation in (CONVERSATION, CONVERSATION, "another"):
            result = await scene.runtime.submit(conversation, "Hi").result
            assert (result.reason, model.calls) == ("runtime_failure", [])
            assert isinstance(result.error, InvalidValueError)
            assert result.error.argument == argument[place]
            assert await scene.store.list_active_runs(conversation) == ()


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"active_tools": 5}, "active_tools"),
        ({"active_tools": "look"}, "active_tools"),
        ({"active_tools": [5]}, "active_tools"),
        ({"messages": 5}, "messages"),
        ({"messages": [5]}, "messages"),
        ({"instructions": 5}, "instructions"),
        ({"instructions": [ModelMessage.user("Hi")]}, "instructions"),
        ({"model": "gpt"}, "model"),
    ],
)
async def test_changes_of_the_wrong_kind_are_named(changes: dict[str, Any], argument: str) -> None:
    """Whatever `prepare_step` gives, the error says which field is wrong."""
    config = RuntimeConfig(loop=LoopConfig(prepare_step=lambda _: StepChanges(**changes)))
    async with opened(ScriptedModel("Hello"), config=config) as scene:
        result = await scene.runtime.submit(CONVERSATION, "Hi").result
    assert isinstance(result.error, UsageError)
    assert result.error.argument == f"prepare_step.{argument}"
