"""`runlane flow check`: whether a workflow keeps its rules, and every place where it does not."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from runlane.cli._exits import Exit
from runlane.cli._failure import Failure
from runlane.cli._flags import Call
from runlane.errors import InvalidValueError, WorkflowContractError

if TYPE_CHECKING:
    from runlane.flow import AgentWorkflow
__all__ = ["FlowCheckFlags", "flow_check", "workflow_at"]


@dataclass(frozen=True, kw_only=True)
class FlowCheckFlags:
    """What the check takes."""

    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME", help="A workflow, a definition, or a function without arguments that returns one."
        ),
    ]


async def flow_check(call: Call, flags: FlowCheckFlags) -> int:
    """Check a workflow and print everything that is wrong with it.

    MODULE is looked for in the current folder first. Exits 0 if the workflow keeps its rules, 3 if it does not.

    Example: runlane flow check examples.review_loop:workflow
    """
    try:
        workflow = workflow_at(flags.target)
    except WorkflowContractError as error:
        return _tell_breaches(call, (error, *error.others))
    counts = {"nodes": len(workflow), "edges": len(workflow.graph().edges)}
    call.terminal.say(f"{workflow.id}: {counts['nodes']} nodes, {counts['edges']} edges, every rule kept")
    call.terminal.result({"workflow": workflow.id, **counts, "violations": []})
    return Exit.DONE


def _tell_breaches(call: Call, breaches: Iterable[WorkflowContractError]) -> Exit:
    told = [
        {"rule": error.rule, "node": error.node_id, "message": str(error).removeprefix(f"{error.rule}: ")}
        for error in breaches
    ]
    for breach in told:
        call.terminal.say(f"{breach['rule']}: {breach['message']}")
        call.terminal.event({"event": "violation", **breach})
    count = f"{len(told)} violations" if len(told) > 1 else "a violation"
    failure = Failure(code="workflow.contract", message=f"the workflow has {count}", retryable=False)
    call.terminal.fail(failure, data={"violations": told})
    return Exit.CHECK_FAILED


def workflow_at(target: str) -> AgentWorkflow[object]:
    """Return the workflow that `MODULE:NAME` names.

    Raises:
        InvalidValueError: It names nothing, or something else.
        WorkflowContractError: The workflow breaks a rule.
    """
    from runlane.flow import (  # noqa: PLC0415 - help and usage errors need nothing of it
        AgentWorkflow,
        AgentWorkflowDefinition,
        define_workflow,
    )

    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise InvalidValueError(f"is MODULE:NAME, not {target!r}", argument="MODULE:NAME")
    found: object = _module(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidValueError(f"{module_name} has no {name!r}", argument="MODULE:NAME")
        found = getattr(found, part)
    if callable(found) and not isinstance(found, AgentWorkflow | AgentWorkflowDefinition):
        found = found()
    if isinstance(found, AgentWorkflowDefinition):
        return define_workflow(found)
    if isinstance(found, AgentWorkflow):
        return found
    text = f"{target} is {type(found).__name__}, neither a workflow nor a definition of one"
    raise InvalidValueError(text, argument="MODULE:NAME")


def _module(name: str) -> object:
    here = os.getcwd()  # noqa: PTH109 - an entry of sys.path is text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise InvalidValueError(f"there is no module {name!r}, here or installed", argument="MODULE:NAME") from None
