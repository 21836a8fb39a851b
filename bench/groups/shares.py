"""Share groups: members that fetch records of one partition and accept them with the next fetch, until all are done.

A member does what a client does without its threads: one request in flight, the acceptance of what it holds beside it.
Every turn is of a new group, which reads the same records from the beginning.
"""

from __future__ import annotations

import selectors
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.brokers.connection import TIMEOUT_S, BrokerRefused, Connection
from bench.brokers.frames import record_batch
from bench.brokers.raw_workloads import fill, seconds_of
from bench.brokers.servers import Server
from bench.brokers.topics import new_topic
from bench.groups.frames import find_coordinator_frame
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload
from moldau.wire.apis import ApiKey
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

BATCH_RECORDS = 100
VALUE_BYTES = 100
MAX_RECORDS = 500
"""`max.poll.records` of Java's share consumer."""
MAX_BYTES = 1 << 20
MAX_WAIT_MS = 100
FETCH_VERSION = HEARTBEAT_VERSION = 1
ACCEPT = 1
LOOK_AGAIN_S = 0.1
FINAL_EPOCH = -1


class Member:
    """A connection, its session, and what it holds."""

    def __init__(self, server: Server, group_id: str, cleanup: ExitStack) -> None:
        self.connection = cleanup.enter_context(Connection(server.address, MAX_BYTES + (64 << 10)))
        self.accepted = 0
        self._group_id = group_id
        self._member_id = str(uuid.uuid4())
        self._epoch = 0
        self._topic_id = b""
        self._held: list[AcknowledgementBatch] = []

    def join(self, topic: str) -> None:
        """Heartbeat until the partition is assigned."""
        deadline, epoch = time.perf_counter() + TIMEOUT_S, 0
        self.connection.ask(find_coordinator_frame(self._group_id))  # which creates the topic of groups
        while time.perf_counter() < deadline:
            names = [topic] if epoch == 0 else None
            request = ShareGroupHeartbeatRequest(self._group_id, self._member_id, epoch, None, names)
            frame = request_frame(ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION, 1, "bench", request)
            reply = self.connection.ask(frame)
            answer = read_response(
                ShareGroupHeartbeatResponse, bytes(reply), ApiKey.SHARE_GROUP_HEARTBEAT, HEARTBEAT_VERSION
            )[1]
            epoch = 0 if answer.error_code else answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                self._topic_id = answer.assignment.topic_partitions[0].topic_id
                return
            time.sleep(LOOK_AGAIN_S)
        raise BrokerRefused(f"{self.connection.address}: no partition was assigned")

    def send(self, max_records: int = MAX_RECORDS) -> None:
        """Fetch, and accept what is held."""
        partitions = [FetchPartition(0, self._held)] if self._held or self._epoch == 0 else []
        request = ShareFetchRequest(
            self._group_id,
            self._member_id,
            self._epoch,
            MAX_WAIT_MS,
            1,
            MAX_BYTES,
            max_records,
            MAX_RECORDS,
            topics=[FetchTopic(self._topic_id, partitions)] if partitions else [],
        )
        self.connection.socket.sendall(request_frame(ApiKey.SHARE_FETCH, FETCH_VERSION, 1, "bench", request))

    def receive(self) -> None:
        """Take the response; what was held is accepted."""
        reply = self.connection.receive_reply()
        response = read_response(ShareFetchResponse, bytes(reply), ApiKey.SHARE_FETCH, FETCH_VERSION)[1]
        self._epoch += 1
        self.accepted += sum(each.last_offset - each.first_offset + 1 for each in self._held)
        self._held = []
        error = response.error_code
        for topic in response.responses:
            for data in topic.partitions:
                error = error or data.error_code or data.acknowledge_error_code
                self._held = [
                    AcknowledgementBatch(each.first_offset, each.last_offset, [ACCEPT])
                    for each in data.acquired_records
                ]
        if error:
            raise BrokerRefused(f"{self.connection.address}: ShareFetch: error {error}")


def share(members: int, records: int) -> Workload:
    """Fetch and accept the records of one partition, by so many members."""
    name = f"share fetch and accept, {members} {'member' if members == 1 else 'members'}"

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, 1, cleanup)
        batches = max(1, records // BATCH_RECORDS)
        fill(server, topic, 0, record_batch(BATCH_RECORDS, VALUE_BYTES), batches)

        def turn() -> Measured:
            with ExitStack() as house:
                group = _members(server, topic, members, house)
                total = batches * BATCH_RECORDS
                return Measured((total / seconds_of(lambda: _consume(group, total)),), total)

        return turn

    return Workload((Quantity(name, "records/s", work_unit="record"),), prepare)


def _members(server: Server, topic: str, count: int, house: ExitStack) -> list[Member]:
    """Return members of a new group that have their partition."""
    group_id = f"bench-{uuid.uuid4().hex[:12]}"
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    members = [Member(server, group_id, house) for _ in range(count)]
    for member in members:
        member.join(topic)
    return members


def _consume(members: Sequence[Member], total: int) -> None:
    """Let all fetch and accept until all records are accepted."""
    deadline = time.perf_counter() + TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.connection.socket, selectors.EVENT_READ, member)
            member.send()
        while sum(member.accepted for member in members) < total:
            if time.perf_counter() > deadline:
                raise BrokerRefused(f"{members[0].connection.address}: not all records came")
            for key, _ in selector.select(1):
                key.data.receive()
                key.data.send()
        for member in members:
            member.receive()
