"""How soon a cluster is ready and has its first topic, and the memory and CPU time of its nodes; outside the rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.brokers.procfs import cpu_seconds, resident_mib
from bench.cluster.servers import Cluster
from bench.cluster.topics import led_by
from bench.measuring.footprint import IDLE_AFTER_S, IDLE_WATCHED_S
from bench.measuring.progress import Progress
from bench.measuring.results import Quantity, Result, Samples

READY = Quantity("start of three nodes, to ready", "s", higher_is_better=False)
FIRST_TOPIC = Quantity("start of three nodes, to the first topic", "s", higher_is_better=False)
IDLE = Quantity("resident memory of a node, idle", "MiB", higher_is_better=False)
AFTER = Quantity("resident memory of a node, after load", "MiB", higher_is_better=False)
IDLE_CPU = Quantity("CPU time of a node, idle", "ms/s", higher_is_better=False)


def start_up(clusters: Sequence[Cluster], repeats: Callable[[Cluster], int], progress: Progress) -> list[Result]:
    """Start all nodes at once on empty directories: until each knows all, and until a topic is in sync on all three.

    Moldau is timed from the command that starts the cluster, Kafka from its first Java process, formatted before.
    """
    ready = Result(READY, {cluster.name: Samples() for cluster in clusters})
    first_topic = Result(FIRST_TOPIC, {cluster.name: Samples() for cluster in clusters})
    for cluster in clusters:
        for turn in range(repeats(cluster)):
            progress.say(f"start: {cluster.name} {turn + 1} of {repeats(cluster)}")
            began = cluster.start_fresh()
            cluster.await_ready()
            ready.samples[cluster.name].values.append(time.perf_counter() - began)
            led_by(cluster, 1)
            first_topic.samples[cluster.name].values.append(time.perf_counter() - began)
            progress.step()
            if turn + 1 < repeats(cluster):
                cluster.kill_all()
    return [ready, first_topic]


def idle(clusters: Sequence[Cluster], progress: Progress) -> list[Result]:
    """Measure every node's memory, and its CPU time without any requests."""
    time.sleep(IDLE_AFTER_S)
    memory_results = memory(IDLE, clusters)
    progress.say(f"idle for {IDLE_WATCHED_S:g} s")
    before = {pid: cpu_seconds(pid) for cluster in clusters for pid in cluster.pids.values()}
    time.sleep(IDLE_WATCHED_S)
    spent = {pid: (cpu_seconds(pid) - earlier) * 1e3 / IDLE_WATCHED_S for pid, earlier in before.items()}
    cpu = {cluster.name: Samples([spent[pid] for pid in cluster.pids.values()]) for cluster in clusters}
    return [memory_results, Result(IDLE_CPU, cpu)]


def memory(quantity: Quantity, clusters: Sequence[Cluster]) -> Result:
    return Result(
        quantity,
        {cluster.name: Samples([resident_mib(pid) for pid in cluster.pids.values()]) for cluster in clusters},
    )
