"""Canonical JSON, slow and obvious: numbers from `repr`, keys by their UTF-16, one character at a time."""

from __future__ import annotations

import json
import math
from typing import Any, Literal, NoReturn

Form = Literal["interchange", "record", "lossless"]

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_SAFE = 2**53 - 1


class Refused(Exception):  # noqa: N818 - a signal inside the oracle
    """There is no such text; the path is a JSON pointer."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def pointer(path: tuple[str | int, ...]) -> str:
    """The JSON pointer of a path."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def write(value: object, form: Form, path: tuple[str | int, ...] = ()) -> str:
    """The text of a value in a form."""
    exact = form == "lossless"
    text: str
    if value is None:
        text = "null"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif type(value) is float:
        text = _double(value, form, path)
    elif isinstance(value, int) and (type(value) is int or not exact):
        text = _integer(int.__index__(value), form, path)
    elif isinstance(value, str) and (type(value) is str or not exact):
        text = _string(value, path)
    elif type(value) is dict:
        text = _object(value, form, path)
    elif type(value) is list or (type(value) is tuple and not exact):
        text = "[" + ",".join(write(item, form, (*path, i)) for i, item in enumerate(value)) + "]"
    else:
        raise Refused(pointer(path))
    return text


def _object(value: dict[Any, Any], form: Form, path: tuple[str | int, ...]) -> str:
    keys = list(value)
    for key in keys:
        if not isinstance(key, str) or (form == "lossless" and type(key) is not str) or _is_broken(key):
            raise Refused(pointer(path))
    if form != "lossless":
        keys.sort(key=lambda key: key.encode("utf-16-be"))
    members = [_string(key, path) + ":" + write(value[key], form, (*path, key)) for key in keys]
    return "{" + ",".join(members) + "}"


def _integer(value: int, form: Form, path: tuple[str | int, ...]) -> str:
    if form == "interchange" and abs(value) > _SAFE:
        raise Refused(pointer(path))
    return str(value)


def _double(value: float, form: Form, path: tuple[str | int, ...]) -> str:
    if not math.isfinite(value):
        raise Refused(pointer(path))
    if form != "lossless":
        return ecmascript(value)
    if value == 0 and math.copysign(1, value) < 0:
        raise Refused(pointer(path))
    text = ecmascript(value)
    return text if "." in text or "e" in text else text + ".0"


def ecmascript(value: float) -> str:
    """A finite double as `Number.prototype.toString` prints it (ECMA-262, Number::toString)."""
    if value == 0:
        return "0"
    if value < 0:
        return "-" + ecmascript(-value)
    mantissa, _, exponent = f"{value!r}e0".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).rstrip("0")
    point = len(whole) + int(exponent.removesuffix("e0"))
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.lstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    sign = "+" if point > 0 else "-"
    tail = f"e{sign}{abs(point - 1)}"
    return digits + tail if count == 1 else digits[0] + "." + digits[1:] + tail


def _is_broken(text: str) -> bool:
    return any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def _string(value: str, path: tuple[str | int, ...]) -> str:
    if _is_broken(value):
        raise Refused(pointer(path))
    pieces = [_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 0x20 else c) for c in str.__str__(value)]
    return '"' + "".join(pieces) + '"'


# --- documents ---


class _Digits(str):
    """The literal of an integer, which `write_document` judges."""

    __slots__ = ()


def rewrite(document: bytes, form: Form) -> str:
    """The text of a document in a form, by way of the standard library's reader."""
    try:
        text = document.decode()
        tree = json.loads(
            text,
            parse_int=_Digits,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError) as error:
        raise Refused("?") from error
    if text.startswith("\ufeff"):
        raise Refused("?")
    return write_document(tree, form)


def write_document(tree: object, form: Form) -> str:
    """The text of a tree whose integers are literals."""
    if isinstance(tree, _Digits):
        return _literal(str.__str__(tree), form)
    if isinstance(tree, dict):
        keys = sorted(tree, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_string(key, ())}:{write_document(tree[key], form)}" for key in keys) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(write_document(item, form) for item in tree) + "]"
    return write(tree, form)


def _literal(digits: str, form: Form) -> str:
    plain = "0" if digits == "-0" else digits
    if form == "record" or len(plain.lstrip("-")) < 16:
        return plain
    if len(plain) < 30 and (abs(int(plain)) <= _SAFE or ecmascript(float(plain)) == plain):
        return plain
    raise Refused("?")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(dict(pairs)) != len(pairs):
        raise Refused("?")
    return dict(pairs)


def _refuse_constant(_: str) -> NoReturn:
    raise Refused("?")
