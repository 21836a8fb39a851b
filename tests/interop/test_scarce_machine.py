"""A broker without disk space, open files or write permission: it logs one line, and still serves what it can."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import wait_until
from scarce_machine import PATIENCE_S, environment, moldau, mounted, needs_mounts, running, with_open_files

OPEN_FILES = 256
PARTITIONS = 400


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


def error_of_failed_start(words: list[str]) -> str:
    """Return the one line that a failed start prints."""
    ran = subprocess.run(words, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S)
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.count("\n") == 1, ran.stderr
    return ran.stderr.strip()


def start(data: Path) -> list[str]:
    return moldau("start", "--listen", "127.0.0.1:0", "--data-dir", str(data))


def produce_errors(bootstrap: str, topic: str, values: list[bytes], **options: object) -> list[str]:
    """Return the errors of records that were not accepted."""
    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: failed.append(error.name()) if error else None
        )
    producer.flush(PATIENCE_S)
    return failed


def test_more_partitions_than_open_files_do_not_stop_the_broker(tmp_path: Path) -> None:
    words = with_open_files(OPEN_FILES, start(tmp_path / "data"))
    with running(words, tmp_path / "log") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("many", PARTITIONS, 1)])["many"].result(PATIENCE_S)
        assert produce_errors(server.bootstrap, "many", [b"the first partition is open"]) == []
        wait_until(lambda: server.lines("Too many open files"), "the lack of open files is logged")
        (line,) = server.lines("Too many open files")
        assert "cannot be opened and will be retried" in line
        assert line.endswith("; raise the limit of open files (`ulimit -n`)")
        admin.delete_topics(["many"])["many"].result(PATIENCE_S)
        admin.create_topics([NewTopic("few", 1, 1)])["few"].result(PATIENCE_S)
        assert produce_errors(server.bootstrap, "few", [b"there is room again"]) == []
        assert server.stop() == 0


def test_a_broker_starts_with_more_partitions_than_open_files(tmp_path: Path) -> None:
    with running(start(tmp_path / "data"), tmp_path / "log") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("many", PARTITIONS, 1)])["many"].result(PATIENCE_S)
        last = tmp_path / "data" / f"many-{PARTITIONS - 1}"
        wait_until(last.exists, "all partitions have their logs")
        assert server.stop() == 0
    with running(with_open_files(OPEN_FILES, start(tmp_path / "data")), tmp_path / "log") as server:
        assert produce_errors(server.bootstrap, "many", [b"served"]) == []
        assert server.stop() == 0


def test_a_full_disk_is_logged_once_and_readers_are_served(tmp_path: Path) -> None:
    needs_mounts()
    data = tmp_path / "small"
    with running(mounted(data, "size=1m", start(data / "data")), tmp_path / "log") as server:
        assert produce_errors(server.bootstrap, "orders", [b"there is room"]) == []
        timeout = {"message.timeout.ms": 2000, "batch.num.messages": 10}

        def is_full() -> bool:
            produce_errors(server.bootstrap, "orders", [b"x" * 1000] * 2000, **timeout)
            return bool(server.lines("No space left on device"))

        wait_until(is_full, "the disk is full")
        # A single record may still fit where a batch of ten did not.
        wait_until(
            lambda: "_MSG_TIMED_OUT" in produce_errors(server.bootstrap, "orders", [b"x" * 1000], **timeout),
            "no record fits any more",
        )
        (line,) = server.lines("No space left on device; free some space there")
        assert " orders-0: records cannot be " in line
        metadata = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics("orders", PATIENCE_S)
        assert len(metadata.topics["orders"].partitions) == 1
        # Closing it would wait 45 s for a commit of offsets, for which there is no room.
        settings = {"group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": server.bootstrap, **settings})
        consumer.assign([TopicPartition("orders", 0, 0)])
        first = consumer.poll(PATIENCE_S)
        consumer.close()
        assert first is not None
        assert first.value() == b"there is room"


def test_a_read_only_directory_is_reported(tmp_path: Path) -> None:
    needs_mounts()
    data = tmp_path / "ro"
    assert error_of_failed_start(mounted(data, "ro", start(data / "data"))) == (
        f"moldau: {data}/data: Read-only file system; mount it writable, or choose another directory"
        " (the setting log.dirs, or `moldau start --data-dir DIR`)"
    )


def test_a_disk_that_is_full_at_the_start_is_reported(tmp_path: Path) -> None:
    needs_mounts()
    data = tmp_path / "full"
    line = error_of_failed_start(mounted(data, "size=4k,nr_inodes=3", start(data / "data")))
    assert "No space left on device; free some space there, or choose another directory" in line


def test_a_file_in_place_of_the_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert error_of_failed_start(start(tmp_path / "file")).startswith(
        f"moldau: {tmp_path}/file: File exists; choose another"
    )


def test_an_unresolvable_address_is_reported_and_creates_no_directory(tmp_path: Path) -> None:
    words = moldau("start", "--listen", "no-such-host.invalid:9092", "--data-dir", str(tmp_path / "data"))
    line = error_of_failed_start(words)
    assert "cannot listen on no-such-host.invalid:9092: " in line
    assert "; add the name to /etc/hosts, write its address, or choose another address" in line
    assert not (tmp_path / "data").exists()
