"""Graphs for tests of drawing: a realistic pipeline, and random graphs."""

from __future__ import annotations

from hypothesis import strategies as st

from moldau.pipelines.drawing.graph import Edge, Graph, Node, NodeKind

BOOKSTORE = """\
name: bookstore
sources:
  events:
    topic: bookstore.events
    schema: event_id string not null, type string, ts timestamp
    watermark: {column: ts, delay: 10 seconds}
    dead_letter: bookstore.dead
  users: {file: data/users.csv}
  rates: {table: lake/rates, format: delta}
steps:
  - name: enriched
    sql: select e.*, u.country from events e left join users u using (user_id)
  - name: counts
    sql: select window, count(*) n from enriched group by window(ts, '1 minute')
  - {name: revenue, sql: "select * from enriched join rates using (currency)"}
  - {name: suspicious, python: "detect:suspicious", inputs: [enriched]}
sinks:
  - {from: counts, topic: bookstore.counts, key: window, mode: update}
  - {from: enriched, route: "concat('bookstore.', type)"}
  - {from: enriched, table: lake/events, format: delta, partition_by: [day]}
  - {from: suspicious, topic: bookstore.suspicious, key: user_id}
  - {from: revenue, table: lake/revenue, format: iceberg}
  - {from: revenue, console: true}
"""


@st.composite
def graphs(draw: st.DrawFn, nodes_max: int = 9) -> Graph:
    """Draw a random graph whose edges go forward, with nodes of different widths."""
    count = draw(st.integers(1, nodes_max))
    nodes = tuple(
        Node(f"n{number}", draw(st.sampled_from(list(NodeKind))), f"n{number}", ("x" * draw(st.integers(0, 18)),))
        for number in range(count)
    )
    pairs = [(source, target) for target in range(count) for source in range(target)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    return Graph("g", nodes, tuple(Edge(f"n{source}", f"n{target}") for source, target in sorted(chosen)))
