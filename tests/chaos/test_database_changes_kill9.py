"""kill -9 of a driver that mirrors a table while it is written: the topic has each change once.

A long test: `make chaos`. MOLDAU_CHAOS_KILLS (default 20) and MOLDAU_CHAOS_SEED change the run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_pipeline import CAUGHT_UP_S, SEED, read_topic, start
from harness.changes_query import Row, Writers, check_versions, make_table, table_now
from harness.postgresql import postgresql, why_none

KILLS = int(os.environ.get("MOLDAU_CHAOS_KILLS", "20"))
LIFE_S = (30.0, 60.0)
SPEC = """
name: chaos
sources:
  orders: {{database: "{url}", table: orders, changes: true, max_per_trigger: 5000}}
sinks:
  - {{from: orders, topic: changes, format: debezium}}
"""


@pytest.mark.skipif(why_none() is not None, reason=why_none() or "")
def test_each_change_is_there_once_when_the_driver_is_killed(broker: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with postgresql(tmp_path) as server:
        make_table(server, 2_000)
        (tmp_path / "chaos.yaml").write_text(SPEC.format(url=server.url))
        writers = Writers(server, 2, SEED, pause_s=0.05)
        for number in range(KILLS):
            process = start(tmp_path, broker)
            life_s = chance.uniform(*LIFE_S)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(life_s)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"kill {number + 1} of {KILLS} after {life_s:.1f} s", flush=True)
        writers.stop()
        assert start(tmp_path, broker, "--until-caught-up").wait(CAUGHT_UP_S) == 0
        check_versions(rows(read_topic(broker, "changes")), table_now(server))
        assert len(server.query("SELECT slot_name FROM pg_replication_slots")) == 1


def rows(values: list[bytes]) -> Iterator[Row]:
    for value in filter(None, values):
        change = json.loads(value)
        yield {"_op": change["op"], **(change["after"] or change["before"])}
