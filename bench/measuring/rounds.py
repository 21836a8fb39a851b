"""The same work for several brokers in turns, so that disturbances of the machine affect all of them.

The first round warms up brokers, caches and compilers and is not counted. The order changes from round to round.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from bench.brokers.procfs import cpu_seconds
from bench.brokers.servers import Server
from bench.measuring.progress import Progress
from bench.measuring.results import Quantity, Result, Samples


@dataclass(frozen=True)
class Measured:
    """One turn: a number for each quantity of the workload, and the work that the broker did for it."""

    values: tuple[float, ...]
    work: float
    undo: Callable[[], None] | None = None
    """Restores the state of the broker; called after its CPU time has been read."""


Turn = Callable[[], Measured]


@dataclass(frozen=True)
class Workload:
    """`prepare` makes a topic, fills it if need be and connects; what it returns is run once a round.

    What must be closed or deleted when the rounds are over is put on the stack that it is given.
    """

    quantities: tuple[Quantity, ...]
    prepare: Callable[[Server, ExitStack], Turn]

    @property
    def name(self) -> str:
        return self.quantities[0].name


class Contender(NamedTuple):
    """One participant of each round, and the broker whose CPU time is attributed to it."""

    name: str
    server: Server
    turn: Turn


def run_rounds(workload: Workload, servers: Sequence[Server], rounds: int, progress: Progress) -> list[Result]:
    """One result for each quantity of the workload."""
    results = [Result(quantity, {server.name: Samples() for server in servers}) for quantity in workload.quantities]
    with ExitStack() as cleanup:
        contenders = []
        for server in servers:
            progress.say(f"{workload.name}: preparing {server.name}")
            contenders.append(Contender(server.name, server, workload.prepare(server, cleanup)))
        for who, measured, cpu_us in in_turns(workload.name, contenders, rounds, progress):
            record(results, who.name, measured, cpu_us)
    return results


def in_turns(
    name: str, contenders: Sequence[Contender], rounds: int, progress: Progress
) -> Iterator[tuple[Contender, Measured, float]]:
    """Each turn of the counted rounds, with the microseconds of CPU time that a unit of its work took."""
    for number in range(rounds + 1):
        for contender in contenders if number % 2 else reversed(contenders):
            progress.say(f"{name}: {f'round {number}' if number else 'warm-up'}, {contender.name}")
            measured, cpu_us = _take(contender.server, contender.turn)
            if number:
                yield contender, measured, cpu_us
            progress.step()


def warm_up(workloads: Sequence[Workload], servers: Sequence[Server], seconds: float, progress: Progress) -> None:
    """Work that long on each broker without measuring: a just-in-time compiler needs it to reach full speed."""
    for server in servers:
        deadline = time.perf_counter() + seconds
        with ExitStack() as cleanup:
            progress.say(f"warming up {server.name} for {seconds:g} s")
            for turn in itertools.cycle([workload.prepare(server, cleanup) for workload in workloads]):
                if time.perf_counter() > deadline:
                    break
                if (undo := turn().undo) is not None:
                    undo()


def _take(server: Server, turn: Turn) -> tuple[Measured, float]:
    before = sum(map(cpu_seconds, server.pids))
    measured = turn()
    spent = sum(map(cpu_seconds, server.pids)) - before
    if measured.undo is not None:
        measured.undo()
    return measured, spent * 1e6 / measured.work


def record(results: Sequence[Result], system: str, measured: Measured, cpu_us: float) -> None:
    for result, value in zip(results, measured.values, strict=True):
        result.samples[system].values.append(value)
        result.samples[system].cpu_us.append(cpu_us)
