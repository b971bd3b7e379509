"""Identifiers: where they come from, and that nobody else gets them."""

import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from runlane.ids import RandomIds


def test_an_identifier_names_its_kind_and_is_ordered_by_time() -> None:
    """128 bits in hexadecimal behind the kind; the first 48 are milliseconds, so later ones do not sort before."""
    ids = [RandomIds().new("run") for _ in range(1000)]
    assert all(re.fullmatch("run_[0-9a-f]{32}", name) for name in ids)
    assert len(set(ids)) == 1000
    moments = [name[4:16] for name in ids]
    assert moments == sorted(moments)


def test_threads_never_get_the_same_identifier() -> None:
    """Sources share nothing that two threads could be given twice."""

    def some(_index: int) -> list[str]:
        source = RandomIds()
        return [source.new("x")[-20:] for _ in range(2000)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [name for names in pool.map(some, range(8)) for name in names]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_give_what_its_parent_gives() -> None:
    """What was drawn ahead is forgotten in a child."""
    RandomIds().new("x")
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, "".join(RandomIds().new("x")[-20:] for _ in range(300)).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    inherited = {told[start : start + 20] for start in range(0, len(told), 20)}
    assert len(inherited) == 300
    assert inherited.isdisjoint({RandomIds().new("x")[-20:] for _ in range(300)})
