"""Short ways to write records, and strategies that make many of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypedDict

from hypothesis import strategies as st
from typing_extensions import Unpack

from runlane.history import EvidencePolicy, ProjectionOptions
from runlane.records import (
    ControlPart,
    FilePart,
    Message,
    MessageRole,
    MessageStatus,
    Part,
    ProviderEnvelope,
    ProviderPart,
    ReasoningPart,
    SourcePart,
    TextPart,
    ToolApprovalRequestPart,
    ToolApprovalResponsePart,
    ToolCallPart,
    ToolOutcome,
    ToolResultPart,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ROLES: tuple[MessageRole, ...] = ("user", "assistant", "tool", "system", "summary")
STATUSES: tuple[MessageStatus, ...] = (
    "committed",
    "streaming",
    "completed",
    "interrupted",
    "superseded",
    "failed",
)


def text(said: str) -> TextPart:
    """A text part."""
    return TextPart(text=said)


def call(call_id: str, tool_name: str = "look") -> ToolCallPart:
    """A call without arguments."""
    return ToolCallPart(call_id=call_id, tool_name=tool_name, arguments="{}", input={})


def result(call_id: str, tool_name: str = "look", outcome: ToolOutcome = "success") -> ToolResultPart:
    """A result that says ok, however it went."""
    return ToolResultPart(call_id=call_id, tool_name=tool_name, outcome=outcome, output="ok")


def request(approval_id: str, call_id: str) -> ToolApprovalRequestPart:
    """A call waits for consent."""
    return ToolApprovalRequestPart(approval_id=approval_id, call_id=call_id, signature="signed")


def response(approval_id: str, *, approved: bool = True) -> ToolApprovalResponsePart:
    """The consent, or its refusal."""
    return ToolApprovalResponsePart(approval_id=approval_id, approved=approved)


class Fields(TypedDict, total=False):
    """What a record may be given beyond its parts."""

    status: MessageStatus
    run_id: str
    conversation_id: str


def message(
    message_id: str,
    role: MessageRole,
    *parts: Part,
    status: MessageStatus | None = None,
    run_id: str | None = None,
    conversation_id: str = "c",
) -> Message:
    """A record; an assistant's is completed unless a status is given, any other committed."""
    return Message(
        id=message_id,
        conversation_id=conversation_id,
        run_id=run_id,
        role=role,
        status=status or ("completed" if role == "assistant" else "committed"),
        parts=parts,
        created_at=NOW,
        updated_at=NOW,
    )


def user(message_id: str, *parts: Part, **fields: Unpack[Fields]) -> Message:
    """A user's record, saying its own id unless parts are given."""
    return message(message_id, "user", *(parts or (text(message_id),)), **fields)


def assistant(message_id: str, *parts: Part, **fields: Unpack[Fields]) -> Message:
    """An answer, saying its own id unless parts are given."""
    return message(message_id, "assistant", *(parts or (text(message_id),)), **fields)


def stored(record: Message) -> bytes:
    """A record as bytes."""
    return record.model_dump_json(exclude_none=True).encode()


# --- strategies ---------------------------------------------------------------------------------------------------

CALLS = st.sampled_from(["a", "b", "x"])
TOOLS = st.sampled_from(["look", "look", "look", "read"])
APPROVALS = st.sampled_from(["p", "q"])
TEXTS = st.one_of(
    st.sampled_from(["", "Hi", "tab\tand\nline", 'quo"te\\', "é😀", "\x00\x1f"]), st.text(max_size=8)
).filter(lambda said: said.isprintable() or said.encode(errors="ignore").decode() == said)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ENVELOPES = st.builds(
    ProviderEnvelope,
    provider=st.sampled_from(["openai-chat", "anthropic"]),
    data=st.dictionaries(st.sampled_from(["id", "signature", "extra"]), JSON, max_size=2)
    | st.fixed_dictionaries({"field": st.sampled_from(["reasoning", "reasoning_content", "content"])})
    | st.fixed_dictionaries({"reasoning_details": st.lists(JSON, max_size=2)}),
)


@st.composite
def calls(draw: st.DrawFn) -> ToolCallPart:
    """A call, with or without parsed arguments."""
    fields: dict[str, Any] = draw(st.sampled_from([{}, {"input": {"n": 10**20}}, {"input": None}]))
    arguments = draw(st.sampled_from(["{}", "", "  ", '{"n": 1e2}', "not json"]))
    return ToolCallPart(
        call_id=draw(CALLS),
        tool_name=draw(TOOLS),
        arguments=arguments,
        provider=draw(st.none() | ENVELOPES),
        **fields,
    )


@st.composite
def results(draw: st.DrawFn) -> ToolResultPart:
    """A result, with or without output."""
    fields: dict[str, Any] = draw(st.fixed_dictionaries({}, optional={"output": JSON}))
    outcome: ToolOutcome = draw(st.sampled_from(["success", "success", "error", "interrupted"]))
    return ToolResultPart(call_id=draw(CALLS), tool_name=draw(TOOLS), outcome=outcome, **fields)


PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, text=TEXTS),
    st.builds(TextPart, text=TEXTS),
    calls(),
    calls(),
    results(),
    results(),
    st.builds(ReasoningPart, text=TEXTS, provider=st.none() | ENVELOPES),
    st.builds(
        ToolApprovalRequestPart,
        approval_id=APPROVALS,
        call_id=CALLS,
        is_automatic=st.sampled_from([None, True]),
        signature=st.sampled_from([None, "signed"]),
    ),
    st.builds(
        ToolApprovalResponsePart,
        approval_id=APPROVALS,
        approved=st.booleans(),
        reason=st.sampled_from([None, "because"]),
    ),
    st.builds(
        FilePart,
        media_type=st.sampled_from(["image/png", "application/pdf"]),
        reference=st.just("secret://place"),
        filename=st.sampled_from([None, 'fi"le.pdf']),
    ),
    st.builds(SourcePart, source_id=st.just("s")),
    st.builds(ProviderPart, envelope=ENVELOPES),
    st.builds(ControlPart, reason=st.sampled_from(["run-interrupted", "stale-run"])),
)

# Whole exchanges, so that much of what is drawn adds up.
EXCHANGES: st.SearchStrategy[list[Part]] = st.sampled_from(
    [
        [call("a"), result("a")],
        [call("a"), call("b"), result("b"), result("a"), text("done")],
        [call("a"), call("b"), result("a"), text("cut")],
        [call("a"), request("p", "a")],
        [call("a"), call("b"), request("p", "a"), result("b")],
        [call("a"), request("p", "a"), response("p"), result("a"), call("b")],
        [call("a"), request("p", "a"), response("p", approved=False)],
        [response("p")],
        [result("a"), text("later")],
        [call("a"), result("a"), call("b"), result("b"), call("x")],
        [text("thinking aloud"), call("a"), text("and on")],
    ]
)


@st.composite
def records(draw: st.DrawFn, index: int) -> Message:
    """One record of any role and status, more often of those that occur."""
    role: MessageRole = draw(st.sampled_from([*ROLES, "user", "user", "assistant", "assistant", "assistant"]))
    usual: list[MessageStatus] = ["completed", "interrupted", "failed"] if role == "assistant" else ["committed"]
    status = draw(st.sampled_from(usual * 3 + list(STATUSES)))
    if role in {"user", "system", "summary"}:
        parts = draw(st.lists(PARTS, max_size=3) | st.just([text("Hi")]))
    else:
        parts = draw(st.one_of(EXCHANGES, EXCHANGES, st.lists(PARTS, max_size=6)))
    return message(
        f"m{index}",
        role,
        *parts,
        status=status,
        run_id=draw(st.sampled_from([None, "r1", "r2", "r3"])) if role == "assistant" else None,
        conversation_id=draw(st.sampled_from(["c"] * 12 + ["d"])),
    )


# What an answer asks for, and what the run that an answer to that begins may say.
ASKING: st.SearchStrategy[list[Part]] = st.sampled_from(
    [
        [call("a"), request("p", "a")],
        [call("a"), call("b"), request("p", "a")],
        [call("a"), call("b"), request("p", "a"), result("b")],
        [text("both"), call("b"), call("a"), request("p", "a"), request("q", "b")],
        [call("a"), call("b"), call("x"), request("p", "a"), request("q", "b"), result("x")],
        [call("x"), result("x"), call("a"), call("b"), request("p", "a"), text("cut")],
    ]
)
GOING_ON: st.SearchStrategy[list[Part]] = st.sampled_from(
    [
        [result("a"), text("done")],
        [result("b", outcome="error")],
        [result("a"), call("b"), result("b"), text("done")],
        [result("a"), call("x"), request("q", "x")],
        [result("a"), call("x"), call("b")],
        [call("x"), result("x"), text("meanwhile")],
        [text("cut")],
        [],
    ]
)
ENDS: st.SearchStrategy[MessageStatus] = st.sampled_from(
    ["completed", "completed", "interrupted", "failed", "superseded", "streaming"]
)


@st.composite
def consents(draw: st.DrawFn, start: int) -> list[Message]:
    """A conversation that asks for consent: who is asked, what is cut, answered, denied, or waits meanwhile."""
    rows: list[Message] = []

    def add(role: MessageRole, parts: list[Part], run_id: str | None = None) -> None:
        status = draw(ENDS) if role == "assistant" else "committed"
        rows.append(message(f"m{start + len(rows)}", role, *parts, status=status, run_id=run_id))

    add("user", [text("Hi")])
    add("assistant", draw(ASKING), "r1")
    for run_id in draw(st.sampled_from([["r2"], ["r2", "r3"], ["r2", "r3", "r4"]])):
        if draw(st.booleans()):
            add("tool", [response(draw(APPROVALS), approved=draw(st.booleans()))])
        else:
            add("user", [text("And?")])
        if draw(st.sampled_from([True, True, False])):
            add("assistant", draw(GOING_ON | EXCHANGES), run_id)
    return rows


@st.composite
def histories(draw: st.DrawFn, max_size: int = 10) -> list[Message]:
    """Records in a row: any, or a conversation that asks for consent, or that with any behind it."""
    rows = draw(consents(0)) if draw(st.booleans()) else []
    return [*rows[:max_size], *(draw(records(index)) for index in range(len(rows), draw(st.integers(0, max_size))))]


POLICIES = st.builds(
    EvidencePolicy,
    failed_assistant=st.sampled_from(["omit", "assistant-marked"]),
    dangling_calls=st.sampled_from(["close", "barrier"]),
    superseded=st.sampled_from(["barrier", "drop"]),
)
OPTIONS = st.builds(
    ProjectionOptions,
    evidence_policy=POLICIES,
    unresolved_file=st.sampled_from(["omit", "text"]),
    interrupted_assistant=st.sampled_from(["assistant-marked", "assistant-marked", "system-note", "omit"]),
    leading_assistant=st.sampled_from(["omit", "allow"]),
    provider=st.sampled_from([None, "openai-chat", "anthropic"]),
)
ACTIVE = st.frozensets(st.sampled_from(["r1", "r2", "r3", "r9"]), max_size=2)
EFFECTS = st.dictionaries(
    CALLS | st.tuples(st.sampled_from(["m1", "m2", "m3", "m4"]), CALLS),
    st.sampled_from(["interrupted", "not-started", "unknown"]),
    max_size=2,
)
