"""Groups in one broker, beside Apache Kafka where there is one: joins, heartbeats, commits, loading after a restart.

Without a Kafka only Moldau is measured; loading is always measured on Moldau only. Each workload has several sizes; the
report says how many times more a unit of work costs in the largest than in the smallest: 1.0 is linear.

    python -m bench.groups
    python -m bench.groups --kafka 127.0.0.1:9092/4711       beside a Kafka that runs, with its process id
    python -m bench.groups --peers path/to/script            beside a Kafka that the script starts and stops
    python -m bench.groups --only join --rounds 5 --json numbers.json --plot ratios.png
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from bench.brokers.servers import KAFKA
from bench.groups import load as group_load
from bench.groups.load import CLEAN, CRASHED, EMPTY, Loaded
from bench.groups.workloads import JOINING, Series, group_series
from bench.measuring import beside, options
from bench.measuring.progress import Progress
from bench.measuring.report import NOTHING, Table, number, show, show_bars, write_json, write_markdown
from bench.measuring.results import Result
from bench.measuring.rounds import Workload, run_rounds, warm_up

ROUNDS = 5
WARM_UP_S = 30.0
WARM_UP_SCALE = 0.02
"""A little of each workload, many times, so that everything is warm."""
SPARE_FILES = 512
LINEAR = "a unit of work in the largest against the smallest: 1.0 is linear, above it costs more"


def main() -> None:
    arguments = _arguments()
    series = list(group_series(arguments.scale))
    loads = [quantity for quantity in (CLEAN, CRASHED) if options.is_wanted(quantity.name, arguments.only)]
    if arguments.list:
        print("\n".join([*(each.name for one in series for each in one.workloads.values()), CLEAN.name, CRASHED.name]))
        return
    options.allow_files(2 * max(JOINING) + SPARE_FILES)
    results = _measure(arguments, series)
    with _progress(arguments, len(loads) * len(group_load.loads(arguments.scale)), 0) as progress:
        loaded = group_load.measure(loads, arguments.scale, arguments.rounds, progress)
    _report(arguments, series, results, loaded)


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    beside.add_peer(parser)
    parser.add_argument(
        "--warm-up",
        type=float,
        metavar="SECONDS",
        default=WARM_UP_S,
        help=f"work on each broker before measuring (default {WARM_UP_S:g})",
    )
    parser.add_argument("--list", action="store_true", help="print what can be measured and exit")
    arguments = parser.parse_args()
    if arguments.plot and not (arguments.kafka or arguments.peers):
        parser.error("--plot draws ratios to Kafka: give one with --kafka or --peers")
    return arguments


def _measure(arguments: argparse.Namespace, series: Sequence[Series]) -> list[Result]:
    """Measure everything but the loads, in turns."""
    workloads = options.wanted(_workloads(series), arguments.only)
    if not workloads:
        return []
    results: list[Result] = []
    with ExitStack() as house:
        servers = beside.servers(arguments, beside.script_of(arguments, house), house)
        progress = house.enter_context(_progress(arguments, len(workloads) * len(servers), 1))
        if arguments.warm_up:
            warm_up(_workloads(list(group_series(WARM_UP_SCALE))), servers, arguments.warm_up, progress)
        for workload in workloads:
            measured = run_rounds(workload, servers, arguments.rounds, progress)
            beside.tell(progress, measured)
            results += measured
    return results


def _workloads(series: Sequence[Series]) -> list[Workload]:
    return [workload for one in series for workload in one.workloads.values()]


def _progress(arguments: argparse.Namespace, turns: int, uncounted: int) -> Progress:
    return Progress(turns * (arguments.rounds + uncounted))


def _report(
    arguments: argparse.Namespace, series: Sequence[Series], results: Sequence[Result], loaded: Sequence[Loaded]
) -> None:
    tables = []
    if results:
        tables.append(beside.table(results))
    if loaded:
        tables.append(group_load.table(loaded, arguments.scale))
    rows = _growth({result.quantity.name: result for result in results}, series)
    rows += [group_load.growth(each, arguments.scale) for each in loaded]
    if rows:
        tables.append(Table(LINEAR, ["", "of", "from", "to", "time", "CPU time"], rows))
    for table in tables:
        show(table)
    show_bars(f"ratio: {beside.AHEAD}", {result.quantity.name: beside.ratio(result) for result in results})
    if arguments.markdown:
        write_markdown(arguments.markdown, tables)
    if arguments.json:
        loads = [result for each in loaded for result in (each.seconds, each.cpu)]
        write_json(arguments.json, {"groups": (results, KAFKA), "load": (loads, EMPTY.name)})
    if arguments.plot:
        beside.plot(arguments.plot, "Groups in Moldau beside Apache Kafka", results)


def _growth(results: Mapping[str, Result], series: Sequence[Series]) -> list[list[str]]:
    """Return a row for each series of which more than one size was measured."""
    rows = []
    for one in series:
        found = {size: results[work.name] for size, work in one.workloads.items() if work.name in results}
        if len(found) > 1:
            rows += [_growth_row(one, found, system) for system in next(iter(found.values())).samples]
    return rows


def _growth_row(series: Series, found: Mapping[int, Result], system: str) -> list[str]:
    small, large = min(found), max(found)
    time = [series.unit_cost(size, found[size].value(system).median) for size in (small, large)]
    cpu = [taken.median if (taken := found[size].cpu_us(system)) else 0.0 for size in (small, large)]
    sizes = [f"{size:,} {series.sized_in}" for size in (small, large)]
    return [series.name, system, *sizes, *(number(high / low) if low else NOTHING for low, high in (time, cpu))]


if __name__ == "__main__":
    options.run(main)
