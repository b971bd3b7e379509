"""What a docstring says of a function and its parameters: the text a model reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["read_docstring"]

_SECTION: Final = re.compile(
    r"(?:args?|arguments|parameters|params|attributes|returns?|yields?|raises|examples?|notes?|warnings?)\s*:?",
    re.IGNORECASE,
)
_ARGUMENTS: Final = re.compile(r"(?:args?|arguments|parameters|params)\s*:?", re.IGNORECASE)
_GOOGLE: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?")
_SPHINX: Final = re.compile(r":param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_RULE: Final = re.compile(r"-{3,}")


def read_docstring(function: Callable[..., Any], /) -> tuple[str, dict[str, str]]:
    """Return a function's description without its sections, and what is said of each parameter.

    Google's, NumPy's and Sphinx' forms are understood. What is in no known form stays part of the description.

    Example:
        >>> def look_up(city: str) -> str:
        ...     '''Return the weather.
        ...
        ...     Args:
        ...         city: Its name,
        ...             in English.
        ...     '''
        ...     return city
        >>> read_docstring(look_up)
        ('Return the weather.', {'city': 'Its name, in English.'})
    """
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    description: list[str] = []
    said: dict[str, str] = {}
    place = 0
    while place < len(lines):
        line = lines[place]
        if match := _SPHINX.fullmatch(line.strip()):
            said[match[1]] = match[2]
            place += 1
        elif line.strip().startswith(":") and re.match(r":\w+[^:]*:", line.strip()):
            place += 1
        elif _opens_section(lines, place):
            end = _end_of_section(lines, place)
            if _ARGUMENTS.fullmatch(line.strip()):
                said.update(_entries(lines[place + 1 : end]))
            place = end
        else:
            description.append(line)
            place += 1
    return "\n".join(description).strip(), {name: " ".join(text.split()) for name, text in said.items()}


def _opens_section(lines: list[str], place: int) -> bool:
    line = lines[place]
    if line[:1].isspace() or not _SECTION.fullmatch(line.strip()):
        return False
    following = lines[place + 1].strip() if place + 1 < len(lines) else ""
    return line.rstrip().endswith(":") or _RULE.fullmatch(following) is not None


def _end_of_section(lines: list[str], place: int) -> int:
    """Return where a section ends: at the next one, or, of an indented one, at the next line that is not."""
    is_underlined = not lines[place].rstrip().endswith(":")
    end = place + (2 if is_underlined else 1)
    while end < len(lines):
        line = lines[end]
        if line.strip() and not line[:1].isspace() and (not is_underlined or _opens_section(lines, end)):
            break
        end += 1
    return end


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each parameter of a section."""
    body = [line for line in lines if line.strip() and not _RULE.fullmatch(line.strip())]
    if not body:
        return
    least = min(len(line) - len(line.lstrip()) for line in body)
    form = _GOOGLE if least else _NUMPY
    name, text = "", ""
    for line in body:
        match = form.fullmatch(line.strip()) if len(line) - len(line.lstrip()) == least else None
        if match is None:
            text += " " + line.strip()
            continue
        if name:
            yield name, text
        name, text = match[1], match[2] if form is _GOOGLE else ""
    if name:
        yield name, text
