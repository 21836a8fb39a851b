"""The same system with and without a feature, in turns: the cost of transactions is not the cost of a broker.

A ratio says how many times better the system is with it than without: 0.8 of a rate is a fifth less, 0.5 of a time is
twice as long. Each side of each system has its turn in every round, so that a ratio compares within a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.brokers.servers import Server
from bench.measuring.progress import Progress
from bench.measuring.report import NOTHING, Table, middle, number, with_spread
from bench.measuring.results import Quantity, Result, Samples
from bench.measuring.rounds import Contender, Turn, in_turns, record

WITHOUT = "without"
WITH = "with"


@dataclass(frozen=True)
class Versus:
    """`prepare` returns the turn without and the turn with; it puts their cleanup on the stack."""

    quantity: Quantity
    prepare: Callable[[Server, ExitStack], tuple[Turn, Turn]]
    wanted: float
    """The lowest acceptable ratio."""


@dataclass(frozen=True)
class Compared:
    """The result of one system, with its samples by side."""

    system: str
    result: Result
    wanted: float

    @property
    def ratio(self) -> float | None:
        found = self.result.ratio(WITH, WITHOUT)
        return found.median if found else None


def compare(versus: Versus, servers: Sequence[Server], rounds: int, progress: Progress) -> list[Compared]:
    name = versus.quantity.name
    results = {server.name: Result(versus.quantity, {WITHOUT: Samples(), WITH: Samples()}) for server in servers}
    with ExitStack() as cleanup:
        contenders = []
        for server in servers:
            progress.say(f"{name}: preparing {server.name}")
            sides = zip((WITHOUT, WITH), versus.prepare(server, cleanup), strict=True)
            contenders += [Contender(side, server, turn) for side, turn in sides]
        for who, measured, cpu_us in in_turns(name, contenders, rounds, progress):
            record([results[who.server.name]], who.name, measured, cpu_us)
    found = [Compared(system, result, versus.wanted) for system, result in results.items()]
    for each in found:
        progress.tell(f"{name}, {each.system}: {middle(each.result.ratio(WITH, WITHOUT))} of {_both(each)}")
    return found


def _both(each: Compared) -> str:
    return f"{middle(each.result.value(WITHOUT))} {each.result.quantity.unit}"


def table(compared: Sequence[Compared]) -> Table:
    headers = ["workload", "of", "unit", "without", "with", "ratio", "wanted", "CPU ratio"]
    return Table("ratios: with against without; below 1.0 it costs something", headers, [*map(_row, compared)])


def _row(each: Compared) -> list[str]:
    result = each.result
    cpu = result.cpu_ratio(WITH, WITHOUT)
    return [
        result.quantity.name,
        each.system,
        result.quantity.unit,
        with_spread(result.value(WITHOUT)),
        with_spread(result.value(WITH)),
        with_spread(result.ratio(WITH, WITHOUT)),
        f"≥ {number(each.wanted)}",
        NOTHING if cpu is None else with_spread(cpu),
    ]
