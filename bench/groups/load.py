"""How long a broker that holds committed offsets takes to serve them again after a restart.

Only Moldau is measured: the script of another broker empties its directory when it starts. The clock runs from the
start of the process until an offset of every group has been fetched and is the committed one. A broker without offsets
shows the cost of the restart itself; the rest is the loading.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.brokers.connection import BrokerRefused, Connection, Exchanging, all_together
from bench.brokers.procfs import age_s, cpu_seconds
from bench.brokers.servers import MOLDAU, MoldauProcess, Server
from bench.brokers.topics import create_topics
from bench.groups.frames import Committer, commit_frame, committed_reply
from bench.groups.workloads import CONNECTIONS, IN_FLIGHT, await_groups, new_group_ids
from bench.measuring.progress import Progress
from bench.measuring.report import NOTHING, Table, middle, number, with_spread
from bench.measuring.results import Quantity, Result, Samples

OFFSETS = (10_000, 50_000, 100_000, 200_000)
MANY_OFFSETS = 100_000
PER_GROUP = 100
TOPIC = "committed"
COMMITTED = 4_711
CLEAN = Quantity("load after a clean stop", "s", higher_is_better=False)
CRASHED = Quantity("load after kill -9", "s", higher_is_better=False)


@dataclass(frozen=True)
class Load:
    """A number of offsets, a hundred to a group, and how many of them are in each commit."""

    offsets: int
    per_commit: int = 1

    @property
    def name(self) -> str:
        if not self.offsets:
            return "no offsets"
        return f"{self.offsets:,} offsets" + (f", {self.per_commit} a commit" if self.per_commit > 1 else "")


EMPTY = Load(0)


@dataclass(frozen=True)
class Loaded:
    """Seconds and CPU seconds until ready, for each load, after one kind of stop."""

    seconds: Result
    cpu: Result

    def above_none(self, load: Load) -> tuple[float, float]:
        """Return the part of both that the offsets cause."""
        return _above_none(self.seconds, load), _above_none(self.cpu, load)


def _above_none(taken: Result, load: Load) -> float:
    return taken.value(load.name).median - taken.value(EMPTY.name).median


def loads(scale: float) -> list[Load]:
    sizes = [max(PER_GROUP, int(count * scale) // PER_GROUP * PER_GROUP) for count in (*OFFSETS, MANY_OFFSETS)]
    return [EMPTY, *(Load(size) for size in dict.fromkeys(sizes[:-1])), Load(sizes[-1], PER_GROUP)]


def measure(wanted: Sequence[Quantity], scale: float, rounds: int, progress: Progress) -> list[Loaded]:
    """Restart the brokers in turns; all of them run, but only the one that starts has work to do."""
    results = [Loaded(Result(quantity, {}), Result(_cpu_of(quantity), {})) for quantity in wanted]
    with ExitStack() as house:
        filled = [_filled(load, house, progress) for load in loads(scale)] if wanted else []
        for loaded in results:
            for turn in range(rounds):
                for broker in filled:
                    progress.say(f"{loaded.seconds.quantity.name}, {broker.load.name}: {turn + 1} of {rounds}")
                    _restart(broker, loaded)
                    progress.step()
            _tell(loaded, progress)
    return results


@dataclass(frozen=True)
class _Filled:
    """A broker with its load."""

    load: Load
    process: MoldauProcess
    group_ids: Sequence[str]


def _filled(load: Load, house: ExitStack, progress: Progress) -> _Filled:
    progress.say(f"committing {load.name}")
    process = house.enter_context(MoldauProcess(load.name))
    return _Filled(load, process, _fill(process.start(), load))


def _fill(server: Server, load: Load) -> list[str]:
    """Every broker has the same topic; groups without offsets are as many as those of the smallest load."""
    create_topics(server.address, {TOPIC: PER_GROUP})
    group_ids = new_group_ids(max(load.offsets, PER_GROUP * CONNECTIONS) // PER_GROUP)
    await_groups(server, group_ids, TOPIC)
    if not load.offsets:
        return group_ids
    with ExitStack() as cleanup:
        for first in range(0, PER_GROUP, load.per_commit):
            _commit_all(server, group_ids, range(first, first + load.per_commit), cleanup)
    return group_ids


def _commit_all(server: Server, group_ids: Sequence[str], partitions: range, cleanup: ExitStack) -> None:
    frames = [commit_frame(Committer(each), TOPIC, dict.fromkeys(partitions, COMMITTED)) for each in group_ids]
    reply = committed_reply(TOPIC, partitions)
    connection = cleanup.enter_context(Connection(server.address))
    all_together([Exchanging(connection, frames, reply, CONNECTIONS * IN_FLIGHT)], len(frames))


def _restart(broker: _Filled, loaded: Loaded) -> None:
    name = broker.load.name
    (broker.process.stop if loaded.seconds.quantity is CLEAN else broker.process.kill)()
    server = broker.process.start()
    offsets = await_groups(server, broker.group_ids, TOPIC, PER_GROUP - 1)
    seconds, cpu_s = age_s(server.pid), cpu_seconds(server.pid)
    loaded.seconds.samples.setdefault(name, Samples()).values.append(seconds)
    loaded.cpu.samples.setdefault(name, Samples()).values.append(cpu_s)
    expected = COMMITTED if broker.load.offsets else -1
    if set(offsets) != {expected}:
        raise BrokerRefused(f"{name}: after a restart, offsets are {set(offsets)} and not {expected}")


def _tell(loaded: Loaded, progress: Progress) -> None:
    found = ", ".join(f"{name} {middle(loaded.seconds.value(name))}" for name in loaded.seconds.samples)
    progress.tell(f"{loaded.seconds.quantity.name}: {found} {loaded.seconds.quantity.unit}")


def table(results: Sequence[Loaded], scale: float) -> Table:
    headers = ["", "with", "s", "CPU s", "above none, s", "µs an offset", "CPU µs an offset"]
    rows = [_row(loaded, load) for loaded in results for load in loads(scale)]
    return Table("restart until every group's offsets are served; median [lowest–highest]", headers, rows)


def _row(loaded: Loaded, load: Load) -> list[str]:
    taken = [with_spread(result.value(load.name)) for result in (loaded.seconds, loaded.cpu)]
    row = [loaded.seconds.quantity.name, load.name, *taken]
    if not load.offsets:
        return [*row, NOTHING, NOTHING, NOTHING]
    above, cpu_above = loaded.above_none(load)
    return [*row, number(above), number(above / load.offsets * 1e6), number(cpu_above / load.offsets * 1e6)]


def growth(loaded: Loaded, scale: float) -> list[str]:
    """Return the smallest and the largest load, and how many times more an offset costs in the latter: time, CPU
    time."""
    single = [load for load in loads(scale) if load.offsets and load.per_commit == 1]
    small, large = single[0], single[-1]
    pairs = zip(loaded.above_none(small), loaded.above_none(large), strict=True)
    times = [number(more / large.offsets / (less / small.offsets)) if less > 0 else NOTHING for less, more in pairs]
    return [loaded.seconds.quantity.name, MOLDAU, small.name, large.name, *times]


def _cpu_of(quantity: Quantity) -> Quantity:
    return Quantity(f"{quantity.name}, CPU time", "s", higher_is_better=False)
