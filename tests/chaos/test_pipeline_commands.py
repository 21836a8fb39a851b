"""The commands of a user who changes a pipeline, with kills between and during them: every output row is counted.

Each closed window is written once; the lag is that of the broker; a start with --fresh duplicates nothing. A long test:
`make chaos`. MOLDAU_CHAOS_SEED changes the run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chaos_pipeline import CAUGHT_UP_S, PARTITIONS, SEED, read_topic
from confluent_kafka import Producer

from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, Cluster

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVERY_S = 2
DELAY_S = 1
QUERIES = ("minutes", "tens")
LIFE_S = 45.0
SPEC = """
name: commands
sources:
  numbers:
    topic: numbers
    schema: n int not null, ts timestamp not null
    watermark: {column: ts, delay: 1 second}
    max_per_trigger: 400
steps:
  - name: by_minute
    sql: select window.start as at, count(*) as n from numbers group by window(ts, '1 minute')
  - name: by_ten
    sql: select window.start as at, count(*) as n from numbers group by window(ts, '10 minutes')
sinks:
  - {from: by_minute, name: minutes, topic: minutes}
  - {from: by_ten, name: tens, table: lake/tens, format: delta}
"""


class Shell:
    """The project folder of a user."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap, self.sent = folder, bootstrap, 0
        self.file = folder / "commands.yaml"
        self.file.write_text(SPEC)
        self.chance = random.Random(SEED)

    def feed(self, count: int) -> None:
        """Write records in the order of time, to one partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for number in range(self.sent, self.sent + count):
            at = NOON + timedelta(seconds=number * EVERY_S)
            producer.produce("numbers", json.dumps({"n": number, "ts": at.isoformat()}).encode(), partition=0)
        assert producer.flush(30) == 0
        self.sent += count

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "moldau", "pipeline", "run", self.file.name, "-b", self.bootstrap, *words]
        return subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        stderr = process.communicate(timeout=CAUGHT_UP_S)[1]
        return process.returncode, stderr

    def kill(self, process: subprocess.Popen[str], after_s: float) -> None:
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        print(f"killed after {after_s:.1f} s", flush=True)

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "moldau", "pipeline", "status", self.file.name, "--format", "json"]
        completed = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return {query["name"]: query for query in json.loads(completed.stdout)["queries"]}

    def change(self, before: str, after: str) -> None:
        self.file.write_text(self.file.read_text().replace(before, after))


def windows(sent: int, minutes: int) -> Counter[tuple[datetime, int]]:
    """Return the closed windows, by the watermark, and their counts."""
    counted: Counter[datetime] = Counter()
    for number in range(sent):
        at = NOON + timedelta(seconds=number * EVERY_S)
        counted[at - timedelta(minutes=at.minute % minutes, seconds=at.second)] += 1
    watermark = NOON + timedelta(seconds=(sent - 1) * EVERY_S - DELAY_S)
    return Counter((at, n) for at, n in counted.items() if at + timedelta(minutes=minutes) <= watermark)


def check(shell: Shell, minutes: int = 1) -> None:
    from deltalake import DeltaTable

    found = [json.loads(value) for value in read_topic(shell.bootstrap, "minutes")]
    assert Counter((datetime.fromisoformat(row["at"]), row["n"]) for row in found) == windows(shell.sent, minutes)
    rows = DeltaTable(shell.folder / "lake" / "tens").to_pyarrow_table().to_pylist()
    assert Counter((row["at"], row["n"]) for row in rows) == windows(shell.sent, 10)


def test_pipeline_outputs_are_exact_although_commands_are_killed(broker: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, broker)
    shell.feed(3000)
    for _ in range(2):
        shell.kill(shell.start(), shell.chance.uniform(10, LIFE_S))
    assert shell.run("--until-caught-up")[0] == 0
    check(shell)
    assert {name: shell.status()[name]["lag_records"] for name in QUERIES} == dict.fromkeys(QUERIES, 0)

    shell.feed(777)
    assert {name: shell.status()[name]["lag_records"] for name in QUERIES} == dict.fromkeys(QUERIES, 777)
    shell.change("count(*) as n from", "count(n) as n from")
    for words, names in (((), ["minutes", "tens"]), (("--fresh", "minutes", "--existing", "keep"), ["tens"])):
        status, stderr = shell.run("--until-caught-up", *words)
        assert status == 1, stderr
        assert [name for name in QUERIES if f"sink {name}: " in stderr] == names, stderr
    shell.change("count(n) as n from", "count(*) as n from")
    assert shell.run("--until-caught-up")[0] == 0
    check(shell)

    shell.change("window(ts, '1 minute')", "window(ts, '2 minutes')")
    fresh = ("--fresh", "minutes", "--existing", "clear")
    for _ in range(3):
        process, deadline_s = shell.start(*fresh), time.monotonic() + shell.chance.uniform(5, LIFE_S)
        plan = shell.folder / ".moldau" / "pipelines" / "commands" / "fresh.json"
        while process.poll() is None and time.monotonic() < deadline_s and not plan.exists():
            time.sleep(0.001)
        shell.kill(process, 0.0 if plan.exists() else 0.1)
    status, stderr = shell.run("--until-caught-up")
    if status != 0:
        assert "--fresh minutes" in stderr
        status, stderr = shell.run("--until-caught-up", *fresh)
    assert status == 0, stderr
    check(shell, minutes=2)
    places = [TopicPartition("minutes", number) for number in range(PARTITIONS)]
    with closing(Cluster(broker, {})) as cluster:
        begins = cluster.list_offsets(dict.fromkeys(places, EARLIEST))
    assert any(begins.values()), "--existing clear did not delete the earlier records"
