"""What counts as evidence of what an assistant said, and the options of a projection."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from runlane.errors import InvalidValueError
from runlane.history._given import require_kind, require_text
from runlane.records import MessageStatus

__all__ = [
    "BARE_EVIDENCE",
    "RUNTIME_EVIDENCE",
    "CallEffects",
    "CallEvidence",
    "EvidencePolicy",
    "ProjectionOptions",
    "is_assistant_evidence",
    "packed_options",
    "packed_policy",
]

CallEvidence: TypeAlias = Literal["interrupted", "not-started", "unknown"]
"""What is known of a call that never got a result: it was cut off, it never began, or it may have run."""

CallEffects: TypeAlias = (
    Mapping[str, CallEvidence] | Mapping[tuple[str, str], CallEvidence] | Mapping[str | tuple[str, str], CallEvidence]
)
"""What is known of calls, by call id, or by message id and call id where ids of calls repeat; the latter goes first."""

_SPEAKABLE: Final[frozenset[MessageStatus]] = frozenset({"completed", "interrupted", "committed"})


def _require(value: str, allowed: tuple[str, ...], argument: str) -> None:
    if value not in allowed:
        raise InvalidValueError(f"must be one of {', '.join(allowed)}, not {value!r}", argument=argument)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePolicy:
    """How failures, crashes and superseded answers stand in the history; asked by projection, budget and compaction.

    The defaults are those of the bare functions. A runtime's own prompts, budget and compaction default to
    `RUNTIME_EVIDENCE`, so that one failure, crash or supersede never blocks a conversation for good. Stored records
    never change under any policy.

    Attributes:
        failed_assistant: `omit` leaves a failed answer out and lets its turn stop compaction; `assistant-marked` shows
            what it said with a mark that the run did not succeed.
        dangling_calls: What becomes of a call that never got a result. `barrier`: its record is left out, and its turn
            is incomplete. `close`: an error result that says what is known stands directly after the call's round,
            once the run that could have given the result has ended: the one that made the call, or, of a call that
            was approved or denied, the one that the answer began. Until then the record is left out. A call that
            waits for an approval is never closed, and holds back nothing that comes after its record.
        superseded: `barrier`: the turn of a superseded answer is incomplete. `drop`: the user's input stays and counts
            as a complete turn. The answer itself is shown under neither.

    Raises:
        InvalidValueError: A word that is not one of the above.
    """

    failed_assistant: Literal["omit", "assistant-marked"] = "omit"
    dangling_calls: Literal["barrier", "close"] = "barrier"
    superseded: Literal["barrier", "drop"] = "barrier"

    def __post_init__(self) -> None:
        _require(self.failed_assistant, ("omit", "assistant-marked"), "failed_assistant")
        _require(self.dangling_calls, ("barrier", "close"), "dangling_calls")
        _require(self.superseded, ("barrier", "drop"), "superseded")


BARE_EVIDENCE: Final = EvidencePolicy()
"""Failed answers left out, dangling calls and superseded answers as barriers."""

RUNTIME_EVIDENCE: Final = EvidencePolicy(failed_assistant="assistant-marked", dangling_calls="close", superseded="drop")
"""What a runtime uses unless told otherwise."""


def is_assistant_evidence(status: MessageStatus, policy: EvidencePolicy = BARE_EVIDENCE, /) -> bool:
    """Whether an assistant message of this status is part of the history a model may see.

    The one predicate of projection, budget and compaction.

    Example:
        >>> is_assistant_evidence("failed"), is_assistant_evidence("failed", RUNTIME_EVIDENCE)
        (False, True)
    """
    return status in _SPEAKABLE or (status == "failed" and policy.failed_assistant == "assistant-marked")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionOptions:
    """How records become messages.

    Attributes:
        evidence_policy: See `EvidencePolicy`.
        unresolved_file: A user's file without resolved data: left out, named in a text, or refused.
        interrupted_assistant: An interrupted answer: shown with a mark at its end, moved as a note into the system
            texts, or left out. There is no way to show it without a mark.
        leading_assistant: An answer (or tool record) before any user record: left out, shown, or refused.
        incomplete_tool_turn: A record whose tool calls and results do not add up: left out or refused.
        provider: The wire protocol whose opaque output (`ProviderPart`: tools it ran itself, and what they gave) is
            shown, for it goes back to the same protocol only. None, the default, shows none; what is not shown stands
            among the record's `omitted_parts`.

    Raises:
        InvalidValueError: A word that is not one of those an option takes, or an empty provider.
    """

    evidence_policy: EvidencePolicy = field(default=BARE_EVIDENCE)
    unresolved_file: Literal["omit", "text", "error"] = "omit"
    interrupted_assistant: Literal["assistant-marked", "system-note", "omit"] = "assistant-marked"
    leading_assistant: Literal["omit", "allow", "error"] = "omit"
    incomplete_tool_turn: Literal["omit", "error"] = "omit"
    provider: str | None = None

    def __post_init__(self) -> None:
        require_kind(self.evidence_policy, EvidencePolicy, "evidence_policy")
        if self.provider is not None:
            require_text(self.provider, "provider")
        _require(self.unresolved_file, _UNRESOLVED, "unresolved_file")
        _require(self.interrupted_assistant, _INTERRUPTED, "interrupted_assistant")
        _require(self.leading_assistant, _LEADING, "leading_assistant")
        _require(self.incomplete_tool_turn, ("omit", "error"), "incomplete_tool_turn")
        if self.provider == "":
            raise InvalidValueError("must be the key of a wire protocol, or None", argument="provider")


_UNRESOLVED: Final = ("omit", "text", "error")
_INTERRUPTED: Final = ("assistant-marked", "system-note", "omit")
_LEADING: Final = ("omit", "allow", "error")


def packed_policy(policy: EvidencePolicy, /) -> int:
    """Return the policy as the native half takes it.

    Raises:
        UsageError: It is none.
    """
    require_kind(policy, EvidencePolicy, "evidence_policy")
    return (
        (policy.failed_assistant == "assistant-marked")
        | (policy.dangling_calls == "close") << 1
        | (policy.superseded == "drop") << 2
    )


def packed_options(options: ProjectionOptions, /) -> int:
    """Return the options as the native half takes them.

    Raises:
        UsageError: They are none.
    """
    require_kind(options, ProjectionOptions, "options")
    return _packed(options)


@functools.lru_cache(maxsize=256)
def _packed(options: ProjectionOptions, /) -> int:
    return (
        packed_policy(options.evidence_policy)
        | _UNRESOLVED.index(options.unresolved_file) << 3
        | _INTERRUPTED.index(options.interrupted_assistant) << 5
        | _LEADING.index(options.leading_assistant) << 7
        | (options.incomplete_tool_turn == "error") << 9
    )
