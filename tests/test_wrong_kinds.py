"""Whatever a public constructor or function is made of is refused at once, by name, if it is of the wrong kind.

Found by looking: what is added to one of the packages is asked too, and needs a right value for each argument here.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest
from pydantic import BaseModel

from runlane.clock import SystemClock
from runlane.contracts import CancelToken
from runlane.delivery import ConversationCursor, EventCursor, EventHub, Gap, SinkLimits
from runlane.errors import RunlaneError
from runlane.history import ByteBound, EvidencePolicy, History
from runlane.ids import RandomIds
from runlane.models import ResolvedModel, define_model_registry
from runlane.records import Message
from runlane.runtime import CompactionContext
from runlane.store import MemoryDriver, MemoryStore
from runlane.testing import ScriptedModel
from runlane.tools import CompiledTool, ToolFenceConfig, ToolFenceLifecycle, ToolTurnFacts, tool

pytestmark = pytest.mark.anyio

_PACKAGES = ("store", "store.sqlite", "runtime", "tools", "delivery", "testing")
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _plain(*_: object, **__: object) -> None:
    """Do nothing."""


@tool
def _add(left: int) -> int:
    """Add."""
    return left


def _registry() -> object:
    described = {"provider": "lab", "model_id": "lab-1", "context_window": 8_000, "capabilities": []}
    return define_model_registry(models={"m": described}, providers={"lab": lambda _: ScriptedModel(".")})


def _message() -> Message:
    return Message.model_validate(
        {"id": "m", "conversation_id": "c", "role": "user", "status": "committed", "parts": []}
        | {"created_at": _NOW, "updated_at": _NOW}
    )


def _fence() -> ToolFenceConfig:
    return ToolFenceConfig(run_id="r", assert_current=lambda _: None)


def _facts() -> ToolTurnFacts:
    return ToolTurnFacts(run_id="r", fencing_token=1, signal=CancelToken(), clock=SystemClock(), ids=RandomIds())


_GIVEN: dict[str, Callable[[], object]] = {
    "app": object,
    "assert_current": lambda: _plain,
    "attempt": lambda: 1,
    "clock": SystemClock,
    "compact": lambda: _plain,
    "context": lambda: CompactionContext(conversation_id="c", store=MemoryStore()),
    "conversation_id": lambda: "c",
    "counter": ByteBound,
    "cursor": EventCursor,
    "default": lambda: "m",
    "definition": lambda: _add,
    "description": lambda: "Works.",
    "driver": MemoryDriver,
    "error": ValueError,
    "event": lambda: None,
    "fence": lambda: ToolFenceLifecycle(_fence()),
    "function": lambda: _plain,
    "given": lambda: Gap(conversation_id="c", reason="slow"),
    "history": lambda: History([]),
    "hub": EventHub,
    "id": lambda: "work",
    "ids": RandomIds,
    "inner": MemoryStore,
    "input": lambda: str,
    "key": lambda: "k",
    "kind": lambda: "x",
    "last_step": lambda: None,
    "limits": SinkLimits,
    "message": _message,
    "model": lambda: ScriptedModel("."),
    "name": lambda: "n",
    "path": lambda: "unopened.db",
    "policy": EvidencePolicy,
    "record": lambda: _plain,
    "registry": _registry,
    "replies": lambda: "ok",
    "run": lambda: _plain,
    "run_id": lambda: "r",
    "schema": lambda: str,
    "spend": lambda: _plain,
    "store": MemoryStore,
    "summarize": lambda: _plain,
    "text": lambda: "ok",
    "threshold": lambda: _plain,
    "tokens_per_second": lambda: 1.0,
    "tool": lambda: CompiledTool(_add),
    "turn_facts": _facts,
    "value": object,
    "views": dict,
    "when": lambda: _plain,
    "write": lambda: _plain,
    # Where one name stands for two things.
    "ReplayServer.replies": list,
    "advance_conversation_cursor.cursor": ConversationCursor,
    "record_retry_decision.policy": lambda: None,
    "context_usage.model": lambda: ResolvedModel(model="m", provider=ScriptedModel(".")),
}
"""Right values, by the argument's name."""

_MADE_FOR_OTHERS = {
    "BlockingSubscription",
    "CompiledTool",
    "DraftView",
    "Mailbox",
    "MountedTools",
    "RunTicket",
    "Subscription",
}
"""What the runtime makes itself, and nobody else."""

_FREE = {
    "ApprovalSeal.key": "checked, under the name of the option it is made of",
    "StructuredCompactionConfig.schema": "a type; read when the compaction is made of it",
    "ToolDefinition.as_intent": "a bool or options; read when the tool is registered",
    "ToolDefinition.input": "a type; read when the tool is registered",
    "ToolDefinition.output": "a type; read when the tool is registered",
    "decode_event.value": "an entry as it comes out of a database: a FormatError says what is wrong with it",
    "durable_event_id.event_type": "three words are put together for every event",
    "durable_event_id.run_id": "the same",
    "durable_event_id.snapshot_version": "the same",
    "error_envelope.error": "what cannot be told from an error is told as one",
    "error_envelope.max_bytes": "made for every failed call",
    "execute_invocation.after": "asked for every call",
    "execute_invocation.before": "asked for every call",
    "execute_invocation.journal": "asked for every call",
    "has_terminal_output.reason": "a word",
}
"""What is not checked there, and why."""


def _is_checked(kind: type) -> bool:
    """Whether a class has a constructor that somebody calls; records have checks of their own."""
    if issubclass(kind, BaseModel | BaseException | dict | tuple) or Protocol in kind.__mro__[1:2]:
        return False
    plain = hasattr(kind, "__dataclass_fields__") and "__post_init__" not in vars(kind)
    return not (plain or inspect.isabstract(kind) or kind.__init__ is object.__init__)


def _cases() -> Iterator[tuple[Callable[..., Any], str, str]]:
    """Yield each public callable with each of its arguments."""
    for package in _PACKAGES:
        module = importlib.import_module(f"runlane.{package}")
        for name in module.__all__:
            found = getattr(module, name)
            asked = _is_checked(found) if inspect.isclass(found) else inspect.isfunction(found)
            if not asked or name in _MADE_FOR_OTHERS:
                continue
            for argument, parameter in inspect.signature(found).parameters.items():
                anything = parameter.annotation in {"object", "Any", "C"} or parameter.kind is parameter.VAR_KEYWORD
                if not anything and f"{name}.{argument}" not in _FREE:
                    yield found, name, argument


def _call(function: Callable[..., Any], name: str, argument: str, wrong: object) -> object:
    """Call with one wrong value among right ones."""
    args, named = list[object](), dict[str, object]()
    for other, parameter in inspect.signature(function).parameters.items():
        right = _GIVEN.get(f"{name}.{other}") or _GIVEN.get(other)
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if other == argument:
            value = wrong
        elif parameter.default is parameter.empty or other in {"schema", "summarize", "threshold"}:
            assert right is not None, f"a right value for {name}.{other} is needed"
            value = right()
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            value = parameter.default
        else:
            continue
        if parameter.kind in {parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD}:
            named[other] = value
        else:
            args.append(value)
    return function(*args, **named)


_CASES = list(_cases())


@pytest.mark.parametrize(("function", "name", "argument"), _CASES, ids=[f"{name}-{what}" for _, name, what in _CASES])
async def test_a_value_of_the_wrong_kind_is_refused_by_name(
    function: Callable[..., Any], name: str, argument: str
) -> None:
    """A typed error names the argument; nothing waits until it is first used."""
    with pytest.raises(RunlaneError) as caught:
        made = _call(function, name, argument, object())
        if inspect.isawaitable(made):
            await made
    assert argument in str(getattr(caught.value, "argument", None)).split(".")


async def test_what_is_free_is_there() -> None:
    """Nothing is left out that does not exist."""
    names = {name for package in _PACKAGES for name in importlib.import_module(f"runlane.{package}").__all__}
    assert {place.split(".")[0] for place in _FREE} | _MADE_FOR_OTHERS <= names
