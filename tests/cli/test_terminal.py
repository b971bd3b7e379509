"""Where a command's words go, in each form."""

from __future__ import annotations

import json

import pytest

from runlane.cli._exits import Exit
from runlane.cli._failure import Failure
from runlane.cli._terminal import Form, Terminal
from runlane.errors import StoreForeignError


def _use_all(terminal: Terminal) -> None:
    terminal.say("result")
    terminal.aside("aside")
    terminal.stream("str")
    terminal.stream_aside("eam")
    terminal.note("note")
    terminal.event({"type": "x"})
    terminal.result({"n": 1})


_DOCUMENT = '{\n  "schema": "runlane.cli.x/1",\n  "ok": true,\n  "data": {\n    "n": 1\n  }\n}\n'
_LINES = '{"type": "x"}\n{"schema": "runlane.cli.x/1", "ok": true, "data": {"n": 1}}\n'


@pytest.mark.parametrize(
    ("form", "flags", "out", "err"),
    [
        ("human", {}, "result\naside\nstream", "note\n"),
        ("human", {"quiet": True}, "result\nstr", ""),
        ("json", {}, _DOCUMENT, "note\n"),
        ("jsonl", {"quiet": True}, _LINES, ""),
    ],
    ids=["people", "quietly", "json", "jsonl"],
)
def test_each_form_gets_what_is_for_it(
    form: Form, flags: dict[str, bool], out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """People get text, machines JSON and nothing else on stdout; quiet leaves out what is not the result."""
    _use_all(Terminal(command="x", form=form, quiet=flags.get("quiet", False), environ={}))
    assert capsys.readouterr() == (out, err)


def test_a_failure_is_told_to_people_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """People read what happened and what to do on stderr, also when quiet; the code decides the exit."""
    code = Terminal(quiet=True, environ={}).fail_with(StoreForeignError("is a diary", store="a.db"))
    assert code is Exit.DAMAGED
    expected = "runlane: a.db: is a diary; it was left as it is; choose another file with --store\n"
    assert capsys.readouterr() == ("", expected)


def test_a_failure_is_told_to_machines_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Machines get the code, the message and whether to try again, with what there is of a result."""
    Terminal(command="x", form="json", environ={"A_TOKEN": "s3cret-42"}).fail(
        Failure(code="a.b", message="no s3cret-42", retryable=True), data={"n": 1}
    )
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "schema": "runlane.cli.x/1",
        "ok": False,
        "error": {"code": "a.b", "message": "no ***", "retryable": True},
        "data": {"n": 1},
    }
    assert err == ""
