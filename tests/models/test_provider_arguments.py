"""What a provider is made of is refused where it is given, by name, if it is of the wrong kind."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from runlane.errors import InvalidValueError, UsageError
from runlane.models import HttpTimeouts, ResolvedModel
from runlane.models.anthropic import Anthropic
from runlane.models.google import Google
from runlane.models.openai_chat import OpenAIChat
from runlane.models.openai_responses import OpenAIResponses
from runlane.models.openrouter import OpenRouterProvider
from runlane.observability import Observability
from runlane.runner import ModelRunner
from runlane.testing import ScriptedModel

_MAKERS: tuple[type[Any], ...] = (OpenAIChat, OpenAIResponses, Anthropic, Google, OpenRouterProvider)
_MODELS = _MAKERS[:-1]
_RIGHT_ONES = {"stream": True, "max_output_tokens": 5, "catalog_timeout": 5}
_CASES = [(maker, name) for maker in _MAKERS for name in inspect.signature(maker).parameters]


def _made(maker: Callable[..., object], **given: object) -> object:
    needed: dict[str, object] = {"model": "m"} if maker in _MODELS else {}
    return maker(**{**needed, "api_key": "key", **given})


@pytest.mark.parametrize("wrong", [5, b"text", ["text"], {1: 2}, object()], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(("maker", "name"), _CASES, ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_kind_is_refused_by_name(maker: Callable[..., object], name: str, wrong: object) -> None:
    """At once, not by the first request, and never with an error of the library's own code."""
    if wrong == _RIGHT_ONES.get(name):
        assert _made(maker, **{name: wrong}) is not None
        return
    with pytest.raises((InvalidValueError, UsageError)) as caught:
        _made(maker, **{name: wrong})
    assert str(getattr(caught.value, "argument", None)).split(".")[0] == name


@pytest.mark.parametrize("maker", _MODELS)
def test_an_empty_list_is_not_taken_for_nothing(maker: Callable[..., object]) -> None:
    """What is false is not left out for that."""
    for name in ("base_url", "headers", "timeouts", "transport", "stream"):
        with pytest.raises(UsageError) as caught:
            _made(maker, **{name: []})
        assert caught.value.argument == name


@pytest.mark.parametrize("name", ["connect", "write", "pool", "error_body"])
@pytest.mark.parametrize("wrong", ["5", True, 0, -1, float("nan"), float("inf")])
def test_timeouts_are_seconds(name: str, wrong: object) -> None:
    """Above 0; None, where it is allowed, waits for ever."""
    with pytest.raises((InvalidValueError, UsageError)) as caught:
        HttpTimeouts(**{name: wrong})  # type: ignore[arg-type]
    assert getattr(caught.value, "argument", None) == f"timeouts.{name}"
    assert HttpTimeouts(connect=None, write=None, pool=None).error_body > 0


def test_an_output_limit_is_at_least_one() -> None:
    """The protocol has no other."""
    with pytest.raises(InvalidValueError, match="max_output_tokens"):
        Anthropic("m", api_key="key", max_output_tokens=0)


@pytest.mark.parametrize("name", [field.name for field in fields(ResolvedModel)])
def test_a_model_is_resolved_to_right_kinds_only(name: str) -> None:
    """What a run needs of its model is refused where the application writes it, not in the run."""
    right: dict[str, Any] = {"model": "m", "provider": ScriptedModel("Hello")}
    with pytest.raises(UsageError) as caught:
        ResolvedModel(**{**right, name: object()})
    assert caught.value.argument == name


@pytest.mark.parametrize(("maker", "name"), [(ModelRunner, "options"), (Observability, "config")])
def test_what_takes_a_record_takes_no_other(maker: Callable[[object], object], name: str) -> None:
    """By the argument's name."""
    with pytest.raises(UsageError) as caught:
        maker({})
    assert caught.value.argument == name


@pytest.mark.parametrize("maker", _MAKERS)
def test_an_empty_base_url_is_no_default(maker: Callable[..., object]) -> None:
    """A setting that went missing sends no prompts and no key to a service that nobody named."""
    with pytest.raises(InvalidValueError, match="base_url"):
        _made(maker, base_url="")
