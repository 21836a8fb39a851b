"""Followers fetch from their leaders: what they append, where they truncate, how they handle errors."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from harness.in_memory_node import batch
from harness.replica_world import TOPIC, TOPIC_ID, Node, ReplicaWorld, ToyPeer

from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.base.turns import CHANGES_A_TURN
from moldau.log.walk import walk_batches
from moldau.metadata.apply import Changes
from moldau.metadata.image import PartitionState
from moldau.replica.follower_log import FollowerLog
from moldau.replica.partition import Partition
from moldau.replica.reading import ReplicaReads
from moldau.server.handler import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.schema import Message

CALLER = Caller("PLAINTEXT", "test:1", "test", 12)


def append(
    world: ReplicaWorld, count: int = 1, index: int = 0, *, acks: int = -1, **header: int
) -> Promise[ErrorCode] | None:
    """Append to the leader, as the controller sees it."""
    node = world.nodes[world.controller.partitions[index].leader]
    partition = node.partition(index)
    data = batch(count, timestamp=world.clock.now_ms(), **header)
    appended = partition.append(data, acks, world.clock.now_ms())
    return partition.acknowledged(appended.last_offset, acks)


def ends(world: ReplicaWorld, index: int = 0) -> list[int]:
    return [world.nodes[node_id].partition(index).log.end_offset for node_id in sorted(world.nodes)]


def high_watermarks(world: ReplicaWorld, index: int = 0) -> list[int]:
    return [world.nodes[node_id].partition(index).high_watermark for node_id in sorted(world.nodes)]


def offsets_of(partition: Partition) -> list[tuple[int, int]]:
    """Return (base offset, leader epoch) of each batch."""
    return [
        (header.base_offset, header.leader_epoch)
        for segment in partition.log.segments
        for header, _ in walk_batches(segment.file, 0, segment.size)
    ]


class RequestLog:
    """Records the requests of one broker to the others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asker: int) -> None:
        self.requests: list[tuple[int, ApiKey, Any]] = []
        real: Callable[..., Promise[Any]] = ToyPeer.ask

        def ask(
            peer: ToyPeer, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None
        ) -> Promise[Any]:
            if peer._node.id == asker:
                self.requests.append((peer._target_id, api, request))
            return real(peer, api, request, timeout_ms, version)

        monkeypatch.setattr(ToyPeer, "ask", ask)

    def fetches(self, target: int) -> list[FetchRequest]:
        return [request for to, api, request in self.requests if to == target and api is ApiKey.FETCH]

    def clear(self) -> None:
        self.requests.clear()


def partitions_in(request: FetchRequest) -> list[int]:
    return [wanted.partition for topic in request.topics for wanted in topic.partitions]


# --- following


def test_followers_copy_the_leader_and_get_the_high_watermark_with_the_next_response() -> None:
    world = ReplicaWorld()
    world.run(100)
    promise = append(world, 3)
    assert promise is not None
    world.run(2)
    assert ends(world) == [3, 3, 3]
    assert promise.done
    assert high_watermarks(world) == [3, 0, 0]
    append(world)
    world.run(10)
    assert high_watermarks(world) == [4, 3, 3]
    world.run(1_000)
    assert high_watermarks(world) == [4, 4, 4]


def test_with_flush_messages_1_a_follower_acknowledges_only_flushed_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ReplicaWorld(flush_messages="1")
    world.run(2_000)
    monkeypatch.setattr(ReplicaWorld, "disk_ms", lambda _: 50)
    promise = append(world, 3)
    assert promise is not None
    world.run(45)
    assert ends(world) == [3, 3, 3]
    assert [node.partition().log.recovery_point for node in world.nodes.values()] == [0, 0, 0]
    assert not promise.done
    world.run(5)
    assert world.nodes[1].partition().log.recovery_point == 3, "the leader's disk alone does not commit it"
    assert not promise.done
    world.run(10)
    assert promise.done


def test_with_flush_messages_1_a_partly_appended_response_is_flushed_before_the_next_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ReplicaWorld(flush_messages="1")
    world.run(2_000)
    monkeypatch.setattr(ReplicaWorld, "disk_ms", lambda _: 50)
    follower, leader = world.nodes[2].partition(), world.nodes[1].partition()
    append(world)
    size = leader.log.size_bytes
    append(world)
    world.nodes[2].files.bytes_left = size + 20  # enough for a checkpoint, and not for the second batch
    durable_and_acknowledged = []
    for _ in range(3_000):
        world.run(1)
        assert leader.leadership is not None
        acknowledged = leader.leadership.followers[2].end_offset
        durable_and_acknowledged.append((follower.log.recovery_point, acknowledged))
    assert follower.log.end_offset == 1, "only the first batch fits"
    assert all(acknowledged <= durable for durable, acknowledged in durable_and_acknowledged)
    assert durable_and_acknowledged[-1] == (1, 1)


def test_a_new_partition_does_not_wait_for_a_waiting_fetch() -> None:
    """A follower has one fetch at a leader. While it waits there for data, new partitions must still be fetched."""
    world = ReplicaWorld(fetch_settings={"wait_max_ms": 5_000})
    world.run(1_500)
    world.controller.partitions.append(PartitionState((1, 2, 3), (1, 2, 3), 1, 0, 0))
    world.controller.publish()
    world.run(0)
    promise = append(world, index=1)
    assert promise is not None
    world.run(60)
    assert promise.done


def test_fetch_requests_contain_only_changed_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReplicaWorld(partitions=9)
    world.run(2_000)
    request_log = RequestLog(monkeypatch, asker=2)
    world.run(1_100)
    assert 2 <= len(request_log.fetches(1)) <= 4
    assert not any(partitions_in(request) for request in request_log.fetches(1)), (
        "nothing changed, so no partition is sent"
    )
    request_log.clear()
    append(world, index=3)
    world.run(10)
    assert [partitions_in(request) for request in request_log.fetches(1)] == [[3]]


def test_followers_replicate_producer_state() -> None:
    world = ReplicaWorld()
    world.run(100)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    append(world, 2, **producer)
    world.run(100)
    world.kill(1)
    world.controller.fence(1)
    world.run(100)
    partition = world.nodes[2].partition()
    again = partition.append(batch(2, timestamp=world.clock.now_ms(), **producer), -1, world.clock.now_ms())
    assert (again.duplicate, again.first_offset, partition.log.end_offset) == (True, 0, 2)


# --- diverging logs


def test_records_only_of_the_old_leader_are_truncated_by_epoch() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 2)
    world.run(100)
    world.cuts |= {frozenset({1, 2}), frozenset({1, 3})}
    world.run(1_100)
    append(world, 5, acks=1)
    world.controller.change(0, leader=2, isr=(2, 3))
    world.controller.publish()
    world.run(0)
    append(world, 1)
    world.cuts.clear()
    world.run(1_500)
    assert ends(world) == [3, 3, 3]
    assert [offsets_of(node.partition()) for node in world.nodes.values()] == [[(0, 0), (2, 1)]] * 3
    assert world.nodes[1].reports == [], "none of the truncated records was committed"


def test_an_epoch_without_records_is_dropped() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 2)
    world.run(100)
    for leader in (2, 3, 1, 2):
        world.controller.change(0, leader=leader)
        world.controller.publish()
        world.run(100)
    append(world, 1)
    world.run(600)
    written = [node.partition().log.epochs.entries for node in world.nodes.values()]
    assert written == [((0, 0), (4, 2))] * 3


def test_several_diverging_epochs_are_truncated_one_after_the_other() -> None:
    """KIP-279: two replicas lead in turn without replicating from each other."""
    world = ReplicaWorld(nodes=3)
    world.run(100)
    append(world, 2)
    world.run(700)
    world.cuts |= {frozenset({1, 2}), frozenset({1, 3}), frozenset({2, 3})}
    world.run(1_100)
    for leader, count in [(1, 3), (2, 4), (1, 2), (2, 1)]:
        world.controller.change(0, leader=leader)
        world.controller.publish()
        world.run(0)
        append(world, count, acks=1)
    world.cuts.clear()
    world.run(2_000)
    assert [offsets_of(node.partition()) for node in world.nodes.values()] == [[(0, 0), (2, 2), (6, 4)]] * 3


def test_an_unclean_leader_makes_followers_truncate_committed_records_and_report_it() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 2)
    world.run(700)
    world.cuts |= {frozenset({1, 3}), frozenset({2, 3})}
    world.controller.fence(3)
    world.run(1_500)
    append(world, 4)
    world.run(600)
    assert high_watermarks(world)[:2] == [6, 6]
    world.controller.brokers[3] = replace(world.controller.brokers[3], fenced=False)
    world.controller.change(0, leader=3, isr=(3,))
    world.controller.publish(3)
    world.cuts.clear()
    world.run(2_000)
    assert ends(world) == [2, 2, 2]
    assert high_watermarks(world) == [2, 2, 2]
    for node_id in (1, 2):
        (report,) = world.nodes[node_id].reports
        assert "truncated to offset 2, below the high watermark 6" in report


def test_a_wiped_follower_begins_at_the_leaders_start_offset() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 5)
    append(world, 5)
    world.run(700)
    world.kill(3)
    world.controller.fence(3)
    world.nodes[1].partition().delete_records(7)
    append(world, 1)
    world.run(100)
    world.start(3)
    world.controller.publish(3)
    world.run(500)
    follower = world.nodes[3].partition()
    assert (follower.log.start_offset, follower.log.end_offset, follower.high_watermark) == (7, 11, 11)
    assert offsets_of(follower) == [(5, 0), (10, 0)], "the batch with the log start offset is fetched as a whole"
    assert world.controller.partitions[0].isr == (1, 2, 3)


def test_a_follower_behind_the_leaders_start_offset_restarts_its_log() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 5)
    world.run(700)
    files = world.kill(3)
    world.controller.fence(3)
    append(world, 5)
    append(world, 2)
    world.run(100)
    world.nodes[1].partition().delete_records(10)
    world.run(100)
    world.start(3, files)
    world.controller.publish(3)
    world.run(500)
    follower = world.nodes[3].partition()
    assert (follower.log.start_offset, follower.log.end_offset) == (10, 12)
    assert offsets_of(follower) == [(10, 0)]


def test_deleted_records_are_deleted_on_all_replicas_before_the_response() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 5)
    world.run(700)
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 4)])], timeout_ms=1_000)
    answer = world.nodes[1].delete_records.answer(request, CALLER)
    assert isinstance(answer, Promise)
    world.run(20)
    assert [node.partition().log.start_offset for node in world.nodes.values()] == [4, 4, 4]
    assert deletion_result(answer) == (0, 4)
    world.cuts.add(frozenset({1, 3}))
    request = DeleteRecordsRequest([DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, 5)])], timeout_ms=1_000)
    late = world.nodes[1].delete_records.answer(request, CALLER)
    assert isinstance(late, Promise)
    world.run(1_000)
    assert deletion_result(late) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def deletion_result(answer: Promise[DeleteRecordsResponse]) -> tuple[int, int]:
    (result,) = answer.value().topics[0].partitions
    return result.error_code, result.low_watermark


# --- errors


def test_an_error_of_one_partition_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReplicaWorld(partitions=4, fetch_settings={"wait_max_ms": 20})
    world.run(2_000)
    reads = ReplicaReads.read

    def corrupt(self: Any, partition: Partition, *rest: Any) -> Any:
        data, size = reads(self, partition, *rest)
        if partition.name.partition == 0 and self.replica_id == 2:
            data, size = PartitionData(0, ErrorCode.CORRUPT_MESSAGE, -1, records=b""), 0
        return data, size

    monkeypatch.setattr(ReplicaReads, "read", corrupt)
    append(world, index=0)
    request_log = RequestLog(monkeypatch, asker=2)
    world.run(3_000)
    asked = [request for request in request_log.fetches(1) if 0 in partitions_in(request)]
    assert 2 <= len(asked) <= 12, "retried with backoff"
    promise = append(world, index=3)
    assert promise is not None
    world.run(10)
    assert promise.done
    monkeypatch.undo()
    world.run(1_100)
    assert world.nodes[2].partition(0).log.end_offset == 1


def test_a_log_that_refuses_writes_and_is_not_flushed_does_not_stop_others() -> None:
    """A truncation lacked space, and the next fetch completes it. Nobody flushes the log until then."""
    world = ReplicaWorld(partitions=4, flush_messages="1")
    world.run(2_000)
    fetcher, partition = world.nodes[2].fetchers._fetchers[1], world.nodes[2].partition(0)
    partition.log.fault = StorageFault("a-0", OSError(errno.ENOSPC, "no space"))
    fetcher._waiting_for_disk[partition] = None
    promise = append(world, index=3)
    assert promise is not None
    world.run(1_000)
    assert promise.done


def test_an_unreachable_leader_is_retried_with_backoff_and_others_are_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ReplicaWorld(partitions=3)
    world.run(2_000)
    world.kill(1)
    request_log = RequestLog(monkeypatch, asker=3)
    world.run(10_000)
    assert 10 <= len(request_log.fetches(1)) <= 20
    promise = append(world, index=1, acks=1)
    assert promise is None
    world.run(5)
    assert world.nodes[3].partition(1).log.end_offset == 1


def test_a_partition_moves_to_another_fetcher_and_other_sessions_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ReplicaWorld(partitions=6)
    world.run(2_000)
    request_log = RequestLog(monkeypatch, asker=3)
    world.controller.change(0, leader=2)
    world.controller.publish()
    world.run(700)
    sessions = {request.session_id for request in request_log.fetches(1)}
    assert len(sessions) == 1, "no new session was begun"
    forgotten = [
        index
        for request in request_log.fetches(1)
        for each in request.forgotten_topics_data
        for index in each.partitions
    ]
    assert forgotten == [0]
    assert [partitions_in(request) for request in request_log.fetches(2) if partitions_in(request)] == [[0]]
    promise = append(world, index=0)
    assert promise is not None
    world.run(5)
    assert promise.done


def test_a_session_unknown_to_the_leader_is_reopened() -> None:
    world = ReplicaWorld(partitions=3)
    world.run(2_000)
    leader = world.nodes[1]
    for session_id in list(leader.sessions._sessions):
        leader.sessions.remove(session_id)
    world.run(600)
    promise = append(world)
    assert promise is not None
    world.run(10)
    assert promise.done


def test_a_broker_that_is_not_registered_does_not_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ReplicaWorld()
    world.run(100)
    files = world.kill(3)
    node = world.start(3, files)
    epoch, node.epoch = node.epoch, -1
    request_log = RequestLog(monkeypatch, asker=3)
    world.controller.publish(3)
    world.run(500)
    assert request_log.requests == []
    node.epoch = epoch
    world.run(1_000)
    assert request_log.fetches(1)


def test_a_partition_reassigned_to_others_is_closed_and_its_log_deleted() -> None:
    world = ReplicaWorld()
    world.run(100)
    append(world, 2)
    world.run(100)
    gone = world.nodes[3].partition()
    world.controller.change(0, replicas=(1, 2), isr=(1, 2))
    world.controller.publish()
    world.run(100)
    assert gone.is_closed
    assert len(world.nodes[3].store) == 0
    promise = append(world, 1)
    assert promise is not None
    world.run(10)
    assert promise.done
    assert world.nodes[3].partitions.absence(TOPIC, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- consumers


def consume(node: Node, offset: int, *, rack: str = "", version: int = 12, wait_ms: int = 0, epoch: int = -1) -> Any:
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        rack_id=rack,
        topics=[FetchTopic(ZERO_UUID, TOPIC, [FetchPartition(0, epoch, offset, partition_max_bytes=1 << 20)])],
    )
    return node.fetch.answer(request, replace(CALLER, version=version))


def only(response: FetchResponse | Promise[FetchResponse]) -> PartitionData:
    found = response.value() if isinstance(response, Promise) else response
    return found.responses[0].partitions[0]


def test_consumers_are_sent_to_a_replica_in_their_rack() -> None:
    world = ReplicaWorld(racks={1: "red", 2: "green", 3: "blue"})
    world.run(100)
    append(world, 3)
    world.run(700)
    leader = world.nodes[1]
    for rack, preferred in [("red", -1), ("green", 2), ("blue", 3), ("white", -1), ("", -1)]:
        found = only(consume(leader, 0, rack=rack))
        assert (found.preferred_read_replica, bool(found.records)) == (preferred, preferred == -1), rack
    assert only(consume(leader, 4, rack="green")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    near = only(consume(world.nodes[2], 0, rack="green"))
    assert (near.error_code, near.preferred_read_replica, near.high_watermark) == (0, -1, 3)
    assert near.records
    world.controller.change(0, isr=(1, 3))
    world.controller.publish()
    world.cuts.add(frozenset({1, 2}))
    world.run(0)
    assert only(consume(leader, 0, rack="green")).preferred_read_replica == -1, (
        "a replica out of sync may be far behind"
    )


def test_a_follower_serves_consumers_up_to_its_own_high_watermark_and_wakes_them() -> None:
    world = ReplicaWorld()
    world.run(2_000)
    follower = world.nodes[2]
    waiting = consume(follower, 0, wait_ms=3_000)
    append(world, 2)
    world.run(5)
    assert not waiting.done, "it has the records, and does not know yet that they are committed"
    world.run(600)
    assert only(waiting).high_watermark == 2
    assert only(consume(follower, 0, version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_waiting_at_a_leader_that_resigns_is_answered() -> None:
    world = ReplicaWorld()
    world.run(100)
    old = consume(world.nodes[1], 0, wait_ms=5_000, version=10)
    fenced = consume(world.nodes[1], 0, wait_ms=5_000, epoch=0)
    world.controller.change(0, leader=2)
    world.controller.publish()
    world.run(1)
    assert only(old).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(fenced).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_new_leader_does_not_return_the_latest_offset_before_it_knows_it() -> None:
    """KIP-207: its high watermark may be old; consumers may have read further at the previous leader."""
    world = ReplicaWorld()
    world.run(100)
    append(world, 3)
    world.run(20)
    assert high_watermarks(world) == [3, 0, 0]
    world.cuts.add(frozenset({2, 3}))
    world.kill(1)
    world.controller.fence(1)
    world.run(0)
    for version, code in [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]:
        assert latest(world.nodes[2], version=version)[0] == code
    assert latest(world.nodes[2], timestamp=-2) == (0, 0)
    assert latest(world.nodes[2], replica_id=3) == (0, 3), "followers get the log end offset"
    assert latest(world.nodes[3]) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert latest(world.nodes[3], replica_id=3) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert latest(world.nodes[3], replica_id=-2) == (0, 3), "debugging consumers may ask any replica"
    world.cuts.clear()
    world.run(1_500)
    assert latest(world.nodes[2]) == (0, 3)


def latest(node: Node, *, timestamp: int = -1, version: int = 9, replica_id: int = -1) -> tuple[int, int]:
    request = ListOffsetsRequest(replica_id, topics=[ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, -1, timestamp)])])
    found = node.list_offsets.answer(request, replace(CALLER, version=version)).topics[0].partitions[0]
    return found.error_code, found.offset


# --- throttles


def test_only_followers_out_of_sync_are_throttled() -> None:
    world = ReplicaWorld(
        fetch_settings={"max_bytes": 1_000, "wait_max_ms": 50},
        leader_replication_throttled_replicas="0:1",
        max_message_bytes="100000",
    )
    world.run(100)
    world.kill(3)
    world.controller.fence(3)
    for _ in range(100):
        append(world, 1)
        world.run(3)
    size = world.nodes[1].partition().log.size_bytes
    world.nodes[1].throttles.leader.limit.set(size // 4)
    world.start(3)
    world.controller.publish(3)
    world.run(1_000)
    assert 20 <= ends(world)[2] <= 80
    assert ends(world)[1] == 100, "an in-sync replica is not throttled"
    world.run(5_000)
    assert ends(world)[2] == 100


def test_a_follower_throttles_itself() -> None:
    world = ReplicaWorld(
        fetch_settings={"max_bytes": 1_000, "wait_max_ms": 50},
        follower_replication_throttled_replicas="*",
    )
    world.run(100)
    world.kill(3)
    world.controller.fence(3)
    for _ in range(100):
        append(world, 1)
        world.run(3)
    size = world.nodes[1].partition().log.size_bytes
    node = world.start(3)
    node.throttles.follower.limit.set(size // 4)
    world.controller.publish(3)
    world.run(1_000)
    assert 20 <= ends(world)[2] <= 80
    world.run(6_000)
    assert ends(world)[2] == 100


def test_caught_up_followers_join_the_isr_without_an_append() -> None:
    world = ReplicaWorld()
    world.run(100)
    assert world.nodes[1].partition().topic_id == TOPIC_ID
    world.controller.partitions[0] = replace(world.controller.partitions[0], isr=(1,), partition_epoch=5)
    world.controller.publish()
    world.run(1_000)
    assert world.controller.partitions[0].isr == (1, 2, 3), "a follower that has everything is in sync again"


# --- long responses


class Turns:
    """How often a method of the followers' logs is called in each turn of the loop; `between` is called after the first
    turn."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        world: ReplicaWorld,
        method: str,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.calls: list[int] = []
        self._is_over = True
        real = getattr(FollowerLog, method)

        def counted(log: FollowerLog, *arguments: Any) -> None:
            if self._is_over:
                self._is_over = False
                self.calls.append(0)
                world.timers.soon(end)
            self.calls[-1] += 1
            real(log, *arguments)

        def end() -> None:
            self._is_over = True
            if len(self.calls) == 1:
                between()

        monkeypatch.setattr(FollowerLog, method, counted)


def two_nodes(partitions: int) -> ReplicaWorld:
    """Return two nodes. The first leads all partitions."""
    world = ReplicaWorld(nodes=2)
    world.controller.partitions += [PartitionState((1, 2), (1, 2), 1, 0, 0)] * (partitions - 1)
    world.controller.publish()
    world.run(2_000)
    return world


def with_records_in_all_partitions(count: int) -> ReplicaWorld:
    """Return two nodes; the response with the records is under way to the follower."""
    world = two_nodes(count)
    for index in range(count):
        append(world, index=index)
    return world


def test_a_long_response_is_handled_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * CHANGES_A_TURN + 50
    world = with_records_in_all_partitions(count)
    request_log = RequestLog(monkeypatch, asker=2)
    appends = Turns(monkeypatch, world, "append_from_leader", request_log.clear)
    world.run(10)
    assert sum(appends.calls) == count
    assert max(appends.calls) <= CHANGES_A_TURN
    assert len(partitions_in(request_log.fetches(1)[0])) == count, "the next request comes after the last turn"
    world.run(1_000)
    assert {partition.high_watermark for partition in world.nodes[2].partitions} == {1}


def test_the_rest_of_a_long_response_is_dropped_by_a_fetcher_that_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_records_in_all_partitions(CHANGES_A_TURN + 50)
    appends = Turns(monkeypatch, world, "append_from_leader", world.nodes[2].fetchers.close)
    world.run(1_000)
    assert appends.calls == [CHANGES_A_TURN]


def test_a_partition_with_a_new_leader_epoch_ignores_the_rest_of_a_long_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = CHANGES_A_TURN + 49
    world = with_records_in_all_partitions(last + 1)

    def elect() -> None:
        world.controller.change(last, leader=1)
        world.nodes[2].current.publish(world.controller.image(), Changes(topics={TOPIC: {last}}))

    appends = Turns(monkeypatch, world, "append_from_leader", elect)
    world.run(10)
    assert appends.calls == [CHANGES_A_TURN, 49]
    world.controller.publish()
    world.run(2_000)
    assert ends(world, last) == [1, 1]


def test_each_log_that_restarts_takes_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart may write the recovery points of all logs. A broker that was away for long restarts all of its logs."""
    world = two_nodes(5)
    files = world.kill(2)
    world.controller.fence(2)
    world.run(100)
    for index in range(5):
        append(world, 3, index)
        world.nodes[1].partition(index).delete_records(3)
    restarts = Turns(monkeypatch, world, "restart_at")
    world.start(2, files)
    world.controller.publish(2)
    world.run(500)
    assert restarts.calls == [1] * 5
    append(world, index=4)
    world.run(500)
    assert [ends(world, index) for index in range(5)] == [[3, 3]] * 4 + [[4, 4]]


def test_each_log_that_is_truncated_takes_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = two_nodes(5)
    world.cuts |= {frozenset({1, 2})}
    world.run(1_100)
    for index in range(5):
        append(world, 2, index, acks=1)
        world.controller.change(index, leader=2)
    world.controller.publish()
    world.run(0)
    for index in range(5):
        append(world, 1, index)
    truncations = Turns(monkeypatch, world, "truncate")
    world.cuts.clear()
    world.run(2_000)
    assert truncations.calls == [1] * 5
    assert [ends(world, index) for index in range(5)] == [[1, 1]] * 5


# --- leaders


def test_a_leader_reads_only_partitions_with_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader examines only the partitions with news for the follower, however many others there are."""
    world = ReplicaWorld(partitions=30)
    world.run(2_000)
    read_partitions: list[int] = []
    real = ReplicaReads.read

    def read(self: ReplicaReads, partition: Partition, index: int, *rest: Any) -> Any:
        if self.replica_id == 3 and partition.is_leader and world.nodes[1].partition(index) is partition:
            read_partitions.append(index)
        return real(self, partition, index, *rest)

    monkeypatch.setattr(ReplicaReads, "read", read)
    world.run(2_000)
    assert read_partitions == []
    append(world, index=6)
    world.run(100)
    assert set(read_partitions) == {6}


def test_a_client_at_the_wrong_broker_gets_the_current_leader() -> None:
    """KIP-951: Fetch from v16 on, Produce from v10 on."""
    world = ReplicaWorld()
    world.run(100)
    by_id = [FetchTopic(TOPIC_ID, "", [FetchPartition(0, 7, 0, partition_max_bytes=1 << 20)])]
    world.controller.change(0, leader=2)
    world.controller.publish()
    world.run(10)
    for version in (15, 16):
        request = FetchRequest(min_bytes=1, topics=[FetchTopic(TOPIC_ID, "", [FetchPartition(0, 0, 0)])])
        response = world.nodes[1].fetch.answer(request, replace(CALLER, version=version))
        assert isinstance(response, FetchResponse)
        assert only(response).error_code == ErrorCode.FENCED_LEADER_EPOCH
        leader = only(response).current_leader
        assert (leader and (leader.leader_id, leader.leader_epoch)) == (None if version == 15 else (2, 1))
        assert [node.host for node in response.node_endpoints] == ([] if version == 15 else ["host2"])
    response = world.nodes[1].fetch.answer(FetchRequest(min_bytes=1, topics=by_id), replace(CALLER, version=16))
    assert isinstance(response, FetchResponse)
    assert only(response).current_leader is None, "a client with a later leader epoch gets no leader"
    data = [PartitionProduceData(0, batch(1, timestamp=world.clock.now_ms()))]
    produced = world.nodes[1].produce.answer(
        ProduceRequest(acks=-1, timeout_ms=100, topic_data=[TopicProduceData(ZERO_UUID, TOPIC, data)]),
        replace(CALLER, version=10),
    )
    assert isinstance(produced, ProduceResponse)
    (done,) = produced.responses[0].partition_responses
    assert done.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert done.current_leader is not None
    assert (done.current_leader.leader_id, done.current_leader.leader_epoch) == (2, 1)
    assert [(node.node_id, node.host) for node in produced.node_endpoints] == [(2, "host2")]


@pytest.mark.parametrize(
    ("version", "replica_id", "epoch_offset", "code"),
    [
        (14, 2, 0, ErrorCode.INVALID_REQUEST),
        (17, 2, -10_000, ErrorCode.INVALID_REQUEST),
        (17, 2, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (17, 9, 0, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_client_that_poses_as_a_replica_does_not_move_the_high_watermark(
    version: int, replica_id: int, epoch_offset: int, code: ErrorCode
) -> None:
    """CVE-2018-1288: the fetch offsets of a replica move the high watermark."""
    world = ReplicaWorld(nodes=2)
    world.run(100)
    world.cuts.add(frozenset({1, 2}))
    world.run(1_000)
    append(world, 3)
    epoch = world.nodes[2].epoch + epoch_offset
    request = FetchRequest(
        replica_state=ReplicaState(replica_id, epoch) if version >= 15 else None,
        replica_id=replica_id,
        topics=[FetchTopic(TOPIC_ID, "", [FetchPartition(0, 0, 3, partition_max_bytes=1 << 20)])],
    )
    response = world.nodes[1].fetch.answer(request, replace(CALLER, version=version))
    assert isinstance(response, FetchResponse)
    assert (response.error_code or only(response).error_code) == code
    assert high_watermarks(world)[0] == 0
