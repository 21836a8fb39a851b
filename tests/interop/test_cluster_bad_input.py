"""Hostile bytes on the controller listeners of three real nodes, while a real producer works with acks=all.

The cluster must not be affected: no error for the producer, no failover, no node that dies.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from clients import confluent_producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness.depth import deep
from harness.patience import PATIENCE_S
from wire_client import ConnectionEnded, Wire, encode_request, message

from moldau.testing import TestCluster, cluster

pytestmark = pytest.mark.moldau_only

TOPIC = "attacked"
SEED = 20_261_115
METADATA_TOPIC = "__cluster_metadata"
FLOOD_FRAMES = deep(500)
PAUSE_S = 0.01
SILENT_CONNECTIONS = 100
REQUEST_MAX_BYTES = 104_857_600
SESSIONS = {"broker_session_timeout_ms": 5_000, "controller_quorum_fetch_timeout_ms": 4_000}
"""Long enough that a busy machine does not make a node count as dead."""
LONGER_THAN_ANY_SESSION_S = 5.2


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[TestCluster]:
    with cluster(**SESSIONS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 3, 3)], operation_timeout=PATIENCE_S)[TOPIC].result(PATIENCE_S)
        for partition in range(3):
            running.wait_for_isr(TOPIC, partition, running.nodes)
        yield running


class Writer:
    """A producer in a thread of its own. It keeps its delivery reports."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = confluent_producer(bootstrap, acks="all", enable_idempotence=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self.faults: list[object] = []
        self.acknowledged = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self._producer.produce(TOPIC, b"precious", on_delivery=self._on_delivery)
            if self._producer.flush(PATIENCE_S):
                self.faults.append(f"not acknowledged within {PATIENCE_S:g} s")

    def _on_delivery(self, error: object, _: object) -> None:
        if error:
            self.faults.append(error)
        else:
            self.acknowledged += 1


def cluster_state(kafka: TestCluster) -> tuple[object, ...]:
    """Return the leaders, their epochs, and the broker epochs."""
    leader = kafka.controller()
    assert leader is not None
    node = kafka.nodes[leader].node
    assert node is not None
    image = node.assembly.current.image
    partitions = [(state.leader, state.leader_epoch, state.isr) for state in image.topics[TOPIC].partitions]
    epochs = sorted((broker.id, broker.epoch, broker.fenced) for broker in image.brokers.values())
    return leader, node.assembly.driver.leader_epoch, *partitions, *epochs


def controller_addresses(kafka: TestCluster) -> list[str]:
    listeners = [node.settings.controller_listeners[0] for node in kafka.nodes.values()]
    return [f"{each.host}:{each.port}" for each in listeners]


def check_harmless(kafka: TestCluster, attack: Callable[[], None]) -> None:
    before = cluster_state(kafka)
    with Writer(kafka.bootstrap_servers) as writer:
        kafka.wait_for(lambda: writer.acknowledged >= 10, what="a producer that works")
        began_at = writer.acknowledged
        attack()
        kafka.wait_for(lambda: writer.acknowledged >= began_at + 10, what="a producer that continues")
    assert not writer.faults
    assert cluster_state(kafka) == before
    assert all(node.is_running for node in kafka.nodes.values())


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def answered(address: str, raw: bytes) -> bytes | None:
    """Return the response to these bytes; None if the connection is closed."""
    with Wire(address) as attacker:
        try:
            attacker.send_bytes(raw)
        except ConnectionEnded:
            return None
        return attacker.answer_or_close()


def quorum_requests() -> list[bytes]:
    """Return requests of an unknown node, each with an error in it, and none that may end a leader's term."""
    stranger = {"partition_index": 0, "replica_epoch": 2**31 - 1, "replica_id": 77, "last_offset_epoch": 0}
    snapshot = {"partition": 0, "current_leader_epoch": -1, "snapshot_id": {"end_offset": 1, "epoch": 1}, "position": 0}
    wanted = [{"name": METADATA_TOPIC, "partitions": [snapshot]}]
    vote = [{"topic_name": METADATA_TOPIC, "partitions": [{**stranger, "last_offset": 0}]}]
    forged = {"broker_id": 1, "broker_epoch": -1, "current_metadata_offset": 2**62}
    nothing = [{"topic_name": METADATA_TOPIC, "partitions": []}]
    payloads = [
        message("fetch_snapshot", 0, replica_id=-1, max_bytes=-1, topics=[]),
        message("fetch_snapshot", 0, replica_id=-1, max_bytes=1, topics=[{"name": METADATA_TOPIC, "partitions": []}]),
        message("fetch_snapshot", 0, replica_id=1, max_bytes=1, topics=wanted),
        message("vote", 0, cluster_id=None, topics=[]),
        message("vote", 0, cluster_id=None, topics=nothing),
        message("vote", 0, cluster_id=None, topics=vote),
        message("describe_quorum", 0, topics=[]),
        message("describe_quorum", 0, topics=nothing),
        message("begin_quorum_epoch", 0, cluster_id="another", topics=[]),
        message("end_quorum_epoch", 0, cluster_id="another", topics=[]),
        message("broker_heartbeat", 0, want_fence=True, want_shut_down=True, **forged),
        message("unregister_broker", 0, broker_id=2**31 - 1),
        message("envelope", 0, request_data=b"\x00" * 40, request_principal=None, client_host_address=b""),
    ]
    return [encode_request(payload, 1) for payload in payloads]


def test_well_formed_attacks_are_answered_on_every_node(kafka: TestCluster) -> None:
    def attack() -> None:
        for address in controller_addresses(kafka):
            for body in quorum_requests():
                found = answered(address, frame(body))
                assert found is not None
                assert found[:4] == struct.pack(">i", 1)

    check_harmless(kafka, attack)


def test_garbage_closes_only_its_own_connection(kafka: TestCluster) -> None:
    chance = random.Random(SEED)
    header = struct.pack(">hhi", 52, 2, 1) + b"\xff\xff\x00"
    pieces = [
        struct.pack(">i", -1) + bytes(10),
        struct.pack(">i", REQUEST_MAX_BYTES + 1) + b"x",
        struct.pack(">i", 0),
        frame(struct.pack(">hhi", 999, 0, 1) + b"\xff\xff"),
        frame(struct.pack(">hhi", 0, 9, 1) + b"\xff\xff\x00" + bytes(20)),
        frame(header + b"\xff\xff\xff\xff\x0f" + bytes(50)),
        frame(header + bytes(100_000)),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        *(frame(b"\x7f" + chance.randbytes(chance.randint(1, 200))) for _ in range(30)),
    ]

    def attack() -> None:
        for address in controller_addresses(kafka):
            for raw in pieces:
                assert answered(address, raw) is None

    check_harmless(kafka, attack)


def test_half_frames_and_declared_sizes_do_not_block_the_cluster(kafka: TestCluster) -> None:
    def attack() -> None:
        held: list[Wire] = []
        whole = frame(quorum_requests()[0])
        for number in range(SILENT_CONNECTIONS):
            slow = Wire(controller_addresses(kafka)[number % 3])
            held.append(slow)
            cut = 1 + number % (len(whole) - 1)
            slow.send_bytes(whole[:cut] if number % 2 else struct.pack(">i", REQUEST_MAX_BYTES))
        until = time.monotonic() + LONGER_THAN_ANY_SESSION_S
        kafka.wait_for(lambda: time.monotonic() > until)
        for slow in held:
            slow.socket.close()

    check_harmless(kafka, attack)


def test_a_flood_of_mutated_requests_changes_no_leader(kafka: TestCluster) -> None:
    def attack() -> None:
        threads = [
            threading.Thread(target=flood, args=(address, random.Random(SEED + number)))
            for number, address in enumerate(controller_addresses(kafka))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    check_harmless(kafka, attack)


def flood(address: str, chance: random.Random) -> None:
    """Open one connection after the other, each with as many requests as it may have in flight."""
    bodies = quorum_requests()
    sent = 0
    while sent < FLOOD_FRAMES:
        with Wire(address, timeout=2) as attacker, suppress(ConnectionEnded, TimeoutError):
            for _ in range(40):
                sent += 1
                attacker.send_bytes(frame(mutated(chance, chance.choice(bodies))))
            attacker.receive_frame()


def mutated(chance: random.Random, body: bytes) -> bytes:
    """Change or remove a few bytes after the header."""
    found = bytearray(body)
    for _ in range(chance.randint(0, 2)):
        place = chance.randrange(10, len(found))
        if chance.random() < 0.5:
            found[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        else:
            del found[place : place + chance.randint(1, 4)]
    return bytes(found)


def test_a_list_that_would_take_a_minute_to_process_is_refused(kafka: TestCluster) -> None:
    """Eight mebibytes of three-byte elements, to the controllers and to brokers, which forward them."""
    header = struct.pack(">hhi", 43, 2, 1) + b"\xff\xff\x00"  # ElectLeaders
    count = 2_700_000
    body = header + b"\x00" + encode_count(count) + b"\x01\x01\x00" * count + struct.pack(">i", 1000) + b"\x00"
    addresses = [*controller_addresses(kafka), *(node.address for node in kafka.nodes.values())]

    def attack() -> None:
        for address in addresses:
            assert answered(address, frame(body)) is None

    check_harmless(kafka, attack)


def encode_count(count: int) -> bytes:
    """Return the length of a compact array: one more, as a varint."""
    left, out = count + 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
