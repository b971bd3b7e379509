"""Ids and numbers given to a runtime are checked at once, by name, and nothing is read or written for a bad one."""

import gc
import inspect
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runlane.errors import InvalidValueError, RunlaneError, UsageError
from runlane.runtime import (
    AbandonInput,
    AgentRuntime,
    CloseOptions,
    InterruptInput,
    LaneCoordinator,
    RecordIds,
    RecoverOptions,
    RunsConfig,
    RuntimeConfig,
)
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel
from tests.hostile import broken, hostile_object
from tests.runtime.scenes import CONVERSATION, opened

pytestmark = pytest.mark.anyio

_BAD_IDS = [5, "", None, b"c", "x" * 513]
_CALLS: dict[str, Callable[[AgentRuntime, Any, Any], Awaitable[object]]] = {
    "interrupt": lambda runtime, conversation, run: runtime.interrupt(conversation, run),
    "cancel": lambda runtime, conversation, run: runtime.cancel(conversation, run),
    "abandon": lambda runtime, conversation, run: runtime.abandon(
        conversation, run, expected_revision=0, stale_owner=True
    ),
}


@pytest.mark.parametrize("bad", _BAD_IDS)
@pytest.mark.parametrize("name", list(_CALLS))
async def test_a_bad_id_is_refused_by_name(name: str, bad: object) -> None:
    """Conversation and run alike."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="conversation_id"):
            await _CALLS[name](scene.runtime, bad, "r")
        with pytest.raises(InvalidValueError, match="run_id"):
            await _CALLS[name](scene.runtime, CONVERSATION, bad)
        assert scene.store.calls == []


@pytest.mark.parametrize("bad", _BAD_IDS)
async def test_a_bad_id_to_resume_is_refused_at_once(bad: Any) -> None:  # noqa: ANN401 - anything is given
    """`resume` raises itself, instead of rejecting later."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="conversation_id"):
            scene.runtime.resume(bad, "r")
        with pytest.raises(InvalidValueError, match="run_id"):
            scene.runtime.resume(CONVERSATION, bad)
        assert scene.store.calls == []


@pytest.mark.parametrize("bad", [bad for bad in _BAD_IDS if bad is not None])
async def test_a_bad_id_to_subscribe_or_recover_is_refused_at_once(bad: Any) -> None:  # noqa: ANN401 - as above
    """A subscription to a run that cannot exist is refused, as is a recovery of such a conversation."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError, match="run_id"):
            scene.runtime.subscribe(CONVERSATION, run_id=bad)
        with pytest.raises(InvalidValueError, match="conversation_id"):
            scene.runtime.subscribe(bad)
        with pytest.raises(InvalidValueError, match="conversation_id"):
            await scene.runtime.recover(conversation_id=bad)
        assert scene.store.calls == []


@pytest.mark.parametrize("revision", [True, 1.0, "1", None])
async def test_a_revision_that_is_no_integer_is_refused(revision: Any) -> None:  # noqa: ANN401 - as above
    """`abandon` names `expected_revision`."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(UsageError, match="expected_revision"):
            await scene.runtime.abandon(CONVERSATION, "r", expected_revision=revision, stale_owner=True)
        assert scene.store.calls == []


@pytest.mark.parametrize("after", [True, -1, 1.5, "1"])
async def test_a_cursor_that_is_no_version_is_refused(after: Any) -> None:  # noqa: ANN401 - as above
    """`subscribe` names `after`."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(RunlaneError, match="after"):
            scene.runtime.subscribe(CONVERSATION, after=after)


async def test_a_malformed_stop_is_refused() -> None:
    """A lane that is no text, and a reason nobody knows."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(UsageError, match="conversation_id"):
            scene.runtime.stop(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match="reason"):
            scene.runtime.stop(CONVERSATION, reason="because")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["decide", "resolve_context", "signal"])
async def test_a_recovery_with_what_cannot_be_asked_is_refused_at_once(name: str) -> None:
    """`recover` names the argument, and sweeps nobody."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(UsageError) as caught:
            await scene.runtime.recover(**{name: "x"})  # type: ignore[arg-type]
        assert caught.value.argument == name
        assert scene.store.count("sweep_owners") == 0


@pytest.mark.parametrize("placement", [[], {}, None, "last"])
async def test_a_placement_nobody_knows_is_refused(placement: Any) -> None:  # noqa: ANN401 - as above
    """Whether or not it can be hashed."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError) as caught:
            await scene.runtime.seed(CONVERSATION, ["Hi"], seed_key="k", placement=placement)
        assert caught.value.argument == "placement"
        assert scene.store.calls == []


@pytest.mark.parametrize("reason", ["", 5, "\ud800"])
async def test_the_reason_of_an_answer_is_refused_by_its_own_name(reason: Any) -> None:  # noqa: ANN401 - as above
    """`respond_to_approval` names the argument it was given, not the place in the record."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError) as caught:
            scene.runtime.respond_to_approval(CONVERSATION, "a", approved=True, reason=reason)
        assert caught.value.argument == "reason"


async def test_chosen_ids_must_differ() -> None:
    """Two records of one id are refused before anything is written, by the argument's name."""
    same = RecordIds(input_message_id="m", run_id="r", assistant_message_id="m")
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError) as caught:
            scene.runtime.submit(CONVERSATION, "Hi", record_ids=same)
        assert caught.value.argument == "record_ids.assistant_message_id"


@pytest.mark.parametrize("bad", [hostile_object(__repr__=broken), [], 5, ""])
async def test_a_policy_is_refused_without_being_shown(bad: Any) -> None:  # noqa: ANN401 - as above
    """Also one that cannot be printed."""
    async with opened(ScriptedModel("ok")) as scene:
        with pytest.raises(InvalidValueError) as caught:
            scene.runtime.submit(CONVERSATION, "Hi", policy=bad)
        assert caught.value.argument == "policy"


@pytest.mark.parametrize("name", ["policy", "key"])
async def test_a_choice_that_must_be_awaited_is_refused_and_closed(name: str) -> None:
    """`runs.policy` and `runs.key` answer at once; a coroutine function is refused before anything runs."""

    async def choose(*_: object) -> str:
        return "queue"

    with pytest.raises(UsageError) as caught:
        RunsConfig(**{name: choose})  # type: ignore[arg-type]
    assert caught.value.argument == f"runs.{name}"
    config = RuntimeConfig(runs=RunsConfig(**{name: lambda *given: choose(*given)}))  # type: ignore[arg-type]  # noqa: PLW0108 - plain
    async with opened(ScriptedModel("ok"), config=config) as scene:
        with pytest.raises(UsageError) as caught:
            scene.runtime.submit(CONVERSATION, "Hi")
        gc.collect()
    assert caught.value.argument == f"runs.{name}"


@pytest.mark.parametrize(
    ("name", "bad"), [("clock", 5), ("ids", "x"), ("recover_on_start", "yes"), ("instructions", "\ud800")]
)
async def test_what_a_runtime_is_made_of_is_refused_by_name(name: str, bad: object) -> None:
    """At once, not when it is first used."""
    with pytest.raises(RunlaneError) as caught:
        AgentRuntime(MemoryStore(), model=ScriptedModel("ok"), **{name: bad})  # type: ignore[arg-type]
    assert getattr(caught.value, "argument", None) == name


@pytest.mark.parametrize(
    ("named", "method"),
    [
        (RecoverOptions, AgentRuntime.recover),
        (CloseOptions, AgentRuntime.close),
        (CloseOptions, LaneCoordinator.close),
        (AbandonInput, AgentRuntime.abandon),
        (InterruptInput, AgentRuntime.interrupt),
    ],
    ids=["recover", "close", "coordinator", "abandon", "interrupt"],
)
def test_names_for_arguments_are_the_arguments(named: type, method: Callable[..., object]) -> None:
    """Each names what its method takes, with the same types; what it may leave out has a default."""
    parameters = inspect.signature(method).parameters
    wanted = inspect.Parameter.POSITIONAL_ONLY if named is InterruptInput else inspect.Parameter.KEYWORD_ONLY
    taken = {name: one for name, one in parameters.items() if one.kind is wanted and name != "self"}
    hints, method_hints = typing.get_type_hints(named), typing.get_type_hints(method)
    assert hints == {name: method_hints[name] for name in taken}
    optional = getattr(named, "__optional_keys__", frozenset[str]())
    assert {name for name, one in taken.items() if one.default is not one.empty} == optional
