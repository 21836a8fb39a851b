"""One broker beside Apache Kafka: the same work in turns; median, spread, and ratios of speed and of CPU time.

Without a Kafka only Moldau is measured. --list prints what can be measured; bench/README.md explains it.

    python -m bench.broker
    python -m bench.broker --kafka 127.0.0.1:9092/4711       beside a Kafka that runs, with its process id
    python -m bench.broker --peers path/to/script            beside a Kafka that the script starts and stops
    python -m bench.broker --only fetch --rounds 5 --json numbers.json --plot ratios.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from bench.brokers.client_workloads import client_workloads
from bench.brokers.raw_workloads import raw_workloads
from bench.brokers.servers import KAFKA, Server
from bench.measuring import beside, options
from bench.measuring.footprint import AFTER, IDLE, IDLE_CPU, START, idle_cpu, idle_memory, memory, start_up
from bench.measuring.progress import Progress
from bench.measuring.report import show, show_bars, write_json, write_markdown
from bench.measuring.results import Result
from bench.measuring.rounds import Workload, run_rounds, warm_up

STARTS = 20
WARM_UP_S = 30.0
WARM_UP_SCALE = 0.01
"""A little of each workload, many times, so that everything is warm."""


def main() -> None:
    arguments = _arguments()
    workloads = [*raw_workloads(arguments.scale), *client_workloads(arguments.scale)]
    if arguments.list:
        names = [quantity.name for workload in workloads for quantity in workload.quantities]
        print("\n".join([START.name, IDLE.name, IDLE_CPU.name, *names, AFTER.name]))
        return
    if not options.is_wanted(AFTER.name, arguments.only):  # all workloads are its load
        workloads = options.wanted(workloads, arguments.only)
    results = _measure(arguments, workloads)
    table = beside.table(results)
    show(table)
    show_bars(f"ratio: {beside.AHEAD}", {result.quantity.name: beside.ratio(result) for result in results})
    if arguments.markdown:
        write_markdown(arguments.markdown, [table])
    if arguments.json:
        write_json(arguments.json, {"broker": (results, KAFKA)})
    if arguments.plot:
        beside.plot(arguments.plot, "Moldau beside Apache Kafka", results)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=5)
    beside.add_peer(parser)
    parser.add_argument(
        "--warm-up",
        type=float,
        metavar="SECONDS",
        default=WARM_UP_S,
        help=f"work on each broker before measuring (default {WARM_UP_S:g})",
    )
    parser.add_argument("--starts", type=int, default=STARTS, help=f"how often Moldau is started (default {STARTS})")
    parser.add_argument("--list", action="store_true", help="print what can be measured and exit")
    arguments = parser.parse_args()
    if arguments.plot and not (arguments.kafka or arguments.peers):
        parser.error("--plot draws ratios to Kafka: give one with --kafka or --peers")
    return arguments


def _measure(arguments: argparse.Namespace, workloads: Sequence[Workload]) -> list[Result]:
    is_wanted = partial(options.is_wanted, only=arguments.only)
    results: list[Result] = []
    with ExitStack() as house:
        script = beside.script_of(arguments, house)
        systems = 1 + bool(script or arguments.kafka)
        progress = house.enter_context(Progress(len(workloads) * systems * (arguments.rounds + 1)))
        if is_wanted(START.name):
            results.append(start_up(arguments.starts, script, arguments.rounds, progress))
            beside.tell(progress, results[-1:])
        servers = beside.servers(arguments, script, house)
        if is_wanted(IDLE.name):
            results.append(idle_memory([server for server in servers if not _was_running(server, arguments)]))
        if is_wanted(IDLE_CPU.name):
            results.append(idle_cpu(servers, progress))
        if workloads and arguments.warm_up:
            warm_up([*raw_workloads(WARM_UP_SCALE)], servers, arguments.warm_up, progress)
        for workload in workloads:
            measured = run_rounds(workload, servers, arguments.rounds, progress)
            beside.tell(progress, measured)
            results += measured
        if is_wanted(AFTER.name):
            results.append(memory(AFTER, servers))
    return results


def _was_running(server: Server, arguments: argparse.Namespace) -> bool:
    """A Kafka that ran before has an unknown history: its memory is not that of an idle broker."""
    return server.name == KAFKA and bool(arguments.kafka)


if __name__ == "__main__":
    options.run(main)
