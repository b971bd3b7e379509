"""Every option is checked, by name."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.runtime import (
    AgentRuntime,
    CloseConfig,
    DeliveryConfig,
    HistoryConfig,
    LoopConfig,
    RecoveryConfig,
    RuntimeConfig,
)
from runlane.store import MemoryStore
from runlane.testing import ScriptedModel


@pytest.mark.parametrize(
    ("make", "field", "error"),
    [
        (lambda: LoopConfig(checkpoint_every_events=0), "loop.checkpoint_every_events", InvalidValueError),
        (lambda: LoopConfig(checkpoint_every_events=True), "loop.checkpoint_every_events", UsageError),
        (lambda: LoopConfig(checkpoint_min_interval=0), "loop.checkpoint_min_interval", InvalidValueError),
        (lambda: LoopConfig(max_steps=-1), "loop.max_steps", InvalidValueError),
        (lambda: LoopConfig(max_steps=2**53), "loop.max_steps", InvalidValueError),
        (lambda: LoopConfig(max_steps=1.5), "loop.max_steps", UsageError),  # type: ignore[arg-type]
        (lambda: LoopConfig(idle_timeout=0), "loop.idle_timeout", InvalidValueError),
        (lambda: LoopConfig(idle_timeout=float("nan")), "loop.idle_timeout", InvalidValueError),
        (lambda: LoopConfig(idle_timeout="60"), "loop.idle_timeout", UsageError),  # type: ignore[arg-type]
        (lambda: HistoryConfig(max_messages=0), "history.max_messages", InvalidValueError),
        (lambda: HistoryConfig(max_bytes=0), "history.max_bytes", InvalidValueError),
        (lambda: HistoryConfig(idle=None), "history.idle", UsageError),  # type: ignore[arg-type]
        (lambda: HistoryConfig(max_idle_lanes=-1), "history.max_idle_lanes", InvalidValueError),
        (lambda: HistoryConfig(max_idle_bytes=-1), "history.max_idle_bytes", InvalidValueError),
        (lambda: RecoveryConfig(max_takeovers=11), "recovery.max_takeovers", InvalidValueError),
        (lambda: DeliveryConfig(capacity=0), "delivery.capacity", InvalidValueError),
        (lambda: DeliveryConfig(publisher="x"), "delivery.publisher", UsageError),  # type: ignore[arg-type]
        (lambda: CloseConfig(grace=-1), "close.grace", InvalidValueError),
        (lambda: CloseConfig(force="x"), "close.force", UsageError),  # type: ignore[arg-type]
        (lambda: RuntimeConfig(loop={}), "loop", UsageError),  # type: ignore[arg-type]
        (lambda: RuntimeConfig(key_reuse="maybe"), "key_reuse", InvalidValueError),  # type: ignore[arg-type]
        (lambda: RuntimeConfig(driver=object()), "driver", UsageError),  # type: ignore[arg-type]
    ],
    ids=itertools.count(),
)
def test_a_bad_option_is_refused_by_name(make: Callable[[], object], field: str, error: type[Exception]) -> None:
    """A wrong type is misuse, a value outside its range an invalid value; the error names the field."""
    with pytest.raises(error) as caught:
        make()
    assert getattr(caught.value, "argument", None) == field


def test_the_defaults_are_what_the_docstrings_say() -> None:
    """The documented defaults hold."""
    config = RuntimeConfig()
    assert (config.loop.checkpoint_every_events, config.loop.max_steps, config.loop.idle_timeout) == (20, 50, 60.0)
    assert (config.recovery.max_takeovers, config.key_reuse, config.close.grace) == (3, "return", 0.0)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"store": object()}, "store"),
        ({"model": "gpt"}, "model"),
        ({"instructions": 7}, "instructions"),
        ({"config": {"loop": {}}}, "config"),
    ],
)
def test_a_runtime_checks_its_arguments(arguments: dict[str, object], field: str) -> None:
    """The constructor refuses what it cannot work with, and starts nothing."""
    given: dict[str, object] = {"store": MemoryStore(), "model": ScriptedModel("x"), **arguments}
    with pytest.raises(UsageError) as caught:
        AgentRuntime(given.pop("store"), **given)  # type: ignore[arg-type]
    assert caught.value.argument == field


@pytest.mark.parametrize(
    ("tools", "field"),
    [([5], "tools.0"), ([None], "tools.0"), ({"a": 1}, "tools"), ("a", "tools")],
)
def test_what_is_no_tool_is_refused_by_its_place(tools: Any, field: str) -> None:  # noqa: ANN401 - what is wrong
    """The error says which of the tools it is, or that it is no list of tools."""
    with pytest.raises((UsageError, InvalidValueError)) as caught:
        AgentRuntime(MemoryStore(), model=ScriptedModel("."), tools=tools)
    assert getattr(caught.value, "argument", None) == field
