"""`runlane flow check`: every violation of a workflow, from the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runlane.cli._flow_check import workflow_at
from runlane.errors import InvalidValueError
from tests.cli.cli_program import environment, run

_SOURCE = """
from runlane.flow import AgentWorkflowDefinition, WorkflowNode, define_workflow, route

def node(id, *routes, **options):
    return WorkflowNode(id=id, run=lambda context: None, routes=routes, **options)

good = define_workflow(AgentWorkflowDefinition(id="good", start="a", nodes=[node("a", route(complete="x"))]))

def make():
    return AgentWorkflowDefinition(id="made", start="a", nodes=[node("a", route(complete="x"))])

bad = AgentWorkflowDefinition(id="bad", start="a", nodes=[node("a", route("nowhere"), max_visits=0), node("b")])
other = 3
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A folder with a module of workflows, as the current one."""
    (tmp_path / "flows.py").write_text(_SOURCE)
    (tmp_path / "broken.py").write_text(_SOURCE + "define_workflow(bad)\n")
    (tmp_path / "needy.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("flows", "broken", "needy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return environment(tmp_path)


def test_a_good_workflow_is_said_to_be_one(env: dict[str, str]) -> None:
    """It is counted, for people and for machines."""
    done = run(["flow", "check", "flows:good", "--json"], env=env)
    assert done.code == 0, done.err
    assert done.envelope["schema"] == "runlane.cli.flow.check/1"
    assert done.envelope["data"] == {"workflow": "good", "nodes": 1, "edges": 1, "violations": []}


def test_every_violation_is_printed(env: dict[str, str]) -> None:
    """Not the first alone; exit 3."""
    done = run(["flow", "check", "flows:bad"], env=env)
    assert done.code == 3
    lines = [line.partition(":")[0] for line in done.out.splitlines() if line[:1].isalpha()]
    assert lines[:3] == ["unknown_target", "no_routes", "budget"]
    assert "3 violations" in done.err


def test_every_violation_is_told_to_machines(env: dict[str, str]) -> None:
    """Also where the module itself fails on its own workflow."""
    done = run(["flow", "check", "broken:bad", "--json"], env=env)
    told = done.envelope
    assert (done.code, told["ok"], told["error"]["code"]) == (3, False, "workflow.contract")
    assert [(item["rule"], item["node"]) for item in told["data"]["violations"]] == [
        ("unknown_target", "a"),
        ("no_routes", "b"),
        ("budget", "a"),
    ]


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("flows", "MODULE:NAME"),
        ("nowhere_at_all:x", "no module"),
        ("flows:nothing", "nothing"),
        ("flows:other", "int"),
    ],
)
def test_a_target_that_is_none_is_refused(env: dict[str, str], target: str, told: str) -> None:
    """It is a bad value, and the message says what was looked for."""
    assert env
    with pytest.raises(InvalidValueError, match=told):
        workflow_at(target)


def test_a_function_may_make_the_workflow(env: dict[str, str]) -> None:
    """A function without arguments that returns a definition is called."""
    assert env
    assert workflow_at("flows:make").id == "made"


def test_a_module_that_fails_on_its_own_is_told_as_it_is(env: dict[str, str]) -> None:
    """A module whose own import is missing is not said to be missing itself."""
    assert env
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        workflow_at("needy:x")
