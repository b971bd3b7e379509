"""What diagnostics hear of an invocation."""

from dataclasses import dataclass, field

import pytest

from runlane.contracts import Id
from runlane.diagnostics import (
    CoreEvent,
    CreateDiagnosticsOptions,
    ExecutionEventDescriptor,
    ReportedStep,
    ToolFinished,
    create_diagnostics,
)
from runlane.errors import OutOfTurnError
from runlane.tools import ToolExecutionContext, ToolInvocationRequest, ToolRegistryPorts, tool
from tests.tools.scenes import Journal, registry_of

pytestmark = pytest.mark.anyio


@dataclass
class Listener:
    """Takes everything."""

    events: list[CoreEvent] = field(default_factory=list)

    def accepts(self, _descriptor: ExecutionEventDescriptor, /) -> bool:
        """Take it."""
        return True

    def on_event(self, event: CoreEvent, /) -> None:
        """Keep it."""
        self.events.append(event)


@tool
async def work(*, fails: bool, context: ToolExecutionContext[object]) -> str:
    """Work."""
    context.reporting.report(ReportedStep(id=Id("one"), title="One"))
    if fails:
        raise KeyError("no")
    return "done"


async def _told(*, content: bool, fails: bool = False, journal: Journal | None = None) -> list[CoreEvent]:
    listener = Listener()
    scope = create_diagnostics(CreateDiagnosticsOptions(run_id=Id("r1"), observer=listener, accept_content=content))
    registry = registry_of(work, ports=ToolRegistryPorts(diagnostics=scope, journal=lambda _: journal))
    request = ToolInvocationRequest(tool_id="work", input={"fails": fails}, invocation_id=Id("i1"))
    if fails:
        with pytest.raises(KeyError):
            await registry.invoke(request)
    else:
        assert (await registry.invoke(request)).receipt.run_id == "r1"
    return listener.events


async def test_a_span_for_each_invocation() -> None:
    """Started and finished carry run, tool and invocation, in a span below the caller's; steps ride with the end."""
    started, finished = await _told(content=False)
    assert (started.name, finished.name) == ("tool.started", "tool.finished")
    assert (finished.identity.run_id, finished.identity.tool_id, finished.identity.invocation_id) == (
        "r1",
        "work",
        "i1",
    )
    assert started.identity.span_id == finished.identity.span_id != started.identity.parent_span_id
    assert finished.sub_steps is not None
    assert len(finished.sub_steps) == 1
    assert isinstance(finished.payload, ToolFinished)
    assert (finished.payload.status, finished.payload.error) == ("succeeded", None)


async def test_content_only_if_it_was_accepted() -> None:
    """Input and output are told after an explicit yes."""
    names = [event.name for event in await _told(content=True)]
    assert names == ["tool.started", "tool.input", "tool.output", "tool.finished"]


async def test_a_failure_is_told_without_its_message() -> None:
    """The finish has the error's code and name."""
    finished = (await _told(content=True, fails=True))[-1]
    assert isinstance(finished.payload, ToolFinished)
    assert finished.payload.error is not None
    assert (finished.payload.status, finished.payload.error.name) == ("failed", "KeyError")


async def test_l12_a_journal_that_fails_is_told() -> None:
    """`journal.failed` comes before the end, and the result stands."""
    names = [event.name for event in await _told(content=False, journal=Journal(finish_error=OSError("full")))]
    assert names == ["tool.started", "journal.failed", "tool.finished"]


async def test_reporting_ends_with_the_invocation() -> None:
    """A handler that kept its context can report nothing afterwards."""
    kept: list[ToolExecutionContext[object]] = []

    @tool
    async def keep(context: ToolExecutionContext[object]) -> None:
        """Keep."""
        kept.append(context)

    await registry_of(keep).invoke(ToolInvocationRequest(tool_id="keep", input={}))
    with pytest.raises(OutOfTurnError):
        kept[0].reporting.report(ReportedStep(id=Id("late"), title="Late"))
