"""Producer and transaction state on every replica: a new leader answers as the previous leader would."""

from __future__ import annotations

from random import Random

import pytest
from harness.in_memory_node import batch
from harness.replica_world import LISTENER, TOPIC, Node, ReplicaWorld
from harness.transactional_writes import append_as_producer, append_marker

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.log.reading import aborted_between
from moldau.replica.partition import Partition
from moldau.server.handler import Caller
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FIVE = range(5)


@pytest.fixture
def world() -> ReplicaWorld:
    world = ReplicaWorld(3)
    world.run(100)
    return world


def leader(world: ReplicaWorld) -> Partition:
    return world.nodes[world.controller.partitions[0].leader].partition()


def elect(world: ReplicaWorld, node_id: int) -> Partition:
    world.controller.change(0, leader=node_id)
    world.controller.publish()
    world.run(200)
    return world.nodes[node_id].partition()


def restart_broker(world: ReplicaWorld, node_id: int, *, loses_power: bool = False) -> None:
    """Kill a broker and start it again with the files that are left."""
    files = world.kill(node_id, Random(1) if loses_power else None)
    world.start(node_id, files)
    world.controller.publish(node_id)
    world.run(3_000)


def append_error(partition: Partition, producer_id: int, sequence: int, idempotent_only: bool = True) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        append_as_producer(partition, producer_id, sequence, idempotent_only=idempotent_only)
    return refused.value.code


# --- idempotence ------------------------------------------------------------------------------------------------


def test_a_new_leader_recognises_the_last_five_batches_of_a_producer(world: ReplicaWorld) -> None:
    sent = [append_as_producer(leader(world), 7, sequence, idempotent_only=True) for sequence in range(7)]
    world.run(100)
    for node_id in (2, 3):
        partition = elect(world, node_id)
        for sequence in range(2, 7):
            repeated = append_as_producer(partition, 7, sequence, idempotent_only=True)
            assert repeated.duplicate
            assert repeated.first_offset == sent[sequence].first_offset
        assert append_error(partition, 7, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert append_error(partition, 7, 8) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not append_as_producer(partition, 7, 7, idempotent_only=True).duplicate


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_restarted_follower_recognises_duplicates(world: ReplicaWorld, loses_power: bool) -> None:
    sent = [append_as_producer(leader(world), 7, sequence, idempotent_only=True) for sequence in FIVE]
    world.run(100)
    restart_broker(world, 2, loses_power=loses_power)
    partition = elect(world, 2)
    for sequence in FIVE:
        repeated = append_as_producer(partition, 7, sequence, idempotent_only=True)
        assert (repeated.duplicate, repeated.first_offset) == (True, sent[sequence].first_offset)


def test_a_new_replica_recognises_duplicates(world: ReplicaWorld) -> None:
    files = world.kill(3)
    sent = [append_as_producer(leader(world), 7, sequence, idempotent_only=True) for sequence in FIVE]
    world.run(5_000)
    world.start(3, files)
    world.controller.publish(3)
    world.run(3_000)
    assert 3 in world.controller.partitions[0].isr
    partition = elect(world, 3)
    assert [append_as_producer(partition, 7, sequence, idempotent_only=True).first_offset for sequence in FIVE] == [
        each.first_offset for each in sent
    ]


def test_a_truncated_batch_may_be_sent_again(world: ReplicaWorld) -> None:
    """The batch was never acknowledged; the producer sends it again, and it must not count as a duplicate."""
    append_as_producer(leader(world), 7, 0, idempotent_only=True)
    world.run(100)
    old = world.nodes[1]
    world.cuts = {frozenset({1, 2}), frozenset({1, 3})}
    append_as_producer(old.partition(), 7, 1, idempotent_only=True)
    world.run(50)
    partition = elect(world, 2)
    append_as_producer(partition, 9, 0, idempotent_only=True)
    world.cuts = set()
    world.run(3_000)
    assert old.partition().log.end_offset == partition.log.end_offset == 2
    assert [each.last_sequence for each in old.partition().log.producers.active()] == [0, 0]
    back = elect(world, 1)
    repeated = append_as_producer(back, 7, 1, idempotent_only=True)
    assert (repeated.duplicate, repeated.first_offset) == (False, 2)


def test_each_replica_forgets_a_producer_after_its_expiration(world: ReplicaWorld) -> None:
    append_as_producer(leader(world), 7, 3, idempotent_only=True)
    append_as_producer(leader(world), 8, 0)
    world.run(100)
    now_ms = world.clock.now_ms()
    for node in world.nodes.values():
        assert node.partition().log.producers.expire(now_ms + 86_400_000, 86_400_000) == 1
    partition = elect(world, 2)
    assert not append_as_producer(partition, 7, 500, idempotent_only=True).duplicate, (
        "a forgotten producer may start with any sequence"
    )
    assert partition.log.producers.has_open_transaction(8, 0), "a producer with an open transaction is not forgotten"


# --- transactions -----------------------------------------------------------------------------------------------


def test_an_open_transaction_stays_open_under_a_new_leader(world: ReplicaWorld) -> None:
    append_as_producer(leader(world), 7, 0)
    world.run(100)
    partition = elect(world, 2)
    assert partition.log.producers.has_open_transaction(7, 0)
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    assert append_error(partition, 7, 1) is ErrorCode.INVALID_TXN_STATE
    append_as_producer(partition, 7, 1)
    append_marker(partition, 7, commit=False)
    world.run(100)
    for node in world.nodes.values():
        replica = node.partition()
        assert (replica.high_watermark, replica.last_stable_offset) == (3, 3)
        assert aborted_between(replica.log.segments, 0, 3) == [(7, 0, 2, 3)]
        assert not replica.log.producers.unreplicated


def test_the_transaction_of_an_unreplicated_marker_is_hidden(world: ReplicaWorld) -> None:
    append_as_producer(leader(world), 7, 0)
    world.run(100)
    world.cuts = {frozenset({1, 2}), frozenset({1, 3})}
    append_marker(leader(world), 7, commit=True)
    world.run(50)
    assert (leader(world).high_watermark, leader(world).last_stable_offset) == (1, 0)
    world.cuts = set()
    world.run(2_000)
    assert leader(world).last_stable_offset == 2


def test_truncating_a_marker_reopens_its_transaction(world: ReplicaWorld) -> None:
    append_as_producer(leader(world), 7, 0)
    world.run(100)
    old = world.nodes[1]
    world.cuts = {frozenset({1, 2}), frozenset({1, 3})}
    append_marker(old.partition(), 7, commit=False)
    world.run(50)
    partition = elect(world, 2)
    append_marker(partition, 7, commit=True)
    world.cuts = set()
    world.run(3_000)
    assert old.partition().last_stable_offset == 2
    assert aborted_between(old.partition().log.segments, 0, 2) == [], "the transaction was committed in the end"


def consume(node: Node, offset: int) -> PartitionData:
    """Fetch with read_committed, from a follower too."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=1,
        session_epoch=-1,
        topics=[FetchTopic(ZERO_UUID, TOPIC, [FetchPartition(0, -1, offset, partition_max_bytes=1 << 20)])],
    )
    answer = node.fetch.answer(request, Caller(LISTENER, "test:1", "test", 12))
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


def test_followers_return_the_same_committed_records(world: ReplicaWorld) -> None:
    append_as_producer(leader(world), 7, 0)
    append_marker(leader(world), 7, commit=False)
    append_as_producer(leader(world), 8, 0)
    world.run(600)
    for node in world.nodes.values():
        data = consume(node, 0)
        assert not data.error_code
        assert (data.high_watermark, data.last_stable_offset) == (3, 2)
        assert data.aborted_transactions is not None
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(7, 0)]
        assert consume(node, 2).records == b"", "an open transaction is hidden on followers too"


# --- retention --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_world() -> ReplicaWorld:
    world = ReplicaWorld(3, segment_bytes="1048576", retention_bytes="900000", file_delete_delay_ms="0")
    world.run(100)
    return world


def fill(world: ReplicaWorld, segments: int) -> None:
    """Append batches of a quarter of a segment."""
    for _ in range(4 * segments):
        leader(world).append(batch(1, 250_000), -1, world.clock.now_ms())
        world.run(50)


def test_retention_runs_on_each_replica_and_keeps_the_producer_state(small_world: ReplicaWorld) -> None:
    world = small_world
    append_as_producer(leader(world), 7, 0, idempotent_only=True)
    append_as_producer(leader(world), 8, 0)
    fill(world, 3)
    follower = world.nodes[2].partition()
    assert follower.delete_expired(world.clock.now_ms()) == 2
    assert leader(world).log.start_offset == 0 < follower.log.start_offset
    assert follower.last_stable_offset == follower.log.start_offset, "the open transaction hides the remaining records"
    names = [name for name in follower.log.files.names(follower.log.directory) if not name.endswith(".deleted")]
    first = f"{follower.log.segments.first.base_offset:020}"
    assert not [name for name in names if name[:20] < first and name[0].isdigit()], "no file of a deleted segment"
    restart_broker(world, 2)
    partition = elect(world, 2)
    assert append_as_producer(partition, 7, 0, idempotent_only=True).duplicate, (
        "a duplicate is recognised although its batch is deleted"
    )
    assert partition.log.producers.has_open_transaction(8, 0)


def test_followers_take_over_the_leaders_log_start_offset(small_world: ReplicaWorld) -> None:
    world = small_world
    fill(world, 3)
    assert leader(world).delete_expired(world.clock.now_ms()) == 2
    start = leader(world).log.start_offset
    world.run(1_000)
    for node in world.nodes.values():
        assert node.partition().log.start_offset == start
        node.partition().delete_expired(world.clock.now_ms())
        assert node.partition().log.segments.first.base_offset == start


def test_nothing_above_the_high_watermark_is_deleted(small_world: ReplicaWorld) -> None:
    world = small_world
    world.cuts = {frozenset({1, 2}), frozenset({1, 3})}
    fill(world, 3)
    assert leader(world).high_watermark == 0
    assert leader(world).delete_expired(world.clock.now_ms()) == 0


def test_a_replica_that_lost_its_high_watermark_starts_at_the_log_start_offset(small_world: ReplicaWorld) -> None:
    world = small_world
    fill(world, 3)
    leader(world).delete_records(5)
    world.run(1_000)
    world.nodes[2].store.write_checkpoints()
    files = world.kill(2)
    world.cuts = {frozenset({1, 2}), frozenset({2, 3})}
    world.start(2, files)
    world.controller.publish(2)
    world.run(10)
    partition = world.nodes[2].partition()
    assert (partition.log.start_offset, partition.high_watermark, partition.last_stable_offset) == (5, 5, 5)
