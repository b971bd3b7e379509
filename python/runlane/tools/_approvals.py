"""Consent that is asked for: what was asked is sealed, so that the answer can only ever mean that very call."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast, get_args

from runlane.canonical import canonical_record_json
from runlane.contracts import require_kind
from runlane.errors import InvalidValueError, UsageError
from runlane.records import ToolApprovalRequestPart, ToolCallPart

__all__ = ["ApprovalKind", "ApprovalSeal", "approval_kind"]

ApprovalKind: TypeAlias = Literal["call", "effect-unknown"]
"""What is asked: whether a call may be made, or whether one that may have run already is to be made again."""

_KINDS: Final = get_args(ApprovalKind)
_LEAST_KEY: Final = 16


def approval_kind(request: ToolApprovalRequestPart, /) -> ApprovalKind:
    """Return what a request asks; `call` for one that does not say."""
    require_kind(request, ToolApprovalRequestPart, argument="request")
    kind = (request.signature or "").split(".", 1)[0]
    return cast("ApprovalKind", kind) if kind in _KINDS else "call"


@dataclass(frozen=True, slots=True)
class ApprovalSeal:
    """Signs requests and recognises its own.

    The signature covers the conversation, the run, the approval's id, what is asked, and the call with its tool and
    the exact text of its arguments. Without a key it is a plain digest: it notices a request that no longer fits its
    call, but whoever can write to the store could make one. With a key (HMAC-SHA256, RFC 2104) nobody else can.

    Attributes:
        key: At least 16 secret bytes, the same in every process that shares the store; or None.

    Raises:
        UsageError: The key is no bytes.
        InvalidValueError: It is too short.
    """

    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.key is None:
            return
        if not isinstance(self.key, bytes):
            raise UsageError("must be bytes or None", argument="approval_key")
        if len(self.key) < _LEAST_KEY:
            raise InvalidValueError(f"must have at least {_LEAST_KEY} bytes", argument="approval_key")

    def request(
        self, call: ToolCallPart, approval_id: str, kind: ApprovalKind = "call", /, *, conversation_id: str, run_id: str
    ) -> ToolApprovalRequestPart:
        """Return the signed request for a call of a run."""
        signature = self._signature(call, approval_id, kind, conversation_id, run_id)
        return ToolApprovalRequestPart(approval_id=approval_id, call_id=call.call_id, signature=signature)

    def is_genuine(
        self, request: ToolApprovalRequestPart, call: ToolCallPart, /, *, conversation_id: str, run_id: str
    ) -> bool:
        """Whether this seal signed exactly this request, for exactly this call of this run."""
        if request.signature is None or request.call_id != call.call_id:
            return False
        kind = approval_kind(request)
        expected = self._signature(call, request.approval_id, kind, conversation_id, run_id)
        return hmac.compare_digest(expected.encode(), request.signature.encode())

    def _signature(
        self, call: ToolCallPart, approval_id: str, kind: ApprovalKind, conversation_id: str, run_id: str
    ) -> str:
        facts = [conversation_id, run_id, approval_id, kind, call.call_id, call.tool_name, call.arguments]
        text = canonical_record_json(facts)
        if self.key is None:
            return f"{kind}.sha256.{hashlib.sha256(text).hexdigest()}"
        return f"{kind}.hmac-sha256.{hmac.new(self.key, text, hashlib.sha256).hexdigest()}"
