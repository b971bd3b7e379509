"""A cancel token stops work and says why."""

import gc
from collections.abc import Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from runlane.contracts import CancelToken, resolve
from runlane.errors import AbortedError, UsageError


def test_c1_the_first_reason_wins() -> None:
    """Later cancels return False and change nothing."""
    token = CancelToken()
    assert token.cancel("first") is True
    assert token.cancel("second") is False
    assert token.reason == "first"


def test_c1_without_a_reason_there_is_one_aborted_error() -> None:
    """The reason of a bare cancel is an AbortedError, and it is the error that is seen."""
    token = CancelToken()
    token.cancel()
    assert isinstance(token.reason, AbortedError)
    assert token.error() is token.reason


def test_c2_c3_an_exception_is_the_error_itself() -> None:
    """An exception given as a reason is raised as it is, with its cause and context untouched."""
    reason = KeyError("mine")
    reason.__cause__ = cause = OSError("why")
    token = CancelToken()
    token.cancel(reason)
    with pytest.raises(KeyError) as caught:
        token.raise_if_cancelled()
    assert caught.value is reason
    assert token.error() is reason
    assert reason.__cause__ is cause
    assert reason.__context__ is None


def test_c2_any_other_object_is_wrapped_once() -> None:
    """Every call of error() gives the same AbortedError around the reason."""
    reason = object()
    token = CancelToken()
    token.cancel(reason)
    error = token.error()
    assert isinstance(error, AbortedError)
    assert error.reason is reason
    assert token.error() is error


def test_c4_a_program_ending_exception_is_no_reason() -> None:
    """KeyboardInterrupt is refused and leaves the token as it was."""
    token = CancelToken()
    with pytest.raises(UsageError, match="reason"):
        token.cancel(KeyboardInterrupt())
    assert not token.cancelled


def test_an_untripped_token_has_no_error() -> None:
    """Asking for the error of a token that has not tripped is a bug in the caller."""
    token = CancelToken()
    token.raise_if_cancelled()
    with pytest.raises(UsageError):
        token.error()


def test_c5_any_trips_with_the_first_of_its_sources() -> None:
    """The reason is handed on by identity, None is ignored, sources are never touched."""
    first, second = CancelToken(), CancelToken()
    both = CancelToken.any(first, None, second)
    reason = object()
    second.cancel(reason)
    first.cancel("late")
    assert both.reason is reason
    assert CancelToken.any(first, second).reason == "late"
    derived = CancelToken.any(source := CancelToken())
    derived.cancel("mine")
    assert not source.cancelled


def test_c5_a_chain_of_derived_tokens_outlives_its_middle() -> None:
    """A derived token keeps the tokens between it and its source alive."""
    source = CancelToken()
    outer = CancelToken.any(CancelToken.any(source))
    gc.collect()
    source.cancel("through")
    assert outer.reason == "through"


def test_c5_derived_tokens_leave_no_trace() -> None:
    """Ten thousand derived tokens of one long-lived token are gone once nobody holds them."""
    source = CancelToken()
    for _ in range(10_000):
        CancelToken.any(source)
    gc.collect()
    assert not source._derived


@pytest.mark.anyio
async def test_waiting_ends_when_the_token_trips() -> None:
    """Every waiter is woken, and a wait on a tripped token returns at once."""
    token = CancelToken()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await token.wait()
        woken.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, 1)
        tasks.start_soon(wait, 2)
        await anyio.wait_all_tasks_blocked()
        token.cancel("now")
    await token.wait()
    assert sorted(woken) == [1, 2]


@pytest.mark.anyio
async def test_a_cancelled_wait_leaves_no_listener() -> None:
    """Giving up on a wait leaves nothing behind in the token."""
    token = CancelToken()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await token.wait()
    assert token._listeners == {}


@pytest.mark.anyio
async def test_c6_a_bound_scope_is_cancelled_with_the_token() -> None:
    """Tripping cancels the scope; leaving the block unbinds it; a tripped token cancels at once."""
    token = CancelToken()
    with anyio.CancelScope() as scope, token.bind(scope):
        token.cancel("stop")
        await checkpoint()
    assert scope.cancelled_caught
    with anyio.CancelScope() as again, token.bind(again):
        await checkpoint()
    assert again.cancelled_caught
    other = CancelToken()
    with anyio.CancelScope() as free:
        with other.bind(free):
            await checkpoint()
        other.cancel()
        await checkpoint()
    assert not free.cancelled_caught


@pytest.mark.anyio
async def test_resolve_awaits_exactly_what_is_awaitable() -> None:
    """A plain value comes back as it is, a coroutine is awaited once."""

    async def later() -> int:
        return 2

    makers: list[Callable[[], object]] = [lambda: 1, later]
    assert [await resolve(make()) for make in makers] == [1, 2]


@pytest.mark.anyio
async def test_c7_another_thread_goes_through_the_event_loop() -> None:
    """Tripped from a worker thread by way of the loop, a token stops what is bound to it."""
    token = CancelToken()

    def work() -> bool:
        return anyio.from_thread.run_sync(token.cancel, "from a thread")

    with anyio.CancelScope() as scope, token.bind(scope):
        assert await anyio.to_thread.run_sync(work)
        await checkpoint()
    assert (scope.cancelled_caught, token.reason) == (True, "from a thread")


@pytest.mark.anyio
async def test_c9_nothing_runs_on_behind_the_caller() -> None:
    """What was stopped unwinds first: a shielded piece of it delays the end, and is through before it."""
    token, log = CancelToken(), list[str]()

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(3):
                    await checkpoint()
            log.append("unwound")

    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            token.cancel("enough")

        tasks.start_soon(stop)
        with anyio.CancelScope() as scope, token.bind(scope):
            await work()
        log.append("ended")
    assert log == ["unwound", "ended"]
