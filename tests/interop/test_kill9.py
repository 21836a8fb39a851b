"""A real broker process under kill -9, SIGTERM, a locked, read-only or full data directory: no acknowledged record is
lost.

Kills are timed by the number of acknowledgements, drawn from a seed, so that a failing run can be repeated.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from batches import batch, headers_of
from clients import confluent_producer
from harness.depth import deep
from harness.patience import PATIENCE_S, wait_until
from protocol_requests import end_offset, fetch, new_producer, produce, produce_request
from scarce_machine import mount_tmpfs
from wire_client import ConnectionEnded, Wire, message

pytestmark = pytest.mark.moldau_only

SEED = 9
ROUNDS = deep(1, quick=2)
RECORDS_MAX = deep(100, quick=300)
"""A kill comes after at most so many acknowledgements in a round."""
TOPIC = "under-fire"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node:
    """One broker process; `start`, `kill`, `stop` may follow one another on the same directory and port."""

    def __init__(self, data_dir: Path, port: int | None = None) -> None:
        self.data_dir = data_dir
        self.port = port or free_port()
        self.output = data_dir.parent / f"{data_dir.name}-{self.port}.out"
        self.process: subprocess.Popen[bytes] | None = None
        self.open_files: int | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "moldau", "start"]
        if self.open_files is not None:
            command = ["sh", "-c", f'ulimit -n {self.open_files}; exec "$@"', "sh", *command]
        command += ["--data-dir", str(self.data_dir), "--listen", self.bootstrap]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        return self.process

    def start(self) -> Self:
        process = self.launch()

        def is_ready() -> bool:
            assert process.poll() is None, f"the broker ended at once: {self.output.read_text()}"
            return self.answers()

        wait_until(is_ready, lambda: f"the broker answers: {self.output.read_text()}")
        return self

    def answers(self) -> bool:
        try:
            with Wire(self.bootstrap) as probe:
                return bool(probe.ask(message("api_versions", 0)).error_code == 0)
        except (ConnectionRefusedError, ConnectionEnded):
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "data")
    yield made
    made.close()


def create_topic(wire: Wire, name: str) -> None:
    made = {"name": name, "num_partitions": 1, "replication_factor": 1}
    (shown,) = wire.ask(message("create_topics", 5, topics=[made], timeout=10_000, validate_only=False)).topics
    assert shown.error_code in (0, 36)
    wait_until(lambda: fetch(wire, name, 0).error_code == 0, f"{name} is served")


def stored_values(wire: Wire, name: str) -> list[bytes]:
    """Return the values by offset. These tests write one plain record a batch, its value between < and >."""
    values: list[bytes] = []
    end = end_offset(wire, name)
    while len(values) < end:
        records = bytes(fetch(wire, name, len(values), partition_max_bytes=1 << 20).records)
        position = 0
        for header in headers_of(records):
            size = 12 + header.length
            if header.base_offset >= len(values):
                assert (header.base_offset, header.records_count) == (len(values), 1)
                values.append(records[position : position + size].rsplit(b"<", 1)[-1].removesuffix(b">\x00"))
            position += size
    return values


def value(text: str) -> bytes:
    return f"<{text}>".encode()


def write_until_disconnected(bootstrap: str, prefix: str, acked: list[tuple[int, str]]) -> None:
    """Write with acks=1, five in flight, until the connection breaks; note each response at once."""
    sent: list[str] = []
    with Wire(bootstrap) as wire:
        try:
            while True:
                while len(wire.posted) < 5:
                    sent.append(f"{prefix}-{len(sent)}")
                    wire.post(produce_request(TOPIC, batch([value(sent[-1])]), acks=1))
                text = sent[len(sent) - len(wire.posted)]
                answer = wire.collect().responses[0].partition_responses[0]
                assert answer.error_code == 0
                acked.append((answer.base_offset, text))
        except ConnectionEnded:
            return


def test_acknowledged_records_survive_kill_9(node: Node) -> None:
    chance = random.Random(SEED)
    acked: list[tuple[int, str]] = []
    for number in range(ROUNDS):
        node.start()
        with Wire(node.bootstrap) as wire:
            create_topic(wire, TOPIC)
        goal = len(acked) + chance.randint(50, RECORDS_MAX)
        writer = threading.Thread(target=write_until_disconnected, args=(node.bootstrap, f"round-{number}", acked))
        writer.start()
        while len(acked) < goal and writer.is_alive():
            time.sleep(0.001)
        node.kill()
        writer.join(PATIENCE_S)
        assert len(acked) >= goal
    node.start()
    with Wire(node.bootstrap) as wire:
        stored = [text.decode() for text in stored_values(wire, TOPIC)]
    assert len(set(stored)) == len(stored), "a record is stored twice"
    assert [(offset, stored[offset]) for offset, _ in acked] == acked
    for number in range(ROUNDS):
        mine = [int(text.rsplit("-", 1)[1]) for text in stored if text.startswith(f"round-{number}-")]
        assert mine == list(range(len(mine))), "a record of one connection is missing or out of order"


def test_an_idempotent_producer_survives_kill_9(node: Node) -> None:
    """The producer reports no error: it retries, and every record is stored once and in order."""
    chance = random.Random(SEED + 1)
    node.start()
    with Wire(node.bootstrap) as wire:
        create_topic(wire, TOPIC)
    producer = confluent_producer(
        node.bootstrap,
        enable_idempotence=True,
        batch_num_messages=1,
        message_timeout_ms=60_000,
        retry_backoff_ms=20,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=50,
    )
    reports: list[Any] = []
    count = 0
    for _ in range(ROUNDS):
        goal = count + chance.randint(50, RECORDS_MAX)
        while len(reports) < goal:
            if count - len(reports) < 20:
                producer.produce(TOPIC, value(str(count)), partition=0, on_delivery=lambda e, m: reports.append(e or m))
                count += 1
            producer.poll(0.001)
        node.kill()
        node.start()
    assert producer.flush(PATIENCE_S) == 0
    assert [report.offset() for report in reports] == list(range(count))
    with Wire(node.bootstrap) as wire:
        assert stored_values(wire, TOPIC) == [str(n).encode() for n in range(count)]


def test_producers_topics_and_torn_logs_survive_kill_9(node: Node) -> None:
    node.start()
    with Wire(node.bootstrap) as wire:
        pid, epoch = new_producer(wire)
        create_topic(wire, "sequences")
        for sequence in range(3):
            produce(wire, "sequences", batch([b"v"], pid=pid, epoch=epoch, seq=sequence))
        topic_id = create_topic_with_retention(wire, "kept", "123456789")
        create_topic(wire, "torn")
        for n in range(10):
            produce(wire, "torn", batch([value(str(n))]))
    node.kill()
    with (node.data_dir / "torn-0" / "00000000000000000000.log").open("ab") as segment:
        segment.write(batch([value("never acknowledged")])[:-10])  # as a kill in the middle of a write leaves it
    node.start()
    with Wire(node.bootstrap) as wire:
        check_producer_state(wire, "sequences", pid, epoch)
        check_topic_with_retention(wire, "kept", topic_id, "123456789")
        assert stored_values(wire, "torn") == [str(n).encode() for n in range(10)]
        assert produce(wire, "torn", batch([value("10")])).base_offset == 10


def check_producer_state(wire: Wire, topic: str, pid: int, epoch: int) -> None:
    """Check that a duplicate is recognised, a gap is refused, and no producer id is given twice."""
    assert produce(wire, topic, batch([b"v"], pid=pid, epoch=epoch, seq=1)).base_offset == 1
    assert produce(wire, topic, batch([b"v"], pid=pid, epoch=epoch, seq=7)).error_code == 45
    assert produce(wire, topic, batch([b"v"], pid=pid, epoch=epoch, seq=3)).base_offset == 3
    assert new_producer(wire)[0] > pid


def create_topic_with_retention(wire: Wire, name: str, retention_ms: str) -> uuid.UUID:
    configs = [{"name": "retention.ms", "value": retention_ms}]
    asked = {"name": name, "num_partitions": 3, "replication_factor": 1, "configs": configs}
    (made,) = wire.ask(message("create_topics", 7, topics=[asked], timeout=10_000, validate_only=False)).topics
    topic_id: uuid.UUID = made.topic_id
    return topic_id


def check_topic_with_retention(wire: Wire, name: str, topic_id: uuid.UUID, retention_ms: str) -> None:
    flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    (shown,) = wire.ask(message("metadata", 12, topics=[{"topic_id": None, "name": name}], **flags)).topics
    assert (shown.error_code, shown.topic_id, len(shown.partitions)) == (0, topic_id, 3)
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": ["retention.ms"]}]
    flags = {"include_synonyms": False, "include_documentation": False}
    (result,) = wire.ask(message("describe_configs", 4, resources=resources, **flags)).results
    assert result.configs[0].value == retention_ms


def test_sigterm_loses_nothing_and_leaves_the_clean_shutdown_file(node: Node) -> None:
    """Nor does it wait for a fetch that waits for records."""
    marker = node.data_dir / ".kafka_cleanshutdown"
    node.start()
    acked: list[tuple[int, str]] = []
    with Wire(node.bootstrap) as waiting:
        create_topic(waiting, TOPIC)
        create_topic(waiting, "idle")
        topics = [{"topic": "idle", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}]
        waiting.post(message("fetch", 12, max_wait=600_000, min_bytes=1, topics=topics))
        writer = threading.Thread(target=write_until_disconnected, args=(node.bootstrap, "term", acked))
        writer.start()
        while len(acked) < 200 and writer.is_alive():
            time.sleep(0.001)
        assert not marker.exists()
        assert node.stop() == 0
    writer.join(PATIENCE_S)
    assert len(acked) >= 200
    assert marker.exists()
    node.start()
    assert not marker.exists(), "a running broker removes the clean-shutdown file"
    with Wire(node.bootstrap) as wire:
        stored = [text.decode() for text in stored_values(wire, TOPIC)]
    assert [(offset, stored[offset]) for offset, _ in acked] == acked


# ---- refusing to start


def refused_start(data_dir: Path, where: Path) -> str:
    """Start a broker that must refuse; return its message."""
    refused = Node(data_dir)
    refused.output = where / "refused.out"
    status = refused.launch().wait(PATIENCE_S)
    printed = refused.output.read_text().strip()
    assert status != 0
    assert printed.count("\n") == 0, printed
    assert "Traceback" not in printed
    assert str(data_dir) in printed
    return printed


def test_a_second_broker_on_the_same_directory_is_refused(node: Node, tmp_path: Path) -> None:
    node.start()
    refused_start(node.data_dir, tmp_path)
    assert node.answers()


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not apply to root; test_scarce_machine mounts read-only")
def test_a_directory_without_permission_is_reported(tmp_path: Path) -> None:
    where = tmp_path / "read-only"
    where.mkdir(mode=0o555)
    assert "ermission" in refused_start(where, tmp_path)


# ---- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "small"
    mount_tmpfs(where, "size=32m")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


def test_a_full_disk_refuses_writes_and_loses_nothing(small_disk: Path) -> None:
    """A ballast file leaves little space, and writing fills it. The broker starts again on the full disk; without the
    ballast it writes again."""
    ballast = small_disk / "ballast"
    node = Node(small_disk / "data")
    node.output = small_disk.parent / "full.out"
    node.start()
    try:
        with Wire(node.bootstrap) as wire:
            create_topic(wire, TOPIC)
            ballast.write_bytes(bytes(24 << 20))
            acked = fill(wire)
            assert node.process is not None
            assert node.process.poll() is None, node.output.read_text()
            assert end_offset(wire, TOPIC) == acked, "records can be read while the disk is full"
            assert len(stored_values(wire, TOPIC)) == acked
        node.kill()
        node.start()
        ballast.unlink()
        with Wire(node.bootstrap) as wire:
            wait_until(lambda: produce(wire, TOPIC, batch([value("room")])).error_code == 0, "there is room again")
            assert stored_values(wire, TOPIC) == [*(str(n).encode() + b" " * 60_000 for n in range(acked)), b"room"]
    finally:
        node.close()


def fill(wire: Wire) -> int:
    """Write until the disk is full; return how many records were acknowledged. The error must be
    KAFKA_STORAGE_ERROR."""
    for count in range(1000):
        answer = produce(wire, TOPIC, batch([value(str(count) + " " * 60_000)]))
        if answer.error_code != 0:
            assert answer.error_code == 56
            return count
    raise AssertionError("the disk never became full")


# ---- few file descriptors


def test_idle_connections_leave_file_descriptors_for_the_logs(node: Node) -> None:
    """If connections used all descriptors, no segment could be rolled and no checkpoint written."""
    node.open_files = 128
    node.start()
    with Wire(node.bootstrap) as wire, ExitStack() as crowd:
        for _ in range(200):
            crowd.enter_context(socket.create_connection(("127.0.0.1", node.port), 5))
        for n in range(20):
            create_topic(wire, f"{TOPIC}-{n}")
            assert produce(wire, f"{TOPIC}-{n}", batch([value("x")])).error_code == 0
        assert node.stop() == 0
