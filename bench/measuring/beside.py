"""Moldau beside Apache Kafka: how Kafka is started, and how the results of two systems are shown side by side."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.brokers.servers import KAFKA, MOLDAU, KafkaScript, MoldauProcess, Server, kafka_at
from bench.measuring.plot import plot_ratios
from bench.measuring.progress import Progress
from bench.measuring.report import NOTHING, Table, middle, with_spread
from bench.measuring.results import Result

AHEAD = "times better than Apache Kafka: above 1.0 Moldau is ahead"
PEERS_ADDRESS = "127.0.0.1:29192"


def add_peer(parser: argparse.ArgumentParser) -> None:
    peer = parser.add_mutually_exclusive_group()
    peer.add_argument("--kafka", metavar="HOST:PORT/PID", help="a Kafka that already runs on this machine")
    peer.add_argument(
        "--peers",
        type=Path,
        metavar="PATH",
        default=os.environ.get("MOLDAU_PEERS") or None,
        help="a script that starts Kafka with `start` and ends it with `stop` (default: $MOLDAU_PEERS)",
    )
    parser.add_argument(
        "--peers-address",
        metavar="HOST:PORT",
        default=PEERS_ADDRESS,
        help=f"the address of its Kafka ({PEERS_ADDRESS})",
    )


def script_of(arguments: argparse.Namespace, house: ExitStack) -> KafkaScript | None:
    """Return the script that starts Kafka, if one is given."""
    if arguments.kafka or not arguments.peers:
        return None
    return house.enter_context(KafkaScript(Path(arguments.peers), arguments.peers_address))


def servers(arguments: argparse.Namespace, script: KafkaScript | None, house: ExitStack) -> list[Server]:
    servers = [house.enter_context(MoldauProcess()).start()]
    if arguments.kafka:
        servers.append(kafka_at(arguments.kafka))
    elif script is not None:
        servers.append(script.start())
    return servers


def tell(progress: Progress, results: Sequence[Result]) -> None:
    for result in results:
        medians = ", ".join(f"{name} {middle(result.value(name))}" for name in result.samples)
        progress.tell(f"{result.quantity.name}: {medians} {result.quantity.unit}")


def table(results: Sequence[Result]) -> Table:
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
    ratios = [result.ratio(MOLDAU, KAFKA), result.cpu_ratio(MOLDAU, KAFKA)]
    return [*row, with_spread(result.value(KAFKA)), *map(with_spread, ratios)]


def ratio(result: Result) -> float | None:
    spread = result.ratio(MOLDAU, KAFKA) if KAFKA in result.samples else None
    return spread.median if spread else None


def plot(path: Path, title: str, results: Sequence[Result]) -> None:
    compared = [result for result in results if KAFKA in result.samples]
    cpu = [result.cpu_ratio(MOLDAU, KAFKA) for result in compared]
    series = {
        "speed, time or memory": [ratio(result) for result in compared],
        "broker's CPU time": [spread.median if spread else None for spread in cpu],
    }
    plot_ratios(path, title, [result.quantity.name for result in compared], series, AHEAD)
