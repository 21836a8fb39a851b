"""How long is everybody else held up while a broker does something large?

While one client does the large thing, another one (`bench.stall_probe`) asks the smallest request every 3 ms. Two
numbers are told for each case: the longest time that an answer took, and the longest call of the broker's event loop by
its own watch (`base/loop_watch`, read at `/metrics`). Both are wall time: on a machine without a free core they include
what others took. So the first row says what they are while nothing happens, and every case is repeated; the least of
the rounds is the one with the fewest strangers in it.

    python -m bench.stalls
    python -m bench.stalls --only Fetch --rounds 5
    python -m bench.stalls --scale 0.1 --rounds 1        # does it work at all?
"""

from __future__ import annotations

import json
import re
import signal
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from harness import stall_requests as requests

from bench.brokers.connection import BrokerRefused, Connection, Producing
from bench.brokers.frames import produce_frame, record_batch
from bench.brokers.servers import MoldauProcess
from bench.cluster.servers import MoldauCluster, free_ports
from bench.cluster.topics import admin_of, await_in_sync, new_name
from bench.measuring import options
from bench.measuring.report import Table, show, write_markdown
from bench.stalls.probe import Probe

ROUNDS = 3
BIG = "big"
SETTLE_S = 1.0
"""After a request: what it begins (files that are removed, a snapshot) belongs to it."""
LED_PARTITIONS = 1_000
LONGEST = re.compile(r"^moldau_event_loop_longest_call_ms ([\d.]+)$", re.MULTILINE)
LONGEST_WHAT = re.compile(r"^# moldau_event_loop_longest_call_ms: (.*)$", re.MULTILINE)
GIGABYTE_BATCH = (1_000, 1_000)
SETTINGS = {
    "metrics.per.partition": "false",
    "log.retention.check.interval.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "2000000",
    "auto.create.topics.enable": "false",
}


@dataclass
class Stalls:
    """What was measured in all rounds of one case."""

    silences_ms: list[float] = field(default_factory=list)
    calls_ms: list[float] = field(default_factory=list)
    longest: str = ""
    """The longest call of the round with the shortest one."""

    def add(self, silence_ms: float, call_ms: float, what: str) -> None:
        if not self.calls_ms or call_ms < min(self.calls_ms):
            self.longest = what
        self.silences_ms.append(silence_ms)
        self.calls_ms.append(call_ms)


class Watched:
    """A broker whose stalls are measured."""

    def __init__(self, address: str, metrics: str, cleanup: ExitStack) -> None:
        self._metrics = metrics
        self._probe = cleanup.enter_context(Probe(address))

    def begin(self) -> None:
        self._scrape()
        self._probe.take()

    def end(self) -> tuple[float, float, str]:
        """Return the longest silence and the longest call since `begin`, in milliseconds, and what the call was."""
        silence_ms = self._probe.take().longest_ms
        text = self._scrape()
        longest, what = LONGEST.search(text), LONGEST_WHAT.search(text)
        return silence_ms, 0.0 if longest is None else float(longest[1]), "" if what is None else what[1]

    def _scrape(self) -> str:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics") as reply:
            text: str = reply.read().decode()
            return text


class Bench:
    def __init__(self, only: Sequence[str] | None, rounds: int) -> None:
        self._only = only
        self._rounds = rounds
        self.found: dict[str, Stalls] = {}

    def measure(
        self, name: str, brokers: Sequence[Watched], action: Callable[[], object], settle_s: float = 0.1
    ) -> None:
        """Run an action that is needed later in any case, and note its stalls if the case is wanted."""
        for broker in brokers:
            broker.begin()
        action()
        time.sleep(settle_s)
        found = [broker.end() for broker in brokers]
        if options.is_wanted(name, self._only):
            worst = max(found, key=lambda each: each[1])
            self.found.setdefault(name, Stalls()).add(max(each[0] for each in found), worst[1], worst[2])
            print(f"{name}: {max(each[0] for each in found):.1f} ms, {worst[1]:.1f} ms in {worst[2]}", file=sys.stderr)

    def is_wanted(self, *names: str) -> bool:
        return any(options.is_wanted(name, self._only) for name in names)

    def repeat(
        self, name: str, brokers: Sequence[Watched], action: Callable[[], object], settle_s: float = 0.1
    ) -> None:
        for _ in range(self._rounds if self.is_wanted(name) else 0):
            self.measure(name, brokers, action, settle_s)


def one_node(bench: Bench, scale: float, cleanup: ExitStack) -> None:
    port = free_ports()
    settings = {**SETTINGS, "metrics.listener": f"127.0.0.1:{port}"}
    server = cleanup.enter_context(MoldauProcess(settings=settings)).start()
    brokers = [Watched(server.address, f"127.0.0.1:{port}", cleanup)]
    connection = cleanup.enter_context(Connection(server.address))
    bench.repeat("nothing", brokers, lambda: time.sleep(2.0))
    large_topics(bench, brokers, connection, int(8_000 * scale))
    gigabyte(bench, brokers, connection, server.address, max(int(1_000 * scale), 20))
    largest_requests(bench, brokers, connection, int(8_000 * scale), int(10_000 * scale), cleanup)


def large_topics(bench: Bench, brokers: Sequence[Watched], connection: Connection, partitions: int) -> None:
    created, deleted = f"a topic of {partitions:,} partitions is created", f"a topic of {partitions:,} is deleted"
    for number in range(bench._rounds if bench.is_wanted(created, deleted) else 0):
        name = f"large-{number}"
        bench.measure(created, brokers, lambda: create(connection, name, partitions), SETTLE_S)  # noqa: B023
        bench.measure(deleted, brokers, lambda: delete(connection, name), 2 * SETTLE_S)  # noqa: B023


def create(connection: Connection, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    connection.ask(requests.create_topics([name], partitions, configs))
    await_laid_out(connection, name, partitions)


def await_laid_out(connection: Connection, name: str, partitions: int) -> None:
    """Wait until the last partition is there: partitions are laid out in the order of their numbers."""
    with Connection(connection.address) as other:
        producer = Producing(other, produce_frame(name, partitions - 1, record_batch(1, 100)), 1)
        producer.wait_until_writable()


def delete(connection: Connection, name: str) -> None:
    connection.ask(requests.delete_topics([name]))


def gigabyte(bench: Bench, brokers: Sequence[Watched], connection: Connection, address: str, megabytes: int) -> None:
    """A log of so many batches of a megabyte: three readers that lag, then its records are deleted, in two ways."""
    lagging, by_client = "three readers lag in one log", f"{megabytes} MB deleted by DeleteRecords"
    by_retention = f"{megabytes} MB deleted by retention"
    if not bench.is_wanted(lagging, by_client, by_retention):
        return
    configs = {"segment.bytes": str(32 << 20), "file.delete.delay.ms": "500", "index.interval.bytes": "4096"}
    for number in range(bench._rounds):
        name = f"gigabyte-{number}"
        create(connection, name, 1, configs)
        fill(address, name, megabytes)
        bench.measure(lagging, brokers, lambda: read_lagging(address, name, megabytes), 0.1)  # noqa: B023
        most = requests.delete_records(name, 1, megabytes * 900)
        bench.measure(by_client, brokers, lambda: connection.ask(most), 2 * SETTLE_S)  # noqa: B023
        fill(address, name, megabytes)
        by_size = requests.set_config(name, "retention.bytes", "1")
        bench.measure(by_retention, brokers, lambda: connection.ask(by_size), 3 * SETTLE_S)  # noqa: B023
        delete(connection, name)


def fill(address: str, topic: str, batches: int) -> None:
    with Connection(address) as connection:
        Producing(connection, produce_frame(topic, 0, record_batch(*GIGABYTE_BATCH)), 2).run(batches)


def read_lagging(address: str, topic: str, batches: int) -> None:
    """Three readers at different places read a hundred small pieces each."""
    records, _ = GIGABYTE_BATCH

    def read(reader: int) -> None:
        with Connection(address) as connection:
            for piece in range(100):
                offset = (reader * batches // 3 + piece * batches // 400) % batches * records
                connection.ask(requests.fetch_from(topic, offset, 64 << 10))

    readers = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


def largest_requests(
    bench: Bench, brokers: Sequence[Watched], connection: Connection, partitions: int, topics: int, cleanup: ExitStack
) -> None:
    names = [f"topic-{number:05}" for number in range(topics)]
    groups = [f"group-{number:05}" for number in range(min(topics, 5_000))]
    cases = [name for name, _ in requests.largest(BIG, partitions, names, groups)]
    many = f"{topics:,} topics are created, a metadata snapshot is written"
    if not bench.is_wanted(*cases, many):
        return
    create(connection, BIG, partitions)
    create_groups(connection, groups)
    bench.measure(many, brokers, lambda: create_many(connection, names), SETTLE_S)
    for name, frame in requests.largest(BIG, partitions, names, groups):
        with Connection(connection.address) as other:
            bench.repeat(name, brokers, lambda: other.ask(frame))  # noqa: B023


def create_groups(connection: Connection, groups: Sequence[str]) -> None:
    """Commit one offset of each group. Finding the first coordinator creates the topic of the offsets; wait until it is
    ready."""
    deadline_s = time.monotonic() + 60
    for group in groups:
        while True:
            connection.ask(requests.find_coordinator(group))
            try:
                commit(connection, group)
                break
            except BrokerRefused:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)


def commit(connection: Connection, group: str) -> None:
    code = requests.commit_code(connection.ask(requests.commit(group, BIG, 1)))
    if code:
        raise BrokerRefused(f"OffsetCommit of {group}: {code.name}")


def create_many(connection: Connection, names: Sequence[str]) -> None:
    for first in range(0, len(names), 1_000):
        connection.ask(requests.create_topics(names[first : first + 1_000], 1))
    await_laid_out(connection, names[-1], 1)


def three_nodes(bench: Bench, scale: float, cleanup: ExitStack) -> None:
    partitions = int(LED_PARTITIONS * scale)
    killed, back = f"the leader of {partitions:,} partitions is killed", "it comes back"
    if not bench.is_wanted(killed, back):
        return
    cluster = cleanup.enter_context(MoldauCluster([f"{name}={value}" for name, value in SETTINGS.items()]))
    cluster.start_fresh()
    cluster.await_whole()
    name = new_name()
    admin = admin_of(cluster.bootstrap)
    for round_number in range(bench._rounds):
        victim = next(node for node in cluster.addresses if node != cluster.controller())
        others = [node for node in cluster.addresses if node != victim]
        name = f"led-{round_number}"
        assignment = [[victim, *others]] * partitions
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        admin.create_topics([NewTopic(name, partitions, replica_assignment=assignment)])[name].result(60)
        await_in_sync(cluster, [name], partitions)
        with ExitStack() as watched:
            brokers = [Watched(cluster.addresses[node], cluster.metrics[node], watched) for node in others]
            bench.measure(killed, brokers, lambda: cluster.signal(victim, signal.SIGKILL), 3 * SETTLE_S)  # noqa: B023
            cluster.await_ended(victim)
            bench.measure(back, brokers, lambda: (cluster.restart(victim), await_in_sync(cluster, [name], partitions)))  # noqa: B023
        cluster.await_whole()


def table(found: dict[str, Stalls]) -> Table:
    rows = [
        (
            name,
            f"{min(each.silences_ms):.1f}",
            f"{statistics.median(each.silences_ms):.1f}",
            f"{min(each.calls_ms):.1f}",
            f"{statistics.median(each.calls_ms):.1f}",
            each.longest,
        )
        for name, each in found.items()
    ]
    headers = ("while", "silence ms, least", "median", "longest call ms, least", "median", "which")
    return Table("Stalls of the event loop", headers, rows)


def main() -> None:
    parser = options.parser(__doc__ or "", rounds=ROUNDS)
    given = parser.parse_args()
    bench = Bench(given.only, given.rounds)
    options.allow_files(100_000)
    with ExitStack() as cleanup:
        one_node(bench, given.scale, cleanup)
    with ExitStack() as cleanup:
        three_nodes(bench, given.scale, cleanup)
    if not bench.found:
        raise BrokerRefused("no case has this in its name")
    result = table(bench.found)
    show(result)
    if given.markdown:
        write_markdown(given.markdown, [result])
    if given.json:
        given.json.write_text(json.dumps({name: vars(each) for name, each in bench.found.items()}, indent=2))


if __name__ == "__main__":
    options.run(main)
