"""Java's producer with transactions and without, by Apache's own kafka-producer-perf-test.

The script that starts Kafka runs it, if that has a verb `tool CLASS ARGUMENTS`. The tool reports the rate after its
first records, during which a Java program still warms up.
"""

from __future__ import annotations

import re
import subprocess
import uuid
from contextlib import ExitStack
from pathlib import Path

from bench.brokers.connection import BrokerRefused
from bench.brokers.servers import Server
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn
from bench.measuring.versus import Versus
from bench.transactions.clients import PRODUCE_WANTED, TRANSACTION_S, one_broker_topic

TOOL = "org.apache.kafka.tools.ProducerPerformance"
RECORDS = 1_000_000
GETTING_UNDER_WAY = 0.3
VALUE_BYTES = 100
TIMEOUT_S = 120
STEADY = re.compile(r"steady state records sent, ([\d.]+) records/sec")


def produce_by_java(script: Path, scale: float) -> Versus:
    records = max(1_000, int(RECORDS * scale))

    def prepare(server: Server, cleanup: ExitStack) -> tuple[Turn, Turn]:
        topic = one_broker_topic(server, cleanup)

        def turn(is_transactional: bool) -> Measured:
            rate = _rate(_command(script, server, topic, records, is_transactional))
            return Measured((rate / 1e3,), records)

        return lambda: turn(False), lambda: turn(True)

    name = f"produce {VALUE_BYTES}B in 100 ms transactions, by Java's perf test"
    return Versus(Quantity(name, "k rec/s", work_unit="record"), prepare, PRODUCE_WANTED)


def _command(script: Path, server: Server, topic: str, records: int, is_transactional: bool) -> list[str]:
    words = {
        "--bootstrap-server": server.address,
        "--topic": topic,
        "--num-records": str(records),
        "--warmup-records": str(int(records * GETTING_UNDER_WAY)),
        "--record-size": str(VALUE_BYTES),
        "--throughput": "-1",
    }
    if is_transactional:
        words["--transactional-id"] = f"bench-{uuid.uuid4().hex[:12]}"
        words["--transaction-duration-ms"] = str(int(TRANSACTION_S * 1e3))
    options = [word for pair in words.items() for word in pair]
    return [str(script), "tool", TOOL, *options, "--command-property", "linger.ms=5", "batch.size=262144"]


def _rate(command: list[str]) -> float:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise BrokerRefused(f"{TOOL} has not ended after {TIMEOUT_S} s") from None
    found = STEADY.search(done.stdout)
    if done.returncode or found is None:
        raise BrokerRefused(f"{TOOL}: {done.stdout[-500:]}{done.stderr[-1000:]}")
    return float(found[1])
