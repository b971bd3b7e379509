"""What an application puts into a conversation without a run, and how the runtime's lanes see it."""

import pytest

from runlane.errors import RunlaneError, UsageError
from runlane.records import Message
from runlane.store import Applied, MemoryStore
from runlane.testing import ScriptedModel
from tests.runtime.scenes import CONVERSATION, Scene, asked, held_after, opened

pytestmark = pytest.mark.anyio

_EXCHANGE = ["How are you?", {"role": "assistant", "parts": [{"type": "text", "text": "Fine."}]}]


async def _texts(scene: Scene) -> list[str]:
    return [message.text for message in (await scene.store.inner.load_snapshot(CONVERSATION)).messages]


async def test_a_seed_leads_a_conversation_even_after_an_input_was_admitted() -> None:
    """The first seeded message is the first message, and the next prompt begins with it."""
    model = ScriptedModel("ok")
    async with opened(model) as scene:
        await scene.runtime.submit(CONVERSATION, "first").result
        outcome = await scene.runtime.seed(CONVERSATION, ["Rules.", "More rules."], seed_key="rules")
        await scene.runtime.submit(CONVERSATION, "second").result
        texts = await _texts(scene)
    assert isinstance(outcome, Applied)
    assert texts == ["Rules.", "More rules.", "first", "ok", "second", "ok"]
    assert asked(model, 1) == ["Rules.", "More rules.", "first", "ok", "second"]


async def test_a_replayed_seed_changes_nothing() -> None:
    """Once for ever: the same key is applied again without a change, whatever it holds."""
    async with opened(ScriptedModel("ok")) as scene:
        first = await scene.runtime.seed(CONVERSATION, ["Rules."], seed_key="rules")
        again = await scene.runtime.seed(CONVERSATION, ["Other rules."], seed_key="rules")
        texts = await _texts(scene)
    assert isinstance(first, Applied)
    assert isinstance(again, Applied)
    assert (first.delta.version, again.delta.version, again.delta.messages) == (1, 1, ())
    assert texts == ["Rules."]


async def test_the_ids_of_a_seed_follow_from_conversation_key_and_place() -> None:
    """Two stores give the same messages the same ids, so an imported conversation is not seeded twice."""
    ids: list[list[str]] = []
    for _ in range(2):
        async with opened(ScriptedModel("ok")) as scene:
            outcome = await scene.runtime.seed(CONVERSATION, ["a", "b"], seed_key="rules")
            assert isinstance(outcome, Applied)
            ids.append([message.id for message in outcome.delta.messages])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


async def test_an_exchange_goes_after_what_is_settled_and_before_the_active_run() -> None:
    """`after-settled`: the active run's input and answer stay adjacent, the next prompt reads the exchange first."""
    hold, model = held_after("half ")
    async with opened(model) as scene:
        first = scene.runtime.submit(CONVERSATION, "first")
        await hold.reached()
        await scene.runtime.seed(CONVERSATION, _EXCHANGE, seed_key="import", placement="after-settled")  # type: ignore[arg-type]
        hold.release()
        await first.result
        await scene.runtime.submit(CONVERSATION, "second").result
        texts = await _texts(scene)
    assert texts[:4] == ["How are you?", "Fine.", "first", "half ."]
    assert asked(model, 0) == ["first"]
    assert asked(model, 1) == ["How are you?", "Fine.", "first", "half .", "second"]


async def test_with_no_active_run_an_exchange_goes_to_the_end() -> None:
    """`after-settled` with nothing active is the tail."""
    model = ScriptedModel("ok")
    async with opened(model) as scene:
        await scene.runtime.submit(CONVERSATION, "first").result
        await scene.runtime.seed(CONVERSATION, _EXCHANGE, seed_key="import", placement="after-settled")  # type: ignore[arg-type]
        await scene.runtime.submit(CONVERSATION, "second").result
    assert asked(model, 1) == ["first", "ok", "How are you?", "Fine.", "second"]


async def test_a_seed_needs_no_run_and_asks_no_model() -> None:
    """Seeding alone leaves no run and makes no call."""
    model = ScriptedModel("ok")
    async with opened(model) as scene:
        await scene.runtime.seed(CONVERSATION, ["Rules."], seed_key="rules")
        snapshot = await scene.store.inner.load_snapshot(CONVERSATION)
    assert (snapshot.runs, model.calls) == ((), [])


async def test_a_seed_of_another_process_is_seen_by_the_next_turn() -> None:
    """A lane that holds the conversation's records learns of a seed it did not write."""
    model = ScriptedModel("ok")
    async with (
        MemoryStore() as store,
        opened(model, store=store) as one,
        opened(ScriptedModel("x"), store=store) as two,
    ):
        await one.runtime.submit(CONVERSATION, "first").result
        await two.runtime.seed(CONVERSATION, ["Rules."], seed_key="rules")
        await one.runtime.submit(CONVERSATION, "second").result
    assert asked(model, 1) == ["Rules.", "first", "ok", "second"]


@pytest.mark.parametrize(
    ("messages", "options", "field"),
    [
        ("text", {}, "messages"),
        ([], {}, "messages"),
        ([7], {}, "messages.0"),
        (["ok", []], {}, "messages.1.parts"),
        ([{"role": "system", "parts": [{"type": "text", "text": "x"}]}], {}, "messages.0.role"),
        (["ok"], {"seed_key": ""}, "seed_key"),
        (["ok"], {"placement": "first"}, "placement"),
        (_EXCHANGE, {}, "inputs.1"),
    ],
)
async def test_a_malformed_seed_is_refused_by_name(messages: object, options: dict[str, object], field: str) -> None:
    """Nothing is written; an assistant message cannot lead."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(RunlaneError) as caught:
            await scene.runtime.seed(CONVERSATION, messages, **{"seed_key": "k", **options})  # type: ignore[arg-type]
        assert (await scene.store.inner.load_head(CONVERSATION)).version == 0
    assert str(getattr(caught.value, "argument", "")).startswith(field)


async def test_a_seed_that_is_partly_known_is_refused() -> None:
    """Some of its messages are there and others are not: nothing is written."""
    async with opened(ScriptedModel("ok")) as scene:
        outcome = await scene.runtime.seed(CONVERSATION, ["a"], seed_key="one")
        assert isinstance(outcome, Applied)
        known: Message = outcome.delta.messages[0]
        new = known.model_copy(update={"id": "new"})
        with pytest.raises(UsageError):
            await scene.store.inner.seed_conversation(conversation_id=CONVERSATION, seed_key="two", inputs=[known, new])
        assert (await scene.store.inner.load_head(CONVERSATION)).version == 1


async def test_a_purged_or_closed_conversation_takes_no_seed() -> None:
    """`ConversationPurgedError` and `RuntimeClosedError`."""
    found: list[str] = []
    async with opened(ScriptedModel("ok")) as scene:
        await scene.store.inner.purge_conversation(CONVERSATION)
        for _ in range(2):
            try:
                await scene.runtime.seed(CONVERSATION, ["a"], seed_key="one")
            except RunlaneError as error:
                found.append(type(error).__name__)
            await scene.runtime.close()
    assert found == ["ConversationPurgedError", "RuntimeClosedError"]
