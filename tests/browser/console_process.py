"""The console as users start it, `moldau console`, and a small shop whose topics and groups it shows."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import wait_until

from moldau.cli.cluster.directory import is_free
from moldau.pipelines.running.ends import SinkStatus, SourceStatus
from moldau.pipelines.running.progress import QueryStatus, RunStatus
from moldau.pipelines.running.state_directory import Holder, StateDirectory

ITEMS = ("The Castle", "The Trial", "Amerika", "Metamorphosis")
PEOPLE = ("anna", "ben", "cleo", "dan", "eva")
BOOKSTORE = Path(__file__).parents[2] / "examples" / "bookstore" / "pipeline.yaml"
HOSTILE = "<img src=x onerror=\"document.title='hacked'\">"
"""If a page parses this as HTML, its title changes."""


@contextmanager
def console(bootstrap: str, *options: str, properties: Path | None = None) -> Iterator[str]:
    """Run `moldau console` on a free port; return its address."""
    config = ("--command-config", str(properties)) if properties else ()
    command = [sys.executable, "-m", "moldau", "console", "-b", bootstrap, "--listen", "127.0.0.1:0", *config, *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
        reader.start()

        def address() -> str | None:
            assert process.poll() is None, "".join(lines)
            found = re.search(r"https?://\S+", "".join(lines))
            return found.group().rstrip("/") if found else None

        try:
            yield wait_until(address, "the console prints its address")
        finally:
            process.terminate()
            process.wait()
            reader.join()


class NodeProcesses:
    """`moldau cluster start`: three nodes, each a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def bootstrap_servers(self) -> str:
        nodes = json.loads((self._folder / "cluster.json").read_text())["nodes"]
        return ",".join(f"127.0.0.1:{node['port']}" for node in nodes)

    def kill(self, node_id: int) -> None:
        """SIGKILL, at once: a command would need time to start."""
        process = json.loads((self._folder / f"node-{node_id}" / "process.json").read_text())
        os.kill(int(process["pid"]), signal.SIGKILL)

    def run(self, *words: str) -> None:
        command = [sys.executable, "-m", "moldau", "cluster", *words, "-d", str(self._folder)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def node_processes(folder: Path) -> Iterator[NodeProcesses]:
    nodes = NodeProcesses(folder)
    words = ("cluster", "start", "-d", str(folder), "--nodes", "3", "--base-port", str(free_base_port()))
    with subprocess.Popen([sys.executable, "-m", "moldau", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = next((line for line in process.stdout if "The cluster is ready" in line), None)
        assert ready is not None, "the cluster ended before it was ready"
        reader = threading.Thread(target=deque, args=(process.stdout, 0), daemon=True)  # so that it never waits
        reader.start()
        try:
            yield nodes
        finally:
            nodes.run("stop")
            process.wait()
            reader.join()


def free_base_port() -> int:
    """Return the first of three free ports in a row, whose ports for controllers and metrics are free too."""
    while True:
        base = random.randrange(20_000, 29_000)
        if all(is_free(base + above + node) for above in (0, 1000, 3000) for node in range(3)):
            return base


def tool(bootstrap: str, *words: str) -> Any:
    """Return what a `moldau` command prints as JSON."""
    command = [sys.executable, "-m", "moldau", *words, "-b", bootstrap, "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def create_topics(bootstrap: str, partitions: Mapping[str, int], replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, count, replicas) for name, count in partitions.items()])
    for future in made.values():
        future.result()


def order(number: int) -> str:
    return json.dumps(
        {
            "id": number,
            "item": ITEMS[number % len(ITEMS)],
            "amount": 5 + number * 7 % 60,
            "customer": {"name": PEOPLE[number % len(PEOPLE)], "city": "Praha" if number % 2 else "Brno"},
        }
    )


@contextmanager
def running_pipeline(folder: Path) -> Iterator[None]:
    """The state directory of a run of the bookstore, as `moldau pipeline run` keeps it, without Spark."""
    state = StateDirectory(folder / "state")
    sources = {"events": SourceStatus(rows=2000, rows_per_second=120.0, lag_bytes=5 << 20, last_change_ms=1)}
    sinks = {
        "counts": SinkStatus(rows=40, rows_per_second=3.0, retries=7, dead_letters=1, last_error="503: overloaded")
    }
    counts = QueryStatus(
        name="counts",
        state="running",
        rows_in_per_second=120.0,
        batch_id=17,
        batch_ms=800,
        sources=sources,
        sinks=sinks,
    )
    failed = QueryStatus(name="suspicious", state="restarting", restarts=2, last_error=HOSTILE)
    started = "2026-11-17T08:00:00+00:00"
    status = RunStatus(
        pipeline="bookstore",
        mode="run",
        state="running",
        pid=1,
        host="localhost",
        started=started,
        updated=started,
        file=str(BOOKSTORE),
        queries=(counts, failed),
    )
    with state.locked(Holder(1, "localhost", started)):
        state.write_status(status.to_json())
        yield


class Shop:
    """Produces orders; one group reads them, another one is behind."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def write_orders(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            person = PEOPLE[number % len(PEOPLE)]
            self.producer.produce("orders", order(number), person, headers={"trace": f"t-{number}"})
        assert self.producer.flush(60) == 0

    def write_oddities(self) -> None:
        """Write values that a page must show unchanged: markup, bytes, a tombstone."""
        self.producer.produce("oddities", HOSTILE, HOSTILE, headers={HOSTILE: HOSTILE}, partition=0)
        self.producer.produce("oddities", b"\x00\x01\xff\xfe bytes", "bytes", partition=0)
        self.producer.produce("oddities", None, "tombstone", partition=0)
        assert self.producer.flush(60) == 0

    def commit_once(self, group: str, topic: str, records: int) -> None:
        """Read some records as a group, commit, and leave."""
        consumer = self._consumer(group, topic)
        read = 0
        while read < records:
            read += len(consumer.consume(records - read, timeout=1))
        consumer.commit(asynchronous=False)
        consumer.close()

    def start_group(self, group: str, topic: str, members: int) -> None:
        for number in range(members):
            thread = threading.Thread(target=self._read, args=(group, topic, f"{group}-{number + 1}"), daemon=True)
            thread.start()
            self._threads.append(thread)

    def start_orders(self, per_second: int) -> None:
        thread = threading.Thread(target=self._write, args=(per_second,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _consumer(self, group: str, topic: str, client_id: str = "shop") -> Consumer:
        names = {"bootstrap.servers": self.bootstrap, "group.id": group, "client.id": client_id}
        consumer = Consumer({**names, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([topic])
        return consumer

    def _read(self, group: str, topic: str, client_id: str) -> None:
        consumer = self._consumer(group, topic, client_id)
        while not self._stop.is_set():
            if consumer.consume(500, timeout=0.2):
                consumer.commit(asynchronous=True)
        consumer.close()

    def _write(self, per_second: int) -> None:
        number = 1_000_000
        while not self._stop.wait(0.1):
            self.write_orders(max(1, per_second // 10), number)
            number += max(1, per_second // 10)
