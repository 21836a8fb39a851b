"""A large cluster: thousands of new topics, the cost of one more, and a controller that restarts.

Sizes are numbers of topics of three partitions with three replicas. The timed change is one more topic:
it passes the controller, the quorum's log, every node's image and three new replicas.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.brokers.connection import BrokerRefused
from bench.brokers.procfs import age_s, cpu_seconds, resident_mib
from bench.cluster.servers import WHOLE_TIMEOUT_S, Cluster, await_true
from bench.cluster.topics import METADATA_PATIENCE_S, admin_of, await_in_sync, create, new_name
from bench.cluster.wire import ask_any, create_topic, view
from bench.measuring.progress import Progress
from bench.measuring.report import NOTHING, Table, number, with_spread
from bench.measuring.results import Quantity, Result, Samples, spread

PARTITIONS = 3
CHANGES = 30
REPLICAS_ALIVE = 2
"""The replication factor of the topic that is created while a node is lost."""
AGREED = (0, 36)
"""Created, or already there: an earlier node may have died before it could answer."""
ASK_AGAIN_S = 0.002

FAILED_OVER = Quantity("controller killed, to the next topic created", "s", higher_is_better=False)
RESTARTED = Quantity("its node started again, to ready", "s", higher_is_better=False)
ALL_KILLED = Quantity("all nodes killed and started, to the next topic created", "s", higher_is_better=False)
STOPPED = Quantity("all nodes stopped in order", "s", higher_is_better=False)
ALL_RESTARTED = Quantity("then started, to the next topic created", "s", higher_is_better=False)
STOP_PATIENCE_S = 1200.0


def until_agreed(topics: int) -> Quantity:
    return Quantity(f"create {topics:,} topics x {PARTITIONS} x 3, until agreed", "s", higher_is_better=False)


def until_in_sync(topics: int) -> Quantity:
    return Quantity(f"create {topics:,} topics x {PARTITIONS} x 3, until in sync", "s", higher_is_better=False)


@dataclass
class Change:
    """The cost of one more topic in a cluster of some size."""

    latency_ms: list[float]
    cpu_ms: float
    memory_mib: list[float]


def grow(cluster: Cluster, topics: int, progress: Progress) -> tuple[float, float]:
    """Add topics; return the seconds until the cluster agreed, and until every replica is in sync."""
    progress.say(f"creating {topics:,} topics in {cluster.name}")
    names = [new_name() for _ in range(topics)]
    admin = admin_of(cluster.bootstrap)
    began = time.perf_counter()
    seconds = create(admin, names, PARTITIONS)
    await_in_sync(cluster, names, PARTITIONS)
    return seconds, time.perf_counter() - began


def change(cluster: Cluster, progress: Progress) -> Change:
    """Create topics one after the other."""
    progress.say(f"creating single topics in {cluster.name}")
    admin = admin_of(cluster.bootstrap)
    create(admin, [new_name()], PARTITIONS)
    names = [new_name() for _ in range(CHANGES)]
    before = sum(map(cpu_seconds, cluster.pids.values()))
    latency_ms = [create(admin, [name], PARTITIONS) * 1e3 for name in names]
    await_in_sync(cluster, names, PARTITIONS)
    spent = sum(map(cpu_seconds, cluster.pids.values())) - before
    return Change(latency_ms, spent * 1e3 / CHANGES, [resident_mib(pid) for pid in cluster.pids.values()])


def change_table(changes: Mapping[str, Mapping[int, Change]]) -> Table:
    headers = ["one more topic with", "of", "ms", "CPU ms, all nodes", "against the smallest", "CPU", "MiB a node"]
    rows = [
        [f"{size:,} topics", system, *_cost(each, sizes[min(sizes)] if size > min(sizes) else None)]
        for system, sizes in changes.items()
        for size, each in sizes.items()
    ]
    return Table("a change in a bigger cluster; against the smallest: 1.0 means that nothing grew", headers, rows)


def _cost(each: Change, smallest: Change | None) -> list[str]:
    latency = spread(each.latency_ms)
    cells = [with_spread(latency), number(each.cpu_ms)]
    if smallest is None:
        cells += [NOTHING, NOTHING]
    else:
        cells.append(number(latency.median / spread(smallest.latency_ms).median))
        cells.append(number(each.cpu_ms / smallest.cpu_ms) if smallest.cpu_ms else NOTHING)
    return [*cells, number(max(each.memory_mib))]


def change_results(changes: Mapping[str, Mapping[int, Change]]) -> list[Result]:
    sizes = sorted({size for each in changes.values() for size in each})
    results = []
    for size in sizes:
        quantity = Quantity(f"one more topic with {size:,}", "ms", higher_is_better=False, work_unit="topic")
        by_system = {system: each[size] for system, each in changes.items() if size in each}
        samples = {name: Samples(one.latency_ms, [one.cpu_ms * 1e3]) for name, one in by_system.items()}
        results.append(Result(quantity, samples))
    return results


def restarts(cluster: Cluster, topics: int, repeats: int, progress: Progress) -> list[Result]:
    """Kill and restart the controller, then all nodes; at last stop all cleanly and start them."""
    seconds: dict[Quantity, list[float]] = {}
    for turn in range(repeats):
        progress.say(f"restarting {cluster.name} with {topics * PARTITIONS:,} partitions: {turn + 1} of {repeats}")
        failed_over, restarted = _lose_controller(cluster, topics)
        seconds.setdefault(FAILED_OVER, []).append(failed_over)
        seconds.setdefault(RESTARTED, []).append(restarted)
        cluster.await_whole()
        cluster.kill_all()
        seconds.setdefault(ALL_KILLED, []).append(_start_again(cluster))
    progress.say(f"stopping {cluster.name} with {topics * PARTITIONS:,} partitions")
    cluster.await_whole()
    began = time.perf_counter()
    cluster.stop(STOP_PATIENCE_S)
    seconds[STOPPED] = [time.perf_counter() - began]
    seconds[ALL_RESTARTED] = [_start_again(cluster)]
    return [Result(quantity, {cluster.name: Samples(values)}) for quantity, values in seconds.items()]


def restart_table(results: Sequence[Result], topics: int) -> Table:
    rows = [
        [result.quantity.name, system, with_spread(spread(samples.values))]
        for result in results
        for system, samples in result.samples.items()
    ]
    return Table(f"a cluster with {topics * PARTITIONS:,} partitions of three replicas", ["", "of", "s"], rows)


def _lose_controller(cluster: Cluster, topics: int) -> tuple[float, float]:
    cluster.await_whole()
    victim = cluster.controller()
    began = time.perf_counter()
    cluster.signal(victim, signal.SIGKILL)
    _create_at_any(cluster.others(victim))
    failed_over = time.perf_counter() - began
    cluster.await_ended(victim)
    cluster.restart(victim)
    await_true(lambda: _knows(cluster.addresses[victim], topics), "the node knows of all topics", WHOLE_TIMEOUT_S)
    cluster.await_ready()
    return failed_over, age_s(cluster.pids[victim])


def _start_again(cluster: Cluster) -> float:
    began = cluster.start_again()
    cluster.await_ready()
    _create_at_any(list(cluster.addresses.values()))
    return time.perf_counter() - began


def _create_at_any(addresses: Sequence[str]) -> None:
    """Ask one node after the other for a topic until a controller agrees; over raw connections, without backoff."""
    name, deadline = new_name(), time.perf_counter() + WHOLE_TIMEOUT_S
    while ask_any(addresses, lambda each: create_topic(each, name, PARTITIONS, REPLICAS_ALIVE)) not in AGREED:
        if time.perf_counter() > deadline:
            raise BrokerRefused(f"no topic could be created within {WHOLE_TIMEOUT_S:g} s")
        time.sleep(ASK_AGAIN_S)


def _knows(address: str, topics: int) -> bool:
    cluster_view = ask_any([address], lambda each: view(each, None, METADATA_PATIENCE_S))
    return cluster_view is not None and len(cluster_view.topics) >= topics
