"""What tests of programs built on runlane need, and what runlane's own tests use."""

from runlane.testing._clock import FakeClock
from runlane.testing._faulty_store import Fault, FaultPlan, FaultyStore, StoreCall
from runlane.testing._replay_server import ReplayServer, Responder
from runlane.testing._replies import ReceivedRequest, Reply
from runlane.testing._scripted import Hold, Pause, ScriptedCall, ScriptedModel, ScriptedReply, ScriptedStep

__all__ = [
    "FakeClock",
    "Fault",
    "FaultPlan",
    "FaultyStore",
    "Hold",
    "Pause",
    "ReceivedRequest",
    "ReplayServer",
    "Reply",
    "Responder",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "ScriptedStep",
    "StoreCall",
]
