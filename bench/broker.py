"""One broker beside Apache Kafka: the same work in turns; median, spread, and ratios of speed and of CPU time.

Without a Kafka only ours is measured. What can be measured is told by --list, what it means by bench/README.md.

    python -m bench.broker
    python -m bench.broker --kafka 127.0.0.1:9092/4711       beside a Kafka that runs, with its process id
    python -m bench.broker --peers path/to/script            beside a Kafka that the script starts and stops
    python -m bench.broker --only fetch --rounds 5 --json numbers.json --plot ratios.png
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import options
from bench.client_workloads import client_workloads
from bench.footprint import AFTER, IDLE, IDLE_CPU, START, idle_cpu, idle_memory, memory, start_up
from bench.plot import plot_ratios
from bench.progress import Progress
from bench.raw_workloads import raw_workloads
from bench.report import NOTHING, Table, middle, show, show_bars, with_spread, write_json, write_markdown
from bench.results import Result
from bench.rounds import Workload, run_rounds, warm_up
from bench.servers import KAFKA, MOLDAU, KafkaScript, MoldauProcess, Server, kafka_at

AHEAD = "times better than Apache Kafka: above 1.0 Moldau is ahead"
STARTS = 20
WARM_UP_S = 30.0
WARM_UP_SCALE = 0.01
"""Little of everything and often, so that all of it is warm."""
PEERS_ADDRESS = "127.0.0.1:29192"


def main() -> None:
    arguments = _arguments()
    workloads = [*raw_workloads(arguments.scale), *client_workloads(arguments.scale)]
    if arguments.list:
        names = [quantity.name for workload in workloads for quantity in workload.quantities]
        print("\n".join([START.name, IDLE.name, IDLE_CPU.name, *names, AFTER.name]))
        return
    results = _measure(arguments, options.wanted(workloads, arguments.only))
    table = _table(results)
    show(table)
    show_bars(f"ratio: {AHEAD}", {result.quantity.name: _ratio(result) for result in results})
    if arguments.markdown:
        write_markdown(arguments.markdown, [table])
    if arguments.json:
        write_json(arguments.json, {"broker": (results, KAFKA)})
    if arguments.plot:
        _plot(arguments.plot, results)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=5)
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--kafka", metavar="HOST:PORT/PID", help="a Kafka that already runs on this machine")
    peer.add_argument(
        "--peers",
        type=Path,
        metavar="PATH",
        default=os.environ.get("MOLDAU_PEERS"),
        help="a script that starts Kafka with `start` and ends it with `stop` (default: $MOLDAU_PEERS)",
    )
    parser.add_argument(
        "--peers-address", metavar="HOST:PORT", default=PEERS_ADDRESS, help=f"where it puts it ({PEERS_ADDRESS})"
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        metavar="SECONDS",
        default=WARM_UP_S,
        help=f"work on each broker before anything is counted (default {WARM_UP_S:g})",
    )
    parser.add_argument("--starts", type=int, default=STARTS, help=f"how often ours is started (default {STARTS})")
    parser.add_argument("--list", action="store_true", help="print what can be measured, and measure nothing")
    arguments = parser.parse_args()
    if arguments.plot and not (arguments.kafka or arguments.peers):
        parser.error("--plot draws ratios to Kafka: give one with --kafka or --peers")
    return arguments


def _measure(arguments: argparse.Namespace, workloads: Sequence[Workload]) -> list[Result]:
    is_wanted = partial(options.is_wanted, only=arguments.only)
    results: list[Result] = []
    with ExitStack() as house:
        script = None
        if arguments.peers and not arguments.kafka:
            script = house.enter_context(KafkaScript(Path(arguments.peers), arguments.peers_address))
        systems = 1 + bool(script or arguments.kafka)
        progress = house.enter_context(Progress(len(workloads) * systems * (arguments.rounds + 1)))
        if is_wanted(START.name):
            results.append(start_up(arguments.starts, script, arguments.rounds, progress))
            _tell(progress, results[-1:])
        servers = _servers(arguments, script, house)
        if is_wanted(IDLE.name):
            results.append(idle_memory([server for server in servers if not _is_given(server, arguments)]))
        if is_wanted(IDLE_CPU.name):
            results.append(idle_cpu(servers, progress))
        if workloads and arguments.warm_up:
            warm_up([*raw_workloads(WARM_UP_SCALE)], servers, arguments.warm_up, progress)
        for workload in workloads:
            found = run_rounds(workload, servers, arguments.rounds, progress)
            _tell(progress, found)
            results += found
        if is_wanted(AFTER.name):
            results.append(memory(AFTER, servers))
    return results


def _servers(arguments: argparse.Namespace, script: KafkaScript | None, house: ExitStack) -> list[Server]:
    servers = [house.enter_context(MoldauProcess()).start()]
    if arguments.kafka:
        servers.append(kafka_at(arguments.kafka))
    elif script is not None:
        servers.append(script.start())
    return servers


def _is_given(server: Server, arguments: argparse.Namespace) -> bool:
    """A Kafka that ran before us has done who knows what: its memory is not that of an idle broker."""
    return server.name == KAFKA and bool(arguments.kafka)


def _tell(progress: Progress, results: Sequence[Result]) -> None:
    for result in results:
        found = ", ".join(f"{name} {middle(result.value(name))}" for name in result.samples)
        progress.tell(f"{result.quantity.name}: {found} {result.quantity.unit}")


def _table(results: Sequence[Result]) -> Table:
    has_kafka = any(KAFKA in result.samples for result in results)
    headers = ["workload", "unit", "moldau", *(["kafka", "ratio", "CPU ratio"] if has_kafka else ["CPU µs"])]
    rows = [_row(result, has_kafka) for result in results]
    note = f"median [lowest–highest]; ratios: {AHEAD}" if has_kafka else "median [lowest–highest]"
    return Table(note, headers, rows)


def _row(result: Result, has_kafka: bool) -> list[str]:
    row = [result.quantity.name, result.quantity.unit, with_spread(result.value(MOLDAU))]
    if not has_kafka:
        cpu = result.cpu_us(MOLDAU)
        return [*row, NOTHING if cpu is None else f"{middle(cpu)} a {result.quantity.work_unit}"]
    if KAFKA not in result.samples:
        return [*row, NOTHING, NOTHING, NOTHING]
    ratio, cpu_ratio = result.ratio(MOLDAU, KAFKA), result.cpu_ratio(MOLDAU, KAFKA)
    return [*row, with_spread(result.value(KAFKA)), with_spread(ratio), with_spread(cpu_ratio)]


def _ratio(result: Result) -> float | None:
    found = result.ratio(MOLDAU, KAFKA) if KAFKA in result.samples else None
    return found.median if found else None


def _plot(path: Path, results: Sequence[Result]) -> None:
    compared = [result for result in results if KAFKA in result.samples]
    cpu = [result.cpu_ratio(MOLDAU, KAFKA) for result in compared]
    series = {
        "speed, time or memory": [_ratio(result) for result in compared],
        "broker's CPU time": [found.median if found else None for found in cpu],
    }
    plot_ratios(path, "Moldau beside Apache Kafka", [result.quantity.name for result in compared], series, AHEAD)


if __name__ == "__main__":
    options.run(main)
