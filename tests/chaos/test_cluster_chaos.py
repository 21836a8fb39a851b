"""Three nodes, real clients, and brokers that are killed, paused and disconnected: every acknowledged record is stored
once.

Producers are idempotent with acks=all; every acknowledged record is read exactly once and in order, whatever happened.
The faults are random, from a seed (MOLDAU_CHAOS_SEED), and last MOLDAU_CHAOS_SECONDS. MOLDAU_CHAOS_KAFKA_LIBS, a
directory of Apache Kafka's jars, runs the same against Apache Kafka.
"""

from __future__ import annotations

import os
import random
import select
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos_faults import Nemesis
from chaos_history import History, Place, Read, Value, anomalies
from chaos_load import Load
from chaos_nodes import RECOVERY_S, Cluster, Node, cluster, until
from chaos_proxy import Network

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


# --- tests of the proxies and of the checks -----------------------------------------------------------------------


@pytest.fixture
def echo() -> Iterator[socketserver.BaseServer]:
    """Send back each line, and record it."""

    class Echo(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                received.append(line)
                self.wfile.write(line)

    received: list[bytes] = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        server.received = received  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_bytes_over_a_cut_link_wait_until_it_is_restored(echo: socketserver.TCPServer) -> None:
    with Network() as network:
        port = network.proxy(2, echo.server_address[1])
        network.runs_as(1, os.getpid())
        with socket.create_connection(("127.0.0.1", port), 5) as connection, connection.makefile("rb") as answers:

            def say(line: bytes, cut: set[tuple[int, int]]) -> bytes | None:
                """Return what comes back within a fifth of a second."""
                network.restore()
                network.cut(cut)
                connection.sendall(line)
                return answers.readline() if select.select([connection], [], [], 0.2)[0] else None

            assert say(b"one\n", set()) == b"one\n"
            assert say(b"two\n", {(1, 2)}) is None
            assert echo.received == [b"one\n"]  # type: ignore[attr-defined]
            network.restore()
            assert answers.readline() == b"two\n"
            assert say(b"three\n", {(2, 1)}) is None
            assert echo.received[-1] == b"three\n", "only the response is held back"  # type: ignore[attr-defined]
            assert say(b"", {(2, 3), (3, 2), (1, 3)}) == b"three\n", "a cut link of other nodes has no effect"
            assert say(b"four\n", {(0, 2), (2, 0)}) == b"four\n", "this process counts as node 1, not as a client"


def good_history() -> History:
    """Return the records of two producers in one partition, acknowledged and read by all."""
    history = History()
    for offset, value in enumerate([Value(0, 0), Value(1, 0), Value(0, 1), Value(1, 1)]):
        history.sent[0].add(value)
        history.acknowledge(Place(0, offset), value)
        for reads in (history.polls["reader"], history.shared, history.final[0]):
            reads.append(Read(Place(0, offset), value))
    return history


def break_history(history: History, anomaly: str) -> None:
    last = Read(Place(0, 4), Value(0, 2))
    match anomaly:
        case "inconsistent offsets":
            history.shared[1] = Read(Place(0, 1), Value(0, 1))
        case "phantom":
            history.shared.append(last)
        case "duplicate":
            history.final[0].append(Read(Place(0, 4), Value(0, 1)))
        case "lost write":
            history.final[0].pop()
        case "out of order":
            history.sent[0].add(Value(1, -1))
            history.final[0].append(Read(Place(0, 4), Value(1, -1)))
        case "nonmonotonic poll":
            history.polls["reader"].append(history.polls["reader"][0])
        case "poll skip":
            del history.polls["reader"][1]
        case "unseen":
            history.polls["reader"].pop()


def test_a_good_history_has_no_anomalies() -> None:
    history = good_history()
    history.acknowledge_somewhere(0, Value(1, 1))
    assert not anomalies(history)


def test_losing_a_value_acknowledged_without_an_offset_is_an_anomaly() -> None:
    history = good_history()
    history.acknowledge_somewhere(0, Value(1, 2))
    assert anomalies(history) == [
        "lost write: Value(producer=1, number=2) was acknowledged in partition 0 and is not there"
    ]


@pytest.mark.parametrize(
    "anomaly",
    ["inconsistent offsets", "phantom", "duplicate", "lost write", "out of order", "nonmonotonic poll", "poll skip",
     "unseen"],
)  # fmt: skip
def test_each_anomaly_is_reported_by_name(anomaly: str) -> None:
    history = good_history()
    break_history(history, anomaly)
    assert any(line.startswith(anomaly) for line in anomalies(history)), anomalies(history)
