"""What the console shows of pipelines, from their state directories and files."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.console.access import Access
from moldau.console.call import Call
from moldau.console.collector.state import ClusterState, TopicState
from moldau.console.endpoints.pipelines import list_pipelines
from moldau.console.options import ConsoleOptions
from moldau.pipelines.running.progress import RunStatus
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


def shown(folder: Path, state: ClusterState) -> dict[str, Any]:
    """The row of the pipeline in the folder, which has run once."""
    file = folder / "shop.yaml"
    file.write_text(FILE, encoding="utf-8")
    status = RunStatus(
        pipeline="shop", mode="run", state="stopped", pid=1, host="localhost", started=STARTED, updated=STARTED,
        file=str(file), queries=(),
    )  # fmt: skip
    StateDirectory(folder / "state").write_status(status.to_json())
    access = SimpleNamespace(collector=SimpleNamespace(look=lambda: state))
    answer = list_pipelines(Call(ConsoleOptions("b", pipelines=(str(folder),)), cast(Access, access)))
    (row,) = answer["rows"]
    return cast(dict[str, Any], json.loads(json.dumps(row)))


def test_the_dead_letters_of_every_source_are_listed(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="the extra `spark` is not installed")
    counted = TopicState("clicks-dead", False, bytes(16), array("i"), [], [], records=3)
    row = shown(tmp_path, ClusterState(topics={"clicks-dead": counted}))
    assert row["dead_letters"] == [
        {"topic": "orders-dead", "records": None},
        {"topic": "clicks-dead", "records": 3},
    ]
