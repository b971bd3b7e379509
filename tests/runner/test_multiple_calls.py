"""The one retry: a model that made several calls where one was asked for."""

from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from runlane.errors import ModelProtocolError
from runlane.runner import retry_multiple_model_calls

pytestmark = pytest.mark.anyio


def _answers(*ends: object) -> Callable[[], Awaitable[str]]:
    left = list(ends)

    async def answer() -> str:
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return str(end)

    return answer


MULTIPLE = ModelProtocolError(detail="two", code="model.multiple_calls")


async def test_m51_only_several_calls_are_tried_another_way() -> None:
    """The decision is by code, not by class; anything else leaves as the same object."""
    assert await retry_multiple_model_calls(_answers("first"), _answers()) == "first"
    assert await retry_multiple_model_calls(_answers(MULTIPLE), _answers("second")) == "second"
    alien = OSError("alien")
    alien.code = "model.multiple_calls"  # type: ignore[attr-defined]
    assert await retry_multiple_model_calls(_answers(alien), _answers("second")) == "second"
    other = ModelProtocolError(detail="none", code="model.no_call")
    with pytest.raises(ModelProtocolError) as caught:
        await retry_multiple_model_calls(_answers(other), _answers())
    assert caught.value is other


async def test_m52_the_fallback_is_final() -> None:
    """Its error leaves, also with the same code, and without a trace of the first."""
    second = ModelProtocolError(detail="again", code="model.multiple_calls")
    with pytest.raises(ModelProtocolError) as caught:
        await retry_multiple_model_calls(_answers(MULTIPLE), _answers(second))
    assert caught.value is second
    assert second.__context__ is None
    with anyio.CancelScope() as scope:
        scope.cancel()
        await retry_multiple_model_calls(checkpoint, _answers("never"))
    assert scope.cancelled_caught
