"""One broker against itself: the cost of a request must not depend on how much else the broker holds.

Brokers with few and many partitions, and with few and many open connections, do the same work in turns. Ratios are
against the smallest: 1.0 means that nothing grew. Creating partitions, restarting with them and memory are reported
too.

    python -m bench.scale
    python -m bench.scale --partitions 1 100 --connections 1 200 --scale 0.1 --rounds 2
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.brokers.connection import Connection
from bench.brokers.frames import api_versions_request
from bench.brokers.procfs import resident_mib
from bench.brokers.servers import MoldauProcess, Server
from bench.brokers.topics import create_topics
from bench.measuring import options
from bench.measuring.footprint import IDLE_CPU, idle_cpu
from bench.measuring.plot import plot_ratios
from bench.measuring.progress import Progress
from bench.measuring.report import NOTHING, Table, middle, show, show_bars, with_spread, write_json, write_markdown
from bench.measuring.results import Quantity, Result, Samples
from bench.measuring.rounds import Workload, run_rounds
from bench.scale.workloads import Layout, fetch_one, fetch_session, layout_of, produce_one, wait_for_partitions

PARTITIONS = (1, 100, 5_000)
CONNECTIONS = (1, 1_000)
REQUESTS = 30_000
CREATE = Quantity("create the partitions", "s", higher_is_better=False)
RESTART = Quantity("restart with them", "s", higher_is_better=False)
HELD = Quantity("resident memory", "MiB", higher_is_better=False)
RESTARTED = Quantity("resident memory after restart", "MiB", higher_is_better=False)
UNCHANGED = "against the smallest: 1.0 means that nothing grew, below it a request costs more"
SPARE_FILES = 256


def main() -> None:
    arguments = _arguments()
    options.allow_files(max(*arguments.connections, 3 * max(arguments.partitions)) + SPARE_FILES)
    parts: dict[str, tuple[list[Result], str]] = {}
    if "partitions" not in arguments.skip:
        parts["partitions"] = _with_partitions(arguments), _system(arguments.partitions[0], "partition")
    if "connections" not in arguments.skip:
        parts["connections"] = _with_connections(arguments), _system(arguments.connections[0], "connection")
    tables = [_table(name, results, baseline) for name, (results, baseline) in parts.items()]
    for table, (results, baseline) in zip(tables, parts.values(), strict=True):
        show(table)
        bars = {f"{result.quantity.name}, {system}": ratio for result, system, ratio in _ratios(results, baseline)}
        show_bars(f"ratio {UNCHANGED}", bars)
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        write_json(arguments.json, parts)
    if arguments.plot:
        _plot(arguments.plot, parts)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=5)
    parser.add_argument("--partitions", type=int, nargs="+", metavar="N", default=PARTITIONS, help="default 1 100 5000")
    parser.add_argument("--connections", type=int, nargs="+", metavar="N", default=CONNECTIONS, help="default 1 1000")
    parser.add_argument("--skip", choices=["partitions", "connections"], action="append", default=[], help="leave out")
    return parser.parse_args()


def _with_partitions(arguments: argparse.Namespace) -> list[Result]:
    systems = {_system(count, "partition"): layout_of(count) for count in arguments.partitions}
    requests = max(50, int(REQUESTS * arguments.scale))
    workloads = [produce_one(requests), fetch_one(requests), fetch_session(requests, systems)]
    is_wanted = partial(options.is_wanted, only=arguments.only)
    with ExitStack() as house, _progress(arguments, len(systems)) as progress:
        processes = {name: house.enter_context(MoldauProcess(name)) for name in systems}
        servers = [process.start() for process in processes.values()]
        created, held = _create(servers, systems, progress)
        results = _rounds(workloads, servers, arguments, progress)
        if is_wanted(IDLE_CPU.name):
            results.append(idle_cpu(servers, progress))
        restarted = _restart(processes, arguments.rounds, progress) if is_wanted(RESTART.name) else []
    return results + [result for result in (created, held, *restarted) if is_wanted(result.quantity.name)]


def _with_connections(arguments: argparse.Namespace) -> list[Result]:
    systems = {_system(count, "connection"): count for count in arguments.connections}
    requests = max(50, int(REQUESTS * arguments.scale))
    with ExitStack() as house, _progress(arguments, len(systems)) as progress:
        servers = [house.enter_context(MoldauProcess(name)).start() for name in systems]
        for server in servers:
            progress.say(f"opening {server.name}")
            create_topics(server.address, layout_of(1).topics)
            _open_idle(server, systems[server.name] - 1, house)
        held = Result(HELD, {server.name: Samples([resident_mib(server.pid)]) for server in servers})
        results = _rounds([produce_one(requests), fetch_one(requests)], servers, arguments, progress)
        if options.is_wanted(IDLE_CPU.name, arguments.only):
            results.append(idle_cpu(servers, progress))
    return [*results, held] if options.is_wanted(HELD.name, arguments.only) else results


def _open_idle(server: Server, count: int, house: ExitStack) -> None:
    """Open connections that send one request, as those of a client do, and then stay idle."""
    for _ in range(count):
        house.enter_context(Connection(server.address, 4096)).ask(api_versions_request())


def _create(servers: Sequence[Server], layouts: Mapping[str, Layout], progress: Progress) -> tuple[Result, Result]:
    """Measure how long the partitions take to create, all requested at once, and the memory afterwards."""
    created, held = Result(CREATE, {}), Result(HELD, {})
    for server in servers:
        progress.say(f"creating {server.name}")
        seconds = create_topics(server.address, layouts[server.name].topics)
        created.samples[server.name] = Samples([seconds])
        wait_for_partitions(server, layouts[server.name])
        held.samples[server.name] = Samples([resident_mib(server.pid)])
    return created, held


def _restart(processes: Mapping[str, MoldauProcess], repeats: int, progress: Progress) -> list[Result]:
    """Clean stops, then starts on the same data, until ready."""
    took, held = Result(RESTART, {}), Result(RESTARTED, {})
    for name, process in processes.items():
        took.samples[name], held.samples[name] = Samples(), Samples()
        for turn in range(repeats):
            progress.say(f"restarting {name}: {turn + 1} of {repeats}")
            process.stop()
            server = process.start()
            took.samples[name].values.append(process.start_s)
            held.samples[name].values.append(resident_mib(server.pid))
    return [took, held]


def _rounds(
    workloads: Sequence[Workload], servers: Sequence[Server], arguments: argparse.Namespace, progress: Progress
) -> list[Result]:
    results: list[Result] = []
    for workload in options.wanted(workloads, arguments.only):
        found = run_rounds(workload, servers, arguments.rounds, progress)
        for result in found:
            medians = ", ".join(f"{name} {middle(result.value(name))}" for name in result.samples)
            progress.tell(f"{result.quantity.name}: {medians} {result.quantity.unit}")
        results += found
    return results


def _progress(arguments: argparse.Namespace, systems: int) -> Progress:
    return Progress(3 * systems * (arguments.rounds + 1))


def _system(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def _table(name: str, results: Sequence[Result], baseline: str) -> Table:
    headers = ["", "with", "unit", "median [lowest–highest]", "ratio", "CPU ratio", "CPU µs a request"]
    rows = [_row(result, system, baseline) for result in results for system in result.samples]
    return Table(f"{name}: ratios {UNCHANGED}", headers, rows)


def _row(result: Result, system: str, baseline: str) -> list[str]:
    row = [result.quantity.name, system, result.quantity.unit, with_spread(result.value(system))]
    is_work = bool(result.samples[system].cpu_us)  # making and holding partitions may well grow with their number
    if not is_work or system == baseline:
        return [*row, NOTHING, NOTHING, middle(result.cpu_us(system))]
    ratio, cpu_ratio = result.ratio(system, baseline), result.cpu_ratio(system, baseline)
    return [*row, with_spread(ratio), with_spread(cpu_ratio), middle(result.cpu_us(system))]


def _ratios(results: Sequence[Result], baseline: str) -> list[tuple[Result, str, float]]:
    """Those of the workloads, for all systems but the smallest."""
    found = []
    for result in results:
        for system, samples in result.samples.items():
            ratio = result.ratio(system, baseline)
            if system != baseline and samples.cpu_us and ratio is not None:
                found.append((result, system, ratio.median))
    return found


def _plot(path: Path, parts: Mapping[str, tuple[Sequence[Result], str]]) -> None:
    drawn = [
        (f"{result.quantity.name}\n{system}", ratio, result.cpu_ratio(system, baseline))
        for results, baseline in parts.values()
        for result, system, ratio in _ratios(results, baseline)
    ]
    series: dict[str, list[float | None]] = {
        "requests a second": [ratio for _, ratio, _ in drawn],
        "broker's CPU time": [cpu.median if cpu else None for _, _, cpu in drawn],
    }
    plot_ratios(path, "The cost of a request in a bigger broker", [name for name, _, _ in drawn], series, UNCHANGED)


if __name__ == "__main__":
    options.run(main)
