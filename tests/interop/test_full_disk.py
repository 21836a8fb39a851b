"""Three nodes, and the disk of one is full: it goes on voting, can be stopped, killed and started, and writes again as
soon as there is room.

The disk is a tmpfs, which needs root. Another file fills it to its last byte.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from batches import batch
from failover_roles import controller_of
from harness.depth import only_deep
from harness.patience import PATIENCE_S, wait_until
from protocol_requests import end_offset, fetch, produce
from scarce_machine import environment, mount_tmpfs
from wire_client import ConnectionEnded, Wire, message

from moldau.base.reserve import RESERVE_FILE
from moldau.local_cluster import NodeAddress, node_properties
from moldau.testing.cluster import _free_ports

pytestmark = pytest.mark.moldau_only

FULL = 3
"""The node whose disk is full."""
ELECTIONS = 3
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
STORAGE_ERROR = 56
TOPIC = "kept"


class NodeProcess:
    """A node from its server.properties; it can be stopped, killed and started again."""

    def __init__(self, address: NodeAddress, addresses: list[NodeAddress], data: Path, folder: Path) -> None:
        self.bootstrap = address.address
        self.data = data
        self._output = folder / f"node-{address.id}.out"
        self._config = folder / f"node-{address.id}.properties"
        properties = node_properties(address, addresses, str(data))
        self._config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "moldau", "start", "--config", str(self._config)]
        variables = environment(CLUSTER_ID=CLUSTER_ID)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)

    def await_ready(self) -> None:
        wait_until(self._is_ready, lambda: f"the node serves: {self.printed()}")

    def _is_ready(self) -> bool:
        self.assert_alive()
        try:
            with Wire(self.bootstrap) as wire:
                return bool(wire.ask(message("api_versions", 0)).error_code == 0)
        except (ConnectionRefusedError, ConnectionEnded):
            return False

    def assert_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, f"the node ended: {self.printed()}"

    def printed(self) -> str:
        return self._output.read_text()[-4000:]

    def end(self, number: signal.Signals) -> int:
        """Send the signal; return the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.end(signal.SIGKILL)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "small"
    mount_tmpfs(where, "size=32m")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.fixture
def nodes(small_disk: Path, tmp_path: Path) -> Iterator[dict[int, NodeProcess]]:
    addresses = [NodeAddress(1 + index, *ports) for index, ports in enumerate(_free_ports(3, 2))]
    data = {each.id: small_disk / "data" if each.id == FULL else tmp_path / f"data-{each.id}" for each in addresses}
    made = {each.id: NodeProcess(each, addresses, data[each.id], tmp_path) for each in addresses}
    try:
        for each in made.values():
            each.start()
        for each in made.values():
            each.await_ready()
        yield made
    finally:
        for each in made.values():
            each.close()


@only_deep
def test_a_node_with_a_full_disk_goes_on(nodes: dict[int, NodeProcess], small_disk: Path) -> None:
    full, filler = nodes[FULL], small_disk / "filler"
    create_topic(nodes, FULL)
    assert write(full, b"there is room") == 0
    reserve = full.data / RESERVE_FILE
    wait_until(lambda: reserve.exists() and reserve.stat().st_size, "the node has its reserve")
    fill(filler)
    assert write(full, bytes(60_000)) == STORAGE_ERROR

    for _ in range(ELECTIONS):
        elect_another_leader(nodes)
        fill(filler)  # what the node has freed meanwhile

    assert full.end(signal.SIGTERM) == 0, full.printed()
    assert (full.data / ".kafka_cleanshutdown").exists()
    for _ in ("after a clean stop", "after a kill"):
        fill(filler)
        full.start()
        full.await_ready()
        wait_until(lambda: is_served_by(full), "the node with the full disk serves its partition")
        assert write(full, bytes(60_000)) == STORAGE_ERROR
        full.end(signal.SIGKILL)

    full.start()
    full.await_ready()
    filler.unlink()
    wait_until(lambda: is_served_by(full), "the node serves its partition")
    assert write(full, b"room again") == 0
    with Wire(full.bootstrap) as wire:
        assert end_offset(wire, TOPIC) == 2


def create_topic(nodes: dict[int, NodeProcess], node_id: int) -> None:
    """Create a topic whose only replica is on that node."""
    topic = {
        "name": TOPIC,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [node_id]}],
        "configs": [{"name": "min.insync.replicas", "value": "1"}],
    }
    with Wire(nodes[node_id].bootstrap) as wire:
        (made,) = wire.ask(message("create_topics", 5, topics=[topic], timeout=60_000, validate_only=False)).topics
    assert made.error_code == 0
    wait_until(lambda: is_served_by(nodes[node_id]), f"{TOPIC} is served")


def is_served_by(node: NodeProcess) -> bool:
    with Wire(node.bootstrap) as wire:
        return bool(fetch(wire, TOPIC, 0).error_code == 0)


def write(node: NodeProcess, value: bytes) -> int:
    """Return the error code."""
    with Wire(node.bootstrap) as wire:
        return int(produce(wire, TOPIC, batch([value])).error_code)


def elect_another_leader(nodes: dict[int, NodeProcess]) -> None:
    """Kill the leader of the quorum, and start it again when the others have elected another one. If the disk of the
    killed node is not full, this takes the vote of the one whose disk is."""
    old = controller_of(nodes[FULL].bootstrap)
    other = nodes[1 if old == FULL else FULL]
    nodes[old].end(signal.SIGKILL)

    def has_another() -> bool:
        other.assert_alive()
        return controller_of(other.bootstrap) not in (old, -1)

    wait_until(has_another, f"another node than {old} leads the quorum")
    nodes[old].start()
    for each in nodes.values():
        each.await_ready()


def fill(filler: Path) -> None:
    """Let the file grow until no byte fits on its disk."""
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    size = 1 << 20
    while size:
        try:
            os.write(descriptor, bytes(size))
        except OSError as refused:
            if refused.errno != errno.ENOSPC:
                raise
            size //= 2
    os.close(descriptor)
