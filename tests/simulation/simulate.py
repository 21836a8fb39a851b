"""Runs the simulations, of whole clusters and of the group coordinator: one seed, or any number of them on all cores.

python tests/simulation/simulate.py --seeds 1000                          a thousand fates of each, and what befell them
python tests/simulation/simulate.py --what cluster --seed 17 --trace      one of them, told event by event
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
from pathlib import Path
from typing import Any

import cluster_world
import compaction_world
import groups_world
import transactions_world
from rich.console import Console
from rich.progress import Progress

Report = cluster_world.Report | groups_world.Report
Told = Report | str
"""What came of a run: a report, or what was wrong."""

KINDS: dict[str, Any] = {
    "cluster": cluster_world,
    "transactions": transactions_world,
    "compaction": compaction_world,
    "groups": groups_world,
}


def one(task: tuple[str, int, str]) -> Told:
    """A run, in whatever process."""
    logging.disable(logging.CRITICAL)  # the broker warns of every fault that is made
    what, seed, size = task
    kind = KINDS[what]
    world = kind.World(seed, kind.SIZES[size])
    try:
        report: Report = world.run()
    except Exception:
        return f"{what}: seed {seed}, size {size}\n{traceback.format_exc()}{world.how_to_replay()}"
    return report


def many(what: str, seeds: Sequence[int], size: str, jobs: int = 0) -> Iterator[Told]:
    """Runs of all these seeds, as they come in."""
    sys.path.insert(0, str(Path(__file__).parent))
    with multiprocessing.get_context("spawn").Pool(min(jobs or os.cpu_count() or 1, len(seeds))) as pool:
        yield from pool.imap_unordered(one, [(what, seed, size) for seed in seeds])


def _trace(what: str, seed: int, size: str) -> int:
    logging.disable(logging.CRITICAL)
    kind = KINDS[what]
    world = kind.World(seed, kind.SIZES[size], tail=0)
    try:
        report = world.run()
    except Exception as wrong:
        print(*world.tail, sep="\n")
        if not isinstance(wrong, groups_world.Violation):
            print(traceback.format_exc())
        return 1
    print(*world.tail, sep="\n")
    print(report)
    return 0


def _run(what: str, seeds: Sequence[int], size: str, jobs: int) -> int:
    console = Console()
    began = time.monotonic()
    reports: list[Report] = []
    wrong: list[str] = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"{what}: {len(seeds)} seeds", total=len(seeds))
        for told in many(what, seeds, size, jobs):
            if isinstance(told, str):
                wrong.append(told)
                console.print(told, markup=False, highlight=False, soft_wrap=True)
            else:
                reports.append(told)
            progress.update(bar, advance=1, description=f"{what}: {len(reports)} well, {len(wrong)} violated")
    _sum_up(console, what, reports, time.monotonic() - began)
    console.print(f"[bold]{what}: {len(wrong)} of {len(seeds)} seeds violated something[/bold]")
    return bool(wrong)


def _sum_up(console: Console, what: str, reports: Sequence[Report], seconds: float) -> None:
    faults: Counter[str] = sum((report.faults for report in reports), Counter())
    hours = sum(report.virtual_ms for report in reports) / 3_600_000
    console.print(
        f"{what}: {len(reports)} runs, {hours:.1f} h of virtual time in {seconds:.0f} s: "
        f"{KINDS[what].Report.shown(reports)}, {faults.total():,} events:"
    )
    for event, count in faults.most_common():
        console.print(f"  {count:>9,} {event}")


def _run_one(what: str, seed: int, size: str, is_digest: bool) -> int:
    told = one((what, seed, size))
    print(told if isinstance(told, str) or not is_digest else told.digest)
    return isinstance(told, str)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=KINDS, help="only this one of the simulations")
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell everything that happens")
    parser.add_argument("--digest", action="store_true", help="with --seed: tell a checksum of everything that happens")
    parser.add_argument("--seeds", type=int, default=100, help="run so many")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one")
    parser.add_argument("--size", choices=cluster_world.SIZES, default="small")
    parser.add_argument("--jobs", type=int, default=0, help="processes; as many as there are cores")
    said = parser.parse_args()
    status = 0
    for what in [said.what] if said.what else KINDS:
        if said.seed is None:
            status |= _run(what, range(said.first, said.first + said.seeds), said.size, said.jobs)
        elif said.trace:
            status |= _trace(what, said.seed, said.size)
        else:
            status |= _run_one(what, said.seed, said.size, said.digest)
    return status


if __name__ == "__main__":
    sys.exit(main())
