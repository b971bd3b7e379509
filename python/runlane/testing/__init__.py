"""What tests of programs built on runlane need, and what runlane's own tests use."""

from runlane.testing._replay_server import ReplayServer, Responder
from runlane.testing._replies import ReceivedRequest, Reply

__all__ = ["ReceivedRequest", "ReplayServer", "Reply", "Responder"]
