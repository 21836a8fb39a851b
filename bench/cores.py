"""What more nodes on one machine do: `moldau start --cores N` against one node, with the client's share taken out.

    python -m bench.cores                               # one node and two
    python -m bench.cores --cores 1,2,4,8 --rounds 5    # on a machine with 16 cores: half of them for the clients
    python -m bench.cores --scale 0.1 --rounds 1        # does it work at all?

The work is the same for every N: as many partitions, connections and requests. The clients are processes of their own,
one for each node, each with the partitions that its node leads. In every round each N has its turn.

    k req/s         by the clock. Counts only where clients and nodes have cores of their own: with N nodes on 2N cores
                    that nobody else uses. `taskset` gives the clients theirs: --client-cpus 8-15 --node-cpus 0-7
    k req/CPU s     requests per second of CPU time of the busiest node: what the nodes would answer with a core each,
                    whoever else uses the machine. N times that of one node if work is spread evenly and costs the same
    CPU, others     CPU time of the supervisor and of the clients, beside that of all nodes

On a busy machine CPU times of one request differ by some ten percent (caches and hyperthreads are shared): take the
median of several rounds, and look at the spread.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]

from bench.brokers.connection import Connection, Fetching, Producing, all_together
from bench.brokers.frames import fetch_frame, produce_frame, record_batch
from bench.brokers.procfs import children, cpu_seconds, resident_mib
from bench.brokers.raw_workloads import FILLED_RECORDS, FILLED_VALUE_BYTES, IN_FLIGHT, KIB, MIB
from bench.brokers.servers import SOURCES, START_TIMEOUT_S, STOP_TIMEOUT_S, NotStarted
from bench.brokers.topics import TIMEOUT_S, new_topic
from bench.measuring import options

FORK = multiprocessing.get_context("fork")
FILLED_BATCHES = 200
FETCH_BYTES = 128 * KIB


@dataclass(frozen=True)
class Work:
    name: str
    records: int
    value_bytes: int
    requests: int
    """For each partition."""
    is_fetch: bool = False


@dataclass(frozen=True)
class Broker:
    address: str
    supervisor: int | None
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Turn:
    requests: int
    seconds: float
    node_cpu: tuple[float, ...]
    supervisor_cpu: float
    client_cpu: float

    @property
    def by_clock(self) -> float:
        return self.requests / self.seconds / 1e3

    @property
    def by_cpu(self) -> float:
        return self.requests / max(self.node_cpu) / 1e3


def works(scale: float) -> list[Work]:
    def times(count: int) -> int:
        return max(20, int(count * scale))

    return [
        Work("produce 1x100B", 1, 100, times(4_000)),
        Work("produce 100x100B", 100, 100, times(2_000)),
        Work("fetch 128 KiB", FILLED_RECORDS, FILLED_VALUE_BYTES, times(2_000), is_fetch=True),
    ]


@contextmanager
def broker(cores: int, cpus: str | None) -> Iterator[Broker]:
    """`moldau start --cores` in a temporary directory; its nodes may be bound to CPUs."""
    directory = Path(tempfile.mkdtemp(prefix="moldau-bench-"))
    path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    port = random.randrange(20_000, 30_000)
    command = [*(["taskset", "-c", cpus] if cpus else []), sys.executable, "-m", "moldau", "start"]
    process = subprocess.Popen(
        [*command, "--cores", str(cores), "--listen", f"127.0.0.1:{port}", "--data-dir", str(directory / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        await_ready(process)
        nodes = tuple(children(process.pid)) if cores > 1 else (process.pid,)
        yield Broker(f"127.0.0.1:{port}", process.pid if cores > 1 else None, nodes)
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.stdout is not None:
            process.stdout.close()
        shutil.rmtree(directory, ignore_errors=True)


def await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    deadline, printed = time.monotonic() + START_TIMEOUT_S, b""
    while not re.search(rb"(?m)^Moldau \S+ is ready", printed):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        received = os.read(process.stdout.fileno(), 1 << 16) if readable else b""
        if not received:
            raise NotStarted(f"moldau did not start: {printed.decode()}")
        printed += received


def leaders(address: str, topic: str) -> dict[str, list[int]]:
    """Return the partitions that each node leads, by its address."""
    found = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(topic, timeout=TIMEOUT_S)
    addresses = {node.id: f"{node.host}:{node.port}" for node in found.brokers.values()}
    led: dict[str, list[int]] = {}
    for index, partition in found.topics[topic].partitions.items():
        led.setdefault(addresses[partition.leader], []).append(index)
    return led


def client(address: str, topic: str, partitions: Sequence[int], work: Work, barrier: Barrier, cpus: str | None) -> None:
    """The process that talks to one node; it waits at the barrier before its work and after it."""
    if cpus:
        os.sched_setaffinity(0, cpu_set(cpus))
    batch = record_batch(work.records, work.value_bytes)
    with ExitStack() as cleanup:
        producers = []
        for partition in partitions:
            connection = cleanup.enter_context(Connection(address))
            producers.append(Producing(connection, produce_frame(topic, partition, batch), IN_FLIGHT))
            producers[-1].wait_until_writable()
        if not work.is_fetch:
            begin(barrier)
            all_together(producers, work.requests)
        else:
            all_together(producers, FILLED_BATCHES)
            fetches = [fetching(address, topic, partition, work, len(batch), cleanup) for partition in partitions]
            begin(barrier)
            for fetch in fetches:
                fetch.fetch_bytes(work.requests * FETCH_BYTES)
        barrier.wait()
        barrier.wait()  # the CPU time of this process is read


def begin(barrier: Barrier) -> None:
    """Wait until all clients are connected, and then until the CPU times before the work are read."""
    barrier.wait()
    barrier.wait()


def fetching(address: str, topic: str, partition: int, work: Work, batch_bytes: int, cleanup: ExitStack) -> Fetching:
    connection = cleanup.enter_context(Connection(address, FETCH_BYTES + MIB))
    frame = fetch_frame({topic: range(partition, partition + 1)}, FETCH_BYTES)
    return Fetching(connection, frame, topic, (work.records, batch_bytes))


def cpu_set(text: str) -> set[int]:
    """Parse `0-3,8`, as taskset does."""
    ranges = (each.partition("-") for each in text.split(","))
    return {number for low, dash, high in ranges for number in range(int(low), int(high if dash else low) + 1)}


def measure(at: Broker, work: Work, partitions: int, client_cpus: str | None) -> Turn:
    with ExitStack() as cleanup:
        topic = new_topic(at.address, partitions, cleanup)
        led = leaders(at.address, topic)
        barrier = FORK.Barrier(len(led) + 1)
        clients = [
            FORK.Process(target=client, args=(address, topic, indexes, work, barrier, client_cpus), daemon=True)
            for address, indexes in led.items()
        ]
        for each in clients:
            each.start()
        pids = [each.pid for each in clients if each.pid is not None]
        supervisor = [at.supervisor] if at.supervisor is not None else []
        barrier.wait(TIMEOUT_S)
        before = cpu_of([*at.nodes, *supervisor, *pids])
        began = time.perf_counter()
        barrier.wait(TIMEOUT_S)
        barrier.wait(TIMEOUT_S)
        seconds, after = time.perf_counter() - began, cpu_of([*at.nodes, *supervisor, *pids])
        barrier.wait(TIMEOUT_S)
        for each in clients:
            each.join()
    used = {pid: after[pid] - before[pid] for pid in after}
    node_cpu = tuple(max(used[pid], 0.01) for pid in at.nodes)
    others = sum(used[pid] for pid in supervisor), sum(used[pid] for pid in pids)
    return Turn(work.requests * partitions, seconds, node_cpu, *others)


def cpu_of(pids: Sequence[int]) -> dict[int, float]:
    return {pid: cpu_seconds(pid) for pid in pids}


def report(work: Work, turns: Mapping[int, Sequence[Turn]]) -> Iterator[str]:
    fewest = statistics.median(turn.by_cpu for turn in turns[min(turns)])
    for cores, each in turns.items():
        rates = [turn.by_cpu for turn in each]
        spread = f"{min(rates):.1f}-{max(rates):.1f}"
        nodes = statistics.median(sum(turn.node_cpu) for turn in each)
        supervisor, clients = (
            statistics.median(getattr(turn, f"{who}_cpu") for turn in each) for who in ("supervisor", "client")
        )
        clock, by_cpu = statistics.median(turn.by_clock for turn in each), statistics.median(rates)
        balance = statistics.median(max(turn.node_cpu) * len(turn.node_cpu) / sum(turn.node_cpu) for turn in each)
        yield (
            f"| {work.name} | {cores} | {clock:.1f} | {by_cpu:.1f} ({spread}) | {by_cpu / fewest:.2f} | {balance:.2f}"
            f" | {nodes:.2f} / {supervisor:.2f} / {clients:.2f} |"
        )


def head(fewest: int) -> str:
    """`fewest`: the number of nodes that the others are compared to."""
    return (
        f"| work | nodes | k req/s | k req/CPU s of the busiest node (spread) | to that of {fewest} | busiest to mean"
        " | CPU s: nodes / supervisor / clients |\n|---|---|---|---|---|---|---|"
    )


def main() -> None:
    parser = options.parser(__doc__ or "", rounds=5)
    parser.add_argument("--cores", default="1,2", help="the numbers of nodes to compare (default 1,2)")
    parser.add_argument("--node-cpus", metavar="LIST", help="the CPUs of the nodes, as taskset takes them")
    parser.add_argument("--client-cpus", metavar="LIST", help="the CPUs of the clients")
    chosen = parser.parse_args()
    if chosen.json or chosen.plot:
        parser.error("--json and --plot are not supported here; --markdown writes the table")
    counts = sorted({int(each) for each in chosen.cores.split(",")})
    partitions = 2 * max(counts)
    lines = [head(min(counts))]
    with ExitStack() as cleanup:
        brokers = {count: cleanup.enter_context(broker(count, chosen.node_cpus)) for count in counts}
        memory = {count: sum(map(resident_mib, each.nodes)) for count, each in brokers.items()}
        for work in works(chosen.scale):
            if not options.is_wanted(work.name, chosen.only):
                continue
            turns: dict[int, list[Turn]] = {count: [] for count in counts}
            for number in range(chosen.rounds + 1):
                for count in counts if number % 2 else reversed(counts):
                    turn = measure(brokers[count], work, partitions, chosen.client_cpus)
                    if number:  # the first round is the warm-up
                        turns[count].append(turn)
            lines += report(work, turns)
            print("\n".join(lines[-len(counts) :]), flush=True)
    lines.append("\n" + ", ".join(f"{count} nodes: {mib:.0f} MiB when they are new" for count, mib in memory.items()))
    print("\n".join(lines))
    if chosen.markdown:
        chosen.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    options.run(main)
