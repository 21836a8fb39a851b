"""The graph of a pipeline: the kinds of its nodes, and its edges."""

from __future__ import annotations

from pathlib import Path

from flows import BOOKSTORE
from marked_yaml import WHOLE_PIPELINE, write

from moldau.pipelines.drawing.graph import Edge, Graph, NodeKind, graph
from moldau.pipelines.reading.loading import load


def graph_of(folder: Path, text: str) -> Graph:
    return graph(load(write(folder, text), check_files=False))


def test_the_edges_of_a_graph(tmp_path: Path) -> None:
    edges = {(edge.source, edge.target) for edge in graph_of(tmp_path, BOOKSTORE).edges}
    assert edges == {
        ("source.events", "dead.bookstore.dead"),
        ("source.events", "step.enriched"),
        ("source.users", "step.enriched"),
        ("step.enriched", "step.counts"),
        ("step.enriched", "step.revenue"),
        ("source.rates", "step.revenue"),
        ("step.enriched", "step.suspicious"),
        ("step.counts", "sink.counts-to-bookstore.counts"),
        ("step.enriched", "sink.enriched-to-topics"),
        ("step.enriched", "sink.enriched-to-events"),
        ("step.suspicious", "sink.suspicious-to-bookstore.suspicious"),
        ("step.revenue", "sink.revenue-to-revenue"),
        ("step.revenue", "sink.revenue-to-console"),
    }


def test_the_kinds_of_nodes(tmp_path: Path) -> None:
    kinds = {node.title: node.kind for node in graph_of(tmp_path, BOOKSTORE).nodes}
    assert kinds["events"] is NodeKind.TOPIC
    assert kinds["users"] is kinds["rates"] is NodeKind.TABLE
    assert kinds["counts"] is NodeKind.SQL
    assert kinds["suspicious"] is NodeKind.PYTHON
    assert kinds["lake/events"] is kinds["console"] is kinds["topic by content"] is NodeKind.SINK
    assert kinds["bookstore.dead"] is NodeKind.DEAD_LETTERS


def test_edges_go_forward_in_the_order_of_the_nodes(tmp_path: Path) -> None:
    drawn = graph_of(tmp_path, BOOKSTORE)
    order = {node.id: number for number, node in enumerate(drawn.nodes)}
    assert len(order) == len(drawn.nodes)
    assert all(order[edge.source] < order[edge.target] for edge in drawn.edges)


def test_a_step_uses_only_views_above_it(tmp_path: Path) -> None:
    text = WHOLE_PIPELINE.replace(
        "sinks:", "steps:\n  - {name: a, sql: select * from b}\n  - {name: b, sql: select * from a join b}\nsinks:"
    )
    assert [edge for edge in graph_of(tmp_path, text).edges if edge.target.startswith("step.")] == [
        Edge("step.a", "step.b")
    ]


def test_sources_with_the_same_dead_letter_topic_share_its_node(tmp_path: Path) -> None:
    text = WHOLE_PIPELINE.replace("sinks:", "  more: {topic: more, format: text, dead_letter: orders.dead}\nsinks:")
    drawn = graph_of(tmp_path, text)
    assert [node.title for node in drawn.nodes if node.kind is NodeKind.DEAD_LETTERS] == ["orders.dead"]
    assert sum(edge.target == "dead.orders.dead" for edge in drawn.edges) == 2


def test_no_dead_letter_node_if_bad_records_are_dropped(tmp_path: Path) -> None:
    text = WHOLE_PIPELINE.replace("topic: orders\n", "topic: orders\n    dead_letter: drop\n")
    assert all(node.kind is not NodeKind.DEAD_LETTERS for node in graph_of(tmp_path, text).nodes)
