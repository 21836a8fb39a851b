"""All partitions of a node follow the image: made, grown, removed, made anew, reconfigured, found again at start."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from rooms import NODE_ID, Rooms

from moldau.assembly.assembly import METADATA
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.metadata.apply import Changes, apply
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigRecord, ConfigResource, PartitionRecord, TopicRecord
from moldau.wire.apis import ApiKey
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


def held(rooms: Rooms) -> list[str]:
    return sorted(str(partition.name) for partition in rooms.partitions)


def alter(rooms: Rooms, kind: ConfigResource, name: str, key: str, value: str | None) -> None:
    config = AlterableConfig(key, 1 if value is None else 0, value)
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, [config])])
    response = rooms.committed(rooms.admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)).responses[0]
    assert response.error_code == 0, response.error_message


@pytest.fixture
def rooms() -> Rooms:
    return Rooms().start()


def test_created_and_grown(rooms: Rooms) -> None:
    rooms.create_topic("a", 2)
    assert held(rooms) == ["a-0", "a-1"]
    first = rooms.partition("a", 0)
    rooms.append("a", 0)
    rooms.grow_topic("a", 4)
    assert held(rooms) == ["a-0", "a-1", "a-2", "a-3"]
    assert rooms.partition("a", 0) is first
    assert first.high_watermark == 1
    rooms.append("a", 3)


def test_finding(rooms: Rooms) -> None:
    rooms.create_topic("a")
    assert rooms.partitions.find("a", 0) is rooms.partitions.get("a", 0)
    for topic, index in [("a", 1), ("a", -1), ("b", 0), ("", 0)]:
        assert rooms.partitions.find(topic, index) is None
        with pytest.raises(KafkaError) as refused:
            rooms.partitions.get(topic, index)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted(rooms: Rooms, caplog: pytest.LogCaptureFixture) -> None:
    rooms.create_topic("a", 2)
    rooms.create_topic("b")
    gone = rooms.partition("a")
    rooms.delete_topic("a")
    assert held(rooms) == ["b-0"]
    assert gone.is_closed
    assert TopicPartition("a", 0) not in rooms.store
    assert not caplog.messages


def test_made_anew_with_another_id(rooms: Rooms) -> None:
    old_id = rooms.create_topic("a")
    rooms.append("a", count=5)
    old = rooms.partition("a")
    rooms.delete_topic("a")
    new_id = rooms.create_topic("a")
    assert new_id != old_id
    assert rooms.partition("a") is not old
    assert rooms.partition("a").topic_id == new_id
    assert (rooms.partition("a").high_watermark, rooms.partition("a").log.end_offset) == (0, 0)


def test_deleted_and_made_anew_before_anyone_looked(rooms: Rooms) -> None:
    """Both in the same flush: each is published in its turn."""
    rooms.create_topic("a", 3)
    old = rooms.partition("a")

    rooms.admin.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
    rooms.admin.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("a", 1, 1)]))
    assert held(rooms) == ["a-0", "a-1", "a-2"], "nothing is committed yet"
    rooms.flush()
    assert held(rooms) == ["a-0"]
    assert old.is_closed


def test_only_what_is_ours_is_held() -> None:
    rooms = Rooms()
    topic_id = bytes(range(16))
    records = [
        TopicRecord("a", topic_id),
        PartitionRecord(0, topic_id, [NODE_ID], [NODE_ID], leader=NODE_ID, leader_epoch=0, partition_epoch=0),
        PartitionRecord(1, topic_id, [2], [2], leader=2, leader_epoch=0, partition_epoch=0),
        PartitionRecord(2, topic_id, [2, NODE_ID], [2], leader=2, leader_epoch=0, partition_epoch=0),
    ]
    image, changes = apply(MetadataImage(), records, 3, 1)
    rooms.partitions.on_image(image, changes, rooms.clock.now_ms())
    assert held(rooms) == ["a-0", "a-2"]
    assert [partition.state.leader for partition in rooms.partitions] == [NODE_ID, 2]


def test_a_topics_configs_reach_its_logs_and_no_others(rooms: Rooms) -> None:
    rooms.create_topic("a", 2, retention_ms="5000", min_insync_replicas="1")
    rooms.create_topic("b")
    before = rooms.partition("b").log.config
    assert rooms.partition("a", 1).log.config.retention_ms == 5000
    alter(rooms, ConfigResource.TOPIC, "a", "retention.ms", "7000")
    alter(rooms, ConfigResource.TOPIC, "a", "min.insync.replicas", "3")
    assert [rooms.partition("a", n).log.config.retention_ms for n in range(2)] == [7000, 7000]
    assert rooms.partition("a").min_insync_replicas == 3
    assert rooms.partition("b").log.config is before
    alter(rooms, ConfigResource.TOPIC, "a", "retention.ms", None)
    assert rooms.partition("a").log.config.retention_ms == before.retention_ms


def test_a_brokers_configs_reach_every_log_at_once(rooms: Rooms) -> None:
    rooms.create_topic("a")
    rooms.create_topic("b", retention_ms="5000")
    alter(rooms, ConfigResource.BROKER, "", "log.retention.ms", "9000")
    assert rooms.partition("a").log.config.retention_ms == 9000
    assert rooms.partition("b").log.config.retention_ms == 5000, "the topic's own word counts more"
    alter(rooms, ConfigResource.BROKER, str(NODE_ID), "log.retention.ms", "8000")
    assert rooms.partition("a").log.config.retention_ms == 8000
    rooms.create_topic("c")
    assert rooms.partition("c").log.config.retention_ms == 8000
    again = rooms.restart()
    assert {name: again.partition(name).log.config.retention_ms for name in "abc"} == {"a": 8000, "b": 5000, "c": 8000}


def test_a_config_of_a_topic_that_is_not_here_is_nothing_to_do(rooms: Rooms) -> None:
    image, changes = apply(
        rooms.current.image, [ConfigRecord(ConfigResource.TOPIC, "elsewhere", "retention.ms", "1")], 99, 1
    )
    rooms.partitions.on_image(image, changes, 0)
    assert held(rooms) == []


# --- start


def test_found_again_at_start(rooms: Rooms) -> None:
    rooms.create_topic("a", 2, retention_ms="5000")
    rooms.append("a", 1, count=7)
    again = rooms.restart()
    assert held(again) == ["a-0", "a-1"]
    assert (again.partition("a", 1).high_watermark, again.partition("a", 1).log.end_offset) == (7, 7)
    assert again.partition("a", 1).log.config.retention_ms == 5000
    assert again.append("a", 1)


def test_a_start_after_topics_were_deleted(rooms: Rooms) -> None:
    for name in ("a", "b", "c"):
        rooms.create_topic(name)
    rooms.delete_topic("a")
    rooms.delete_topic("c")
    rooms.create_topic("c", 2)
    again = rooms.restart()
    assert held(again) == ["b-0", "c-0", "c-1"]
    assert again.restart().restart().partition("c", 1)


def test_a_topic_deleted_just_before_the_crash_is_deleted_after_it(rooms: Rooms) -> None:
    """Its removal was committed, its files were still there."""
    rooms.create_topic("a", 2)
    rooms.append("a")

    rooms.admin.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
    rooms.metadata_log.flush()
    again = rooms.restart()
    assert held(again) == []
    assert [str(log.partition) for log in again.store] == [str(METADATA)], "no log is left that nobody speaks of"


def test_a_topic_made_anew_just_before_the_crash_does_not_get_the_old_records(rooms: Rooms) -> None:

    rooms.create_topic("a", 2)
    rooms.append("a", count=3)
    rooms.admin.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=["a"]))
    rooms.admin.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("a", 1, 1)]))
    rooms.metadata_log.flush()
    again = rooms.restart()
    assert held(again) == ["a-0"]
    assert again.partition("a").log.end_offset == 0


def test_a_log_of_another_topic_of_the_same_name_gives_way(rooms: Rooms) -> None:
    """Found at start, with an id that the metadata does not know: a disk that was somewhere else before."""
    rooms.create_topic("a")
    rooms.append("a", count=3)
    stranger = Rooms(rooms.files.restart())
    topic_id = b"another topic id"
    records = [
        TopicRecord("a", topic_id),
        PartitionRecord(0, topic_id, [NODE_ID], [NODE_ID], leader=NODE_ID, leader_epoch=0, partition_epoch=0),
    ]
    image, changes = apply(MetadataImage(), records, 1, 1)
    stranger.partitions.on_image(image, changes, stranger.clock.now_ms())
    assert stranger.partition("a").log.end_offset == 0
    assert stranger.store.topic_id(TopicPartition("a", 0)) == topic_id


def test_the_removal_of_an_earlier_topic_does_not_touch_the_one_that_has_its_name(rooms: Rooms) -> None:
    rooms.create_topic("a")
    earlier = replace(rooms.current.image.topics["a"], id=b"an earlier topic")
    rooms.partitions.on_image(rooms.current.image, Changes(removed=[earlier]), rooms.clock.now_ms())
    assert held(rooms) == ["a-0"]
    assert rooms.append("a")


def test_nothing_acknowledged_is_lost_in_a_crash() -> None:
    for seed in range(15):
        rng = Random(seed)
        rooms = Rooms(seed=seed).start()
        rooms.create_topic("safe", flush_messages="1")
        acknowledged = 0
        for _ in range(rng.randrange(8)):
            rooms.append("safe", count=rng.randrange(1, 4))
            if rng.random() < 0.5:
                rooms.flush()
                acknowledged = rooms.partition("safe").high_watermark
        again = rooms.crash(rng)
        assert again.partition("safe").log.end_offset >= acknowledged, f"seed {seed}"
        assert again.partition("safe").high_watermark >= acknowledged


# --- a disk that refuses


def test_a_partition_the_disk_refuses_is_tried_again(rooms: Rooms, caplog: pytest.LogCaptureFixture) -> None:
    rooms.create_topic("a")
    rooms.append("a")
    real = rooms.store.create

    def full(name: TopicPartition, *rest: object) -> object:
        if name.topic == "b":
            rooms.files.open("nowhere/at/all", create=True)
        return real(name, *rest)  # type: ignore[arg-type]

    rooms.store.create = full  # type: ignore[method-assign, assignment]
    rooms.create_topic("b", 2)
    assert held(rooms) == ["a-0"]
    assert len([told for told in caplog.messages if "will be retried" in told]) == 1, "the second is counted only"
    rooms.partitions.retry(rooms.current.image, rooms.clock.now_ms())
    assert held(rooms) == ["a-0"]
    rooms.store.create = real  # type: ignore[method-assign]
    rooms.partitions.retry(rooms.current.image, rooms.clock.now_ms())
    assert held(rooms) == ["a-0", "b-0", "b-1"]
    assert rooms.append("b", 1)
