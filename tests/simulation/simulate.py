"""Runs the simulation of the group coordinator: one seed, or any number of them on all cores.

python tests/simulation/simulate.py --seeds 1000              a thousand fates, and what befell them
python tests/simulation/simulate.py --seed 17 --trace         one of them, told event by event
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

from groups_world import SIZES, Report, World
from rich.console import Console
from rich.progress import Progress

Told = Report | str
"""What came of a run: a report, or what was wrong."""


def one(task: tuple[int, str]) -> Told:
    """A run, in whatever process."""
    logging.disable(logging.CRITICAL)  # the broker warns of every fault that is made
    seed, size = task
    world = World(seed, SIZES[size])
    try:
        return world.run()
    except Exception:
        return f"seed {seed}, size {size}\n{traceback.format_exc()}{world.how_to_replay()}"


def many(seeds: Sequence[int], size: str, jobs: int = 0) -> Iterator[Told]:
    """Runs of all these seeds, as they come in."""
    sys.path.insert(0, str(Path(__file__).parent))
    with multiprocessing.get_context("spawn").Pool(min(jobs or os.cpu_count() or 1, len(seeds))) as pool:
        yield from pool.imap_unordered(one, [(seed, size) for seed in seeds])


def _trace(seed: int, size: str) -> int:
    logging.disable(logging.CRITICAL)
    world = World(seed, SIZES[size], tail=0)
    try:
        report = world.run()
    except Exception:
        print(*world.tail, sep="\n")
        print(traceback.format_exc())
        return 1
    print(*world.tail, sep="\n")
    print(report)
    return 0


def _run(seeds: Sequence[int], size: str, jobs: int) -> int:
    console = Console()
    began = time.monotonic()
    reports: list[Report] = []
    wrong: list[str] = []
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"{len(seeds)} seeds", total=len(seeds))
        for told in many(seeds, size, jobs):
            if isinstance(told, str):
                wrong.append(told)
                console.print(told, markup=False, highlight=False, soft_wrap=True)
            else:
                reports.append(told)
            progress.update(bar, advance=1, description=f"{len(reports)} well, {len(wrong)} violated")
    _sum_up(console, reports, time.monotonic() - began)
    console.print(f"[bold]{len(wrong)} of {len(seeds)} seeds violated something[/bold]")
    return bool(wrong)


def _sum_up(console: Console, reports: Sequence[Report], seconds: float) -> None:
    faults: Counter[str] = sum((report.faults for report in reports), Counter())
    hours = sum(report.virtual_ms for report in reports) / 3_600_000
    console.print(
        f"{len(reports)} runs, {hours:.1f} h of virtual time in {seconds:.0f} s: "
        f"{sum(report.members for report in reports):,} members, "
        f"{sum(report.answers for report in reports):,} answers, "
        f"{sum(report.records for report in reports):,} records judged, {faults.total():,} events:"
    )
    for what, count in faults.most_common():
        console.print(f"  {count:>9,} {what}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell everything that happens")
    parser.add_argument("--digest", action="store_true", help="with --seed: tell a checksum of everything that happens")
    parser.add_argument("--seeds", type=int, default=100, help="run so many")
    parser.add_argument("--first", type=int, default=0, help="beginning with this one")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--jobs", type=int, default=0, help="processes; as many as there are cores")
    said = parser.parse_args()
    if said.seed is None:
        return _run(range(said.first, said.first + said.seeds), said.size, said.jobs)
    if said.trace:
        return _trace(said.seed, said.size)
    told = one((said.seed, said.size))
    print(told.digest if said.digest and isinstance(told, Report) else told)
    return isinstance(told, str)


if __name__ == "__main__":
    sys.exit(main())
