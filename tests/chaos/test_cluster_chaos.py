"""Three nodes, real clients, and brokers that are killed, paused and disconnected: every acknowledged record is stored
once.

Producers are idempotent with acks=all; every acknowledged record is read exactly once and in order, whatever happened.
The faults are random, from a seed (MOLDAU_CHAOS_SEED), and last MOLDAU_CHAOS_SECONDS. MOLDAU_CHAOS_KAFKA_LIBS, a
directory of Apache Kafka's jars, runs the same against Apache Kafka.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_faults import Nemesis
from chaos_history import History, anomalies
from chaos_load import Load
from chaos_nodes import RECOVERY_S, Cluster, Node, cluster, until

SEED = int(os.environ.get("MOLDAU_CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("MOLDAU_CHAOS_SECONDS", "60"))
SET_SECONDS = SECONDS / 4
TOPIC = "under-fire"
PARTITIONS = 3
COMBINED = {1: "broker,controller", 2: "broker,controller", 3: "broker,controller"}
APART = {1: "broker", 2: "broker", 3: "broker", 11: "controller", 12: "controller", 13: "controller"}
FAULT_SETS = {
    "none": [],
    "kill": ["kill"],
    "pause": ["pause"],
    "disconnected": ["disconnected"],
    "kill and pause": ["kill", "pause"],
    "one-way and single links": ["receives nothing", "sends nothing", "one link cut"],
    "all": ["kill", "pause", "disconnected", "receives nothing", "sends nothing", "one link cut"],
}


@pytest.fixture
def three_nodes(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, COMBINED) as running:
        running.create_topic(TOPIC, PARTITIONS, min_insync=2)
        yield running


def await_writes(running: Cluster, load: Load, what: str) -> float:
    """Wait until every partition has another acknowledged record; return how long that took."""
    before, began = load.acks(), time.monotonic()

    def have_all_grown() -> bool:
        running.assert_alive()
        assert not load.faults, load.faults[:3]
        return all(count > before[partition] for partition, count in load.acks().items())

    until(
        have_all_grown,
        f"every partition accepts a record {what}",
        RECOVERY_S,
        lambda: f"; {running.describe(TOPIC)}",
    )
    return time.monotonic() - began


def finish_and_check(running: Cluster, load: Load, summary: str) -> History:
    running.await_in_sync(TOPIC, RECOVERY_S)
    await_writes(running, load, "after all faults")
    history = load.finish()
    found = anomalies(history)
    reads = sum(map(len, history.polls.values())) + len(history.shared)
    print(f"\n{summary}: {len(history.acked)} records acknowledged, {reads} reads, {len(found)} anomalies", flush=True)
    assert not found, found[:10]
    assert history.acked, "no record was acknowledged, so nothing was tested"
    return history


def test_writes_continue_while_one_node_at_a_time_is_lost(three_nodes: Cluster) -> None:
    """One node is killed, paused or disconnected, and comes back; no record is lost or duplicated."""
    nemesis, waits = Nemesis(three_nodes, random.Random(f"{SEED} one at a time")), []
    with Load(three_nodes.bootstrap, TOPIC, PARTITIONS) as load:
        await_writes(three_nodes, load, "before the first fault")
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            kind, node = nemesis.rng.choice(["kill", "pause", "disconnected"]), nemesis.rng.choice(three_nodes.brokers)
            nemesis.begin(kind, node)
            waits.append(await_writes(three_nodes, load, f"while node {node.id} has the fault: {kind}"))
            time.sleep(nemesis.rng.uniform(0, 2))
            nemesis.end_all()
            three_nodes.await_in_sync(TOPIC, RECOVERY_S)
        summary = f"{nemesis.describe()}; at most {max(waits):.1f} s until all partitions accepted a record"
        finish_and_check(three_nodes, load, summary)


@pytest.mark.parametrize("name", FAULT_SETS)
def test_no_acknowledged_record_is_lost_under_random_faults(name: str, three_nodes: Cluster) -> None:
    """Faults on two or all nodes at once: writes may stop, but no acknowledged record may be lost."""
    nemesis, kinds = Nemesis(three_nodes, random.Random(f"{SEED} {name}")), FAULT_SETS[name]
    with Load(three_nodes.bootstrap, TOPIC, PARTITIONS) as load:
        await_writes(three_nodes, load, "before the first fault")
        end = time.monotonic() + SET_SECONDS
        while time.monotonic() < end:
            for kind in nemesis.rng.sample(kinds, nemesis.rng.randint(min(1, len(kinds)), len(kinds))):
                node = nemesis.rng.choice(three_nodes.brokers)
                if nemesis.can_begin(kind, node):
                    nemesis.begin(kind, node)
            time.sleep(nemesis.rng.uniform(0.3, 3))
            nemesis.end_all()
            time.sleep(nemesis.rng.uniform(0, 3))
        assert bool(nemesis.counts) == bool(kinds)
        assert bool(three_nodes.network.bytes_held) == bool(nemesis.counts.keys() - {"kill", "pause"})
        finish_and_check(three_nodes, load, f"{name}: {nemesis.describe()}")


def test_the_last_of_three_brokers_serves_reads_and_writes(tmp_path: Path) -> None:
    """Three replicas, min.insync.replicas=1, separate controllers: when any two brokers die, the third serves reads and
    writes."""
    with cluster(tmp_path, APART, {"min.insync.replicas": "1"}) as running:
        running.create_topic(TOPIC, PARTITIONS, min_insync=1)
        nemesis = Nemesis(running, random.Random(f"{SEED} left"))
        with Load(running.bootstrap, TOPIC, PARTITIONS, members=1) as load:
            await_writes(running, load, "before the first fault")
            for survivor in running.brokers:
                for node in running.brokers:
                    if node is not survivor:
                        nemesis.begin("kill", node)
                await_writes(running, load, f"while only broker {survivor.id} is up")
                await_reads(load, survivor)
                nemesis.end_all()
                running.await_in_sync(TOPIC, RECOVERY_S)
            finish_and_check(running, load, f"one of three brokers is up: {nemesis.describe()}")


def await_reads(load: Load, survivor: Node) -> None:
    """Wait until every reader has read something more."""
    before = {name: len(reads) for name, reads in load.history.polls.items()}
    until(
        lambda: all(len(load.history.polls[name]) > count for name, count in before.items()),
        f"every reader continues while only broker {survivor.id} is up",
        RECOVERY_S,
    )
