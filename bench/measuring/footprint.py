"""How long a broker takes to start, how much memory it uses, and CPU time without requests.

All of it is measured before or after the rounds of the benchmark: it would disturb them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.brokers.procfs import cpu_seconds, resident_mib
from bench.brokers.servers import KAFKA, MOLDAU, KafkaScript, MoldauProcess, Server
from bench.measuring.progress import Progress
from bench.measuring.results import Quantity, Result, Samples

START = Quantity("start-up", "s", higher_is_better=False)
IDLE = Quantity("resident memory, idle", "MiB", higher_is_better=False)
AFTER = Quantity("resident memory, after the benchmark", "MiB", higher_is_better=False)
IDLE_CPU = Quantity("CPU time, idle", "ms/s", higher_is_better=False)
IDLE_WATCHED_S = 10.0
"""For how long the CPU time of an idle broker is measured."""
IDLE_AFTER_S = 3.0
"""A broker is not idle yet just after its start."""


def start_up(repeats: int, kafka: KafkaScript | None, kafka_repeats: int, progress: Progress) -> Result:
    """Measure from the start of the process: Moldau until it says that it is ready, Kafka until its port is open.

    Each start of Moldau is on an empty directory, which it formats; Kafka's is formatted before its clock starts.
    """
    result = Result(START, {MOLDAU: Samples()})
    for turn in range(repeats):
        progress.say(f"start-up: moldau {turn + 1} of {repeats}")
        with MoldauProcess() as process:
            process.start()
            result.samples[MOLDAU].values.append(process.start_s)
    if kafka is not None:
        result.samples[KAFKA] = Samples()
        for turn in range(kafka_repeats):
            progress.say(f"start-up: kafka {turn + 1} of {kafka_repeats}")
            kafka.start()
            result.samples[KAFKA].values.append(kafka.start_s)
            kafka.stop()
    return result


def idle_cpu(servers: Sequence[Server], progress: Progress) -> Result:
    """Measure the CPU time of brokers without any requests; all are watched at the same time."""
    progress.say(f"idle for {IDLE_WATCHED_S:g} s")
    before = [cpu_seconds(server.pid) for server in servers]
    time.sleep(IDLE_WATCHED_S)
    spent = [
        (cpu_seconds(server.pid) - was) * 1e3 / IDLE_WATCHED_S for server, was in zip(servers, before, strict=True)
    ]
    return Result(IDLE_CPU, {server.name: Samples([taken]) for server, taken in zip(servers, spent, strict=True)})


def idle_memory(servers: Sequence[Server]) -> Result:
    time.sleep(IDLE_AFTER_S)
    return memory(IDLE, servers)


def memory(quantity: Quantity, servers: Sequence[Server]) -> Result:
    return Result(quantity, {server.name: Samples([resident_mib(server.pid)]) for server in servers})
