"""What the console shows of pipelines, from their state directories and files."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.client.admin.cluster_values import BrokerNode
from moldau.console.access import Access
from moldau.console.call import Call
from moldau.console.collector.state import ClusterState, TopicState
from moldau.console.endpoints.pipelines import list_pipelines
from moldau.console.options import ConsoleOptions
from moldau.pipelines.running.ends import SinkStatus, SourceStatus
from moldau.pipelines.running.progress import Counted, QueryStatus, RunStatus
from moldau.pipelines.running.state_directory import StateDirectory

STARTED = "2026-11-17T08:00:00+00:00"
FILE = """\
name: shop
sources:
  orders: {topic: orders, format: json, schema: id string, dead_letter: orders-dead}
  clicks: {topic: clicks, format: json, schema: id string, dead_letter: clicks-dead}
sinks:
  - {name: bought, from: orders, topic: bought}
  - {name: clicked, from: clicks, topic: clicked}
"""


def shown(
    folder: Path,
    state: ClusterState,
    bootstrap: str | None = None,
    cluster_id: str | None = None,
    queries: tuple[QueryStatus, ...] = (),
) -> dict[str, Any]:
    """The row of the pipeline in the folder, which has run once, on the console of b:9092."""
    file = folder / "shop.yaml"
    file.write_text(FILE, encoding="utf-8")
    status = RunStatus(
        pipeline="shop", mode="run", state="stopped", pid=1, host="localhost", started=STARTED, updated=STARTED,
        file=str(file), bootstrap=bootstrap, cluster_id=cluster_id, queries=queries,
    )  # fmt: skip
    StateDirectory(folder / "state").write_status(status.to_json())
    access = SimpleNamespace(collector=SimpleNamespace(look=lambda: state))
    answer = list_pipelines(Call(ConsoleOptions("b:9092", pipelines=(str(folder),)), cast(Access, access)))
    (row,) = answer["rows"]
    return cast(dict[str, Any], json.loads(json.dumps(row)))


def test_the_dead_letters_of_every_source_are_listed(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="the extra `spark` is not installed")
    counted = TopicState("clicks-dead", False, bytes(16), array("i"), [], [], records=3)
    row = shown(tmp_path, ClusterState(topics={"clicks-dead": counted}))
    assert row["dead_letters"] == [
        {"topic": "orders-dead", "records_at_most": None},
        {"topic": "clicks-dead", "records_at_most": 3},
    ]


@pytest.mark.parametrize(
    ("bootstrap", "cluster_id", "other_cluster"),
    [
        ("b:9092", "this", None),
        ("an-alias:1234", "this", None),
        ("b:9092", "that", "b:9092"),
        ("elsewhere:9092", "that", "elsewhere:9092"),
        # As earlier versions wrote it, and at a start:
        ("b:9092", None, None),
        ("127.0.0.1:9093", None, None),
        ("elsewhere:9092,PLAINTEXT://Node-2:9092", None, None),
        ("elsewhere:9092", None, "elsewhere:9092"),
        (None, None, None),
    ],
)
def test_a_pipeline_of_another_cluster_is_shown_as_such(
    tmp_path: Path, bootstrap: str | None, cluster_id: str | None, other_cluster: str | None
) -> None:
    pytest.importorskip("yaml", reason="the extra `spark` is not installed")
    counted = TopicState("orders-dead", False, bytes(16), array("i"), [], [], records=3)
    nodes = {1: BrokerNode(1, "localhost", 9093, None, False), 2: BrokerNode(2, "node-2", 9092, None, False)}
    state = ClusterState("this", nodes=nodes, topics={"orders-dead": counted}, read={"brokers"})
    row = shown(tmp_path, state, bootstrap, cluster_id)
    assert row["other_cluster"] == other_cluster
    letters = row["dead_letters"][0]
    assert letters == {"topic": "orders-dead", "records_at_most": None if other_cluster else 3}, "of this cluster only"


def test_before_the_brokers_are_read_no_pipeline_is_said_to_be_of_another_cluster(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="the extra `spark` is not installed")
    assert shown(tmp_path, ClusterState(), "node-2:9092", "this")["other_cluster"] is None


def test_sources_and_sinks_are_shown_with_their_numbers(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="the extra `spark` is not installed")
    query = QueryStatus(
        name="bought",
        bad_records={"orders": Counted(100, 2)},
        waiting="the backend takes nothing",
        sources={"orders": SourceStatus(rows=100, rows_per_second=5.0, lag_bytes=4096, last_change_ms=1)},
        sinks={"hook": SinkStatus(rows=90, rows_per_second=4.0, retries=3, dead_letters=1, last_error="503")},
    )
    row = shown(tmp_path, ClusterState(), queries=(query,))
    assert row["queries"][0]["waiting"] == "the backend takes nothing"
    assert row["sources"] == [
        {
            "name": "orders", "query": "bought", "rows_per_second": 5.0, "rows": 100, "bad_records": 2, "lag": None,
            "lag_seconds": None, "lag_bytes": 4096, "last_change_ms": 1,
        }
    ]  # fmt: skip
    assert row["sinks"] == [
        {
            "name": "hook", "query": "bought", "rows_per_second": 4.0, "rows": 90, "retries": 3, "dead_letters": 1,
            "error": "503",
        }
    ]  # fmt: skip
