"""What transactions and clean logs cost: with and without, beside Apache Kafka where there is one.

Producers that commit every 100 ms and consumers that read only what was committed, each against the same without; a
transaction by itself; and the cleaner of compacted logs (only ours). Without a Kafka only ours is measured.
What can be measured is told by --list, what it means by bench/README.md.

    python -m bench.transactions
    python -m bench.transactions --peers path/to/script      beside a Kafka that the script starts and stops
    python -m bench.transactions --only read_committed --rounds 5 --json numbers.json --markdown transactions.md
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench import beside, cleaner, options, versus
from bench.cleaner import cleaner_workloads, latency_while_cleaning
from bench.cluster_servers import Cluster, KafkaCluster, MoldauCluster
from bench.cluster_topics import scratch
from bench.progress import Progress
from bench.report import Table, show, show_bars, write_json, write_markdown
from bench.results import Result
from bench.rounds import run_rounds, warm_up
from bench.servers import KAFKA, MOLDAU, KafkaScript, MoldauProcess, Server
from bench.transaction_clients import (
    PARTITIONS,
    consume_with_and_without,
    one_broker_topic,
    produce_with_and_without,
)
from bench.transaction_workloads import transaction_workloads
from bench.versus import WITH, WITHOUT, Compared, Versus, compare

ROUNDS = 3
WARM_UP_S = 10.0
PRODUCE_S = 1.5
TRANSACTIONS_S = 1.0
IDLE_S = 3.0
LEAST_S = 0.3
ONE_BROKER = "one broker"
THREE_NODES = "three nodes"


class Found:
    """What has been measured so far, by the table that it goes to."""

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
    """What is wanted of all that can be measured."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        scale, only = arguments.scale, arguments.only
        produce_s = max(LEAST_S, PRODUCE_S * scale)
        self.one_broker = [
            each
            for each in (
                *produce_with_and_without(produce_s, one_broker_topic, ONE_BROKER),
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

    def turns(self, systems: int) -> int:
        """In one round."""
        of_all = 2 * len(self.one_broker) + 2 * len(self.three_nodes) + len(self.transactions)
        return systems * of_all + len(self.cleaning) + 2 * len(self.latency)


def main() -> None:
    arguments = _arguments()
    plan, found = Plan(arguments), Found()
    with plan.cleaner_process:
        if arguments.list:
            print("\n".join(plan.names()))
            return
        systems = 2 if arguments.peers else 1
        with Progress(plan.turns(systems) * (arguments.rounds + 1)) as progress:
            _with_one_broker(arguments, plan, found, progress)
            _with_three_nodes(arguments, plan, found, progress)
            _with_the_cleaner(arguments, plan, found, progress)
    _report(arguments, found)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="PATH",
        default=os.environ.get("MOLDAU_PEERS"),
        help="a script that starts Kafka with `start` and `start 3` and ends it with `stop` (default: $MOLDAU_PEERS)",
    )
    address = beside.PEERS_ADDRESS
    parser.add_argument("--peers-address", metavar="HOST:PORT", default=address, help=f"its first node ({address})")
    parser.add_argument("--warm-up", type=float, metavar="SECONDS", default=WARM_UP_S, help=f"default {WARM_UP_S:g}")
    parser.add_argument("--list", action="store_true", help="print what can be measured, and measure nothing")
    return parser.parse_args()


def _with_one_broker(arguments: argparse.Namespace, plan: Plan, found: Found, progress: Progress) -> None:
    if not plan.one_broker and not plan.transactions:
        return
    with ExitStack() as house:
        servers = [house.enter_context(MoldauProcess()).start()]
        if arguments.peers:
            servers.append(house.enter_context(KafkaScript(arguments.peers, arguments.peers_address)).start())
        if arguments.warm_up:
            warm_up([*transaction_workloads(LEAST_S)], servers, arguments.warm_up, progress)
        found.compared += _compare_all(arguments, plan.one_broker, servers, progress)
        for workload in plan.transactions:
            results = run_rounds(workload, servers, arguments.rounds, progress)
            beside.tell(progress, results)
            found.beside += results


def _with_three_nodes(arguments: argparse.Namespace, plan: Plan, found: Found, progress: Progress) -> None:
    if not plan.three_nodes:
        return
    with ExitStack() as house:
        clusters: list[Cluster] = [house.enter_context(MoldauCluster())]
        if arguments.peers:
            clusters.append(house.enter_context(KafkaCluster(arguments.peers, arguments.peers_address)))
        progress.say("starting three nodes each")
        for cluster in clusters:
            cluster.start_anew()
        for cluster in clusters:
            cluster.await_ready()
        servers = [cluster.server for cluster in clusters]
        found.compared += _compare_all(arguments, plan.three_nodes, servers, progress)


def _with_the_cleaner(arguments: argparse.Namespace, plan: Plan, found: Found, progress: Progress) -> None:
    if not plan.cleaning and not plan.latency:
        return
    server = plan.cleaner_process.start()
    found.compared += _compare_all(arguments, plan.latency, [server], progress)
    for workload in plan.cleaning:
        results = run_rounds(workload, [server], arguments.rounds, progress)
        beside.tell(progress, results)
        found.cleaned += results


def _compare_all(
    arguments: argparse.Namespace, wanted: Sequence[Versus], servers: Sequence[Server], progress: Progress
) -> list[Compared]:
    return [done for each in wanted for done in compare(each, servers, arguments.rounds, progress)]


def _replicated_topic(server: Server, cleanup: ExitStack) -> str:
    return scratch(server.address, server.address.split(","), PARTITIONS, cleanup)


def _report(arguments: argparse.Namespace, found: Found) -> None:
    tables = found.tables()
    for table in tables:
        show(table)
    bars = {f"{each.result.quantity.name}, {each.system}": each.ratio for each in found.compared}
    show_bars("ratio: with against without", bars)
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        sides = {
            f"{WITH} against {WITHOUT}, {system}": (
                [each.result for each in found.compared if each.system == system],
                WITHOUT,
            )
            for system in (MOLDAU, KAFKA)
        }
        write_json(arguments.json, {**sides, "transactions": (found.beside, KAFKA), "cleaner": (found.cleaned, KAFKA)})
    if arguments.plot:
        beside.plot(arguments.plot, "Transactions in Moldau beside Apache Kafka", found.beside)


if __name__ == "__main__":
    options.run(main)
