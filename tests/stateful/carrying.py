"""Whatever a machine did to a conversation: it can be carried elsewhere whole, and branched where it was settled."""

from collections.abc import Mapping
from contextlib import suppress

from runlane.errors import ConversationActiveError
from runlane.records import Message, Snapshot
from runlane.store import BranchConversation, MemoryStore, Store, TransitionRecord, encode_archive
from runlane.testing import check_conversation


async def check_carried(store: Store, name: str, then: Mapping[int, Snapshot]) -> int:
    """Export a conversation, import it elsewhere, and branch it at each of its runs.

    Args:
        store: Where it is.
        name: The conversation.
        then: What it looked like at versions that were seen.

    Returns:
        How many branches were compared with what was seen.
    """
    archive = await store.export_conversation(name)
    data = encode_archive(archive)
    async with MemoryStore() as other:
        await other.import_conversation(data)
        assert encode_archive(await other.export_conversation(name)) == data
        assert await other.load_snapshot(name) == await store.load_snapshot(name)
        await check_conversation(other, name)
        events = [event.payload for event in archive.events if event.kind == "runtime/transition"]
        runs = dict.fromkeys(record.run_id for record in map(TransitionRecord.model_validate, events) if record.run_id)
        return sum([await _branched(other, name, run_id, then) for run_id in runs])


async def _branched(store: Store, name: str, run_id: str, then: Mapping[int, Snapshot]) -> bool:
    branch = f"{name}/{run_id}"
    request = BranchConversation(request_key=branch, destination_id=branch, source_id=name, run_id=run_id)
    result = None
    with suppress(ConversationActiveError):
        result = await store.branch_conversation(request)
    if result is None:
        assert (await store.load_head(branch)).version == 0
        return False
    await check_conversation(store, branch)
    assert await store.list_active_runs(branch) == ()
    seen = then.get(result.receipt.source_version)
    if seen is not None:
        found = (await store.load_snapshot(branch)).messages
        assert list(found) == [_called(message, branch) for message in _settled(seen)]
    return seen is not None


def _settled(snapshot: Snapshot) -> list[Message]:
    """Return the messages that belong to no run that is active."""
    active = [run for run in snapshot.runs if run.is_active]
    theirs = {message_id for run in active for message_id in (*run.input_message_ids, run.assistant_message_id)}
    return [message for message in snapshot.messages if message.id not in theirs]


def _called(message: Message, name: str) -> Message:
    return message.model_copy(update={"conversation_id": name})
