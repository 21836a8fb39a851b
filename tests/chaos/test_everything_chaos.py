"""Three nodes and everything that can befall them, in random overlap: killed, suspended, disconnected in one direction
or all, slow links and late requests, full disks, damaged logs, wrong clocks, killed clients.

Clients of every kind work meanwhile, with short timeouts and with librdkafka's defaults. In the end no acknowledged
record is lost or there twice, transactions are whole, groups skipped nothing, replicas are equal, and nobody was stuck
or ended by itself. The faults are random, from a seed (MOLDAU_CHAOS_SEED), last MOLDAU_CHAOS_SECONDS and are all kinds,
or those in MOLDAU_CHAOS_FAULTS. What this machine cannot have is skipped, and the summary says why.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from chaos_checks import (
    Event,
    Writes,
    error_anomalies,
    group_anomalies,
    plain_anomalies,
    table_anomalies,
    transaction_anomalies,
)
from chaos_chronicle import Chronicle
from chaos_clients import Clients, Where
from chaos_clocks import Clock, why_no_clocks
from chaos_disks import Disk, why_no_disks
from chaos_faults import FAULTS, possible_here
from chaos_load import read_to_end
from chaos_nodes import Cluster, Node, cluster
from chaos_replicas import different_replicas
from chaos_storm import ALL_KINDS, MEMORY_MAX_BYTES, Storm
from confluent_kafka import ConsumerGroupTopicPartitions

SEED = int(os.environ.get("MOLDAU_CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("MOLDAU_CHAOS_SECONDS", "60"))
KINDS = os.environ.get("MOLDAU_CHAOS_FAULTS", ",".join(ALL_KINDS)).split(",")
COMBINED = {1: "broker,controller", 2: "broker,controller", 3: "broker,controller"}
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "5000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
}
PLAIN = {"plain": 3, "other": 2}
TABLE = {"table": 2}
TRANSACTIONAL = {"moves": 2, "audit": 1}
GROUPS = ("classic", "newer")
DEFAULTS: dict[str, object] = {}
SHORT = {"socket.timeout.ms": 5000}
SHORT_WRITES = SHORT | {"request.timeout.ms": 5000}
DRIFT = 1.02
"""One node's clock is that much too fast, in every other run."""


def equip(folder: Path, drifting: int | None) -> object:
    """Return what gives a node its own disk and clock, as far as this machine can do it."""

    def give(node: Node, stack: ExitStack) -> None:
        if why_no_disks() is None:
            node.disk = Disk(node.data)
            node.disk.mount()
            stack.callback(node.disk.unmount)
        if why_no_clocks() is None:
            node.clock = Clock(node.folder / "clock", DRIFT if node.id == drifting else 1.0)

    return give


def start_clients(clients: Clients) -> None:
    for name, settings in (("defaults", DEFAULTS), ("short", SHORT_WRITES)):
        clients.add(f"writer-{name}", "writer", PLAIN, settings)
        clients.add(f"transactor-{name}", "transactor", TRANSACTIONAL, settings, transactional_id=f"id-{name}")
    clients.add("writer-table", "writer", TABLE, SHORT_WRITES, keys=20)
    clients.add("reader-plain", "reader", PLAIN, DEFAULTS)
    clients.add("reader-committed", "reader", TRANSACTIONAL, SHORT | {"isolation.level": "read_committed"})
    for group, protocol in zip(GROUPS, (CLASSIC, NEWER), strict=True):
        for name, settings in (("defaults", DEFAULTS), ("short", SHORT)):
            clients.add(f"{group}-{name}", "member", PLAIN, {"group.id": group, **protocol, **settings})


CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
NEWER = {"group.protocol": "consumer"}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the proxies need Linux's /proc")
@pytest.mark.counts_always
def test_nothing_is_lost_or_doubled_and_nobody_is_stuck_whatever_happens(tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} everything")
    chronicle = Chronicle(tmp_path / "chronicle.log")
    kinds, chronicle.skipped = possible_here([kind for kind in KINDS if kind in FAULTS])
    kinds += [kind for kind in KINDS if kind not in FAULTS]
    drifting = rng.choice([None, 1, 2, 3])
    print(f"\nseed {SEED}, {SECONDS:g} s; what happens when is in {chronicle.path}", flush=True)
    with cluster(tmp_path, COMBINED, SETTINGS, equip(tmp_path, drifting)) as running:  # type: ignore[arg-type]
        create_topics(running)
        with Clients(running.bootstrap, tmp_path / "clients") as clients:
            start_clients(clients)
            storm = Storm(running, clients, chronicle, rng, kinds)
            try:
                storm.begin()
                storm.run(SECONDS)
                storm.await_in_sync()
                finish(running, clients, chronicle, storm)
            finally:
                summarise(running, chronicle)
                keep_disks(running, chronicle)
    assert not chronicle.anomalies, "\n".join(chronicle.anomalies[:20])
    assert chronicle.faults, "nothing happened: MOLDAU_CHAOS_SECONDS is too short"


def create_topics(running: Cluster) -> None:
    for topic, partitions in (PLAIN | TRANSACTIONAL).items():
        running.create_topic(topic, partitions, min_insync=2)
    for topic, partitions in TABLE.items():
        running.create_topic(
            topic, partitions, min_insync=2, cleanup_policy="compact", segment_ms="10000",
            min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="15000",
        )  # fmt: skip


def finish(running: Cluster, clients: Clients, chronicle: Chronicle, storm: Storm) -> None:
    """Stop the clients, read everything once more, stop the nodes, and look for anomalies."""
    for role in ("writer", "transactor"):
        for fault in clients.stop(role):
            chronicle.anomaly(fault)
    chronicle.note("no client writes any more")
    logs = read_to_end(running.bootstrap, PLAIN | TABLE | TRANSACTIONAL, isolation_level="read_uncommitted")
    committed = read_to_end(running.bootstrap, TRANSACTIONAL, isolation_level="read_committed")
    storm.await_readers({where: reads[-1].place.offset for where, reads in (logs | committed).items() if reads})
    for role in ("member", "reader"):
        for fault in clients.stop(role):
            chronicle.anomaly(fault)
    commits = {group: committed_offsets(running, group) for group in GROUPS}
    storm.await_in_sync()
    for node in running.brokers:
        node.stop()
    check(clients, chronicle, logs, committed, commits)
    for text in different_replicas([node.data for node in running.brokers], PLAIN | TRANSACTIONAL):
        chronicle.anomaly(text)
    check_nodes(running, chronicle)


def committed_offsets(running: Cluster, group: str) -> dict[Where, int]:
    asked = running.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=30)
    return {(each.topic, each.partition): each.offset for each in asked[group].result(40).topic_partitions}


Logs = dict[Where, list]  # type: ignore[type-arg]


def check(
    clients: Clients, chronicle: Chronicle, logs: Logs, committed: Logs, commits: dict[str, dict[Where, int]]
) -> None:
    events = {name: list(clients.events(name)) for name in clients.all}
    found: list[str] = []
    for name, all_of_it in events.items():
        found += error_anomalies(name, (event for _, event in all_of_it if clients.all[name].role != "transactor"))
    writes, transactions, table = Writes(), Writes(), Writes()
    for name, all_of_it in events.items():
        into = {"writer": table if name == "writer-table" else writes, "transactor": transactions}.get(
            clients.all[name].role
        )
        if into is not None:
            for start in range(clients.all[name].starts):
                into.add(event for number, event in all_of_it if number == start)
    found += [f"failed write: {each}" for each in (*writes.failed, *table.failed)]
    polls = {name: joined(events[name]) for name in ("reader-plain", "reader-committed")}
    shared = [
        event for group in GROUPS for name in (f"{group}-defaults", f"{group}-short") for _, event in events[name]
    ]
    for topic in PLAIN:
        found += plain_anomalies(topic, writes, logs, {"reader-plain": polls["reader-plain"]}, shared)
    found += transaction_anomalies(
        TRANSACTIONAL, transactions, committed, {where: logs[where] for where in committed},
        {"reader-committed": polls["reader-committed"]},
    )  # fmt: skip
    for topic in TABLE:
        found += table_anomalies(topic, table, logs)
    for group in GROUPS:
        of_members = [
            ((name, number), event)
            for name in (f"{group}-defaults", f"{group}-short")
            for number, event in events[name]
        ]
        plain = {where: reads for where, reads in logs.items() if where[0] in PLAIN}
        found += group_anomalies(group, plain, of_members, commits[group])
    for text in found:
        chronicle.anomaly(text)
    outcomes = Counter(each.outcome for each in transactions.transactions.values())
    print(
        f"{len(writes.acked)} records and {len(table.acked)} of a table acknowledged; transactions: {dict(outcomes)}",
        flush=True,
    )


def joined(events: list[tuple[int, Event]]) -> list[Event]:
    """Return what the last start of a reader read: each begins again at 0."""
    last = max((number for number, _ in events), default=0)
    return [event for number, event in events if number == last]


def check_nodes(running: Cluster, chronicle: Chronicle) -> None:
    for node in running.brokers:
        output = (node.folder / "output").read_text(errors="replace")
        if (at := output.find("Traceback")) >= 0:
            chronicle.anomaly(f"traceback: node {node.id} logged {output[max(0, at - 500) : at + 3000]}")
        if node.memory_max_bytes > MEMORY_MAX_BYTES:
            chronicle.anomaly(f"memory: node {node.id} had {node.memory_max_bytes >> 20} MiB")


def summarise(running: Cluster, chronicle: Chronicle) -> None:
    lines = [f"  {count:5d} × {kind}" for kind, count in sorted(chronicle.faults.items())]
    lines += [f"  skipped: {kind}: {reason}" for kind, reason in chronicle.skipped.items()]
    lines += [f"  node {node.id}: at most {node.memory_max_bytes >> 20} MiB" for node in running.brokers]
    print("\n".join([f"{sum(chronicle.faults.values())} faults:", *lines]), flush=True)
    print(f"{len(chronicle.anomalies)} anomalies", flush=True)


def keep_disks(running: Cluster, chronicle: Chronicle) -> None:
    """Keep the nodes' files if there is something to look for."""
    for node in running.brokers:
        if node.disk is not None and chronicle.anomalies:
            node.disk.keep(node.folder / "data-at-the-end")
