"""How long does a record take through a pipeline, from `produce` until a reader of its sink has it?

A pipeline reads JSON from one topic and writes one expression over it to another, exactly once, with the default
trigger; the reader has isolation.level=read_committed. Beside the times stands where a micro-batch's time goes:

    python -m bench.spark.latency
    python -m bench.spark.latency --rate 100 --conf spark.python.unix.domain.socket.enabled=true
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers.servers import SOURCES, MoldauProcess

RATES = (100, 1_000, 10_000)
WARM_UP_S = 60.0
TICK_S = 0.005
PIPELINE = """
name: latency
sources:
  clicks: {topic: clicks, format: json, schema: "id long, sent double, page string", dead_letter: clicks-dead}
steps:
  - {name: pages, sql: "SELECT id, sent, upper(page) AS page FROM clicks"}
sinks:
  - {name: pages, from: pages, topic: pages, format: json}
"""


class Measured(NamedTuple):
    rate: int
    records: int
    latencies_ms: list[float]
    batches: float
    batch_ms: float
    """The mean time of a micro-batch of the query that writes `pages`."""
    phases_ms: Mapping[str, float]
    cpu_ms: float
    """CPU time of the pipeline's processes for each micro-batch."""

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, action="append", help="records a second; repeatable")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each rate")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--conf", action="append", default=[], metavar="K=V", help="a setting of Spark's")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    chosen = parser.parse_args()
    with MoldauProcess() as broker:
        bootstrap = broker.start().address
        create_topics(bootstrap, chosen.partitions)
        with pipeline(bootstrap, chosen.conf) as running:
            measure(bootstrap, running, 200, WARM_UP_S)
            rates = [rate for _ in range(chosen.rounds) for rate in chosen.rate or RATES]
            lines = table([measure(bootstrap, running, rate, chosen.seconds) for rate in rates])
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n")


def create_topics(bootstrap: str, partitions: int) -> None:
    topics = [NewTopic(name, partitions, 1) for name in ("clicks", "pages", "clicks-dead")]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics(topics).values():
        created.result()


class Running(NamedTuple):
    metrics: str
    process: int

    def numbers(self) -> dict[tuple[str, str], float]:
        """Return the metrics of the query that writes `pages`, by name and phase."""
        with urllib.request.urlopen(self.metrics, timeout=30) as answer:
            text = answer.read().decode()
        found = re.findall(r'^moldau_pipeline_(\w+)\{(.*query="pages".*)\} (\S+)$', text, re.MULTILINE)
        return {(name, "".join(re.findall(r'phase="(\w+)"', labels))): float(value) for name, labels, value in found}

    def cpu_ms(self) -> float:
        """Return the CPU time of the pipeline's process group, which is all of Spark."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == self.process:
                ticks += sum(map(int, fields[11:15]))
        return 1000 * ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def pipeline(bootstrap: str, conf: list[str]) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "latency.yaml")
        file.write_text(PIPELINE)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        command = [sys.executable, "-m", "moldau", "pipeline", "run", str(file), "-b", bootstrap, "--metrics", address]
        for setting in conf:
            command += ["--conf", setting]
        path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": path}, start_new_session=True
            )
            try:
                yield Running(f"http://{address}/metrics", process.pid)
            except BaseException:
                print(Path(folder, "log").read_text(errors="replace")[-3000:], file=sys.stderr)
                raise
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()


def measure(bootstrap: str, running: Running, rate: int, seconds: float) -> Measured:
    """Produce at a steady rate; each record says when it was sent."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"latency-{time.time_ns()}", "auto.offset.reset": "latest",
            "isolation.level": "read_committed", "fetch.wait.max.ms": 500, "fetch.min.bytes": 1,
        }
    )  # fmt: skip
    assigned = threading.Event()
    reader.subscribe(["pages"], on_assign=lambda *_: assigned.set())
    while not assigned.is_set():
        reader.poll(0.1)
    for partition in reader.assignment():
        reader.position([partition])
    reader.poll(1.0)
    run_id = time.time_ns() % 1_000_000_007
    expected = int(rate * seconds)
    producing = threading.Thread(target=_produce, args=(bootstrap, rate, expected, run_id))
    producing.start()
    latencies: list[float] = []
    before: dict[tuple[str, str], float] = {}
    after: dict[tuple[str, str], float] = {}
    cpu_before = cpu_after = 0.0
    while len(latencies) < expected:
        message = reader.poll(0.2)
        now_s = time.time()
        value = json.loads(message.value() or b"{}") if message is not None and message.error() is None else {}
        if value.get("id") == run_id:
            latencies.append(1000 * (now_s - value["sent"]))
        if not before and latencies:
            before, cpu_before = running.numbers(), running.cpu_ms()
        if before and producing.is_alive() and len(latencies) > 0.9 * expected and not after:
            after, cpu_after = running.numbers(), running.cpu_ms()
    producing.join()
    reader.close()
    after, cpu_after = (after, cpu_after) if after else (running.numbers(), running.cpu_ms())
    batches = max(1.0, after["batches_total", ""] - before.get(("batches_total", ""), 0))
    phases = {
        phase: 1000 * (value - before.get((name, phase), 0)) / batches
        for (name, phase), value in after.items()
        if name == "batch_phase_seconds_total"
    }
    total_ms = phases.pop("triggerExecution", sum(phases.values()))
    return Measured(rate, expected, latencies, batches, total_ms, phases, (cpu_after - cpu_before) / batches)


def _produce(bootstrap: str, rate: int, count: int, run_id: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "queue.buffering.max.messages": 1_000_000})
    began_s, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - began_s) * rate))
        for _ in range(due - sent):
            value = json.dumps({"id": run_id, "sent": time.time(), "page": "about"})
            producer.produce("clicks", value=value, partition=-1)
        sent = due
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush()


def table(results: list[Measured]) -> list[str]:
    phases = sorted({phase for each in results for phase in each.phases_ms})
    heads = ["records/s", "p50 ms", "p90 ms", "p99 ms", "batch ms", "CPU ms/batch", *phases]
    rows = [
        [f"{each.rate:,}", *(f"{each.percentile(share):.0f}" for share in (0.5, 0.9, 0.99)),
         f"{each.batch_ms:.0f}", f"{each.cpu_ms:.0f}", *(f"{each.phases_ms.get(phase, 0):.1f}" for phase in phases)]
        for each in results
    ]  # fmt: skip
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return [lines[0], "|" + "--:|" * len(heads), *lines[1:]]


if __name__ == "__main__":
    main()
