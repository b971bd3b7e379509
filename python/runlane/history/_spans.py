"""Turns that belong together because an approval asked for in one was answered in a later one.

Taken by itself the first of them never gets complete. From its beginning to the end of the turn with the answer they
are one unit: replaced together or not at all, so that no answer loses its question.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from runlane._native import HistoryLog

__all__ = ["unit_ends"]

_ASKED: Final = "tool-approval-request"
_ANSWERED: Final = "tool-approval-response"
_CALL: Final = "tool-call"
_RESULT: Final = "tool-result"


def unit_ends(log: HistoryLog, barrier: int, policy: int, active_runs: list[str], /) -> list[int]:
    """Return where each complete unit ends, up to the first that is not complete.

    Args:
        log: The records.
        barrier: Where the first turn begins that is not complete by itself.
        policy: The evidence policy, packed; open calls are to be closed under it.
        active_runs: Ids of the runs that have not ended.
    """
    starts = log.compaction_turns()
    bounds = [*starts, len(log)]
    turn = bounds.index(barrier)
    ends = bounds[1 : turn + 1]
    parts: list[list[dict[str, Any]]] = [_parts(log, place) for place in range(barrier, len(log))]
    while turn < len(starts):
        start = bounds[turn]
        after = turn + 1
        if not log.is_complete(start, bounds[after], policy, active_runs):
            spanned = _span_end(parts, [bound - barrier for bound in bounds], turn)
            if spanned is None or not log.is_complete(start, bounds[spanned], policy, active_runs):
                break
            after = spanned
        ends.append(bounds[after])
        turn = after
    return ends


def _span_end(parts: Sequence[list[dict[str, Any]]], bounds: Sequence[int], turn: int) -> int | None:
    """Return the turn behind the one that answers everything asked for from `turn` on; None if something waits."""
    start, after = bounds[turn], turn + 1
    while True:
        inside = [part for record in parts[start : bounds[after]] for part in record]
        asked = _ids(inside, _ASKED, "approval_id") - _ids(inside, _ANSWERED, "approval_id")
        calls = _ids(inside, _CALL, "call_id") - _ids(inside, _RESULT, "call_id")
        if not calls:
            return after
        last = bounds[after] - 1
        for place in range(bounds[after], len(parts)):
            answers, results = _ids(parts[place], _ANSWERED, "approval_id"), _ids(parts[place], _RESULT, "call_id")
            if answers & asked or results & calls:
                last = place
                asked -= answers
        if asked:
            return None
        grown = next(index for index in range(after, len(bounds)) if last < bounds[index])
        if grown == after:
            return after
        after = grown


def _ids(parts: Sequence[dict[str, Any]], kind: str, key: str) -> set[str]:
    return {part[key] for part in parts if part.get("type") == kind}


def _parts(log: HistoryLog, place: int) -> list[dict[str, Any]]:
    record = log.record(place)
    return [] if record is None else json.loads(record, parse_int=str)["parts"]
