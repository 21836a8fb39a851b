"""Three nodes beside three of Apache Kafka: replicated writes, lost leaders, many topics; start and memory.

Without a Kafka only Moldau is measured. Moldau runs with the settings of `moldau cluster start`, Kafka with those of
its script. --list prints what can be measured; bench/README.md explains it.

    python -m bench.cluster
    python -m bench.cluster --peers path/to/script           beside a Kafka that the script starts and stops
    python -m bench.cluster --only killed --kills 5
    python -m bench.cluster --only produce --rounds 3 --json numbers.json --markdown cluster.md --plot ratios.png
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.brokers.servers import KAFKA, MOLDAU
from bench.cluster import failover as cluster_failover
from bench.cluster import size as cluster_size
from bench.cluster.failover import CASES, Case
from bench.cluster.footprint import AFTER, FIRST_TOPIC, IDLE, IDLE_CPU, READY, idle, memory, start_up
from bench.cluster.servers import Cluster, KafkaCluster, MoldauCluster
from bench.cluster.size import (
    ALL_KILLED,
    ALL_RESTARTED,
    FAILED_OVER,
    RESTARTED,
    STOPPED,
    Change,
    change,
    grow,
    restarts,
    until_agreed,
    until_in_sync,
)
from bench.cluster.workloads import cluster_workloads
from bench.measuring import beside, options
from bench.measuring.progress import Progress
from bench.measuring.report import Table, show, show_bars, write_json, write_markdown
from bench.measuring.results import Quantity, Result, Samples
from bench.measuring.rounds import Workload, run_rounds, warm_up

ROUNDS = 5
STARTS = 5
KILLS = 50
KAFKA_KILLS = 3
WARM_UP_S = 30.0
WARM_UP_SCALE = 0.01
GROW = (10, 1_000, 9_000)
"""The numbers of topics that are added to a cluster, step by step."""
KAFKA_SIZE_MAX = 1_100
"""Kafka gets no more topics than this: each is nine logs on this machine, whose indexes Java maps into memory, and
Linux limits how many files a process maps (`vm.max_map_count`)."""
KAFKA_STARTS = 3
RESTARTS = 3
OPEN_FILES_MAX = 200_000
"""The limit of open files, which the nodes inherit."""
CHANGE = Quantity("one more topic", "ms", higher_is_better=False)
STARTED = (READY, FIRST_TOPIC)
RESTARTS_OF_MANY = (FAILED_OVER, RESTARTED, ALL_KILLED, STOPPED, ALL_RESTARTED)


class Findings:
    """The measurements so far, by table."""

    def __init__(self) -> None:
        self.beside: list[Result] = []
        self.lost: list[Result] = []
        self.changes: dict[str, dict[int, Change]] = {}
        self.restarts: list[Result] = []
        self.restarted_with = 0

    def tables(self) -> list[Table]:
        tables = []
        if self.beside:
            tables.append(beside.table(self.beside))
        if self.lost:
            tables.append(cluster_failover.table(self.lost))
        if self.changes:
            tables.append(cluster_size.change_table(self.changes))
        if self.restarts:
            tables.append(cluster_size.restart_table(self.restarts, self.restarted_with))
        return tables


def main() -> None:
    arguments = _arguments()
    if arguments.list:
        print("\n".join(_names(arguments)))
        return
    options.allow_files(OPEN_FILES_MAX)
    findings = Findings()
    with ExitStack() as house:
        clusters: list[Cluster] = [house.enter_context(MoldauCluster(arguments.override))]
        if arguments.peers:
            clusters.append(house.enter_context(KafkaCluster(Path(arguments.peers), arguments.peers_address)))
        with Progress(_steps(arguments, clusters)) as progress:
            _measure(arguments, clusters, findings, progress)
    _report(arguments, findings)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="PATH",
        default=os.environ.get("MOLDAU_PEERS") or None,
        help="a script that starts Kafka with `start 3` and ends it with `stop` (default: $MOLDAU_PEERS)",
    )
    address = beside.PEERS_ADDRESS
    parser.add_argument("--peers-address", metavar="HOST:PORT", default=address, help=f"its first node ({address})")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", default=WARM_UP_S, help=f"default {WARM_UP_S:g}")
    parser.add_argument("--starts", type=int, default=STARTS, help=f"how often Moldau is started (default {STARTS})")
    parser.add_argument("--kills", type=int, default=KILLS, help=f"how often Moldau loses a leader (default {KILLS})")
    parser.add_argument("--kafka-kills", type=int, default=KAFKA_KILLS, help=f"and Kafka (default {KAFKA_KILLS})")
    parser.add_argument("--grow", type=int, nargs="+", metavar="TOPICS", default=GROW, help="default 10 1000 9000")
    parser.add_argument(
        "--kafka-size-max", type=int, metavar="TOPICS", default=KAFKA_SIZE_MAX, help=f"default {KAFKA_SIZE_MAX}"
    )
    parser.add_argument(
        "--override", action="append", metavar="K=V", default=[], help="a setting of Moldau; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="print what can be measured and exit")
    return parser.parse_args()


def _names(arguments: argparse.Namespace) -> list[str]:
    work = [quantity for each in cluster_workloads(arguments.scale) for quantity in each.quantities]
    lost = [case.quantity for case in CASES]
    growth = [quantity for topics in arguments.grow for quantity in (until_agreed(topics), until_in_sync(topics))]
    all_of_them = [*STARTED, IDLE, IDLE_CPU, *work, AFTER, *lost, *growth, CHANGE, *RESTARTS_OF_MANY]
    return [quantity.name for quantity in all_of_them]


def _steps(arguments: argparse.Namespace, clusters: Sequence[Cluster]) -> int:
    rounds = len(_workloads(arguments)) * len(clusters) * (arguments.rounds + 1)
    turns = sum(_kills(arguments, cluster) for cluster in clusters) * len(_cases(arguments))
    starts = sum(_starts(arguments, cluster) for cluster in clusters) if _is_wanted(arguments, *STARTED) else 0
    return int(rounds + turns + starts)


def _measure(
    arguments: argparse.Namespace, clusters: Sequence[Cluster], findings: Findings, progress: Progress
) -> None:
    if _is_wanted(arguments, *STARTED):
        findings.beside += start_up(clusters, partial(_starts, arguments), progress)
    else:
        _start_fresh(clusters)
    if _is_wanted(arguments, IDLE, IDLE_CPU):
        findings.beside += idle(clusters, progress)
    beside.tell(progress, findings.beside)
    _rounds(arguments, clusters, findings, progress)
    for case in _cases(arguments):
        lost = Result(case.quantity, {})
        for cluster in clusters:
            lost.samples[cluster.name] = cluster_failover.measure(case, cluster, _kills(arguments, cluster), progress)
        findings.lost.append(lost)
        beside.tell(progress, [lost])
    size_quantities = [
        *map(until_agreed, arguments.grow),
        *map(until_in_sync, arguments.grow),
        CHANGE,
        *RESTARTS_OF_MANY,
    ]
    if _is_wanted(arguments, *size_quantities):
        _start_fresh(clusters)
        _sizes(arguments, clusters, findings, progress)


def _rounds(arguments: argparse.Namespace, clusters: Sequence[Cluster], findings: Findings, progress: Progress) -> None:
    workloads, servers = _workloads(arguments), [cluster.server for cluster in clusters]
    if not workloads:
        return
    if arguments.warm_up:
        warm_up([*cluster_workloads(WARM_UP_SCALE)], servers, arguments.warm_up, progress)
    for workload in workloads:
        results = run_rounds(workload, servers, arguments.rounds, progress)
        beside.tell(progress, results)
        findings.beside += results
    if _is_wanted(arguments, AFTER):
        findings.beside.append(memory(AFTER, clusters))


def _sizes(arguments: argparse.Namespace, clusters: Sequence[Cluster], findings: Findings, progress: Progress) -> None:
    """Add topics step by step; after each step create one more topic, and restart the cluster after the last."""
    size = 0
    for topics in arguments.grow:
        size += topics
        results = [Result(until_agreed(topics), {}), Result(until_in_sync(topics), {})]
        for cluster in clusters:
            if cluster.name != MOLDAU and size > arguments.kafka_size_max:
                continue
            for result, seconds in zip(results, grow(cluster, topics, progress), strict=True):
                result.samples[cluster.name] = Samples([seconds])
            findings.changes.setdefault(cluster.name, {})[size] = change(cluster, progress)
        beside.tell(progress, results)
        findings.beside += results
    if _is_wanted(arguments, *RESTARTS_OF_MANY):
        findings.restarted_with = size
        findings.restarts = restarts(clusters[0], size, RESTARTS, progress)
        beside.tell(progress, findings.restarts)


def _start_fresh(clusters: Sequence[Cluster]) -> None:
    for cluster in clusters:
        cluster.start_fresh()
    for cluster in clusters:
        cluster.await_ready()


def _workloads(arguments: argparse.Namespace) -> list[Workload]:
    """Return the chosen ones; for the memory after load all of them, for they are the load."""
    workloads: list[Workload] = [*cluster_workloads(arguments.scale)]
    return workloads if _is_wanted(arguments, AFTER) else options.wanted(workloads, arguments.only)


def _cases(arguments: argparse.Namespace) -> list[Case]:
    return [case for case in CASES if _is_wanted(arguments, case.quantity)]


def _kills(arguments: argparse.Namespace, cluster: Cluster) -> int:
    return int(arguments.kills if cluster.name == MOLDAU else arguments.kafka_kills)


def _starts(arguments: argparse.Namespace, cluster: Cluster) -> int:
    return int(arguments.starts if cluster.name == MOLDAU else min(arguments.starts, KAFKA_STARTS))


def _is_wanted(arguments: argparse.Namespace, *quantities: Quantity) -> bool:
    return any(options.is_wanted(quantity.name, arguments.only) for quantity in quantities)


def _report(arguments: argparse.Namespace, findings: Findings) -> None:
    tables = findings.tables()
    for table in tables:
        show(table)
    everything = [*findings.beside, *findings.lost]
    show_bars(f"ratio: {beside.AHEAD}", {result.quantity.name: beside.ratio(result) for result in everything})
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        changes = cluster_size.change_results(findings.changes)
        parts = {
            "cluster": findings.beside,
            "lost leaders": findings.lost,
            "changes": changes,
            "restarts": findings.restarts,
        }
        write_json(arguments.json, {name: (results, KAFKA) for name, results in parts.items()})
    if arguments.plot:
        beside.plot(arguments.plot, "Three nodes of Moldau beside three of Apache Kafka", everything)


if __name__ == "__main__":
    options.run(main)
