"""Real processes while a log is being cleaned: the broker is killed or stopped, its worker killed, the topic deleted.

The cleaner is throttled, so that the tests reliably hit the middle of its work.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest
from compacted_topics import EAGER, Writer, read_all, table
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from harness.patience import PATIENCE_S, wait_until

from moldau.platforms.processes import PROCESSES

pytestmark = pytest.mark.moldau_only

TOPIC = "table"
SLOW = "200000"
KEYS = 50
VERSIONS = 12
VALUE_BYTES = 1000


class Broker:
    """A broker process that may be killed and started again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.output = data_dir.parent / "broker.out"
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""

    def start(self, bytes_per_second: str) -> Self:
        properties = {"log.cleaner.backoff.ms": "200", "log.cleaner.io.max.bytes.per.second": bytes_per_second}
        command = [sys.executable, "-m", "moldau", "start", "--data-dir", str(self.data_dir), "--listen", "127.0.0.1:0"]
        for name, value in properties.items():
            command += ["--override", f"{name}={value}"]
        stdout_file = self.data_dir.parent / "stdout.txt"
        with self.output.open("ab") as output, stdout_file.open("wb") as announced:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=announced, stderr=output)
        wait_until(
            lambda: b"is ready: " in stdout_file.read_bytes() or self._process.poll() is not None, "the broker is ready"
        )
        assert self._process.poll() is None, self.output.read_text()
        self.bootstrap = stdout_file.read_text().split("is ready: ")[1].split()[0]
        return self

    @property
    def worker(self) -> int | None:
        """The process that cleans for it."""
        assert self._process is not None
        if not Path("/proc/self").exists():
            pytest.skip("the worker of a broker is found in /proc")
        for children in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            for pid in children.read_text().split():
                if b"cleaning.process_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
        return None

    def cleaning(self) -> int:
        """Wait until a cleaning is running; return the process that does it."""
        wait_until(lambda: bool(self.files(".log.cleaned")), f"something is being cleaned: {self.output.read_text()}")
        worker = self.worker
        assert worker is not None
        return worker

    def files(self, suffix: str, topic: str = TOPIC) -> list[Path]:
        return list((self.data_dir / f"{topic}-0").glob(f"*{suffix}"))

    @property
    def size(self) -> int:
        """Return the size of the log; while the cleaner works a file may vanish between its name and its size."""
        total = 0
        for path in self.files(".log"):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_S)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return PROCESSES.start_time(pid) is not None


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "data").start(SLOW)
    yield made
    if made.is_running:
        made.kill()


def expected() -> dict[str, str]:
    return {f"key {number}": f"{VERSIONS - 1}".ljust(VALUE_BYTES) for number in range(KEYS)} | {"last": "one"}


def fill(broker: Broker) -> None:
    """Write a table of which every version but the last is garbage."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=EAGER | {"file.delete.delay.ms": "0"})])[TOPIC].result(PATIENCE_S)
    writer = Writer(broker.bootstrap, TOPIC)
    for version in range(VERSIONS):
        writer.write({f"key {number}": f"{version}".ljust(VALUE_BYTES) for number in range(KEYS)})
    writer.write({"last": "one"})


def assert_cleaned(broker: Broker) -> None:
    wait_until(lambda: broker.size < 2 * KEYS * VALUE_BYTES, f"the log is small: {broker.output.read_text()}")
    records = read_all(broker.bootstrap, TOPIC)
    assert table(records) == expected()
    assert [record.offset for record in records][-2:] == [KEYS * VERSIONS - 1, KEYS * VERSIONS]
    assert not broker.files(".cleaned")
    assert not broker.files(".swap")


def test_a_broker_killed_while_it_cleans_loses_nothing_and_cleans_after_its_restart(broker: Broker) -> None:
    fill(broker)
    worker = broker.cleaning()
    broker.kill()
    wait_until(lambda: not is_alive(worker), "the worker has ended")
    broker.start("1000000000")
    assert table(read_all(broker.bootstrap, TOPIC)) == expected()
    assert_cleaned(broker)
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    wait_until(
        lambda: checkpoint.exists() and f"{TOPIC} 0 {KEYS * VERSIONS}" in checkpoint.read_text(),
        "the checkpoint is written",
    )


def test_a_worker_killed_while_it_cleans_loses_only_its_job(broker: Broker) -> None:
    fill(broker)
    worker = broker.cleaning()
    subprocess.run(["kill", "-9", str(worker)], check=True)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    set_rate(admin, "1000000000")
    assert_cleaned(broker)
    assert "its process died" in broker.output.read_text()


def test_a_broker_stopped_while_it_cleans_stops_at_once_and_cleanly(broker: Broker) -> None:
    fill(broker)
    worker = broker.cleaning()
    uncleaned = broker.size
    assert broker.stop() == 0
    assert broker.size == uncleaned, "the stop did not wait for the end of the cleaning"
    assert not is_alive(worker)
    broker.start("1000000000")
    assert_cleaned(broker)


def test_a_topic_deleted_while_it_is_cleaned_can_be_recreated(broker: Broker) -> None:
    """A rate that is raised during the next cleaning takes effect."""
    fill(broker)
    broker.cleaning()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([TOPIC])[TOPIC].result(PATIENCE_S)
    wait_until(lambda: "no longer cleaned" in broker.output.read_text(), "the cleaner has abandoned the log")
    fill(broker)
    worker = broker.cleaning()
    set_rate(admin, "1000000000")
    assert_cleaned(broker)
    assert broker.worker == worker
    assert "cannot be cleaned" not in broker.output.read_text()


def set_rate(admin: AdminClient, bytes_per_second: str) -> None:
    entry = ConfigEntry(
        "log.cleaner.io.max.bytes.per.second", bytes_per_second, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
