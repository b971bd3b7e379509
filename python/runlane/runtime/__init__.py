"""Lanes, submission, runs, recovery."""

from runlane.runtime._turn import Boundary, RunContext, Turn, TurnDriver, TurnFinished, TurnOutcome, TurnStopped

__all__ = ["Boundary", "RunContext", "Turn", "TurnDriver", "TurnFinished", "TurnOutcome", "TurnStopped"]
