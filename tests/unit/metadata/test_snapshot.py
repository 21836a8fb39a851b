"""The records of any image restore the same image."""

from __future__ import annotations

from itertools import zip_longest
from random import Random

from clusters import cluster, restore, topic, with_topics
from harness.depth import deep
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.persistent_map import PersistentMap
from moldau.base.topic_names import collision_key
from moldau.metadata.apply import Changes, apply
from moldau.metadata.controller.features import decide_bootstrap
from moldau.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import ConfigResource, encode_record
from moldau.metadata.snapshot import changes_between, image_records
from moldau.wire.log_records.metadata import (
    ConfigRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

IDS = st.integers(0, 2**31 - 1)
SMALL = st.integers(0, 9)
NAMES = st.text(st.sampled_from("abc._-"), min_size=1, max_size=6)
UUIDS = st.binary(min_size=16, max_size=16)
LEVELS = st.dictionaries(NAMES, st.tuples(SMALL, SMALL), max_size=3)
ENDPOINTS = st.lists(st.builds(Endpoint, NAMES, NAMES, st.integers(0, 65535), SMALL), max_size=2).map(tuple)
REPLICAS = st.lists(SMALL, unique=True, max_size=4).map(tuple)
BROKERS = st.builds(
    BrokerImage,
    IDS,
    st.integers(0, 2**62),
    UUIDS,
    ENDPOINTS,
    st.none() | NAMES,
    st.booleans(),
    st.lists(UUIDS, unique=True, max_size=2).map(tuple),
    st.booleans(),
    LEVELS,
    st.booleans(),
)
PARTITIONS = st.builds(
    PartitionState,
    REPLICAS,
    REPLICAS,
    st.integers(-1, 9),
    IDS,
    IDS,
    REPLICAS,
    REPLICAS,
    st.lists(UUIDS, max_size=4).map(tuple),
    st.integers(0, 1),
)
TOPICS = st.builds(TopicImage, NAMES, UUIDS, st.lists(PARTITIONS, max_size=4).map(tuple))
CONTROLLERS = st.builds(ControllerImage, IDS, UUIDS, ENDPOINTS, LEVELS)


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    topics = draw(st.lists(TOPICS, max_size=4, unique_by=(lambda each: collision_key(each.name), lambda each: each.id)))
    features = draw(st.dictionaries(NAMES, st.integers(1, 99), max_size=3))
    resources = st.tuples(st.sampled_from([ConfigResource.BROKER, ConfigResource.GROUP]), NAMES)
    configs = st.dictionaries(
        resources, st.dictionaries(NAMES, st.text(max_size=5), min_size=1, max_size=3), max_size=3
    )
    return MetadataImage(
        draw(IDS),
        draw(IDS),
        PersistentMap({each.name: each for each in topics}),
        PersistentMap({each.id: each.name for each in topics}),
        PersistentMap({each.id: each for each in draw(st.lists(BROKERS, max_size=3))}),
        PersistentMap(draw(configs)),
        features,
        draw(IDS),
        PersistentMap({collision_key(each.name): each.name for each in topics}),
        frozenset(draw(st.sets(NAMES, max_size=2))) - features.keys(),
        PersistentMap({each.id: each for each in draw(st.lists(CONTROLLERS, max_size=2))}),
    )


@given(images())
@settings(max_examples=deep(50, quick=15), deadline=None)
def test_the_records_of_an_image_restore_it(image: MetadataImage) -> None:
    assert restore(image) == image
    assert [*map(encode_record, image_records(restore(image)))] == [*map(encode_record, image_records(image))]


@given(images(), images())
@settings(max_examples=deep(20, quick=8), deadline=None)
def test_changes_between_contains_all_differences_of_two_images(old: MetadataImage, new: MetadataImage) -> None:
    changes = changes_between(old, new)
    assert changes_between(new, new) == Changes()
    for name in {*old.topics, *new.topics}:
        assert (name in changes.topics) == (name in new.topics and old.topics.get(name) != new.topics[name])
    for name, indexes in changes.topics.items():
        earlier = old.topics.get(name)
        before = earlier.partitions if earlier is not None and earlier.id == new.topics[name].id else ()
        pairs = zip_longest(before, new.topics[name].partitions)
        assert indexes == {index for index, (old_state, state) in enumerate(pairs) if state and state != old_state}
    assert {each.id for each in changes.removed} == {*old.topic_names} - {*new.topic_names}
    assert changes.brokers == {id for id in {*old.brokers, *new.brokers} if old.brokers.get(id) != new.brokers.get(id)}
    keys = {*old.configs, *new.configs}
    assert changes.configs == {key for key in keys if old.configs.get(key) != new.configs.get(key)}


def test_equal_images_give_the_same_bytes_in_whatever_order_they_were_built() -> None:
    snapshots = []
    for seed in range(2):
        numbers = list(range(50))
        Random(seed).shuffle(numbers)
        records = [TopicRecord(f"topic.{number}", bytes([number]) * 16) for number in numbers]
        image, _ = apply(cluster(Random(seed).sample([1, 2, 3], 3)), records, 9, 1)
        snapshots.append([encode_record(record) for record in image_records(image)])
    assert snapshots[0] == snapshots[1]


def test_old_fence_and_unfence_records_are_applied() -> None:
    image = cluster([1])
    fenced, changes = apply(image, [FenceBrokerRecord(1, 1)], 9, 1)
    assert (fenced.brokers[1].fenced, changes.brokers) == (True, {1})
    assert not apply(fenced, [UnfenceBrokerRecord(1, 1)], 9, 1)[0].brokers[1].fenced
    assert not apply(fenced, [UnregisterBrokerRecord(1, 1)], 9, 1)[0].brokers


def test_a_no_op_record_changes_only_the_offset() -> None:
    image = cluster([1])
    after, changes = apply(image, [NoOpRecord()], 77, 2)
    assert (after.offset, after.epoch, changes) == (77, 2, Changes())
    assert restore(after) == after
    assert after.topics is image.topics


def test_images_share_unchanged_parts() -> None:
    image = with_topics(cluster([1]), topic("a"), topic("b"))
    changed, _ = apply(image, [PartitionChangeRecord(0, image.topics["a"].id, isr=[1], leader=-1)], 9, 1)
    assert changed.topics["b"] is image.topics["b"]
    assert changed.brokers is image.brokers
    assert changed.topic_names is image.topic_names
    grown, _ = apply(image, [*decide_bootstrap(image).records, ConfigRecord(ConfigResource.TOPIC, "a", "x", "1")], 9, 1)
    assert grown.topics is image.topics
    registered, _ = apply(image, [RegisterBrokerRecord(2, broker_epoch=5)], 9, 1)
    assert (registered.topics is image.topics, set(registered.brokers)) == (True, {1, 2})
