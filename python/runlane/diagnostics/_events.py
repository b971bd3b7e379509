"""The envelope every event has, and whose execution it belongs to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from copy import copy
from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, Protocol, Self, TypeAlias, TypedDict

from typing_extensions import Unpack, override

from runlane.contracts import Id, JsonObject, TimestampMs, sync_result
from runlane.diagnostics._catalog import CORE_EVENT_CATALOG, CoreEventDescriptor, CoreEventName
from runlane.diagnostics._payloads import ORDINARY, CoreEventPayload
from runlane.diagnostics._plain import plain
from runlane.diagnostics._recorder import SubSteps
from runlane.diagnostics._steps import RecordedSubStep
from runlane.errors import UsageError

__all__ = [
    "ENVELOPE",
    "CoreEvent",
    "DiagnosticIdentity",
    "DiagnosticSpanFields",
    "ExecutionEventDescriptor",
    "Fact",
    "Saying",
    "Teller",
    "ToldEvent",
    "carrying",
    "event_of",
]

VERSION: Final = 1
_NS_PER_MS: Final = 1_000_000


class SpanFacts(TypedDict, total=False):
    """What may be said of a span; None is as good as nothing."""

    agent_id: Id | None
    branch_id: Id | None
    workflow_id: Id | None
    node_id: Id | None
    visit: int | None
    round: int | None
    stage: Id | None
    tool_id: Id | None
    invocation_id: Id | None


class DiagnosticSpanFields:
    """What a span says of itself. Its run and span ids are given to it, never said.

    One is made per visit, so it keeps only what was said.

    Attributes:
        given: The fields that were said.

    Raises:
        TypeError: There is no such field.

    Example:
        >>> DiagnosticSpanFields(node_id=Id("draft"), visit=1).given
        {'node_id': 'draft', 'visit': 1}
    """

    __slots__ = ("given",)
    given: SpanFacts

    def __init__(self, **given: Unpack[SpanFacts]) -> None:
        for name in given:
            if name not in _SPAN_FACTS:
                raise UsageError("a span says nothing else of itself", argument=min(given.keys() - _SPAN_FACTS))
        _set_given(self, given)

    @classmethod
    def trusted(cls, given: SpanFacts, /) -> Self:
        """Return the fields a program wrote out itself: they are kept as they are, at a third of the cost."""
        made = object.__new__(cls)
        _set_given(made, given)
        return made

    @override
    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(name)

    @override
    def __eq__(self, other: object) -> bool:
        return self.given == other.given if isinstance(other, DiagnosticSpanFields) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(tuple(self.given.items()))

    @override
    def __repr__(self) -> str:
        return f"DiagnosticSpanFields({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


_set_given: Final = DiagnosticSpanFields.__dict__["given"].__set__
_SPAN_FACTS: Final = frozenset(SpanFacts.__annotations__)


class DiagnosticIdentity(NamedTuple):
    """Which execution a fact belongs to; never whose data it is.

    Attributes:
        span_id: The stretch of work that tells the fact.
        parent_span_id: The one around it; None for a root.
        visit: From 1, per node.
        round: From 1, per run.
    """

    run_id: Id
    span_id: Id
    parent_span_id: Id | None = None
    agent_id: Id | None = None
    branch_id: Id | None = None
    workflow_id: Id | None = None
    node_id: Id | None = None
    visit: int | None = None
    round: int | None = None
    stage: Id | None = None
    tool_id: Id | None = None
    invocation_id: Id | None = None


class Teller(Protocol):
    """Whoever tells an event: gives it its id, and says whose execution it belongs to."""

    @property
    def identity(self) -> DiagnosticIdentity:
        """The span that tells it."""
        ...

    @property
    def producer_id(self) -> Id:
        """What names its sequence."""
        ...

    def event_id(self, sequence: int, /) -> Id:
        """Return the id of the event of that number."""
        ...


class Fact:
    """An event that is told often: its name, and what words its payload once somebody reads it.

    Args:
        name: Of an event without content.
        word: Makes the payload of the values it is told with.

    Raises:
        UsageError: There is no event of that name, or it has content and is told with its payload.

    Example:
        >>> Fact("node.entered", NodeEntered).word()
        NodeEntered()
    """

    __slots__ = ("content", "name", "word")

    def __init__(self, name: CoreEventName, word: Callable[..., CoreEventPayload], /) -> None:
        if name not in ORDINARY:
            raise UsageError(f"there is no event {name!r} without content", argument="name")
        self.name: Final = name
        self.word: Final = word
        self.content: Final = False

    def payload(self, values: tuple[object, ...], /) -> CoreEventPayload:
        """Return the payload of an event that was told with these values.

        Raises:
            UsageError: What was made is no payload of that event.
        """
        made = sync_result(self.word(*values), argument="word")
        if type(made) is not ORDINARY[self.name]:
            text = f"{self.name} says {ORDINARY[self.name].__name__}, not {type(made).__name__}"
            raise UsageError(text, argument="word")
        return made


Saying: TypeAlias = CoreEventPayload | Callable[[], CoreEventPayload]
"""The payload of an event, or what makes it."""


class ExecutionEventDescriptor:
    """What an observer is asked about before it gets an event. Nothing of it changes.

    Attributes:
        name: The event.
        content: Whether it would hold what people, models or tools said.
        identity: The span that tells it.
    """

    __slots__ = ("_fact", "_teller")

    def __init__(self, name: CoreEventName, content: bool, identity: DiagnosticIdentity) -> None:  # noqa: FBT001 - a field
        self._fact: CoreEventDescriptor | Fact = CoreEventDescriptor(name, content)
        self._teller: Teller = _Known(identity, identity.span_id, identity.span_id)

    @property
    def name(self) -> CoreEventName:
        return self._fact.name

    @property
    def content(self) -> bool:
        return self._fact.content

    @property
    def identity(self) -> DiagnosticIdentity:
        return self._teller.identity

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionEventDescriptor) or type(other) is not type(self):
            return NotImplemented
        return (self.name, self.content, self.identity) == (other.name, other.content, other.identity)

    @override
    def __hash__(self) -> int:
        return hash((self.name, self.content, self.identity))

    @override
    def __repr__(self) -> str:
        return f"ExecutionEventDescriptor(name={self.name!r}, content={self.content!r}, identity={self.identity!r})"


class CoreEvent(ExecutionEventDescriptor):
    """One fact, as consumers get it. Nothing of it changes.

    Several are told in each visit, whatever it does, and few are read whole. So an event keeps what was so when it was
    told (its number, the time, its span, the values its payload says) and words it when it is asked. A told `Fact`,
    which has no content, is its own descriptor.

    Attributes:
        event_id: Unique.
        producer_id: Names the sequence: one root scope with all its descendants.
        sequence: From 1, strictly increasing in the order of emission. A consumer that does not take every event sees
            holes, which prove nothing.
        occurred_at: Wall clock, Unix milliseconds; may go backwards, order is `sequence`.
        identity: The span that told it.
        payload: What this event says beyond the envelope.
        sub_steps: The steps a visit or a tool reported; only with `node.finished` and `tool.finished`.
        sub_steps_dropped: Entries beyond the limit; present only if there were some.
        sub_steps_truncated: Carried steps with a bounded title or detail; present only if there were some.
        version: Of the envelope; 1.
    """

    __slots__ = ("_said", "_sequence", "_steps", "_unix_ns")

    def __init__(  # noqa: PLR0913 - the fields of the envelope
        self,
        *,
        event_id: Id,
        name: CoreEventName,
        producer_id: Id,
        sequence: int,
        occurred_at: TimestampMs,
        identity: DiagnosticIdentity,
        payload: CoreEventPayload,
        sub_steps: tuple[RecordedSubStep, ...] | None = None,
        sub_steps_dropped: int | None = None,
        sub_steps_truncated: int | None = None,
    ) -> None:
        self._fact = CORE_EVENT_CATALOG[name]
        self._said: Any = payload
        self._sequence = sequence
        self._steps = (
            None if sub_steps is None else SubSteps(sub_steps, sub_steps_dropped or 0, sub_steps_truncated or 0)
        )
        self._teller = _Known(identity, producer_id, event_id)
        self._unix_ns: int = occurred_at * _NS_PER_MS

    @property
    def version(self) -> Literal[1]:
        return VERSION

    @property
    def event_id(self) -> Id:
        return self._teller.event_id(self._sequence)

    @property
    def producer_id(self) -> Id:
        return self._teller.producer_id

    @property
    def sequence(self) -> int:
        return self._sequence

    @property
    def occurred_at(self) -> TimestampMs:
        return TimestampMs(self._unix_ns // _NS_PER_MS)

    @property
    def payload(self) -> CoreEventPayload:
        fact = self._fact
        if type(fact) is Fact:
            self._said = fact.payload(self._said)
            self._fact = CORE_EVENT_CATALOG[fact.name]
        worded: CoreEventPayload = self._said
        return worded

    @property
    def sub_steps(self) -> tuple[RecordedSubStep, ...] | None:
        return None if self._steps is None else self._steps.entries

    @property
    def sub_steps_dropped(self) -> int | None:
        return None if self._steps is None else self._steps.dropped or None

    @property
    def sub_steps_truncated(self) -> int | None:
        return None if self._steps is None else self._steps.truncated or None

    def to_record(self) -> JsonObject:
        """Return the event as JSON of exact built-in types; `normalize_diagnostic_event` reads it back."""
        given = ((name, getattr(self, name)) for name in ENVELOPE)
        return {name: plain(_named(value)) for name, value in given if value is not None}

    @override
    def __eq__(self, other: object) -> bool:
        return _said(self) == _said(other) if isinstance(other, CoreEvent) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self.event_id)

    @override
    def __repr__(self) -> str:
        return f"CoreEvent({', '.join(f'{name}={value!r}' for name, value in _said(self).items())})"

    @override
    def __reduce__(self) -> tuple[Callable[[], CoreEvent], tuple[()]]:
        return functools.partial(CoreEvent, **_said(self)), ()


ENVELOPE: Final = (
    "version",
    "event_id",
    "name",
    "producer_id",
    "sequence",
    "occurred_at",
    "identity",
    "payload",
    "sub_steps",
    "sub_steps_dropped",
    "sub_steps_truncated",
)
"""The fields of an event."""


class ToldEvent(CoreEvent):
    """An event as it is made when it is told: filled in by who tells it, at a third of the cost of its constructor."""

    __slots__ = ()

    if not TYPE_CHECKING:
        __init__ = object.__init__


def event_of(teller: Teller, name: CoreEventName, payload: CoreEventPayload, sequence: int, unix_ns: int) -> CoreEvent:
    """Return an event that is told now, with its payload."""
    event: ToldEvent = _blank()
    event._fact, event._said, event._sequence = CORE_EVENT_CATALOG[name], payload, sequence  # noqa: SLF001 - nobody has it yet
    event._teller, event._unix_ns, event._steps = teller, unix_ns, None  # noqa: SLF001 - likewise
    return event


_blank: Final[Any] = ToldEvent


def carrying(event: CoreEvent, steps: SubSteps, /) -> CoreEvent:
    """Return an event with the steps that travel with it."""
    whole = copy(event)
    whole._steps = steps  # noqa: SLF001 - nobody has it yet
    return whole


def _said(event: CoreEvent) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ENVELOPE[1:]}


@dataclass(frozen=True, slots=True)
class _Known:
    """The teller of an event that was made of its fields."""

    identity: DiagnosticIdentity
    producer_id: Id
    id: Id

    def event_id(self, _sequence: int, /) -> Id:
        return self.id


def _named(value: Any) -> object:  # noqa: ANN401 - any payload
    """Return a tuple with names as what it says; anything else as it is."""
    names: tuple[str, ...] | None = getattr(type(value), "_fields", None)
    if names is None or not isinstance(value, tuple):
        return value
    return {name: member for name, member in zip(names, value, strict=True) if member is not None}
