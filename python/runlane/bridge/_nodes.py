"""The visits of a workflow as steps on record: what a visit returned is not worked out again after a crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from runlane.bridge._tools import TurnToolInvoker
from runlane.contracts import CancelToken, MaybeAwaitable, resolve
from runlane.errors import FormatError
from runlane.flow import AgentWorkflow, WorkflowContext, WorkflowNode
from runlane.models import TextDelta
from runlane.records import JsonObject, Record, TextPart
from runlane.runtime import Turn

__all__ = ["DurableNodes", "Streamed"]

App = TypeVar("App")


class Streamed:
    """Puts text of a workflow's models into the answer as it comes.

    Attributes:
        said: What went out so far, piece by piece, of this execution and of what it replays.
    """

    def __init__(self, turn: Turn, /) -> None:
        self._turn = turn
        self._kept = "".join(part.text for part in turn.step_parts() if isinstance(part, TextPart))
        self.said: list[str] = []

    async def say(self, text: str) -> None:
        """Add to the answer."""
        self.said.append(text)
        await self._turn.emit(TextDelta(text))

    async def say_again(self, text: str) -> None:
        """Have in the answer what a finished visit said; what the record of a dead execution kept of it is there."""
        if not text:
            return
        kept, self._kept = self._kept[: len(text)], self._kept[len(text) :]
        self.said.append(text)
        if text != kept:
            await self._turn.emit(TextDelta(text.removeprefix(kept)))


class _Visited(Record):
    """What is on record of a finished visit: its fields, the ids of the calls it made, and what it said."""

    fields: JsonObject | None
    calls: tuple[str, ...]
    said: str


_VISITED: Final = TypeAdapter(_Visited)


class _NotFieldsError(Exception):
    """A handler returned something that is no state; the engine says what is wrong with it."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


class DurableNodes:
    """Makes each visit of the outermost workflow a durability step `flow:<node>:<visit>`."""

    def __init__(self, turn: Turn, tools: TurnToolInvoker, streamed: Streamed, broken: CancelToken, /) -> None:
        """Serve a turn; `broken` is tripped by what no recovery phase of the workflow may see."""
        self._durability = turn.durability
        self._tools = tools
        self._streamed = streamed
        self._broken = broken

    def bind(self, workflow: AgentWorkflow[App], /) -> AgentWorkflow[App]:
        """Return the workflow with handlers that replay."""
        definition = workflow.definition
        return AgentWorkflow(replace(definition, nodes=[self._durable(node) for node in definition.nodes]))

    def _durable(self, node: WorkflowNode[App]) -> WorkflowNode[App]:
        handler: Callable[[WorkflowContext[App]], MaybeAwaitable[Any]] = node.run

        async def run(context: WorkflowContext[App]) -> Any:  # noqa: ANN401 - what is no state, the engine refuses
            return await self._visit(f"flow:{node.id}:{context.visit}", lambda: handler(context))

        return replace(node, run=run)

    async def _visit(self, name: str, handler: Callable[[], MaybeAwaitable[Any]]) -> object:
        entry = _Entry(handler, self._tools, self._streamed)
        try:
            visited = _visited(name, await self._durability.step(name, entry.run))
            if not entry.was_entered:
                self._tools.pass_over(visited.calls)
                await self._streamed.say_again(visited.said)
        except _NotFieldsError as given:
            return given.result
        except Exception as error:
            if error is not entry.error:
                # What the record could not take or give is the turn's failure, and no recovery phase's business.
                self._broken.cancel(error)
            raise
        return visited.fields


class _Entry:
    """A handler on its way.

    Attributes:
        was_entered: Whether it was called at all.
        error: What it raised.
    """

    def __init__(self, handler: Callable[[], MaybeAwaitable[Any]], tools: TurnToolInvoker, streamed: Streamed) -> None:
        self._handler = handler
        self._tools = tools
        self._streamed = streamed
        self.was_entered = False
        self.error: Exception | None = None

    async def run(self) -> JsonObject:
        """Call it, and return what goes on record."""
        self.was_entered = True
        made, said = len(self._tools.made), len(self._streamed.said)
        try:
            fields = await resolve(self._handler())
        except Exception as error:
            self.error = error
            raise
        if fields is not None and not isinstance(fields, Mapping):
            raise _NotFieldsError(fields)
        return {
            "fields": None if fields is None else dict(fields),
            "calls": [*self._tools.made[made:]],
            "said": "".join(self._streamed.said[said:]),
        }


def _visited(name: str, recorded: object) -> _Visited:
    try:
        return _VISITED.validate_python(recorded)
    except ValidationError:
        raise FormatError(f"step {name!r} is on record, and not as a visit of a workflow") from None
