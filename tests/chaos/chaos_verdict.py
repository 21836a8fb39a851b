"""All checks of a run, and what was done in it in figures."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos_checks import (
    Member,
    Where,
    Writes,
    check_group,
    error_anomalies,
    plain_anomalies,
    table_anomalies,
    transaction_anomalies,
)
from chaos_clients import Clients
from chaos_crowd import (
    COMMITTED_READER,
    GROUPS,
    PLAIN,
    PLAIN_READER,
    TABLE,
    TABLE_WRITER,
    TRANSACTIONAL,
    TRANSACTORS,
    WRITERS,
    members,
)
from chaos_history import Read
from chaos_journal import Event
from chaos_nodes import Cluster
from chaos_replicas import different_replicas

MEMORY_MAX_BYTES = 500 << 20
Logs = Mapping[Where, list[Read]]


@dataclass
class Verdict:
    anomalies: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    def of_clients(
        self, clients: Clients, logs: Logs, committed: Logs, commits: Mapping[str, Mapping[Where, int]]
    ) -> None:
        """`logs` is all that can be read, `committed` what transactions left, `commits` the offsets of groups."""
        for name, client in clients.all.items():
            if client.role != "transactor":  # whose producers may be fenced, when a transaction takes too long
                self.anomalies += error_anomalies(name, (event for _, event in clients.events(name)))
        self._of_writers(clients, logs)
        self._of_transactors(clients, logs, committed)
        for group, offsets in commits.items():
            self._of_group(clients, group, logs, offsets)

    def _of_writers(self, clients: Clients, logs: Logs) -> None:
        writes, table = writes_of(clients, WRITERS), writes_of(clients, [TABLE_WRITER])
        polls = {PLAIN_READER: since_the_last_begin(clients.events(PLAIN_READER))}
        for topic in PLAIN:
            shared = (event for group in GROUPS for name in members(group) for _, event in clients.events(name))
            self.anomalies += plain_anomalies(topic, writes, logs, polls, shared)
        for topic in TABLE:
            self.anomalies += table_anomalies(topic, table, logs)
        self.anomalies += [f"failed write: {each}" for each in (*writes.failed, *table.failed)]
        self.figures.append(f"records: {len(writes.acked)} acknowledged, and {len(table.acked)} with keys")

    def _of_transactors(self, clients: Clients, logs: Logs, committed: Logs) -> None:
        writes = writes_of(clients, TRANSACTORS)
        polls = {COMMITTED_READER: since_the_last_begin(clients.events(COMMITTED_READER))}
        everything = {where: logs[where] for where in committed}
        self.anomalies += transaction_anomalies(TRANSACTIONAL, writes, committed, everything, polls)
        outcomes = Counter(each.outcome for each in writes.transactions.values())
        self.figures.append("transactions: " + ", ".join(f"{count} {name}" for name, count in outcomes.most_common()))

    def _of_group(self, clients: Clients, group: str, logs: Logs, offsets: Mapping[Where, int]) -> None:
        plain = {where: reads for where, reads in logs.items() if where[0] in PLAIN}
        check = check_group(group, plain, in_order_of_time(clients, members(group)))
        self.anomalies += check.end(offsets)
        figures = f"{check.reads} reads, {check.commits} commits, {check.rebalances} assignments"
        self.figures.append(f"group {group}: {figures}, {check.stale} × old records in librdkafka's queue")

    def of_nodes(self, cluster: Cluster) -> None:
        """The nodes have stopped."""
        self.anomalies += different_replicas([node.data for node in cluster.brokers], PLAIN | TRANSACTIONAL)
        for node in cluster.brokers:
            self.anomalies += [
                f"traceback: node {node.id} logged {text}" for text in tracebacks(node.folder / "output")
            ]
            if node.memory_max_bytes > MEMORY_MAX_BYTES:
                self.anomalies.append(f"memory: node {node.id} had {node.memory_max_bytes >> 20} MiB")
            self.figures.append(f"memory: node {node.id} had at most {node.memory_max_bytes >> 20} MiB")


def writes_of(clients: Clients, names: Iterable[str]) -> Writes:
    writes = Writes()
    for name in names:
        writes.add(event for _, event in clients.events(name))
    return writes


def since_the_last_begin(events: Iterable[tuple[int, Event]]) -> list[Event]:
    """Return what a reader read since it began at 0 the last time."""
    found: list[Event] = []
    for _, event in events:
        if "begins" in event:
            found.clear()
        found.append(event)
    return found


def in_order_of_time(clients: Clients, names: Iterable[str]) -> Iterator[tuple[Member, Event]]:
    def of(name: str) -> Iterator[tuple[Member, Event]]:
        return (((name, start), event) for start, event in clients.events(name))

    return heapq.merge(*(of(name) for name in names), key=lambda each: float(each[1]["t"]))


def tracebacks(output: Path) -> Iterator[str]:
    """Yield the first lines of each exception in a node's output, with what is before it."""
    lines = output.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines):
        if line.startswith("Traceback"):
            yield "\n".join(lines[max(0, number - 2) : number + 40])
