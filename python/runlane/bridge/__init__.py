"""Where the two halves meet: a workflow as the driver of a durable turn."""

from runlane.bridge._driver import WorkflowTurnDriver
from runlane.bridge._provider import TurnProvider

__all__ = ["TurnProvider", "WorkflowTurnDriver"]
