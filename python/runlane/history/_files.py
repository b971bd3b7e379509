"""Fetching what users attached, before a projection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from runlane.contracts import MaybeAwaitable, resolve
from runlane.errors import UsageError
from runlane.history._handle import History
from runlane.history._projection import ResolvedFiles
from runlane.models import FileItem, ModelImage
from runlane.records import FilePart, Message

__all__ = ["FileResolver", "resolve_files"]

FileResolver: TypeAlias = Callable[[FilePart, Message], MaybeAwaitable[FileItem | ModelImage | bytes | None]]
"""Fetches one file: its bytes, or a whole item (a URL, a text, a provider's own reference); None if it cannot."""

_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


async def resolve_files(
    history: History | Iterable[Message], resolver: FileResolver, /, *, known: ResolvedFiles | None = None
) -> dict[tuple[str, int], FileItem | ModelImage]:
    """Ask the resolver for every file that users sent, one after the other, in order.

    The result goes into `History.project(files=...)`. Only files of user records are ever shown to a model. What
    `resolver` raises passes through.

    Args:
        history: A handle, or records.
        resolver: See `FileResolver`; may be asynchronous.
        known: Results of an earlier call; their files are not fetched again.

    Raises:
        UsageError: The resolver gave something else.
    """
    found = dict(known or {})
    parts = history.file_parts() if isinstance(history, History) else _file_parts(history)
    for message, place, file in parts:
        key = (message.id, place)
        if key in found:
            continue
        data = await resolve(resolver(file, message))
        if data is not None:
            found[key] = _item(data, file)
    return found


def _file_parts(messages: Iterable[Message]) -> list[tuple[Message, int, FilePart]]:
    return [
        (message, place, part)
        for message in messages
        if message.role == "user"
        for place, part in enumerate(message.parts)
        if isinstance(part, FilePart)
    ]


def _item(data: object, file: FilePart) -> FileItem | ModelImage:
    if isinstance(data, FileItem | ModelImage):
        return data
    if not isinstance(data, bytes):
        raise UsageError(
            f"must give bytes, a FileItem, a ModelImage or None, not {type(data).__name__}", argument="resolver"
        )
    if file.media_type in _IMAGE_TYPES:
        return ModelImage(media_type=file.media_type, data=data)
    return FileItem(media_type=file.media_type, data=data, filename=file.filename)
