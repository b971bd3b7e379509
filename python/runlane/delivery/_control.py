"""What somebody who watches conversations sees: a fold of snapshots and events, pure.

| input | effect on the view of its conversation |
|---|---|
| a snapshot | kept; its version goes into the cursor, the ids are cleared, no resync, nothing is streaming |
| an event that was seen | none |
| a `Gap`, or an event that shows a loss | the cursor advances, a resync is required, the content is not applied |
| `assistant-delta`, `reasoning-delta` | appended |
| `attempt-reset` | what streamed of the run is withdrawn |
| `tool-status` | kept; one that ends the call removes its last report |
| `tool-progress` | the last report of the call; nothing once the call has ended |
| a durable event of another version than the snapshot's | a resync is required |
| `terminal` | nothing of the run streams any more |

A snapshot that is older than a durable event that was seen already is kept for what it shows, and a resync stays
required: what it lacks would otherwise never be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from pydantic import JsonValue

from runlane.contracts import require_kind
from runlane.delivery._cursor import ConversationCursor, advance_conversation_cursor
from runlane.delivery._events import (
    AssistantDeltaEvent,
    AttemptResetEvent,
    DurableEvent,
    Gap,
    ReasoningDeltaEvent,
    RuntimeEvent,
    TerminalEvent,
    ToolProgressEvent,
    ToolStatusEvent,
    TransientEvent,
)
from runlane.records import Snapshot

__all__ = ["ControlView", "StreamingRun", "StreamingTool", "ToolReport", "reduce_control_event"]


@dataclass(frozen=True, slots=True)
class ToolReport:
    """How far a running tool says it is."""

    message: str
    progress: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingTool:
    """One tool call of a run that streams.

    Attributes:
        report: What it said last; None before it said anything and once it has ended.
    """

    tool_name: str
    status: Literal["started", "completed", "failed", "interrupted"] = "started"
    input: JsonValue = None
    output: JsonValue = None
    report: ToolReport | None = None


_NO_TOOLS: Final[Mapping[str, StreamingTool]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingRun:
    """What streamed of a run since the snapshot.

    Attributes:
        tools: By call id, in order of their first event.
    """

    text: str = ""
    reasoning: str = ""
    tools: Mapping[str, StreamingTool] = field(default_factory=lambda: _NO_TOOLS)


_NOTHING: Final = StreamingRun()
_NO_RUNS: Final[Mapping[str, StreamingRun]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlView:
    """One conversation as it is known here.

    Attributes:
        snapshot: What was loaded last, or None.
        resync_required: The snapshot, or what streams, is not the whole truth any more: load a snapshot.
        streaming: What runs said since the snapshot, by run id.
        cursor: How far events were read.
    """

    snapshot: Snapshot | None = None
    resync_required: bool = False
    streaming: Mapping[str, StreamingRun] = field(default_factory=lambda: _NO_RUNS)
    cursor: ConversationCursor = field(default_factory=ConversationCursor)


def reduce_control_event(
    views: Mapping[str, ControlView], given: Snapshot | RuntimeEvent | Gap, /
) -> Mapping[str, ControlView]:
    """Return the views, by conversation id, after a snapshot or an event; what was given is not changed.

    Args:
        views: Begin with an empty mapping.
        given: What came next.

    Example:
        >>> from runlane.delivery import Gap
        >>> views = reduce_control_event({}, Gap(conversation_id="c", reason="slow"))
        >>> views["c"].resync_required
        True
    """
    require_kind(views, Mapping, argument="views")
    require_kind(given, Snapshot | Gap | DurableEvent | TransientEvent, argument="given")
    before = views.get(given.conversation_id, ControlView())
    if isinstance(given, Snapshot):
        after = _loaded(before, given)
    elif isinstance(given, Gap):
        after = replace(before, resync_required=True)
    else:
        after = _told(before, given)
    if after is before and given.conversation_id in views:
        return views
    return MappingProxyType({**views, given.conversation_id: after})


def _loaded(view: ControlView, snapshot: Snapshot) -> ControlView:
    seen = view.cursor.snapshot_version
    is_behind = seen is not None and snapshot.version < seen
    cursor = view.cursor
    if not is_behind:
        cursor = replace(cursor, snapshot_version=snapshot.version, durable_event_ids=frozenset())
    return ControlView(snapshot=snapshot, resync_required=is_behind, cursor=cursor)


def _told(view: ControlView, event: RuntimeEvent) -> ControlView:
    advance = advance_conversation_cursor(view.cursor, event)
    if advance.status == "duplicate":
        return view
    view = replace(view, cursor=advance.cursor)
    if advance.status == "gap":
        return replace(view, resync_required=True)
    if isinstance(event, DurableEvent):
        return _committed(view, event)
    change = _CHANGES.get(type(event))
    if change is None:
        return view
    run = change(view.streaming.get(event.run_id, _NOTHING), event)
    return replace(view, streaming=MappingProxyType({**view.streaming, event.run_id: run}))


def _committed(view: ControlView, event: DurableEvent) -> ControlView:
    if view.snapshot is None or view.snapshot.version != event.snapshot_version:
        view = replace(view, resync_required=True)
    if isinstance(event, TerminalEvent) and event.run_id in view.streaming:
        rest = {run_id: run for run_id, run in view.streaming.items() if run_id != event.run_id}
        view = replace(view, streaming=MappingProxyType(rest))
    return view


def _spoke(run: StreamingRun, event: AssistantDeltaEvent) -> StreamingRun:
    return replace(run, text=run.text + event.text_delta)


def _thought(run: StreamingRun, event: ReasoningDeltaEvent) -> StreamingRun:
    return replace(run, reasoning=run.reasoning + event.text_delta)


def _withdrawn(_run: StreamingRun, _event: AttemptResetEvent) -> StreamingRun:
    return _NOTHING


def _worked(run: StreamingRun, event: ToolStatusEvent) -> StreamingRun:
    known = run.tools.get(event.call_id)
    ended = event.status != "started"
    tool = StreamingTool(
        tool_name=event.tool_name,
        status=event.status,
        input=known.input if ended and known is not None else event.input,
        output=event.output,
        report=None if ended or known is None else known.report,
    )
    return replace(run, tools=MappingProxyType({**run.tools, event.call_id: tool}))


def _reported(run: StreamingRun, event: ToolProgressEvent) -> StreamingRun:
    known = run.tools.get(event.call_id, StreamingTool(tool_name=event.tool_name))
    if known.status != "started":
        return run
    tool = replace(known, report=ToolReport(event.message, event.progress, event.total))
    return replace(run, tools=MappingProxyType({**run.tools, event.call_id: tool}))


_CHANGES: Final[dict[type, Callable[[StreamingRun, Any], StreamingRun]]] = {
    AssistantDeltaEvent: _spoke,
    ReasoningDeltaEvent: _thought,
    AttemptResetEvent: _withdrawn,
    ToolStatusEvent: _worked,
    ToolProgressEvent: _reported,
}
