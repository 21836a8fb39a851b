"""The partitions of a node follow the metadata image: created, grown, deleted, recreated, reconfigured, reloaded."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from harness.in_memory_node import NODE_ID, InMemoryNode, batch

from moldau.assembly.assembly import METADATA
from moldau.assembly.broker_side import OPEN_RETRY_MS
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.turns import LAID_OUT_A_TURN
from moldau.metadata.apply import Changes, apply
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.replica.partition import Partition
from moldau.replica.reading import ConsumerReads, ReplicaReads
from moldau.wire.apis import ApiKey
from moldau.wire.log_records.metadata import ConfigRecord, PartitionRecord, TopicRecord
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.fetch import FetchPartition
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


def partition_names(node: InMemoryNode) -> list[str]:
    return sorted(str(partition.name) for partition in node.partitions)


def alter(node: InMemoryNode, kind: ConfigResource, name: str, key: str, value: str | None) -> None:
    config = AlterableConfig(key, 1 if value is None else 0, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, [config])])
    response = node.committed(node.ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)).responses[0]
    assert response.error_code == 0, response.error_message


@pytest.fixture
def node() -> InMemoryNode:
    return InMemoryNode().start()


def test_a_topic_is_created_and_grown(node: InMemoryNode) -> None:
    node.create_topic("a", 2)
    assert partition_names(node) == ["a-0", "a-1"]
    first = node.partition("a", 0)
    node.append("a", 0)
    node.grow_topic("a", 4)
    assert partition_names(node) == ["a-0", "a-1", "a-2", "a-3"]
    assert node.partition("a", 0) is first
    assert first.high_watermark == 1
    node.append("a", 3)


def test_find_and_get(node: InMemoryNode) -> None:
    node.create_topic("a")
    assert node.partitions.find("a", 0) is node.partitions.get("a", 0)
    for topic, index in [("a", 1), ("a", -1), ("b", 0), ("", 0)]:
        assert node.partitions.find(topic, index) is None
        with pytest.raises(KafkaError) as refused:
            node.partitions.get(topic, index)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted(node: InMemoryNode, caplog: pytest.LogCaptureFixture) -> None:
    node.create_topic("a", 2)
    node.create_topic("b")
    deleted = node.partition("a")
    node.delete_topic("a")
    assert partition_names(node) == ["b-0"]
    assert deleted.is_closed
    assert TopicPartition("a", 0) not in node.store
    assert not caplog.messages


def test_a_topic_is_recreated_with_another_id(node: InMemoryNode) -> None:
    old_id = node.create_topic("a")
    node.append("a", count=5)
    old = node.partition("a")
    node.delete_topic("a")
    new_id = node.create_topic("a")
    assert new_id != old_id
    assert node.partition("a") is not old
    assert node.partition("a").topic_id == new_id
    assert (node.partition("a").high_watermark, node.partition("a").log.end_offset) == (0, 0)


def test_a_deleted_large_topic_is_unreadable_at_once_and_removed_in_chunks(node: InMemoryNode) -> None:
    count = 3 * LAID_OUT_A_TURN
    node.create_topic("a", count)
    partitions = [node.partition("a", index) for index in range(count)]
    node.delete_topic("a")
    assert partition_names(node) == []
    assert sum(each.is_closed for each in partitions) == LAID_OUT_A_TURN
    assert len(list(node.store)) == 1 + count - LAID_OUT_A_TURN, "the metadata log, and the logs not removed yet"
    node.timers.run_soon()
    assert all(each.is_closed for each in partitions)
    assert len(list(node.store)) == 1


def test_a_large_topic_is_recreated_before_all_of_it_is_removed(node: InMemoryNode) -> None:
    count = 3 * LAID_OUT_A_TURN
    node.create_topic("a", count)
    last = node.partition("a", count - 1)
    node.append("a", count - 1)
    node.delete_topic("a")
    assert not last.is_closed
    new_id = node.create_topic("a", count)
    node.append("a", count - 1, count=2)
    node.timers.run_soon()
    assert last.is_closed
    assert node.partition("a", count - 1).topic_id == new_id
    assert node.partition("a", count - 1).log.end_offset == 2
    assert len(list(node.store)) == 1 + count


def test_a_node_that_stops_while_a_topic_is_removed_starts_without_it(node: InMemoryNode) -> None:
    node.create_topic("a", 3 * LAID_OUT_A_TURN)
    node.delete_topic("a")
    assert partition_names(node.restart()) == []


def test_a_topic_deleted_and_recreated_in_one_flush(node: InMemoryNode) -> None:
    """Each of the two changes is published as its own image."""
    node.create_topic("a", 3)
    old = node.partition("a")

    node.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
    node.ask_controller(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("a", 1, 1)]))
    assert partition_names(node) == ["a-0", "a-1", "a-2"], "nothing is committed yet"
    node.flush()
    assert partition_names(node) == ["a-0"]
    assert old.is_closed


def test_only_partitions_with_a_replica_on_this_node_are_kept() -> None:
    node = InMemoryNode()
    topic_id = bytes(range(16))
    records = [
        TopicRecord("a", topic_id),
        PartitionRecord(0, topic_id, [NODE_ID], [NODE_ID], leader=NODE_ID, leader_epoch=0, partition_epoch=0),
        PartitionRecord(1, topic_id, [2], [2], leader=2, leader_epoch=0, partition_epoch=0),
        PartitionRecord(2, topic_id, [2, NODE_ID], [2], leader=2, leader_epoch=0, partition_epoch=0),
    ]
    image, changes = apply(MetadataImage(), records, 3, 1)
    node.partitions.on_image(image, changes, node.clock.now_ms())
    assert partition_names(node) == ["a-0", "a-2"]
    assert [partition.state.leader for partition in node.partitions] == [NODE_ID, 2]


def test_a_topics_configs_reach_its_logs_and_no_others(node: InMemoryNode) -> None:
    node.create_topic("a", 2, retention_ms="5000", min_insync_replicas="1")
    node.create_topic("b")
    before = node.partition("b").log.config
    assert node.partition("a", 1).log.config.retention_ms == 5000
    alter(node, ConfigResource.TOPIC, "a", "retention.ms", "7000")
    alter(node, ConfigResource.TOPIC, "a", "min.insync.replicas", "3")
    assert [node.partition("a", n).log.config.retention_ms for n in range(2)] == [7000, 7000]
    assert node.partition("a").min_insync_replicas == 3
    assert node.partition("b").log.config is before
    alter(node, ConfigResource.TOPIC, "a", "retention.ms", None)
    assert node.partition("a").log.config.retention_ms == before.retention_ms


def test_the_expiration_of_idle_producers_may_change_while_the_broker_runs(node: InMemoryNode) -> None:
    node.create_topic("a")
    side, log = node.assembly.broker_side, node.partition("a").log
    assert side is not None
    data = batch(timestamp=node.clock.now_ms(), producer_id=1, producer_epoch=0, base_sequence=0)
    node.partition("a").append(data, -1, node.clock.now_ms())
    node.clock.move(60_001)
    side.housekeeping.expire_producers()
    assert list(log.producers.active())
    alter(node, ConfigResource.BROKER, "", "producer.id.expiration.ms", "60000")
    side.housekeeping.expire_producers()
    assert not list(log.producers.active())


def test_a_brokers_configs_reach_every_log_at_once(node: InMemoryNode) -> None:
    node.create_topic("a")
    node.create_topic("b", retention_ms="5000")
    alter(node, ConfigResource.BROKER, "", "log.retention.ms", "9000")
    assert node.partition("a").log.config.retention_ms == 9000
    assert node.partition("b").log.config.retention_ms == 5000, "the topic's own config takes precedence"
    alter(node, ConfigResource.BROKER, str(NODE_ID), "log.retention.ms", "8000")
    assert node.partition("a").log.config.retention_ms == 8000
    node.create_topic("c")
    assert node.partition("c").log.config.retention_ms == 8000
    restarted = node.restart()
    assert {name: restarted.partition(name).log.config.retention_ms for name in "abc"} == {
        "a": 8000,
        "b": 5000,
        "c": 8000,
    }


def test_configs_of_a_topic_without_a_local_replica_are_ignored(node: InMemoryNode) -> None:
    image, changes = apply(
        node.current.image, [ConfigRecord(ConfigResource.TOPIC, "elsewhere", "retention.ms", "1")], 99, 1
    )
    node.partitions.on_image(image, changes, 0)
    assert partition_names(node) == []


# --- start


def test_partitions_are_loaded_at_start(node: InMemoryNode) -> None:
    node.create_topic("a", 2, retention_ms="5000")
    node.append("a", 1, count=7)
    restarted = node.restart()
    assert partition_names(restarted) == ["a-0", "a-1"]
    assert (restarted.partition("a", 1).high_watermark, restarted.partition("a", 1).log.end_offset) == (7, 7)
    assert restarted.partition("a", 1).log.config.retention_ms == 5000
    assert restarted.append("a", 1)


def test_a_start_after_topics_were_deleted(node: InMemoryNode) -> None:
    for name in ("a", "b", "c"):
        node.create_topic(name)
    node.delete_topic("a")
    node.delete_topic("c")
    node.create_topic("c", 2)
    restarted = node.restart()
    assert partition_names(restarted) == ["b-0", "c-0", "c-1"]
    assert restarted.restart().restart().partition("c", 1)


def test_a_topic_deleted_just_before_the_crash_is_deleted_after_it(node: InMemoryNode) -> None:
    """Its deletion was committed, but its files were still there."""
    node.create_topic("a", 2)
    node.append("a")

    node.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
    node.metadata_log.flush()
    restarted = node.restart()
    assert partition_names(restarted) == []
    assert [str(log.partition) for log in restarted.store] == [str(METADATA)], "no log of an unknown topic is left"


def test_a_topic_recreated_just_before_the_crash_does_not_get_the_old_records(node: InMemoryNode) -> None:

    node.create_topic("a", 2)
    node.append("a", count=3)
    node.ask_controller(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
    node.ask_controller(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("a", 1, 1)]))
    node.metadata_log.flush()
    restarted = node.restart()
    assert partition_names(restarted) == ["a-0"]
    assert restarted.partition("a").log.end_offset == 0


def test_a_log_with_an_unknown_topic_id_is_replaced_at_start(node: InMemoryNode) -> None:
    """Its disk may come from another cluster."""
    node.create_topic("a")
    node.append("a", count=3)
    other_node = InMemoryNode(node.files.restart())
    topic_id = b"another topic id"
    records = [
        TopicRecord("a", topic_id),
        PartitionRecord(0, topic_id, [NODE_ID], [NODE_ID], leader=NODE_ID, leader_epoch=0, partition_epoch=0),
    ]
    image, changes = apply(MetadataImage(), records, 1, 1)
    other_node.partitions.on_image(image, changes, other_node.clock.now_ms())
    assert other_node.partition("a").log.end_offset == 0
    assert other_node.store.topic_id(TopicPartition("a", 0)) == topic_id


def test_the_deletion_of_an_earlier_topic_does_not_touch_a_new_one_of_the_same_name(node: InMemoryNode) -> None:
    node.create_topic("a")
    earlier = replace(node.current.image.topics["a"], id=b"an earlier topic")
    node.partitions.on_image(node.current.image, Changes(removed=[earlier]), node.clock.now_ms())
    assert partition_names(node) == ["a-0"]
    assert node.append("a")


def test_nothing_acknowledged_is_lost_in_a_crash() -> None:
    for seed in range(15):
        rng = Random(seed)
        node = InMemoryNode(seed=seed).start()
        node.create_topic("safe", flush_messages="1")
        acknowledged = 0
        for _ in range(rng.randrange(8)):
            node.append("safe", count=rng.randrange(1, 4))
            if rng.random() < 0.5:
                node.flush()
                acknowledged = node.partition("safe").high_watermark
        restarted = node.crash(rng)
        assert restarted.partition("safe").log.end_offset >= acknowledged, f"seed {seed}"
        assert restarted.partition("safe").high_watermark >= acknowledged


# --- disk errors


class RefusingDisk:
    """Refuses new logs of the topic "b" until it has space again, and notes each attempt."""

    def __init__(self, node: InMemoryNode) -> None:
        self._node, self._real = node, node.store.create
        self.has_space = False
        self.attempts = 0
        node.store.create = self._create  # type: ignore[method-assign, assignment]

    def _create(self, name: TopicPartition, *rest: object) -> object:
        if name.topic == "b":
            self.attempts += 1
            if not self.has_space:
                self._node.files.open("nowhere/at/all", create=True)
        return self._real(name, *rest)  # type: ignore[arg-type]


def test_a_partition_that_cannot_be_created_is_retried(node: InMemoryNode, caplog: pytest.LogCaptureFixture) -> None:
    node.create_topic("a")
    node.append("a")
    disk = RefusingDisk(node)
    node.create_topic("b", 2)
    assert partition_names(node) == ["a-0"]
    assert len([message for message in caplog.messages if "will be retried" in message]) == 1, (
        "only the first failure is logged"
    )
    node.timers.advance(OPEN_RETRY_MS)
    assert (partition_names(node), disk.attempts) == (["a-0"], 4)
    assert node.partitions.missing_count == 2
    disk.has_space = True
    node.timers.advance(OPEN_RETRY_MS)
    assert partition_names(node) == ["a-0", "b-0", "b-1"]
    assert node.partitions.missing_count == 0
    assert node.append("b", 1)


def test_many_partitions_that_cannot_be_created_are_retried_in_turns(node: InMemoryNode) -> None:
    disk = RefusingDisk(node)
    node.create_topic("b", 100)
    node.timers.run_soon()
    assert node.partitions.missing_count == 100
    disk.has_space = True
    most = 0
    while node.partitions.missing_count:
        before = disk.attempts
        if not node.timers.run_one_soon():
            node.timers.run_one_timer()
        most = max(most, disk.attempts - before)
    assert most == LAID_OUT_A_TURN
    assert disk.attempts == 200
    assert len(partition_names(node)) == 100


def test_a_topic_whose_log_cannot_be_created_can_be_deleted(node: InMemoryNode) -> None:
    disk = RefusingDisk(node)
    node.create_topic("b")
    assert node.partitions.absence("b", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    earlier = replace(node.current.image.topics["b"], id=b"an earlier topic")
    node.partitions.on_image(node.current.image, Changes(removed=[earlier]), node.clock.now_ms())
    assert node.partitions.absence("b", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    node.delete_topic("b")
    assert node.partitions.absence("b", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert node.partitions.missing_count == 0
    node.timers.advance(OPEN_RETRY_MS)
    assert disk.attempts == 1


def test_a_partition_that_cannot_be_created_can_be_moved_to_another_broker(node: InMemoryNode) -> None:
    RefusingDisk(node)
    topic_id = node.create_topic("b")
    moved = PartitionRecord(0, topic_id, [NODE_ID + 1], [NODE_ID + 1], leader=NODE_ID + 1)
    image, changes = apply(node.current.image, [moved], 99, 1)
    node.partitions.on_image(image, changes, node.clock.now_ms())
    assert node.partitions.absence("b", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert node.partitions.missing_count == 0


def test_the_metrics_of_a_topic_are_removed_with_its_last_partition(node: InMemoryNode) -> None:
    topic_id = node.create_topic("b", partitions=2)
    node.partitions.traffic.of("b").bytes_in += 100
    for index in (0, 1):
        assert "b" in node.partitions.traffic.topics
        moved = PartitionRecord(index, topic_id, [NODE_ID + 1], [NODE_ID + 1], leader=NODE_ID + 1)
        image, changes = apply(node.current.image, [moved], 99, 1)
        node.partitions.on_image(image, changes, node.clock.now_ms())
    assert "b" not in node.partitions.traffic.topics
    assert node.partitions.traffic.gone.bytes_in == 100, "the total of the node does not decrease"


@pytest.mark.parametrize("is_follower", [False, True])
def test_a_damaged_batch_is_logged(
    node: InMemoryNode, caplog: pytest.LogCaptureFixture, is_follower: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.create_topic("t")
    node.append("t")
    node.flush()
    partition = node.partition("t")
    partition.log.segments.active.file.pwrite(bytes(20), 0)
    monkeypatch.setattr(Partition, "check_replica", lambda *_: None)
    reads = ReplicaReads(2, 1, None) if is_follower else ConsumerReads(False, False)
    data, _ = reads.read(partition, 0, FetchPartition(0, fetch_offset=0, partition_max_bytes=1), 1, True)
    assert (data.error_code, partition.traffic.failed_fetches) == (ErrorCode.CORRUPT_MESSAGE, 1)
    assert "records cannot be read: t-0: " in caplog.text
    assert "no batch at 0" in caplog.text
