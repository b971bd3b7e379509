"""What this process has underway in each conversation: its lane, its joinable successor, and what is offered.

An entry exists exactly as long as an input of the conversation is being admitted or a run of it waits or executes here.
"""

from __future__ import annotations

from runlane.errors import UsageError
from runlane.records import Message, Run
from runlane.runtime._injection import Offers
from runlane.runtime._work import Batch

__all__ = ["Conversation", "Conversations"]


class Conversation:
    """One conversation with something underway.

    Attributes:
        lane: The name of its lane.
        users: Inputs being admitted and runs that wait or execute.
        offers: Inputs that the executing run may take.
    """

    __slots__ = ("_successor", "lane", "offers", "users")

    def __init__(self, lane: str, /) -> None:
        """Nothing is underway yet."""
        self.lane = lane
        self.users = 0
        self.offers = Offers()
        self._successor: Batch | None = None

    def reserve(self) -> Batch:
        """Return the batch that an input behind others joins, a new one if there is none."""
        batch = self._successor
        if batch is None or not batch.is_open:
            batch = self._successor = Batch()
        batch.enter()
        return batch


class Conversations:
    """The conversations with something underway, by id."""

    def __init__(self) -> None:
        """Nothing is underway."""
        self._entries: dict[str, Conversation] = {}
        self._closed = False

    def enter(self, conversation_id: str, lane: str, /) -> Conversation:
        """Have something underway, until `leave`.

        Raises:
            UsageError: The conversation has something underway in another lane.
        """
        entry = self._entries.get(conversation_id)
        if entry is None:
            entry = self._entries[conversation_id] = Conversation(lane)
        elif entry.lane != lane:
            raise UsageError(
                f"names lane {lane!r} for conversation {conversation_id!r}, which is underway in {entry.lane!r}; "
                "a conversation must not be split",
                argument="runs.key",
            )
        entry.users += 1
        return entry

    def leave(self, conversation_id: str, /) -> None:
        """End what `enter` began."""
        entry = self._entries[conversation_id]
        entry.users -= 1
        if entry.users == 0:
            del self._entries[conversation_id]

    def entry(self, conversation_id: str, /) -> Conversation:
        """Return a conversation that has something underway."""
        return self._entries[conversation_id]

    def offer(self, run: Run, message: Message, /) -> None:
        """Offer an input to whatever executes in its conversation; answers to approvals need a run of their own."""
        if not self._closed and message.role == "user":
            self._entries[run.conversation_id].offers.offer(run.id, message)

    def offer_nothing(self) -> None:
        """Withdraw every offer, and refuse later ones."""
        self._closed = True
        for entry in self._entries.values():
            entry.offers.clear()
