"""Executing a queued run by its id."""

from __future__ import annotations

from anyio.abc import TaskGroup

from runlane.errors import RuntimeClosedError, RuntimeConflictError
from runlane.records import Run
from runlane.runtime._closing import Gate
from runlane.runtime._coordinator import CoordinatedRun
from runlane.runtime._core import RuntimeCore, Work
from runlane.runtime._execution import enqueue
from runlane.runtime._lane_table import LaneTable
from runlane.runtime._settling import result_from_view
from runlane.runtime._tickets import RunResult

__all__ = ["resume"]


def resume(  # noqa: PLR0913, PLR0917 - the runtime's parts, then the caller's three arguments
    core: RuntimeCore,
    lanes: LaneTable,
    gate: Gate,
    tasks: TaskGroup | None,
    conversation_id: str,
    run_id: str,
    context: object,
) -> CoordinatedRun[object, RunResult]:
    """Begin to resume a run; see `AgentRuntime.resume`."""
    resumed: CoordinatedRun[object, RunResult] = CoordinatedRun(conversation_id)

    async def begin() -> None:
        try:
            with gate.passing():
                work = await _work(core, lanes, conversation_id, run_id, context)
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits the promises
            resumed.accepted.reject(error)
            resumed.result.reject(error)
        else:
            work.accepted.then(resumed.accepted.follow)
            work.result.then(resumed.result.follow)

    if gate.closed or tasks is None:
        error = RuntimeClosedError() if gate.closed else RuntimeClosedError.not_entered()
        resumed.accepted.reject(error)
        resumed.result.reject(error)
    else:
        tasks.start_soon(begin, name=f"resume {run_id}")
    return resumed


async def _work(core: RuntimeCore, lanes: LaneTable, conversation_id: str, run_id: str, context: object) -> Work:
    """Return the work of a run: what waits or executes here already, or a new one."""
    view = await core.calls.read(lambda store: store.load_run(conversation_id, run_id))
    here = core.here.get((conversation_id, run_id))
    if here is not None:
        return here
    if view is None:
        raise RuntimeConflictError(f"conversation {conversation_id!r} has no run {run_id!r}", operation="resume")
    if view.run.absorbed_into_run_id is not None:
        return await _answered(core, view.run, view.run.absorbed_into_run_id)
    if view.run.is_acquired or not view.run.is_active:
        raise RuntimeConflictError(
            f"run {run_id!r} is {view.run.state}, only a queued run can be resumed", operation="resume"
        )
    parsed = core.config.protocol.parse_context(context)
    work = Work(run=view.run, context=parsed, lane=core.lane_of(conversation_id, context))
    enqueue(core, lanes, work)
    return work


async def _answered(core: RuntimeCore, run: Run, by: str) -> Work:
    """Return the work of an absorbed run, which needs no execution: it was answered by another run."""
    view = await core.calls.read(lambda store: store.load_run(run.conversation_id, by))
    if view is None:
        raise RuntimeConflictError(f"the run that answered {run.id!r} is missing", operation="resume")
    result = result_from_view(view)
    work = Work(run=run, context=None, lane=run.conversation_id)
    work.accepted.resolve(result)
    work.result.resolve(result)
    return work
