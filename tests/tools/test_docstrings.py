"""Docstrings of all kinds, and what is no docstring at all."""

from hypothesis import given
from hypothesis import strategies as st

from runlane.tools._docstring import read_docstring

_LINES = st.sampled_from(
    [
        "Do it.",
        "",
        "    ",
        "Args:",
        "    a: The first.",
        "    b (int): The second.",
        "        Longer.",
        "Parameters",
        "----------",
        "a : int",
        ":param a: The first.",
        ":returns: x",
        "Returns:",
        "    Nothing: really.",
        ":",
        "Note: this.",
    ]
)


def _take() -> None: ...


@given(st.one_of(st.none(), st.text(), st.lists(_LINES).map("\n".join)))
def test_any_docstring_can_be_read(text: str | None) -> None:
    """Nothing raises; a description has no blank edges, and a parameter's text is one line."""
    _take.__doc__ = text
    description, said = read_docstring(_take)
    assert description == description.strip()
    assert all(name.isidentifier() or name.isdigit() for name in said)
    assert all("\n" not in about for about in said.values())


def test_a_colon_in_the_description_is_no_section() -> None:
    """Only known headings open sections."""

    def take() -> None:
        """Take it. Mind: twice.

        Remember:
            this is text.

        Args:
            a: The first.
        """

    assert read_docstring(take) == (
        "Take it. Mind: twice.\n\nRemember:\n    this is text.",
        {"a": "The first."},
    )
