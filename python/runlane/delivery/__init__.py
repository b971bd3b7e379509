"""What a runtime tells its listeners: events, cursors, gaps."""

from runlane.delivery._events import (
    AdmissionEvent,
    AssistantDeltaEvent,
    AttemptResetEvent,
    CheckpointEvent,
    DraftView,
    DurableEvent,
    Gap,
    ReasoningDeltaEvent,
    ReasoningEndEvent,
    ReasoningStartEvent,
    RunOperationEvent,
    RunStateEvent,
    RuntimeEvent,
    TerminalEvent,
    ToolProgressEvent,
    ToolStatusEvent,
    TransientEvent,
    durable_event_id,
)
from runlane.delivery._fold import fold_events, placeholder_for
from runlane.delivery._hub import EventHub, Mailbox
from runlane.delivery._subscription import DEFAULT_CAPACITY, Subscription, check_after

__all__ = [
    "DEFAULT_CAPACITY",
    "AdmissionEvent",
    "AssistantDeltaEvent",
    "AttemptResetEvent",
    "CheckpointEvent",
    "DraftView",
    "DurableEvent",
    "EventHub",
    "Gap",
    "Mailbox",
    "ReasoningDeltaEvent",
    "ReasoningEndEvent",
    "ReasoningStartEvent",
    "RunOperationEvent",
    "RunStateEvent",
    "RuntimeEvent",
    "Subscription",
    "TerminalEvent",
    "ToolProgressEvent",
    "ToolStatusEvent",
    "TransientEvent",
    "check_after",
    "durable_event_id",
    "fold_events",
    "placeholder_for",
]
