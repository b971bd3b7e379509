"""The answer as it grows, against a draft that is written whole each time."""

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.models import ReasoningDelta
from runlane.records import ControlPart, Part, ReasoningPart, Run, SourcePart, TextPart
from runlane.runtime._draft import Draft, _Growing
from runlane.store import DraftPatch

_AT = datetime(2026, 1, 1, tzinfo=UTC)
_RUN = Run(
    id="r",
    conversation_id="c",
    input_message_ids=("m",),
    assistant_message_id="a",
    state="queued",
    revision=0,
    created_at=_AT,
    updated_at=_AT,
)

_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text(max_size=4)),
        st.tuples(st.just("think"), st.text(max_size=4)),
        st.tuples(st.sampled_from(["start", "end"]), st.just("")),
        st.tuples(st.just("sign"), st.text(min_size=1, max_size=3)),
        st.tuples(st.just("source"), st.text(min_size=1, max_size=3)),
        st.tuples(st.just("save"), st.just("")),
        st.tuples(st.just("cut"), st.integers(0, 3).map(str)),
    ),
    max_size=30,
)


def _apply(parts: list[Part], patch: DraftPatch) -> list[Part]:
    """What a store makes of a patch."""
    kept = parts[: patch.keep]
    for grown in patch.grown:
        part = kept[grown.index]
        assert isinstance(part, TextPart | ReasoningPart)
        update: dict[str, object] = {"text": part.text + grown.suffix}
        if grown.provider is not None:
            update["provider"] = grown.provider
        kept[grown.index] = part.model_copy(update=update)
    return [*kept, *patch.added]


def _take(draft: Draft, kind: str, value: str) -> None:
    match kind:
        case "text":
            draft.add_text(value)
        case "think":
            draft.add_reasoning(ReasoningDelta(value), "p")
        case "start" | "end":
            draft.add_reasoning(ReasoningDelta(phase="start" if kind == "start" else "end"), "p")
        case "sign":
            draft.add_reasoning(ReasoningDelta(provider_options={"s": value}), "p")
        case "source":
            draft.add(SourcePart(source_id=value))
        case _:
            draft.cut(min(int(value), draft.size))


@given(_STEPS)
def test_the_patches_make_up_the_draft(steps: list[tuple[str, str]]) -> None:
    """Whatever streams, is saved and is taken back: the saved patches, applied in order, give the whole draft."""
    draft, stored = Draft(_RUN), list[Part]()
    for kind, value in [*steps, ("save", "")]:
        if kind != "save":
            _take(draft, kind, value)
            continue
        patch, mark = draft.patch()
        seen = draft.view(mark, _AT)
        if patch is not None:
            stored = _apply(stored, patch)
        draft.committed(mark)
        assert tuple(stored) == draft.parts() == seen.parts


@given(st.lists(st.text(max_size=5)))
def test_adjacent_text_is_one_part(texts: list[str]) -> None:
    """Text deltas in a row are one text part; empty ones make none."""
    draft = Draft(_RUN)
    for text in texts:
        draft.add_text(text)
    whole = "".join(texts)
    assert draft.parts() == ((TextPart(text=whole),) if whole else ())


def test_a_patch_costs_what_was_gained() -> None:
    """A long answer's next patch holds the new text only."""
    draft = Draft(_RUN)
    draft.add_text("x" * 100_000)
    draft.committed(draft.patch()[1])
    draft.add_text("y")
    patch, _ = draft.patch()
    assert patch is not None
    assert (patch.keep, patch.added, [grown.suffix for grown in patch.grown]) == (1, (), ["y"])


def test_a_long_answer_takes_the_room_of_its_letters() -> None:
    """Ten thousand words, a checkpoint every twenty: at most half more room than letters, and all can be read."""
    draft, words = Draft(_RUN), [f"word{number} " for number in range(10_000)]
    marks = []
    for number, word in enumerate(words, 1):
        draft.add_text(word)
        if number % 20 == 0:
            marks.append(draft.patch()[1])
            draft.committed(marks[-1])
    [growing] = draft._parts
    assert isinstance(growing, _Growing)
    assert sum(map(sys.getsizeof, growing.pieces)) + sys.getsizeof(growing.pieces) < 1.5 * len("".join(words))
    for number in (0, 7, 499):
        assert draft.view(marks[number], _AT).text == "".join(words[: 20 * (number + 1)])


def test_a_view_stays_as_it_was() -> None:
    """A draft looked at later shows the answer at the time of its checkpoint."""
    draft = Draft(_RUN)
    draft.add_text("one")
    _, mark = draft.patch()
    draft.add_text(" two")
    draft.cut(0)
    assert draft.view(mark, _AT).text == "one"


def test_reasoning_goes_on_in_its_own_part_after_other_parts_came_in() -> None:
    """A reasoning delta belongs to the open reasoning part, even behind later parts; a new start opens another."""
    draft = Draft(_RUN)
    draft.add_reasoning(ReasoningDelta("a", phase="start"), "p")
    draft.add_text("text")
    draft.add_reasoning(ReasoningDelta("b"), "p")
    draft.add_reasoning(ReasoningDelta(phase="end"), "p")
    draft.add_reasoning(ReasoningDelta("c"), "p")
    assert draft.parts() == (ReasoningPart(text="ab"), TextPart(text="text"), ReasoningPart(text="c"))


@pytest.mark.parametrize("times", [1, 2])
def test_the_mark_of_a_cut_off_answer_stands_once_at_its_end(times: int) -> None:
    """The control part is appended, and not twice."""
    draft, mark = Draft(_RUN), ControlPart(reason="run-interrupted")
    draft.add_text("half")
    for _ in range(times - 1):
        draft.add(mark)
    message = draft.message("interrupted", _AT, control=mark)
    assert message.parts == (TextPart(text="half"), mark)
    assert (message.id, message.run_id, message.status) == ("a", "r", "interrupted")
