"""Runs the simulations of whole clusters and of the group coordinator: one seed, or any number of them on all cores.

python tests/simulation/simulate.py --seeds 1000                          a thousand runs of each, and their faults
python tests/simulation/simulate.py --what cluster --seed 17 --trace      one run, event by event
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple, NoReturn
from unittest.mock import patch

from cluster import world as cluster_world
from cluster.disks_world import DisksWorld
from cluster.outages_world import OutagesWorld
from compaction.world import CompactionWorld
from groups import world as groups_world
from machines.world import Violation
from rich.console import Console
from rich.progress import Progress
from shares import world as shares_world
from transactions.world import TransactionsWorld
from views import world as views_world

from moldau.runtime.internal_errors import InternalErrors

Report = cluster_world.Report | groups_world.Report
RunResult = Report | str
"""The result of a run: a report, or the text of its failure."""


class Kind(NamedTuple):
    world: Any
    """Called with a seed and one of the sizes."""
    sizes: dict[str, Any]


KINDS = {
    "cluster": Kind(cluster_world.ClusterWorld, cluster_world.SIZES),
    "transactions": Kind(TransactionsWorld, cluster_world.SIZES),
    "compaction": Kind(CompactionWorld, cluster_world.SIZES),
    "disks": Kind(DisksWorld, cluster_world.SIZES),
    "outages": Kind(OutagesWorld, cluster_world.SIZES),
    "views": Kind(views_world.ViewsWorld, views_world.SIZES),
    "shares": Kind(shares_world.SharesWorld, shares_world.SIZES),
    "groups": Kind(groups_world.GroupsWorld, groups_world.SIZES),
}


def _raise_internal_error(errors: InternalErrors, log: logging.Logger, message: str, *arguments: object) -> NoReturn:
    """Instead of `InternalErrors.log`: an internal error of a node fails the run, it is not only a line in a log."""
    error = sys.exception()
    assert error is not None
    raise error


def run_seed(task: tuple[str, int, str]) -> RunResult:
    """Run one seed, in any process."""
    logging.disable(logging.CRITICAL)  # the broker logs a warning for every injected fault
    what, seed, size = task
    kind = KINDS[what]
    replay = ""
    try:
        world = kind.world(seed, kind.sizes[size])
        replay = world.how_to_replay()
        with patch.object(InternalErrors, "log", _raise_internal_error):
            report: Report = world.run()
    except Exception:
        return f"{what}: seed {seed}, size {size}\n{traceback.format_exc()}{replay}"
    return report


def run_seeds(what: str, seeds: Sequence[int], size: str, jobs: int = 0) -> Iterator[RunResult]:
    """Run all these seeds in parallel; yield the results as they come. If a process is killed, raise
    BrokenProcessPool."""
    processes = min(jobs or os.cpu_count() or 1, len(seeds))
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(run_seed, (what, seed, size)) for seed in seeds]
        try:
            for run in as_completed(runs):
                yield run.result()
        finally:
            pool.shutdown(cancel_futures=True)  # after Ctrl-C, seeds that have not begun are left out


def _trace(what: str, seed: int, size: str) -> int:
    logging.disable(logging.CRITICAL)
    kind = KINDS[what]
    world = kind.world(seed, kind.sizes[size], tail=0)
    try:
        with patch.object(InternalErrors, "log", _raise_internal_error):
            report = world.run()
    except Exception as failure:
        print(*world.tail, sep="\n")
        if not isinstance(failure, Violation):
            print(traceback.format_exc())
        return 1
    print(*world.tail, sep="\n")
    print(report)
    return 0


def _run(what: str, seeds: Sequence[int], size: str, jobs: int) -> int:
    console = Console()
    began = time.monotonic()
    reports: list[Report] = []
    failures: list[str] = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"{what}: {len(seeds)} seeds", total=len(seeds))
        for result in run_seeds(what, seeds, size, jobs):
            if isinstance(result, str):
                failures.append(result)
                console.print(result, markup=False, highlight=False, soft_wrap=True)
            else:
                reports.append(result)
            progress.update(bar, advance=1, description=f"{what}: {len(reports)} passed, {len(failures)} failed")
    if reports:
        _sum_up(console, what, reports, time.monotonic() - began)
    console.print(f"[bold]{what}: {len(failures)} of {len(seeds)} seeds failed[/bold]")
    return bool(failures)


def _sum_up(console: Console, what: str, reports: Sequence[Report], seconds: float) -> None:
    faults: Counter[str] = sum((report.faults for report in reports), Counter())
    hours = sum(report.virtual_ms for report in reports) / 3_600_000
    console.print(
        f"{what}: {len(reports)} runs, {hours:.1f} h of virtual time in {seconds:.0f} s: "
        f"{type(reports[0]).shown(reports)}, {faults.total():,} faults:"
    )
    for fault, count in faults.most_common():
        console.print(f"  {count:>9,} {fault}")


def _run_one(what: str, seed: int, size: str, is_digest: bool) -> int:
    result = run_seed((what, seed, size))
    print(result if isinstance(result, str) or not is_digest else result.digest)
    return isinstance(result, str)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=KINDS, action="append", help="run only this simulation; may be repeated")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    parser.add_argument("--digest", action="store_true", help="with --seed: print a checksum of all events")
    parser.add_argument("--seeds", type=_positive, default=100, help="number of seeds to run")
    parser.add_argument("--first", type=int, default=0, help="first seed to run")
    parser.add_argument("--size", choices=cluster_world.SIZES, default="small")
    parser.add_argument("--jobs", type=_positive, default=0, help="number of processes; default: one for each core")
    arguments = parser.parse_args()
    if arguments.seed is None and (arguments.trace or arguments.digest):
        parser.error("--trace and --digest need --seed")
    status = 0
    for what in arguments.what or KINDS:
        if arguments.seed is None:
            status |= _run(
                what, range(arguments.first, arguments.first + arguments.seeds), arguments.size, arguments.jobs
            )
        elif arguments.trace:
            status |= _trace(what, arguments.seed, arguments.size)
        else:
            status |= _run_one(what, arguments.seed, arguments.size, arguments.digest)
    return status


if __name__ == "__main__":
    sys.exit(main())
