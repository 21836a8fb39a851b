"""The cost of transactions and of log cleaning: with and without, beside Apache Kafka where there is one.

Producers that commit every 100 ms and consumers with read_committed, each against the same without; a transaction by
itself; and the cleaner of compacted logs (only Moldau). Without a Kafka only Moldau is measured.
--list prints what can be measured; bench/README.md explains it.

    python -m bench.transactions
    python -m bench.transactions --kafka 127.0.0.1:9092/4711 beside a Kafka that runs, with its process id
    python -m bench.transactions --peers path/to/script      beside a Kafka that the script starts and stops
    python -m bench.transactions --only read_committed --rounds 5 --json numbers.json --markdown transactions.md
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.brokers.servers import KAFKA, MOLDAU, MoldauProcess, Server
from bench.cluster.servers import Cluster, KafkaCluster, MoldauCluster
from bench.cluster.topics import scratch
from bench.measuring import beside, options, versus
from bench.measuring.progress import Progress
from bench.measuring.report import Table, show, show_bars, write_json, write_markdown
from bench.measuring.results import Result
from bench.measuring.rounds import run_rounds, warm_up
from bench.measuring.versus import WITH, WITHOUT, Compared, Versus, compare
from bench.transactions import cleaner
from bench.transactions.cleaner import cleaner_workloads, latency_while_cleaning
from bench.transactions.clients import (
    PARTITIONS,
    consume_with_and_without,
    one_broker_topic,
    produce_with_and_without,
)
from bench.transactions.java_producer import produce_by_java
from bench.transactions.workloads import transaction_workloads

ROUNDS = 3
WARM_UP_S = 10.0
PRODUCE_S = 1.2
TRANSACTIONS_S = 0.7
IDLE_S = 2.5
"""Of the latency while no log is cleaned."""
LEAST_S = 0.3
ONE_BROKER = "one broker"
THREE_NODES = "three nodes"


class Findings:
    """The measurements so far, by table."""

    def __init__(self) -> None:
        self.compared: list[Compared] = []
        self.beside: list[Result] = []
        self.cleaned: list[Result] = []

    def tables(self) -> list[Table]:
        tables = [versus.table(self.compared)] if self.compared else []
        tables += [beside.table(self.beside)] if self.beside else []
        tables += [cleaner.table(self.cleaned)] if self.cleaned else []
        return tables


class Plan:
    """The selected measurements."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        scale, only = arguments.scale, arguments.only
        produce_s = max(LEAST_S, PRODUCE_S * scale)
        self.one_broker = [
            each
            for each in (
                *produce_with_and_without(produce_s, one_broker_topic, ONE_BROKER),
                *([produce_by_java(arguments.java, scale)] if arguments.java else []),
                *consume_with_and_without(scale),
            )
            if options.is_wanted(each.quantity.name, only)
        ]
        self.three_nodes = [
            each
            for each in produce_with_and_without(produce_s, _replicated_topic, THREE_NODES)
            if options.is_wanted(each.quantity.name, only)
        ]
        self.transactions = options.wanted([*transaction_workloads(max(LEAST_S, TRANSACTIONS_S * scale))], only)
        self.cleaner_process = MoldauProcess(settings=cleaner.SETTINGS)
        self.cleaning = options.wanted([*cleaner_workloads(self.cleaner_process, scale)], only)
        latency = latency_while_cleaning(self.cleaner_process, scale, max(LEAST_S, IDLE_S * scale))
        self.latency = [latency] if options.is_wanted(latency.quantity.name, only) else []

    def names(self) -> list[str]:
        compared = [each.quantity.name for each in (*self.one_broker, *self.three_nodes, *self.latency)]
        workloads = (*self.transactions, *self.cleaning)
        return [*compared, *(quantity.name for each in workloads for quantity in each.quantities)]


def main() -> None:
    arguments = _arguments()
    plan, findings = Plan(arguments), Findings()
    with plan.cleaner_process:
        if arguments.list:
            print("\n".join(plan.names()))
            return
        with Progress(_turns(arguments, plan) * (arguments.rounds + 1)) as progress:
            _with_one_broker(arguments, plan, findings, progress)
            _with_three_nodes(arguments, plan, findings, progress)
            _with_the_cleaner(arguments, plan, findings, progress)
    _report(arguments, findings)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    beside.add_peer(parser)
    parser.add_argument(
        "--java",
        type=Path,
        metavar="PATH",
        help="measure Java's producer too; PATH is a script that runs Apache's tools by `tool CLASS`",
    )
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", default=WARM_UP_S, help=f"default {WARM_UP_S:g}")
    parser.add_argument("--list", action="store_true", help="print what can be measured and exit")
    arguments = parser.parse_args()
    if arguments.plot and not (arguments.kafka or arguments.peers):
        parser.error("--plot draws ratios to Kafka: give one with --kafka or --peers")
    return arguments


def _turns(arguments: argparse.Namespace, plan: Plan) -> int:
    """Return the number of turns in one round."""
    one_broker = (1 + bool(arguments.kafka or arguments.peers)) * (2 * len(plan.one_broker) + len(plan.transactions))
    three_nodes = (1 + _has_three_of_kafka(arguments)) * 2 * len(plan.three_nodes)
    return one_broker + three_nodes + len(plan.cleaning) + 2 * len(plan.latency)


def _has_three_of_kafka(arguments: argparse.Namespace) -> bool:
    """Whether a script can start three nodes: a Kafka that already runs is one broker."""
    return bool(arguments.peers) and not arguments.kafka


def _with_one_broker(arguments: argparse.Namespace, plan: Plan, findings: Findings, progress: Progress) -> None:
    if not plan.one_broker and not plan.transactions:
        return
    with ExitStack() as house:
        servers = beside.servers(arguments, beside.script_of(arguments, house), house)
        if arguments.warm_up:
            warm_up([*transaction_workloads(LEAST_S)], servers, arguments.warm_up, progress)
        findings.compared += _compare_all(arguments, plan.one_broker, servers, progress)
        for workload in plan.transactions:
            results = run_rounds(workload, servers, arguments.rounds, progress)
            beside.tell(progress, results)
            findings.beside += results


def _with_three_nodes(arguments: argparse.Namespace, plan: Plan, findings: Findings, progress: Progress) -> None:
    if not plan.three_nodes:
        return
    with ExitStack() as house:
        clusters: list[Cluster] = [house.enter_context(MoldauCluster())]
        if _has_three_of_kafka(arguments):
            clusters.append(house.enter_context(KafkaCluster(arguments.peers, arguments.peers_address)))
        progress.say("starting three nodes each")
        for cluster in clusters:
            cluster.start_fresh()
        for cluster in clusters:
            cluster.await_ready()
        servers = [cluster.server for cluster in clusters]
        findings.compared += _compare_all(arguments, plan.three_nodes, servers, progress)


def _with_the_cleaner(arguments: argparse.Namespace, plan: Plan, findings: Findings, progress: Progress) -> None:
    if not plan.cleaning and not plan.latency:
        return
    server = plan.cleaner_process.start()
    findings.compared += _compare_all(arguments, plan.latency, [server], progress)
    for workload in plan.cleaning:
        results = run_rounds(workload, [server], arguments.rounds, progress)
        beside.tell(progress, results)
        findings.cleaned += results


def _compare_all(
    arguments: argparse.Namespace, comparisons: Sequence[Versus], servers: Sequence[Server], progress: Progress
) -> list[Compared]:
    return [done for each in comparisons for done in compare(each, servers, arguments.rounds, progress)]


def _replicated_topic(server: Server, cleanup: ExitStack) -> str:
    return scratch(server.address, server.address.split(","), PARTITIONS, cleanup)


def _report(arguments: argparse.Namespace, findings: Findings) -> None:
    tables = findings.tables()
    for table in tables:
        show(table)
    bars = {f"{each.result.quantity.name}, {each.system}": each.ratio for each in findings.compared}
    show_bars("ratio: with against without", bars)
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        sides = {
            f"{WITH} against {WITHOUT}, {system}": (
                [each.result for each in findings.compared if each.system == system],
                WITHOUT,
            )
            for system in (MOLDAU, KAFKA)
        }
        # the cleaner is measured only in Moldau: its results get no ratio to Kafka
        write_json(
            arguments.json, {**sides, "transactions": (findings.beside, KAFKA), "cleaner": (findings.cleaned, KAFKA)}
        )
    if arguments.plot:
        beside.plot(arguments.plot, "Transactions in Moldau beside Apache Kafka", findings.beside)


if __name__ == "__main__":
    options.run(main)
