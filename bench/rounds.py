"""The same work for several brokers in turns, so that what the machine does meanwhile falls on all of them.

The first round warms up brokers, caches and compilers and is not counted. Who begins changes from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.procfs import cpu_seconds
from bench.progress import Progress
from bench.results import Quantity, Result, Samples
from bench.servers import Server


@dataclass(frozen=True)
class Measured:
    """One turn: a number for each quantity of the workload, and the work that the broker did for it."""

    values: tuple[float, ...]
    work: float


Turn = Callable[[], Measured]


@dataclass(frozen=True)
class Workload:
    """`prepare` makes a topic, fills it if need be and connects; what it returns is run once a round."""

    quantities: tuple[Quantity, ...]
    prepare: Callable[[Server], Turn]

    @property
    def name(self) -> str:
        return self.quantities[0].name


def run_rounds(workload: Workload, servers: Sequence[Server], rounds: int, progress: Progress) -> list[Result]:
    """One result for each quantity of the workload."""
    results = [Result(quantity, {server.name: Samples() for server in servers}) for quantity in workload.quantities]
    turns = []
    for server in servers:
        progress.say(f"{workload.name}: preparing {server.name}")
        turns.append((server, workload.prepare(server)))
    for number in range(rounds + 1):
        for server, turn in turns if number % 2 else reversed(turns):
            progress.say(f"{workload.name}: {'round ' + str(number) if number else 'warm-up'}, {server.name}")
            before = cpu_seconds(server.pid)
            measured = turn()
            cpu_us = (cpu_seconds(server.pid) - before) * 1e6 / measured.work
            if number:
                _record(results, server.name, measured, cpu_us)
            progress.step()
    return results


def _record(results: Sequence[Result], system: str, measured: Measured, cpu_us: float) -> None:
    for result, value in zip(results, measured.values, strict=True):
        result.samples[system].values.append(value)
        result.samples[system].cpu_us.append(cpu_us)
