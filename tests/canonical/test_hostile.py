"""Values made to break the walk: each ends in a typed error or in the right text."""

from __future__ import annotations

import gc
import sys
from typing import Any, NoReturn

import pytest
from typing_extensions import override

from runlane.canonical import (
    canonical_hash,
    canonical_json,
    canonical_record_json,
    encode_lossless,
)
from runlane.errors import CanonicalJsonError


def _raise(*_: object) -> NoReturn:
    message = "nobody may call this"
    raise AssertionError(message)


class _Text(str):
    """A text whose every way out raises."""

    __slots__ = ()
    __str__ = __repr__ = __eq__ = __lt__ = __len__ = __iter__ = __getitem__ = encode = _raise  # type: ignore[assignment]
    __hash__ = str.__hash__


class _Number(int):
    """An integer whose every way out raises."""

    __str__ = __repr__ = __eq__ = __int__ = __index__ = __abs__ = __rshift__ = to_bytes = bit_length = _raise  # type: ignore[assignment]
    __hash__ = int.__hash__


class _Raises:
    """An object that raises whatever is asked of it."""

    __str__ = __repr__ = __eq__ = __hash__ = __bool__ = __iter__ = __len__ = _raise
    __getattr__ = __getattribute__ = __index__ = __float__ = __int__ = _raise


def test_a_subclass_is_read_from_its_storage() -> None:
    """No method of a `str` or `int` subclass is called, however large its number."""
    value = [_Text("a\n"), _Number(7), {_Text("k"): _Number(-3)}]
    assert canonical_json(value) == b'["a\\n",7,{"k":-3}]'
    assert canonical_record_json([_Number(2**70)]) == b"[1180591620717411303424]"


def test_an_object_that_raises_at_everything_is_refused() -> None:
    """The refusal asks nothing of the object."""
    with pytest.raises(CanonicalJsonError) as caught:
        canonical_json({"a": [_Raises()]})
    assert caught.value.path == "/a/0"
    assert "_Raises" in caught.value.problem


def test_equal_texts_as_different_keys_are_refused() -> None:
    """Keys whose class denies their equality cannot make an object with one key twice."""

    class Odd(str):
        __slots__ = ()

        @override
        def __eq__(self, other: object) -> bool:
            return self is other

        __hash__ = str.__hash__

    value: dict[str, int] = {Odd("key"): 1, "a": 0, Odd("key"): 2}
    assert len(value) == 3
    for write in (canonical_json, canonical_hash, canonical_record_json):
        with pytest.raises(CanonicalJsonError):
            write([value])


def test_a_metaclass_that_lies_about_its_name_is_named_anyway() -> None:
    """The name of a refused type is read from the type itself."""

    class Meta(type):
        __getattribute__ = _raise

    class Odd(metaclass=Meta):
        pass

    with pytest.raises(CanonicalJsonError, match="Odd"):
        canonical_json(Odd())


@pytest.mark.parametrize("levels", [1, 2, 7, 8, 9, 98])
def test_a_cycle_is_refused_where_it_closes(levels: int) -> None:
    """However many levels a cycle spans, the refusal names the place where a container comes again."""
    root: list[object] = []
    inner = root
    for _ in range(levels - 1):
        inner.append([])
        inner = inner[0]  # type: ignore[assignment]
    inner.append({"again": root})
    for write in (canonical_json, canonical_hash, canonical_record_json, encode_lossless):
        with pytest.raises(CanonicalJsonError, match="inside itself") as caught:
            write(root)
        assert caught.value.path == "/0" * levels + "/again"


def test_a_wide_cycle_ends_soon() -> None:
    """A cycle behind much content is found after a few rounds, not at the limit of depth."""
    row: dict[str, Any] = {"content": list(range(50_000))}
    row["self"] = row
    with pytest.raises(CanonicalJsonError, match="inside itself"):
        canonical_record_json(row)


def test_shared_parts_cannot_blow_up() -> None:
    """Forty lists that each hold the next one twice are a tera of values; the node limit ends it."""
    value: list[object] = [1]
    for _ in range(40):
        value = [value, value]
    for write in (canonical_json, canonical_hash, encode_lossless):
        with pytest.raises(CanonicalJsonError, match="values"):
            write(value)


def test_depth_is_bounded_before_the_stack() -> None:
    """A hundred thousand levels are refused with a path, and nothing overflows."""
    value: object = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(CanonicalJsonError, match="deeper") as caught:
        canonical_record_json(value)
    assert caught.value.path == "/0" * 513


def test_an_integer_beyond_the_byte_limit_is_refused_before_it_is_printed() -> None:
    """The size of an integer is judged by its bits."""
    with pytest.raises(CanonicalJsonError, match="bytes"):
        canonical_record_json([1 << 10_000_000], max_bytes=1_000_000)


def test_the_interpreters_digit_limit_is_left_alone() -> None:
    """A long integer is written although the interpreter would not print it."""
    number = 10**5000 + 7
    assert 0 < sys.get_int_max_str_digits() < 5001
    assert canonical_record_json(number) == b"1" + b"0" * 4999 + b"7"


class _Vandal:
    """Garbage in a cycle, whose finalizer empties a value."""

    def __init__(self, victim: dict[str, Any]) -> None:
        self.victim = victim
        self.me = self

    def __del__(self) -> None:
        for inner in self.victim.values():
            if isinstance(inner, list):
                inner.clear()
        self.victim.clear()


def _outcome(value: object) -> str:
    try:
        return canonical_json(value).decode()
    except CanonicalJsonError as error:
        return error.problem


def test_a_finalizer_may_change_what_is_being_refused() -> None:
    """A refusal makes an exception, which may set off the collector, whose finalizers may empty the value."""
    before = gc.get_threshold()
    seen = set()
    try:
        for _ in range(300):
            value: dict[str, Any] = {f"key {n}": [f"text {n}", [n]] for n in range(20)}
            value["z"] = "\ud800"
            _Vandal(value)
            gc.set_threshold(1)
            seen.add(_outcome(value))
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
    assert seen <= {"{}", "text with a lone surrogate", "changed while it was read"}


def test_a_text_with_nul_and_every_control_character_is_written() -> None:
    """Every character below U+0020 has its escape."""
    text = "".join(map(chr, range(0x21)))
    written = canonical_json(text)
    assert len(written) == 2 + 5 * 2 + 27 * 6 + 1
    assert canonical_json({text: text}) == b"{" + written + b":" + written + b"}"
