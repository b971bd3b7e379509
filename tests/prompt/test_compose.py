"""Sections become instructions and seeded messages, in order, each counted with its source."""

import hashlib
from datetime import UTC, datetime

import pytest

from runlane.contracts import CancelToken
from runlane.errors import AbortedError, InvalidValueError, UsageError
from runlane.models import BYTE_BOUND, ModelMessage, OpenAITokens
from runlane.prompt import (
    PromptSection,
    PromptSectionContext,
    carry_into_instructions,
    compose_prompt,
    system_messages,
    user_instruction_messages,
)
from runlane.prompt import UserInstruction as Told
from runlane.records import ProviderEnvelope, TokenCount

NOW = datetime(2026, 1, 2, tzinfo=UTC)
PERSONA = PromptSection[object](name="persona", render="You are a librarian.")


def counted(value: int, provenance: str = "measured") -> TokenCount:
    """Return a count."""
    return TokenCount(value=value, provenance=provenance)  # type: ignore[arg-type]


@pytest.mark.anyio
async def test_sections_are_rendered_one_after_another_in_order() -> None:
    """Stability is reported and reorders nothing; a coroutine is awaited before the next one begins."""
    order: list[str] = []

    async def slow(_: PromptSectionContext[object]) -> str:
        order.append("slow begins")
        order.append("slow ends")
        return "A"

    def quick(_: PromptSectionContext[object]) -> str:
        order.append("quick")
        return "B"

    composed = await compose_prompt(
        [
            PromptSection(name="slow", render=slow, stability="dynamic"),
            PromptSection(name="quick", render=quick, stability="stable"),
        ]
    )
    assert order == ["slow begins", "slow ends", "quick"]
    assert composed.instructions == "A\n\nB"
    assert [(section.name, section.stability, section.role, section.text) for section in composed.sections] == [
        ("slow", "dynamic", "system", "A"),
        ("quick", "stable", "system", "B"),
    ]


@pytest.mark.anyio
async def test_system_texts_are_joined_by_blank_lines_blank_ones_included() -> None:
    """Nothing is trimmed away from what the application wrote."""
    texts = ["first", "", " last "]
    composed = await compose_prompt([PromptSection(name=f"s{n}", render=text) for n, text in enumerate(texts)])
    assert composed.instructions == "first\n\n\n\n last "


@pytest.mark.anyio
async def test_user_sections_never_enter_the_instructions() -> None:
    """Those that are not blank are handed over untrimmed, in order, to be seeded."""
    composed = await compose_prompt(
        [
            PromptSection(name="house", render="  Rules.\n", role="user"),
            PERSONA,
            PromptSection(name="blank", render=" \n\t", role="user"),
            PromptSection(name="brief", render="The brief.", role="user"),
        ],
        estimate=BYTE_BOUND,
    )
    assert composed.instructions == "You are a librarian."
    assert composed.user_instructions == (("house", "  Rules.\n"), ("brief", "The brief."))
    assert [section.name for section in composed.sections] == ["house", "persona", "blank", "brief"]
    assert composed.user_instruction_tokens == counted(9 + 10, "estimated")
    assert composed.instruction_tokens == counted(20, "estimated")


@pytest.mark.anyio
@pytest.mark.parametrize("event", ["session.started", "turn.started"])
async def test_a_section_learns_context_signal_and_event(event: str) -> None:
    """The first run of a conversation is told apart from later ones."""
    seen: list[PromptSectionContext[object]] = []
    signal = CancelToken()

    def render(context: PromptSectionContext[object]) -> str:
        seen.append(context)
        return ""

    await compose_prompt(
        [PromptSection(name="s", render=render)],
        context={"user": 7},
        signal=signal,
        event=event,  # type: ignore[arg-type]
    )
    assert [(context.context, context.signal, context.event) for context in seen] == [({"user": 7}, signal, event)]


@pytest.mark.anyio
async def test_the_event_is_a_later_turn_unless_said_otherwise_and_no_other_word() -> None:
    """`turn.started` is the default; anything else is refused before a section is rendered."""
    seen: list[str] = []

    def render(context: PromptSectionContext[object]) -> str:
        seen.append(context.event)
        return ""

    section = PromptSection(name="s", render=render)
    await compose_prompt([section])
    with pytest.raises(InvalidValueError) as refused:
        await compose_prompt([section], event="turn.ended")  # type: ignore[arg-type]
    assert (seen, refused.value.argument) == (["turn.started"], "event")


@pytest.mark.anyio
async def test_what_the_adapter_gives_is_passed_on_unchanged() -> None:
    """A structured instruction is the very object the adapter made."""
    cached = ProviderEnvelope(provider="anthropic", data={"cache_control": {"type": "ephemeral"}})
    messages = (ModelMessage.system("stable", cached), ModelMessage.system("dynamic"))
    given: list[str] = []

    async def adapt(text: str) -> tuple[ModelMessage, ...]:
        given.append(text)
        return messages

    composed = await compose_prompt([PERSONA], adapt_instructions=adapt)
    assert given == ["You are a librarian."]
    assert composed.instructions == messages
    single = await compose_prompt([PERSONA], adapt_instructions=lambda _: messages[0])
    assert single.instructions is messages[0]


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [7, ModelMessage.user("no"), [ModelMessage.user("no")], None])
async def test_an_adapter_gives_instructions_and_nothing_else(bad: object) -> None:
    """A user message is no instruction."""
    with pytest.raises(UsageError) as refused:
        await compose_prompt([PERSONA], adapt_instructions=lambda _: bad)  # type: ignore[arg-type,return-value]
    assert refused.value.argument == "adapt_instructions"


@pytest.mark.anyio
async def test_a_section_counts_itself_then_by_the_fallback_then_not_at_all() -> None:
    """Own estimator, then the composition's, then unknown."""
    own = PromptSection[object](name="own", render="text", estimate_tokens=lambda _: counted(3))
    plain = PromptSection[object](name="plain", render="text")

    async def asked(text: str) -> TokenCount:
        return counted(len(text) * 10, "estimated")

    with_fallback = await compose_prompt([own, plain], estimate=asked)
    assert [section.tokens for section in with_fallback.sections] == [counted(3), counted(40, "estimated")]
    assert with_fallback.instruction_tokens == counted(43, "estimated")
    without = await compose_prompt([own, plain])
    assert [section.tokens.provenance for section in without.sections] == ["measured", "unavailable"]
    assert without.instruction_tokens == TokenCount(provenance="unavailable")


@pytest.mark.anyio
async def test_an_exact_tokenizer_gives_a_computed_sum() -> None:
    """Counts of sections are measured; their sum is a sum."""
    composed = await compose_prompt([PERSONA, PERSONA], estimate=OpenAITokens())
    assert {section.tokens.provenance for section in composed.sections} == {"measured"}
    assert composed.instruction_tokens.provenance == "computed"


@pytest.mark.anyio
async def test_no_sections_count_nothing() -> None:
    """Zero is a fact here: there is nothing to count."""
    composed = await compose_prompt([])
    assert (composed.instructions, composed.instruction_tokens) == ("", counted(0, "computed"))
    assert composed.user_instruction_tokens == counted(0, "computed")


@pytest.mark.anyio
@pytest.mark.parametrize("bad", [1.5, 4, None])
async def test_a_count_is_a_token_count(bad: object) -> None:
    """A bare number has no provenance."""
    with pytest.raises(UsageError) as refused:
        await compose_prompt([PERSONA], estimate=lambda _: bad)  # type: ignore[arg-type,return-value]
    assert "persona" in str(refused.value)


@pytest.mark.anyio
async def test_a_section_gives_text() -> None:
    """The error names the section."""
    with pytest.raises(UsageError) as refused:
        await compose_prompt([PromptSection(name="broken", render=lambda _: 7)])  # type: ignore[arg-type,return-value]
    assert "broken" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"name": ""}, "name"),
        ({"name": "s", "stability": "sometimes"}, "s.stability"),
        ({"name": "s", "role": "assistant"}, "s.role"),
        ({"name": "s", "render": 7}, "s.render"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused_when_it_is_made(options: dict[str, object], argument: str) -> None:
    """Construction is where a typing error shows."""
    with pytest.raises((InvalidValueError, UsageError)) as refused:
        PromptSection(**{"render": "", **options})  # type: ignore[arg-type]
    assert getattr(refused.value, "argument", None) == argument


@pytest.mark.anyio
async def test_a_tripped_signal_stops_before_the_next_section() -> None:
    """What the first section did cannot be undone; the second is never rendered."""
    signal = CancelToken()
    rendered: list[str] = []

    def first(_: PromptSectionContext[object]) -> str:
        rendered.append("first")
        signal.cancel("shutdown")
        return ""

    def second(_: PromptSectionContext[object]) -> str:
        rendered.append("second")
        return ""

    with pytest.raises(AbortedError):
        await compose_prompt(
            [PromptSection(name="first", render=first), PromptSection(name="second", render=second)], signal=signal
        )
    assert rendered == ["first"]


@pytest.mark.anyio
async def test_what_a_section_raises_leaves_as_it_is() -> None:
    """The runtime tells its own failures from the provider's by identity."""
    problem = LookupError("no such user")

    def render(_: PromptSectionContext[object]) -> str:
        raise problem

    with pytest.raises(LookupError) as raised:
        await compose_prompt([PromptSection(name="s", render=render)])
    assert raised.value is problem


def test_seeded_messages_have_ids_that_follow_from_conversation_key_and_place() -> None:
    """An import that already holds them is recognised."""
    messages = user_instruction_messages("c1", [Told("house", " Rules. "), Told("brief", "B")], NOW)
    wanted = [hashlib.sha256(f"c1\0prompt.user-instructions\0{place}".encode()).hexdigest() for place in range(2)]
    assert [message.id for message in messages] == wanted
    assert [(message.role, message.status, message.run_id, message.text) for message in messages] == [
        ("user", "committed", None, " Rules. "),
        ("user", "committed", None, "B"),
    ]


def test_nothing_carried_leaves_the_instructions_in_their_shape() -> None:
    """The same object, text or messages."""
    message = ModelMessage.system("a")
    assert carry_into_instructions("a", ()) == "a"
    assert carry_into_instructions(message, ()) is message


def test_carried_texts_follow_the_instructions_as_system_messages() -> None:
    """A plain text becomes one system message first; an empty one none."""
    carried = ("summary", "note")
    assert [m.text for m in system_messages(carry_into_instructions("a", carried))] == ["a", "summary", "note"]
    assert [m.text for m in system_messages(carry_into_instructions("", carried))] == ["summary", "note"]
    message = ModelMessage.system("a")
    assert system_messages(carry_into_instructions(message, carried))[0] is message


@pytest.mark.anyio
async def test_every_figure_stands_on_its_own_line() -> None:
    """A report names the source of each number and adds nothing up."""
    composed = await compose_prompt([PERSONA], estimate=BYTE_BOUND, history_tokens=counted(9))
    assert dict(composed.lines) == {
        "instructions": counted(20, "estimated"),
        "user_instructions": counted(0, "computed"),
        "history": counted(9),
    }
