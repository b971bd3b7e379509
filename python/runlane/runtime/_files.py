"""Files that a model makes: the application keeps their bytes, a record keeps where they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from runlane.contracts import MaybeAwaitable, resolve
from runlane.errors import InvalidValueError, UsageError
from runlane.history import FileResolver
from runlane.models import FileOutput, repair_text
from runlane.records import FilePart, validated

__all__ = ["FilesConfig", "GeneratedFile", "KeepFile", "keep_file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFile:
    """Where the application put a file that a model made.

    Attributes:
        reference: The application's own address of the file; never shown to a model.
        filename: A name for people; the provider's, if None.
    """

    reference: str
    filename: str | None = None


KeepFile: TypeAlias = Callable[[FileOutput], MaybeAwaitable[GeneratedFile]]
"""Stores the bytes of a file and says where they are; a plain or a coroutine function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConfig:
    """What happens to files; no record ever holds their bytes.

    Attributes:
        resolve: Fetches a file that a user sent, once for every run that shows it (keep what is dear to fetch; an
            address may expire between two runs), or None.
        unresolved: A user's file without data: left out of the prompt (`omit`), named in a text, or an `error`.
        keep: Stores a file that a model made. It is called as soon as the file is there, also in an attempt that fails
            later and is tried again, so it should be cheap to forget. Without it a run whose model makes a file ends
            as `runtime_failure`.

    Raises:
        UsageError: A field cannot be called.
        InvalidValueError: `unresolved` is none of its words.
    """

    resolve: FileResolver | None = None
    unresolved: Literal["omit", "text", "error"] = "omit"
    keep: KeepFile | None = None

    def __post_init__(self) -> None:
        for name in ("keep", "resolve"):
            value: object = getattr(self, name)
            if value is not None and not callable(value):
                raise UsageError("must be callable or None", argument=f"files.{name}")
        if self.unresolved not in ("omit", "text", "error"):
            raise InvalidValueError(
                f"must be omit, text or error, got {self.unresolved!r}", argument="files.unresolved"
            )


async def keep_file(config: FilesConfig, file: FileOutput, /) -> FilePart:
    """Have a file kept and return the part that stands for it.

    Raises:
        UsageError: Nothing keeps files, or it did not return a `GeneratedFile`.
        InvalidValueError: Reference, name or media type cannot be recorded.
    """
    if config.keep is None:
        raise UsageError("the model made a file and nothing is configured to keep it", argument="files.keep")
    kept: object = await resolve(config.keep(file))
    if not isinstance(kept, GeneratedFile):
        raise UsageError(f"must return a GeneratedFile, not {type(kept).__name__}", argument="files.keep")
    said = {"media_type": file.media_type, "reference": kept.reference, "filename": kept.filename or file.filename}
    part = {name: repair_text(text) for name, text in said.items() if text}
    return validated(FilePart, part, argument="generated file")
