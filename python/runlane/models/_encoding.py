"""What every wire protocol's request encoder needs: JSON bytes, data URLs, and options by name."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from runlane.errors import InvalidValueError
from runlane.models._messages import FileItem
from runlane.models._repair import repair_text
from runlane.records import JsonObject, ToolResultPart

__all__ = [
    "add_extra",
    "attached_text",
    "cut_off",
    "data_url",
    "dump",
    "encode_data",
    "given",
    "output_text",
    "own_tools",
]

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump(value: object, argument: str) -> bytes:
    """Write a value as compact JSON; lone surrogates become U+FFFD.

    Args:
        value: What to write.
        argument: What the value is, for the error.

    Raises:
        InvalidValueError: It is not JSON.
    """
    try:
        text = _ENCODER.encode(value)
    except RecursionError:
        raise InvalidValueError("is nested too deeply to be written as JSON", argument=argument) from None
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"is not JSON: {error}", argument=argument) from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        return repair_text(text).encode()


def given(fields: JsonObject) -> JsonObject:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def add_extra(body: JsonObject, extra: Mapping[str, object], *, own: Sequence[str]) -> None:
    """Put further fields into a body as they are; a list of `tools` comes after the tools already there.

    Raises:
        InvalidValueError: A field belongs to runlane.
    """
    for name, value in extra.items():
        if name in own:
            raise InvalidValueError("is written by runlane", argument=f"options.extra.{name}")
        if name == "tools":
            body["tools"] = own_tools(body.get("tools"), value)
        else:
            body[name] = value  # type: ignore[assignment]  # `dump` refuses what is not JSON


def own_tools(tools: JsonValue, further: object) -> JsonValue:
    """Return the tools of a request: the application's, then those the provider runs itself.

    Raises:
        InvalidValueError: The further ones are no list.
    """
    if not isinstance(further, list | tuple):
        raise InvalidValueError("must be a list of tools", argument="options.extra.tools")
    return [*(tools if isinstance(tools, list) else ()), *further]


def encode_data(data: bytes) -> str:
    """Return binary data as base64 text."""
    return base64.b64encode(data).decode()


def data_url(media_type: str, data: bytes) -> str:
    """Return binary data as a data URL."""
    return f"data:{media_type};base64,{encode_data(data)}"


def attached_text(item: FileItem) -> str:
    """Return a text file as text for the model: its name, if it has one, then what it says."""
    head = f"{item.filename}:\n" if item.filename else ""
    return f"{head}{item.text or ''}"


def output_text(result: ToolResultPart) -> str:
    """Return what a tool gave as text: a text as it is, anything else as JSON, no output by its outcome."""
    if isinstance(result.output, str):
        return result.output
    if result.has_output:
        return dump(result.output, "output").decode()
    return "" if result.outcome == "success" else result.outcome


def cut_off(texts: list[str], length: JsonValue) -> str:
    """Take the last characters off texts that follow each other; empty, and nothing taken, if they are not there.

    What a provider said of a stretch of its text stands behind that text, with its length: the texts of an answer are
    joined where nothing stands between them.

    Args:
        texts: The texts since the last thing that is no text; what is taken off is gone from them.
        length: How many characters, as the mark says.
    """
    if isinstance(length, bool) or not isinstance(length, int) or not 0 < length <= sum(map(len, texts)):
        return ""
    taken: list[str] = []
    while length > 0:
        text = texts.pop()
        if len(text) > length:
            texts.append(text[:-length])
            text = text[-length:]
        length -= len(text)
        taken.append(text)
    return "".join(reversed(taken))
