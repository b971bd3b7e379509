"""Child runners share the request and nothing else."""

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runlane.contracts import CancelToken, ExecutionOptions
from runlane.errors import BudgetError, InvalidValueError, RunnerBusyError, UnknownTransportError, UsageError
from runlane.models import TextDelta
from runlane.runner import (
    ModelChildOptions,
    ModelChildPolicy,
    ModelOutputEvent,
    ModelRunner,
    ModelRunnerSettings,
)
from tests.runner.speaking import ASK, STOP, Speaker, runner, saying

pytestmark = pytest.mark.anyio


def _child(parent: ModelRunner, **settings: Any) -> ModelRunner:  # noqa: ANN401 - limits, right and wrong
    return parent.child(ModelChildOptions(settings=settings or None))


async def _refused(speaks: ModelRunner) -> tuple[str | None, int | None]:
    with pytest.raises(BudgetError) as caught:
        await speaks.call(ASK)
    return caught.value.allowance, caught.value.limit


async def test_m43_own_counts_and_totals() -> None:
    """Root 1, child 2, grandchild 3 calls: own counts 1, 2, 3, totals 6, 5, 3; journals are one's own."""
    root = runner(Speaker(*saying("x")))
    child = root.child()
    grandchild = child.child()
    for speaks, calls in ((root, 1), (child, 2), (grandchild, 3)):
        for _ in range(calls):
            await speaks.call(ASK)
    family = (root, child, grandchild)
    assert [speaks.call_count for speaks in family] == [1, 2, 3]
    assert [speaks.total_call_count for speaks in family] == [6, 5, 3]
    assert [len(speaks.journal) for speaks in family] == [1, 2, 3]
    assert [receipt.call_number for receipt in grandchild.journal] == [1, 2, 3]
    assert {speaks.budget.available for speaks in family} == {26}


async def test_m53_a_child_has_its_own_call_in_flight() -> None:
    """Parent and child overlap; each refuses a second call of its own."""
    gate = anyio.Event()
    provider = Speaker(*saying("x"), before=lambda _: gate.wait())
    root = runner(provider)
    child = root.child()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(root.call, ASK)
        tasks.start_soon(child.call, ASK)
        await anyio.wait_all_tasks_blocked()
        assert (root.busy, child.busy, len(provider.contexts)) == (True, True, 2)
        for speaks in (root, child):
            with pytest.raises(RunnerBusyError):
                await speaks.call(ASK)
        gate.set()


@pytest.mark.parametrize("generations", [1, 2])
async def test_m53_m57_a_parents_token_ends_the_childs_call(generations: int) -> None:
    """Through any number of generations, with the same reason; a child's own token leaves the parent alone."""
    above, own = CancelToken(), CancelToken()
    root = runner(Speaker(*saying("x"), before=lambda _: anyio.sleep_forever()), signal=above)
    child = root
    for _ in range(generations):
        child = child.child(ModelChildOptions(signal=own))
    reason = KeyError("above")
    ends: list[Exception] = []

    async def ask() -> None:
        with pytest.raises(KeyError) as caught:
            await child.call(ASK)
        ends.append(caught.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        above.cancel(reason)
    assert ends == [reason]
    own.cancel("mine")
    assert above.reason is reason


async def test_m53_a_childs_token_does_not_end_the_parent() -> None:
    """Not the reverse."""
    own = CancelToken()
    root = runner(Speaker(*saying("x")))
    child = root.child(ModelChildOptions(signal=own))
    own.cancel(KeyError("mine"))
    with pytest.raises(KeyError):
        await child.call(ASK)
    assert (await root.call(ASK)).value == "x"


LIMITS = [
    "max_input_chars",
    "max_output_chars",
    "max_images",
    "max_image_bytes",
    "max_tool_calls",
    "max_arguments_bytes",
    "max_calls",
]


@given(st.dictionaries(st.sampled_from(LIMITS), st.integers(0, 10**7)))
def test_m54_a_limit_can_only_shrink(asked: dict[str, int]) -> None:
    """What holds is the smaller of the parent's and what was asked, through generations."""
    root = runner(Speaker())
    child = _child(root, **asked)
    for name in LIMITS:
        before = getattr(root.settings, name)
        assert getattr(child.settings, name) == min(before, asked.get(name, before))
    assert child.child(ModelChildOptions(settings=dict.fromkeys(asked, 10**9))).settings == child.settings


def test_m54_time_limits_shrink_from_no_limit() -> None:
    """None is the largest time limit; a child's is that of the parent unless it is smaller."""
    free, bound = runner(Speaker()), runner(Speaker(), call_timeout=2.0)
    assert _child(free, call_timeout=5.0).settings.call_timeout == 5.0
    assert _child(bound, call_timeout=5.0).settings.call_timeout == 2.0
    assert _child(bound, call_timeout=1.0, close_timeout=0.5).settings.close_timeout == 0.5
    assert _child(free).settings == free.settings


@pytest.mark.parametrize("name", ["children", "provider", "tokens", "max_depth", ""])
def test_m54_only_numeric_limits_can_be_named(name: str) -> None:
    """There is no field for provider, budget, clock or policy."""
    with pytest.raises(UsageError, match="settings"):
        runner(Speaker()).child(ModelChildOptions(settings={name: 1}))
    with pytest.raises(TypeError):
        ModelChildOptions(provider=Speaker())  # type: ignore[call-arg]


@pytest.mark.parametrize("wrong", [{"max_calls": -1}, {"max_images": True}, {"call_timeout": -1}, {"max_images": 1.5}])
def test_m54_a_bad_limit_makes_no_child(wrong: dict[str, float]) -> None:
    """Nothing is counted for a child that was never made."""
    root = runner(Speaker(), children=ModelChildPolicy(max_children=1))
    with pytest.raises(InvalidValueError):
        root.child(ModelChildOptions(settings=wrong))
    assert root.child().call_count == 0


async def test_m54_a_childs_own_calls_are_taken_first() -> None:
    """`max_calls` of a child is a budget of its own; when it is spent the shared one is left alone."""
    root = runner(Speaker(*saying("x")))
    child = _child(root, max_calls=1)
    await child.call(ASK)
    assert await _refused(child) == ("model_calls", 1)
    assert root.budget.available == 31
    assert (await root.call(ASK)).value == "x"


def _policy(**limits: Any) -> ModelRunner:  # noqa: ANN401 - limits
    return runner(Speaker(*saying("x")), children=ModelChildPolicy(**limits))


def test_m55_depth_is_bounded() -> None:
    """The root is 0."""
    child = _policy(max_depth=1).child()
    with pytest.raises(BudgetError) as caught:
        child.child()
    assert (caught.value.allowance, caught.value.limit) == ("model_child_depth", 1)


def test_m55_children_are_counted_over_the_whole_tree() -> None:
    """Two of the root and one grandchild share the same three; a refused one counts nothing."""
    root = _policy(max_children=3)
    first, _ = root.child(), root.child()
    first.child()
    for parent in (root, first):
        with pytest.raises(BudgetError) as caught:
            parent.child()
        assert (caught.value.allowance, caught.value.limit) == ("model_children", 3)


async def test_m55_calls_of_descendants_are_counted_together() -> None:
    """Child and grandchild share them; the root is not among them."""
    root = _policy(max_calls=2)
    child = root.child()
    await child.call(ASK)
    await child.child().call(ASK)
    assert await _refused(child) == ("model_child_calls", 2)
    assert (await root.call(ASK)).value == "x"


async def test_m55_concurrent_calls_of_descendants_are_bounded() -> None:
    """A place is given back when a call ends, however it ends."""
    gate = anyio.Event()
    provider = Speaker(*saying("x"), before=lambda _: gate.wait())
    root = runner(provider, children=ModelChildPolicy(max_concurrent_calls=1))
    first, second = root.child(), root.child()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: first.call(ASK))
        await anyio.wait_all_tasks_blocked()
        assert await _refused(second) == ("model_child_concurrency", 1)
        gate.set()
    provider.parts = (OSError("down"),)
    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            await second.call(ASK)


async def test_m56_what_was_taken_before_a_refusal_stays_spent() -> None:
    """Own budget, then policy, then shared budget; a place among the concurrent calls is given back."""
    root = runner(Speaker(*saying("x")), max_calls=3, children=ModelChildPolicy(max_concurrent_calls=1, max_calls=2))
    child = _child(root, max_calls=3)
    for _ in range(3):
        await root.call(ASK)
    refusals = [await _refused(child) for _ in range(4)]
    shared, own, policy = ("model_calls", 3), ("model_calls", 3), ("model_child_calls", 2)
    assert refusals == [shared, shared, policy, own]
    assert (child.call_count, root.total_call_count) == (0, 3)


async def test_a_child_may_have_its_own_transports_and_sink() -> None:
    """What it does not name is its parent's."""
    heard: list[tuple[str, str]] = []

    def sink(name: str) -> Any:  # noqa: ANN401 - a sink
        async def hear(event: ModelOutputEvent) -> None:
            if isinstance(event.part, TextDelta):
                heard.append((name, event.part.text))

        return hear

    provider = Speaker(TextDelta("x"), STOP)
    root = runner(provider, output=sink("root"))
    await root.child().call(ASK)
    await root.child(ModelChildOptions(output=sink("child"), transports=())).call(ASK)
    assert heard == [("root", "x"), ("child", "x")]
    named = type("T", (), {"key": type("K", (), {"id": "app:x"})(), "prepare": print})()
    with_default = runner(provider, named, default_transport="app:x")
    with pytest.raises(UnknownTransportError):
        with_default.child(ModelChildOptions(transports=()))


async def test_a_prepared_call_belongs_to_the_runner_that_prepared_it() -> None:
    """A parent's is foreign to its child."""
    root = runner(Speaker(*saying("x")))
    prepared = await root.prepare(ASK)
    with pytest.raises(Exception, match="foreign"):
        await root.child().call(prepared)
    assert (await root.call(prepared, options=ExecutionOptions())).value == "x"


def test_the_policy_is_a_set_of_limits() -> None:
    """What is no limit is refused."""
    for wrong in ({"max_depth": -1}, {"max_calls": 1.5}, {"max_children": True}):
        with pytest.raises(InvalidValueError):
            ModelChildPolicy(**wrong)
    assert ModelRunnerSettings().children == ModelChildPolicy()
