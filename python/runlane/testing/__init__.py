"""What tests of programs built on runlane need, and what runlane's own tests use."""

from runlane.testing._clock import FakeClock
from runlane.testing._faults import (
    Answer,
    BadJson,
    ConnectionRefused,
    HttpFailure,
    ProviderStep,
    SlowAnswer,
    StreamCut,
    TimeoutBeforeFirstByte,
)
from runlane.testing._faulty_store import Fault, FaultPlan, FaultyStore, StoreCall
from runlane.testing._model_checks import MODEL_CHECKS, ModelCheck, ModelMaker, check_model
from runlane.testing._replay_models import ReplayModels
from runlane.testing._replay_server import ReplayServer, Responder
from runlane.testing._replies import ReceivedRequest, Reply
from runlane.testing._scripted import Hold, Pause, ScriptedCall, ScriptedModel, ScriptedReply, ScriptedStep
from runlane.testing._store_checks import STORE_CHECKS, check_store
from runlane.testing._store_invariants import check_conversation
from runlane.testing._store_kit import StoreCheck, StoreMaker

__all__ = [
    "MODEL_CHECKS",
    "STORE_CHECKS",
    "Answer",
    "BadJson",
    "ConnectionRefused",
    "FakeClock",
    "Fault",
    "FaultPlan",
    "FaultyStore",
    "Hold",
    "HttpFailure",
    "ModelCheck",
    "ModelMaker",
    "Pause",
    "ProviderStep",
    "ReceivedRequest",
    "ReplayModels",
    "ReplayServer",
    "Reply",
    "Responder",
    "ScriptedCall",
    "ScriptedModel",
    "ScriptedReply",
    "ScriptedStep",
    "SlowAnswer",
    "StoreCall",
    "StoreCheck",
    "StoreMaker",
    "StreamCut",
    "TimeoutBeforeFirstByte",
    "check_conversation",
    "check_model",
    "check_store",
]
