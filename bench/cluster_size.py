"""A cluster that holds much: making topics by the thousand, what one more costs then, and a controller that restarts.

Sizes are numbers of topics of three partitions with three replicas. Making one more topic is the change that is timed:
it passes the controller, the quorum's log, every node's image and three new replicas.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.cluster_servers import WHOLE_TIMEOUT_S, Cluster, await_true
from bench.cluster_topics import METADATA_PATIENCE_S, admin_of, await_in_sync, create, new_name
from bench.cluster_wire import ask_any, create_topic, view
from bench.connection import BrokerRefused
from bench.procfs import age_s, cpu_seconds, resident_mib
from bench.progress import Progress
from bench.report import NOTHING, Table, number, with_spread
from bench.results import Quantity, Result, Samples, spread

PARTITIONS = 3
CHANGES = 30
REPLICAS_ALIVE = 2
"""Of the topic that is made while a node is lost."""
AGREED = (0, 36)
"""Made, or already there: who was asked before had died before it could say so."""
ASK_AGAIN_S = 0.002

FAILED_OVER = Quantity("controller killed, to the next topic created", "s", higher_is_better=False)
RESTARTED = Quantity("its node started again, to ready", "s", higher_is_better=False)
ALL_KILLED = Quantity("all nodes killed and started, to the next topic created", "s", higher_is_better=False)
STOPPED = Quantity("all nodes stopped in order", "s", higher_is_better=False)
ALL_RESTARTED = Quantity("then started, to the next topic created", "s", higher_is_better=False)
STOP_PATIENCE_S = 1200.0


def agreed(topics: int) -> Quantity:
    return Quantity(f"create {topics:,} topics x {PARTITIONS} x 3, until agreed", "s", higher_is_better=False)


def in_sync(topics: int) -> Quantity:
    return Quantity(f"create {topics:,} topics x {PARTITIONS} x 3, until in sync", "s", higher_is_better=False)


@dataclass
class Change:
    """What one more topic costs in a cluster that holds so many."""

    latency_ms: list[float]
    cpu_ms: float
    memory_mib: list[float]


def grow(cluster: Cluster, topics: int, progress: Progress) -> tuple[float, float]:
    """By so many topics: the seconds until the cluster agreed, and until every replica is in sync."""
    progress.say(f"creating {topics:,} topics in {cluster.name}")
    names = [new_name() for _ in range(topics)]
    admin = admin_of(cluster.bootstrap)
    began = time.perf_counter()
    seconds = create(admin, names, PARTITIONS)
    await_in_sync(cluster, names, PARTITIONS)
    return seconds, time.perf_counter() - began


def change(cluster: Cluster, progress: Progress) -> Change:
    """Topics made one after the other."""
    progress.say(f"creating single topics in {cluster.name}")
    admin = admin_of(cluster.bootstrap)
    create(admin, [new_name()], PARTITIONS)
    names = [new_name() for _ in range(CHANGES)]
    before = sum(map(cpu_seconds, cluster.pids.values()))
    latency_ms = [create(admin, [name], PARTITIONS) * 1e3 for name in names]
    await_in_sync(cluster, names, PARTITIONS)
    spent = sum(map(cpu_seconds, cluster.pids.values())) - before
    return Change(latency_ms, spent * 1e3 / CHANGES, [resident_mib(pid) for pid in cluster.pids.values()])


def change_table(found: Mapping[str, Mapping[int, Change]]) -> Table:
    headers = ["one more topic with", "of", "ms", "CPU ms, all nodes", "against the smallest", "CPU", "MiB a node"]
    rows = [
        [f"{size:,} topics", system, *_cost(each, sizes[min(sizes)] if size > min(sizes) else None)]
        for system, sizes in found.items()
        for size, each in sizes.items()
    ]
    return Table("a change in a bigger cluster; against the smallest: 1.0 means that nothing grew", headers, rows)


def _cost(each: Change, smallest: Change | None) -> list[str]:
    taken = spread(each.latency_ms)
    cells = [with_spread(taken), number(each.cpu_ms)]
    if smallest is None:
        cells += [NOTHING, NOTHING]
    else:
        cells.append(number(taken.median / spread(smallest.latency_ms).median))
        cells.append(number(each.cpu_ms / smallest.cpu_ms) if smallest.cpu_ms else NOTHING)
    return [*cells, number(max(each.memory_mib))]


def change_results(found: Mapping[str, Mapping[int, Change]]) -> list[Result]:
    sizes = sorted({size for each in found.values() for size in each})
    results = []
    for size in sizes:
        quantity = Quantity(f"one more topic with {size:,}", "ms", higher_is_better=False, work_unit="topic")
        changes = {system: each[size] for system, each in found.items() if size in each}
        samples = {name: Samples(one.latency_ms, [one.cpu_ms * 1e3]) for name, one in changes.items()}
        results.append(Result(quantity, samples))
    return results


def restarts(cluster: Cluster, topics: int, repeats: int, progress: Progress) -> list[Result]:
    """Its controller is killed and started again, then all nodes are; at last all are stopped in order and started."""
    taken: dict[Quantity, list[float]] = {}
    for turn in range(repeats):
        progress.say(f"restarting {cluster.name} with {topics * PARTITIONS:,} partitions: {turn + 1} of {repeats}")
        failed_over, restarted = _lose_controller(cluster, topics)
        taken.setdefault(FAILED_OVER, []).append(failed_over)
        taken.setdefault(RESTARTED, []).append(restarted)
        cluster.await_whole()
        cluster.kill_all()
        taken.setdefault(ALL_KILLED, []).append(_start_again(cluster))
    progress.say(f"stopping {cluster.name} with {topics * PARTITIONS:,} partitions")
    cluster.await_whole()
    began = time.perf_counter()
    cluster.stop(STOP_PATIENCE_S)
    taken[STOPPED] = [time.perf_counter() - began]
    taken[ALL_RESTARTED] = [_start_again(cluster)]
    return [Result(quantity, {cluster.name: Samples(values)}) for quantity, values in taken.items()]


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
    _create_somehow(cluster.others(victim))
    failed_over = time.perf_counter() - began
    cluster.await_ended(victim)
    cluster.restart(victim)
    await_true(lambda: _knows(cluster.addresses[victim], topics), "the node knows of all topics", WHOLE_TIMEOUT_S)
    cluster.await_ready()
    return failed_over, age_s(cluster.pids[victim])


def _start_again(cluster: Cluster) -> float:
    began = cluster.start_again()
    cluster.await_ready()
    _create_somehow(list(cluster.addresses.values()))
    return time.perf_counter() - began


def _create_somehow(addresses: Sequence[str]) -> None:
    """Asks one node after the other for a topic until a controller agrees; over raw connections, without backoff."""
    name, deadline = new_name(), time.perf_counter() + WHOLE_TIMEOUT_S
    while ask_any(addresses, lambda each: create_topic(each, name, PARTITIONS, REPLICAS_ALIVE)) not in AGREED:
        if time.perf_counter() > deadline:
            raise BrokerRefused(f"no topic could be made within {WHOLE_TIMEOUT_S:g} s")
        time.sleep(ASK_AGAIN_S)


def _knows(address: str, topics: int) -> bool:
    found = ask_any([address], lambda each: view(each, None, METADATA_PATIENCE_S))
    return found is not None and len(found.topics) >= topics
