"""Three nodes and everything that can befall them, in random overlap: killed, suspended, disconnected in one direction
or all, slow links and late requests, full disks, damaged logs, wrong clocks, killed clients.

Clients of every kind work meanwhile, with short timeouts and with librdkafka's defaults. In the end no acknowledged
record is lost or there twice, transactions are whole, groups skipped nothing, replicas are equal, and nobody was stuck
or ended by itself. The faults are random, from a seed (MOLDAU_CHAOS_SEED), last MOLDAU_CHAOS_SECONDS and are of all
kinds, or of those in MOLDAU_CHAOS_FAULTS. What this machine cannot have is skipped, and the summary says why.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from chaos_chronicle import Chronicle
from chaos_clients import READERS, WRITERS, Clients, Where
from chaos_clocks import Clock, why_no_clocks
from chaos_crowd import GROUPS, PLAIN, TABLE, TRANSACTIONAL, create_topics, start_clients
from chaos_disks import Disk, why_no_disks
from chaos_faults import FAULTS, possible_here
from chaos_load import read_to_end
from chaos_nodes import Cluster, Node, cluster
from chaos_storm import ALL_KINDS, Storm
from chaos_verdict import Verdict
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
    "group.consumer.heartbeat.interval.ms": "500",
}
DRIFT = 1.02
"""One node's clock is that much too fast, in most runs."""


@pytest.fixture
def cleans_up_when_terminated() -> Iterator[None]:
    """SIGTERM ends the test like Ctrl-C: nodes, clients and mounted disks must not outlive it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the proxies need Linux's /proc")
@pytest.mark.counts_always
@pytest.mark.usefixtures("cleans_up_when_terminated")
def test_nothing_is_lost_or_doubled_and_nobody_is_stuck_whatever_happens(tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} everything")
    unknown = set(KINDS) - set(ALL_KINDS)
    assert not unknown, f"MOLDAU_CHAOS_FAULTS has unknown faults: {unknown}"
    chronicle = Chronicle(tmp_path / "chronicle.log")
    kinds, chronicle.skipped = possible_here([kind for kind in KINDS if kind in FAULTS])
    kinds += [kind for kind in KINDS if kind not in FAULTS]
    print(f"\nseed {SEED}, {SECONDS:g} s; what happens when is in {chronicle.path}", flush=True)
    with cluster(tmp_path, COMBINED, SETTINGS, equip(rng.choice([None, 1, 2, 3]))) as running:
        create_topics(running)
        with Clients(running.bootstrap, tmp_path / "clients") as clients:
            start_clients(clients)
            storm = Storm(running, clients, chronicle, rng, kinds)
            verdict = Verdict()
            try:
                storm.begin()
                storm.run(SECONDS)
                finish(running, clients, chronicle, storm, verdict)
            finally:
                chronicle.summarise(verdict.figures)
                keep_disks(running, chronicle)
    assert not chronicle.anomalies, "\n".join(chronicle.anomalies)
    assert chronicle.faults, "nothing happened: MOLDAU_CHAOS_SECONDS is too short"


def equip(drifting: int | None) -> Callable[[Node, ExitStack], None]:
    """Return what gives a node its own disk and clock, as far as this machine can do it."""

    def give(node: Node, stack: ExitStack) -> None:
        if why_no_disks() is None:
            node.disk = Disk(node.data)
            node.disk.mount()
            stack.callback(node.disk.unmount)
        if why_no_clocks() is None:
            node.clock = Clock(node.folder / "clock", DRIFT if node.id == drifting else 1.0)

    return give


def finish(running: Cluster, clients: Clients, chronicle: Chronicle, storm: Storm, verdict: Verdict) -> None:
    """Stop the clients, read everything once more, stop the nodes, and look for anomalies."""
    storm.await_in_sync()
    for role in WRITERS:
        verdict.anomalies += clients.stop(role)
    chronicle.note("no client writes any more")
    logs = read_to_end(running.bootstrap, PLAIN | TABLE | TRANSACTIONAL, isolation_level="read_uncommitted")
    committed = read_to_end(running.bootstrap, TRANSACTIONAL, isolation_level="read_committed")
    storm.await_readers({where: reads[-1].place.offset for where, reads in (logs | committed).items() if reads})
    for role in READERS:
        verdict.anomalies += clients.stop(role)
    commits = {group: committed_offsets(running, group) for group in GROUPS}
    storm.await_in_sync()
    for node in running.brokers:
        node.begin_to_stop()
        node.await_stop()
    storm.watch()
    chronicle.note("all nodes have stopped")
    verdict.of_clients(clients, logs, committed, commits)
    verdict.of_nodes(running)
    for text in verdict.anomalies:
        chronicle.anomaly(text)


def committed_offsets(running: Cluster, group: str) -> dict[Where, int]:
    asked = running.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], request_timeout=30)
    return {(each.topic, each.partition): each.offset for each in asked[group].result(40).topic_partitions}


def keep_disks(running: Cluster, chronicle: Chronicle) -> None:
    """Keep the nodes' files if there is something to look for."""
    for node in running.brokers:
        if node.disk is not None and chronicle.anomalies:
            node.disk.keep(node.folder / "data-at-the-end")
