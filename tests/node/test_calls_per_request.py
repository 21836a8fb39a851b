"""How many Python functions one request calls, from the bytes in the socket to the bytes of the reply.

Calls are counted, not seconds: the count is the same on every machine. A feature that is off must not be in it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from harness.in_memory_node import InMemoryNode, batch

from moldau.base.ids import ZERO_UUID
from moldau.base.limits import SCRATCH_BYTES
from moldau.security.acls.access import UNRESTRICTED
from moldau.server import socket_connection
from moldau.server.conversation import ConnectionBudget
from moldau.server.socket_connection import SocketConnection
from moldau.testing.files import MemoryFile
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from moldau.wire.schema import Message

TOPIC = "orders"
PARTITIONS = 10
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
REPEATED = 24
"""The cheapest of this many requests counts: some requests are also timed, and some append to an index."""
CALLS_MAX = {
    "produce": 24,
    "fetch": 25,
    "heartbeat": 19,
    "consumer heartbeat": 19,
    "share heartbeat": 22,
    "commit of one offset": 89,
    "commit of ten offsets": 116,
}
"""Measured with Python 3.11; later versions call a little less. Each append counts its bytes (`HotBytes.note`): a fetch
of what was written lately, to whichever log, then need not ask the kernel whether it is in memory."""
TOO_MANY = """\
one {name} calls {calls} Python functions, {most} are allowed.
Every client pays for each call, so look in the list for what is new. What is off must not be asked for each request:
bind it when the connection begins or the config changes; see docs/decisions/029-calls-per-request.md. If the feature is
worth its cost to every client, raise CALLS_MAX here.
{called}"""


class FakeLoop:
    """The methods of an event loop that a connection needs; the test calls `on_readable`."""

    def time(self) -> float:
        return 0.0

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.on_readable = callback

    def remove_reader(self, fd: int) -> None:
        pass


class FakeSocket:
    def __init__(self) -> None:
        self.arriving = b""
        self.sent = bytearray()

    def fileno(self) -> int:
        return 99

    def recv_into(self, buffer: memoryview) -> int:
        buffer[: len(self.arriving)] = self.arriving
        return len(self.arriving)

    def send(self, data: bytes, flags: int = 0) -> int:
        self.sent += data
        return len(data)


class ConnectedNode:
    """A node in memory and a client's connection to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = InMemoryNode(static=SETTINGS).start()
        self.node.create_topic(TOPIC, PARTITIONS)
        broker = self.node.assembly.broker_side
        assert broker is not None
        self.loop, self.socket = FakeLoop(), FakeSocket()
        monkeypatch.setattr(socket_connection, "send_file", lambda out, file, position, count: count)
        monkeypatch.setattr(MemoryFile, "fileno", lambda file: 98)
        SocketConnection(
            self.loop,  # type: ignore[arg-type]
            self.socket,  # type: ignore[arg-type]
            "test:1",
            memoryview(bytearray(SCRATCH_BYTES)),
            broker.router.for_connection("PLAINTEXT", "10.0.0.1:5", UNRESTRICTED).answer,
            1 << 20,
            ConnectionBudget(1 << 20),
            lambda connection, reason: pytest.fail(f"the connection was closed: {reason}"),
        )
        self.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        self.run_until_idle()

    def ask(self, api: ApiKey, request: Message, version: int) -> Any:
        """Send a request and return the response as the client reads it."""
        self.exchange(bytes(request_frame(api, version, 7, "client", request)))
        return self.read(api, version)

    def exchange(self, frame: bytes) -> None:
        self.socket.arriving = frame
        self.socket.sent.clear()
        self.loop.on_readable()
        while not self.socket.sent:
            self.run_until_idle()

    def read(self, api: ApiKey, version: int) -> Any:
        return read_response(response_class(api), bytes(self.socket.sent[4:]), api, version)[1]

    def run_until_idle(self) -> None:
        self.node.flush()
        while self.node.timers.run_soon():
            self.node.flush()
        self.node.timers.advance(1)

    def fewest_calls(self, api: ApiKey, request: Message, version: int) -> Counter[str]:
        """Return the functions that the cheapest of several such requests calls."""
        frame = bytes(request_frame(api, version, 7, "client", request))
        counted = [calls_of(lambda: self.exchange(frame)) for _ in range(REPEATED)]
        return min(counted, key=lambda calls: calls.total())


def calls_of(action: Callable[[], object]) -> Counter[str]:
    """Return how often each function of Moldau is called, except those of `moldau.testing`."""
    called: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        is_ours = "/moldau/" in code.co_filename and "/moldau/testing/" not in code.co_filename
        if is_ours or code.co_filename.startswith("<"):  # generated code
            called[f"{code.co_filename.rpartition('/moldau/')[2]} {code.co_qualname}"] += 1

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return called


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> ConnectedNode:
    return ConnectedNode(monkeypatch)


def check_calls(name: str, called: Counter[str]) -> None:
    lines = "\n".join(f"{count:4} {function}" for function, count in called.items())
    assert called.total() <= CALLS_MAX[name], TOO_MANY.format(
        name=name, calls=called.total(), most=CALLS_MAX[name], called=lines
    )


def produce_request() -> ProduceRequest:
    data = [PartitionProduceData(0, bytes(batch(10, 100)))]
    return ProduceRequest(None, -1, 30_000, [TopicProduceData(ZERO_UUID, TOPIC, data)])


def test_calls_of_a_produce_request(connected: ConnectedNode) -> None:
    called = connected.fewest_calls(ApiKey.PRODUCE, produce_request(), 7)
    result = connected.read(ApiKey.PRODUCE, 7).responses[0].partition_responses[0]
    assert (result.error_code, result.base_offset) == (0, 10 * (REPEATED - 1))
    check_calls("produce", called)


def test_calls_of_a_fetch_request(connected: ConnectedNode) -> None:
    for _ in range(3):
        connected.ask(ApiKey.PRODUCE, produce_request(), 7)
    partition = FetchPartition(0, fetch_offset=10, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[FetchTopic(topic=TOPIC)]
    )
    request.topics[0].partitions = [partition]
    called = connected.fewest_calls(ApiKey.FETCH, request, 11)
    assert "server/socket_connection.py SocketConnection._send_file" in called, "records were sent"
    check_calls("fetch", called)


def test_calls_of_a_classic_heartbeat(connected: ConnectedNode) -> None:
    member_id = join_classic_group(connected)
    called = connected.fewest_calls(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, member_id), 3)
    assert connected.read(ApiKey.HEARTBEAT, 3).error_code == 0
    check_calls("heartbeat", called)


def test_calls_of_a_consumer_group_heartbeat(connected: ConnectedNode) -> None:
    joining = ConsumerGroupHeartbeatRequest("g", "m", 0, None, None, 60_000, [TOPIC], topic_partitions=[])
    joined = connected.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, joining, 1)
    assert joined.error_code == 0, joined.error_message
    beat = ConsumerGroupHeartbeatRequest("g", "m", joined.member_epoch, rebalance_timeout_ms=-1)
    called = connected.fewest_calls(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat, 1)
    assert connected.read(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1).error_code == 0
    check_calls("consumer heartbeat", called)


def test_calls_of_a_heartbeat_of_a_share_group(connected: ConnectedNode) -> None:
    join = ShareGroupHeartbeatRequest("g", "m", 0, None, ["missing"])
    joined = connected.ask(ApiKey.SHARE_GROUP_HEARTBEAT, join, 1)
    assert joined.error_code == 0
    beat = ShareGroupHeartbeatRequest("g", "m", joined.member_epoch)
    called = connected.fewest_calls(ApiKey.SHARE_GROUP_HEARTBEAT, beat, 1)
    assert connected.read(ApiKey.SHARE_GROUP_HEARTBEAT, 1).error_code == 0
    check_calls("share heartbeat", called)


@pytest.mark.parametrize(("offsets", "name"), [(1, "commit of one offset"), (10, "commit of ten offsets")])
def test_calls_of_an_offset_commit(connected: ConnectedNode, offsets: int, name: str) -> None:
    partitions = [OffsetCommitRequestPartition(index, 5) for index in range(offsets)]
    request = OffsetCommitRequest("g", 1, join_classic_group(connected))
    request.topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    called = connected.fewest_calls(ApiKey.OFFSET_COMMIT, request, 7)
    results = connected.read(ApiKey.OFFSET_COMMIT, 7).topics[0].partitions
    assert [result.error_code for result in results] == [0] * offsets
    check_calls(name, called)


def join_classic_group(connected: ConnectedNode) -> str:
    """Let the only member of a group join, and return its id."""
    join = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range")])
    join.member_id = connected.ask(ApiKey.JOIN_GROUP, join, 4).member_id
    joined = connected.ask(ApiKey.JOIN_GROUP, join, 4)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    sync = SyncGroupRequest("g", 1, joined.member_id, None, None, None, [SyncGroupRequestAssignment(joined.member_id)])
    assert connected.ask(ApiKey.SYNC_GROUP, sync, 3).error_code == 0
    member_id: str = joined.member_id
    return member_id
