"""Applying records one by one, all at once, or decoded from the log gives the same image."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from clusters import applied, cluster, create, layers, topic, topic_rules, with_topics

from moldau.base.errors import MalformedData
from moldau.base.steps import finish
from moldau.metadata import apply as apply_module
from moldau.metadata.apply import apply
from moldau.metadata.controller.configs import decide_incremental_alter_configs
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.features import decide_bootstrap
from moldau.metadata.controller.producer_ids import decide_allocate
from moldau.metadata.controller.topics import decide_create_partitions, decide_create_topics, decide_delete_topics
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource, decode_record, encode_record
from moldau.wire.log_records.metadata import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from moldau.wire.messages.create_topics import CreateTopicsRequest
from moldau.wire.messages.delete_topics import DeleteTopicsRequest
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.wire.schema import MetadataRecord

NAMES = ["a", "b", "c.d", "e"]
A_ID = bytes(range(16))


def some_decision(image: MetadataImage, rng: Random) -> Decision:  # type: ignore[type-arg]
    """Return the decision of a random request, valid or not."""
    name = rng.choice(NAMES)
    match rng.randrange(7):
        case 0:
            configs = {"retention.ms": "5"} if rng.random() < 0.5 else {}
            request = CreateTopicsRequest([topic(name, rng.randint(1, 4), rng.randint(1, 3), configs=configs)])
            return finish(decide_create_topics(image, request, topic_rules(), rng))
        case 1:
            return finish(decide_delete_topics(image, DeleteTopicsRequest(topic_names=[name]), topic_rules()))
        case 2:
            grow = CreatePartitionsRequest([CreatePartitionsTopic(name, rng.randint(1, 8), None)])
            return finish(decide_create_partitions(image, grow, rng))
        case 3:
            kind, resource = rng.choice([(ConfigResource.TOPIC, name), (ConfigResource.BROKER, "")])
            key = "retention.ms" if kind == ConfigResource.TOPIC else "log.retention.ms"
            change = AlterableConfig(key, rng.randrange(2), str(rng.randrange(5)))
            alter = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, resource, [change])])
            return finish(decide_incremental_alter_configs(image, alter, layers(image)))
        case 4:
            record = RegisterBrokerRecord(
                broker_id=rng.randint(1, 4),
                incarnation_id=rng.randbytes(16),
                broker_epoch=image.offset + 1,
                end_points=[BrokerEndpoint("PLAINTEXT", "host", 9092, 0)],
                rack=rng.choice([None, "r1", "r2"]),
                fenced=False,
                log_dirs=[rng.randbytes(16)],
            )
            return Decision(None, (record,))
        case 5:
            return decide_allocate(image, 1, 1)
    if rng.random() < 0.5 or name not in image.topics:
        return decide_bootstrap(image)
    existing = image.topics[name]
    index = rng.randrange(len(existing.partitions))
    leader = rng.choice([-2, -1, 1, 2])
    return Decision(
        None, (PartitionChangeRecord(index, existing.id, isr=rng.choice([None, [1], [1, 2]]), leader=leader),)
    )


def random_history(seed: int, steps: int = 60) -> tuple[list[tuple[MetadataRecord, ...]], MetadataImage]:
    """Return a random history of decisions, each based on the ones before it, and the image after them."""
    rng, image, history = Random(seed), cluster([1, 2, 3]), []
    for _ in range(steps):
        records = some_decision(image, rng).records
        if records:
            history.append(records)
            image, _ = apply(image, records, image.offset + len(records), 1)
    return history, image


def test_records_one_by_one_all_at_once_and_decoded_give_the_same_image() -> None:
    topics_seen = 0
    for seed in range(60):
        history, live = random_history(seed)
        flat = [record for records in history for record in records]
        start = cluster([1, 2, 3])
        at_once, changes = apply(start, flat, live.offset, 1)
        assert at_once == live, f"seed {seed}"
        read_back, _ = apply(start, [decode_record(encode_record(record)) for record in flat], live.offset, 1)
        assert read_back == live, f"seed {seed}"
        topics_seen += len(live.topics) + len(changes.removed)
    assert topics_seen > 300, "the histories contain enough topics"


def test_applying_records_never_changes_the_old_image() -> None:
    for seed in range(10):
        rng, image = Random(seed), cluster([1, 2])
        for _ in range(30):
            records = some_decision(image, rng).records
            before = repr(image)
            image, old = apply(image, records, image.offset + len(records), 1)[0], image
            assert repr(old) == before


def test_changes_name_only_existing_topics_and_images_are_consistent() -> None:
    for seed in range(30):
        history, live = random_history(seed)
        flat = [record for records in history for record in records]
        image, changes = apply(cluster([1, 2, 3]), flat, live.offset, 1)
        assert changes.topics.keys() <= set(image.topics)
        assert all(
            indexes == set(range(len(image.topics[name].partitions))) for name, indexes in changes.topics.items()
        )
        assert {each.id: each.name for each in image.topics.values()} == dict(image.topic_names)
        assert all(kind != ConfigResource.TOPIC or name in image.topics for kind, name in image.configs)
        for removed in changes.removed:
            assert image.topic_by_id(removed.id) is None


def test_a_topic_is_removed_and_recreated_in_one_batch() -> None:
    image = with_topics(cluster(), topic("a", 3, configs={"retention.ms": "5"}))
    old = image.topics["a"]
    records: list[MetadataRecord] = [RemoveTopicRecord(old.id), *create(cluster(), topic("a", 1), seed=2).records]
    image, changes = apply(image, records, 50, 2)
    assert changes.removed == [old]
    assert changes.topics.keys() == {"a"}
    assert len(image.topics["a"].partitions) == 1
    assert not image.configs
    assert (image.offset, image.epoch) == (50, 2)
    assert old.id not in image.topic_names


def test_a_topic_created_and_removed_in_one_batch_is_in_the_changes_with_its_partitions() -> None:
    created = create(cluster(), topic("a", 2)).records
    image, changes = apply(cluster(), [*created, RemoveTopicRecord(created[0].topic_id)], 9, 1)  # type: ignore[attr-defined]
    assert (len(image.topics), len(image.topic_names), changes.topics) == (0, 0, {})
    assert [len(each.partitions) for each in changes.removed] == [2]


def test_a_partition_change_raises_the_epochs() -> None:
    image = applied(
        cluster([1, 2]),
        [TopicRecord("a", A_ID), PartitionRecord(0, A_ID, [1, 2], [1, 2], leader=1, leader_epoch=5, partition_epoch=7)],
    )
    shrunk = applied(image, [PartitionChangeRecord(0, A_ID, isr=[1])]).topics["a"].partitions[0]
    assert (shrunk.isr, shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch) == ((1,), 1, 5, 8)
    moved = applied(image, [PartitionChangeRecord(0, A_ID, leader=2)]).topics["a"].partitions[0]
    assert (moved.isr, moved.leader, moved.leader_epoch, moved.partition_epoch) == ((1, 2), 2, 6, 8)
    assert moved.replicas == (1, 2)
    same = applied(image, [PartitionChangeRecord(0, A_ID, leader=1)]).topics["a"].partitions[0]
    assert same.leader_epoch == 6, "an election raises the epoch even if the same broker wins"
    leaderless = applied(image, [PartitionChangeRecord(0, A_ID, leader=-1, isr=[2])]).topics["a"].partitions[0]
    assert (leaderless.leader, leaderless.leader_epoch, leaderless.isr) == (-1, 6, (2,))


def test_configs_are_set_and_removed() -> None:
    key = (ConfigResource.TOPIC, "a")
    image = applied(MetadataImage(), [ConfigRecord(*key, "x", "1"), ConfigRecord(*key, "y", "")])
    assert image.configs_of(*key) == {"x": "1", "y": ""}
    image = applied(image, [ConfigRecord(*key, "x", None), ConfigRecord(*key, "never", None)])
    assert image.configs_of(*key) == {"y": ""}
    image, changes = apply(image, [ConfigRecord(*key, "y", None)], 9, 1)
    assert not image.configs
    assert changes.configs == {key}
    assert image.configs_of(*key) == {}


def test_a_topic_that_is_recreated_in_one_batch_has_only_its_new_configs() -> None:
    records: list[MetadataRecord] = [
        TopicRecord("a", A_ID),
        ConfigRecord(ConfigResource.TOPIC, "a", "retention.ms", "5"),
        RemoveTopicRecord(A_ID),
        TopicRecord("a", A_ID[::-1]),
        ConfigRecord(ConfigResource.TOPIC, "a", "segment.ms", "7"),
    ]
    image, _ = apply(MetadataImage(), records, 4, 1)
    assert image.configs_of(ConfigResource.TOPIC, "a") == {"segment.ms": "7"}


def test_thousands_of_configs_of_a_resource_are_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may have any number of them, and each copy would be of all."""
    copies = 0

    def counted_dict(*arguments: Any) -> dict[Any, Any]:
        nonlocal copies
        copies += 1
        return dict(*arguments)

    monkeypatch.setattr(apply_module, "dict", counted_dict, raising=False)
    names = [f"unknown.{number}" for number in range(1_000)]
    image, _ = apply(MetadataImage(), [ConfigRecord(ConfigResource.BROKER, "1", name, "") for name in names], 999, 1)
    assert image.configs_of(ConfigResource.BROKER, "1") == dict.fromkeys(names, "")
    assert copies == 1


def test_feature_levels_and_producer_ids_are_applied() -> None:
    image = applied(MetadataImage(), [FeatureLevelRecord("x", 3), ProducerIdsRecord(1, 1, 5000)])
    assert (image.features, image.next_producer_id) == ({"x": 3}, 5000)
    assert applied(image, [FeatureLevelRecord("x", 0)]).features == {}


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x01\x02", b"\x00\x02\x00", b"\x01\x7f\x00", b"\x01\x02\x09", b"\x01\x02\x00"]
)
def test_an_unsupported_record_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedData):
        decode_record(value)
