"""A file is a room: it must not be too large to live in."""

from tests.source_files import line_count, relative, tracked_files

_HARD_CAPS = {("python", ".py"): 600, ("rust", ".rs"): 700, ("tests", ".py"): 600, ("benches", ".py"): 600}


def test_no_file_is_longer_than_its_hard_cap() -> None:
    """Source and test files have at most 600 lines, Rust files 700 with their unit tests; there are no exceptions."""
    too_long = {
        relative(path): count
        for path in tracked_files()
        if (cap := _HARD_CAPS.get((relative(path).split("/")[0], path.suffix))) and (count := line_count(path)) > cap
    }
    assert too_long == {}
