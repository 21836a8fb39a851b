"""The state of a cluster over a raw connection: partition leaders, in-sync replicas, the leader of the quorum.

It has only fixed layouts (Metadata v7, CreateTopics v4, DescribeQuorum v0), read by hand as in `frames`: no client
library, with a backoff of its own, delays the search for the next leader.

    Metadata v7 reply        int32 throttle | brokers: int32 id, string host, int32 port, string rack | string cluster
                             int32 controller | topics: int16 error, string name, int8 internal
                             partitions: int16 error, int32 index, int32 leader, int32 leader epoch
                             int32s replicas, int32s in sync, int32s offline
    CreateTopics v4 reply    int32 throttle | topics: string name, int16 error, string message
    DescribeQuorum v0 reply  int16 error | topics: compact string, partitions: int32 index, int16 error, int32 leader
                             int32 epoch, int64 high watermark, voters: int32 id, int64 log end, tags; …
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from bench.brokers.connection import BrokerRefused, Connection
from bench.brokers.frames import CLIENT_ID, request

METADATA: Final = 3
CREATE_TOPICS: Final = 19
DESCRIBE_QUORUM: Final = 55
METADATA_TOPIC: Final = b"__cluster_metadata"
PATIENCE_S: Final = 1.0
"""How long to wait for one node before another is asked: a stopped node never answers."""
NOBODY: Final = -1
T = TypeVar("T")


@dataclass(frozen=True)
class PartitionView:
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass
class ClusterView:
    """The metadata of one node."""

    brokers: dict[int, str] = field(default_factory=dict)
    topics: dict[str, dict[int, PartitionView]] = field(default_factory=dict)


@dataclass(frozen=True)
class QuorumView:
    leader: int
    high_watermark: int
    log_ends: dict[int, int]

    @property
    def has_caught_up(self) -> bool:
        """Whether every voter has all committed records: only then may the next one be killed."""
        return all(end >= self.high_watermark for end in self.log_ends.values())


class Impatient(Connection):
    """A connection with a timeout for replies."""

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__(address)
        seconds, micros = divmod(int(patience_s * 1e6), 10**6)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, micros))


def view(address: str, topics: Sequence[str] | None = None, patience_s: float = PATIENCE_S) -> ClusterView:
    """Return the metadata of these topics, or of all."""
    with Impatient(address, patience_s) as connection:
        return read_metadata(connection.ask(metadata_request(topics)))


def create_topic(address: str, name: str, partitions: int, replicas: int, timeout_ms: int = 1000) -> int:
    """Return the error code of the response."""
    with Impatient(address, timeout_ms / 1000 + PATIENCE_S) as connection:
        reply = connection.ask(create_request(name, partitions, replicas, timeout_ms))
        return _Fields(reply, 4 + 4 + 4 + 2 + len(name)).int16()


def quorum(address: str) -> QuorumView:
    """Return the controller's answer; the node that is asked forwards the request."""
    with Impatient(address) as connection:
        return read_quorum(connection.ask(quorum_request()))


def ask_any(addresses: Iterable[str], ask: Callable[[str], T]) -> T | None:
    """Return the first answer of any node."""
    for address in addresses:
        try:
            return ask(address)
        except (OSError, BrokerRefused):
            continue
    return None


def metadata_request(topics: Sequence[str] | None) -> bytes:
    names = topics or ()
    body = struct.pack(">i", len(names) if topics is not None else -1)
    body += b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    return request(METADATA, 7, body + b"\0")  # no automatic creation of topics


def read_metadata(reply: memoryview) -> ClusterView:
    fields, cluster_view = _Fields(reply, 8), ClusterView()
    for _ in range(fields.int32()):
        broker, host, port = fields.int32(), fields.string(), fields.int32()
        cluster_view.brokers[broker] = f"{host}:{port}"
        fields.string()
    fields.string()
    fields.int32()
    for _ in range(fields.int32()):
        fields.int16()
        partitions = cluster_view.topics.setdefault(fields.string(), {})
        fields.skip(1)
        for _ in range(fields.int32()):
            fields.int16()
            index, leader, _ = fields.int32(), fields.int32(), fields.int32()
            partitions[index] = PartitionView(leader, fields.int32s(), fields.int32s())
            fields.int32s()
    return cluster_view


def create_request(name: str, partitions: int, replicas: int, timeout_ms: int) -> bytes:
    topic = struct.pack(">h", len(name)) + name.encode() + struct.pack(">ihii", partitions, replicas, 0, 0)
    return request(CREATE_TOPICS, 4, struct.pack(">i", 1) + topic + struct.pack(">i?", timeout_ms, False))


def quorum_request() -> bytes:
    head = struct.pack(">hhih", DESCRIBE_QUORUM, 0, 1, len(CLIENT_ID)) + CLIENT_ID + b"\0"
    body = b"\2" + bytes([len(METADATA_TOPIC) + 1]) + METADATA_TOPIC + b"\2" + struct.pack(">i", 0) + b"\0\0\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def read_quorum(reply: memoryview) -> QuorumView:
    fields = _Fields(reply, 5)
    error = fields.int16()
    if error:
        raise BrokerRefused(f"DescribeQuorum: error {error}")
    fields.skip(1 + 1 + len(METADATA_TOPIC) + 1 + 4)  # one topic, its name, one partition, its index
    error, leader = fields.int16(), fields.int32()
    if error:
        raise BrokerRefused(f"DescribeQuorum of the partition: error {error}")
    fields.int32()
    high_watermark = fields.int64()
    log_ends = {}
    for _ in range(fields.count()):
        voter = fields.int32()
        log_ends[voter] = fields.int64()
        fields.skip(1)
    return QuorumView(leader, high_watermark, log_ends)


class _Fields:
    """Reads one field after the other."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at

    def skip(self, size: int) -> None:
        self._at += size

    def int16(self) -> int:
        return self._number(2)

    def int32(self) -> int:
        return self._number(4)

    def int64(self) -> int:
        return self._number(8)

    def int32s(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.int32()))

    def string(self) -> str:
        size = self.int16()
        self._at += max(size, 0)
        return bytes(self._data[self._at - max(size, 0) : self._at]).decode()

    def count(self) -> int:
        """Read the size of a compact array with fewer than 127 elements."""
        return self._number(1) - 1

    def _number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big", signed=True)
