"""Names for the arguments of some methods of a runtime, for code that collects them before it calls.

The methods take keyword arguments; these are their types, not another way to call them.

Example:
    >>> options: CloseOptions = {"grace": 5.0, "force": 10.0}
    >>> async def shut_down(runtime: AgentRuntime) -> CloseResult:
    ...     return await runtime.close(**options)
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from runlane.contracts import CancelToken
from runlane.runtime._recovery import Decide, ResolveContext

__all__ = ["AbandonInput", "CloseOptions", "InterruptInput", "RecoverOptions"]


class InterruptInput(NamedTuple):
    """The arguments of `AgentRuntime.interrupt`, in order: `await runtime.interrupt(*given)`."""

    conversation_id: str
    run_id: str


class AbandonInput(TypedDict):
    """What `AgentRuntime.abandon` takes beside a conversation and a run: `**given`."""

    expected_revision: int
    stale_owner: bool


class RecoverOptions(TypedDict, total=False):
    """What `AgentRuntime.recover` takes: `**options`; what is left out has the method's own default."""

    conversation_id: str | None
    resolve_context: ResolveContext | None
    decide: Decide | None
    page_size: int
    max_runs: int
    signal: CancelToken | None


class CloseOptions(TypedDict, total=False):
    """What `AgentRuntime.close` and `LaneCoordinator.close` take: `**options`; seconds, or None."""

    grace: float | None
    force: float | None
