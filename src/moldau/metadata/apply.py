"""Records make the image. `apply` never refuses: what is in the log happened, live and on replay alike.

A batch of records is laid over the old image; maps that it touches are copied once, all others are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from moldau.metadata.image import BrokerImage, Endpoint, MetadataImage, PartitionState, TopicImage
from moldau.metadata.records import (
    LEADER_UNCHANGED,
    ConfigRecord,
    ConfigResource,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(slots=True)
class Changes:
    """Which parts of the image a batch of records touched: what followers of the image must look at."""

    topics: set[str] = field(default_factory=set)
    removed: list[TopicImage] = field(default_factory=list)
    configs: set[tuple[int, str]] = field(default_factory=set)


def apply(
    image: MetadataImage, records: Iterable[MetadataRecord], offset: int, epoch: int
) -> tuple[MetadataImage, Changes]:
    """The image after these records, the last of which has that offset, and what they touched."""
    overlay = _Overlay(image)
    for record in records:
        _APPLY[record.__class__](overlay, record)
    return overlay.image(offset, epoch), overlay.changes


class _Overlay:
    """The maps of an image, open for writing."""

    def __init__(self, image: MetadataImage) -> None:
        self.base = image
        self.topics = dict(image.topics)
        self.topic_names = dict(image.topic_names)
        self.brokers = dict(image.brokers)
        self.configs = dict(image.configs)
        self.features = dict(image.features)
        self.next_producer_id = image.next_producer_id
        self.partitions: dict[str, list[PartitionState]] = {}
        self.changes = Changes()

    def partitions_of(self, name: str) -> list[PartitionState]:
        """The partitions of a topic as a list that is made a tuple again at the end, once."""
        if name not in self.partitions:
            self.partitions[name] = list(self.topics[name].partitions)
        self.changes.topics.add(name)
        return self.partitions[name]

    def image(self, offset: int, epoch: int) -> MetadataImage:
        for name, partitions in self.partitions.items():
            if name in self.topics:
                self.topics[name] = replace(self.topics[name], partitions=tuple(partitions))
        return MetadataImage(
            offset,
            epoch,
            self.topics,
            self.topic_names,
            self.brokers,
            self.configs,
            self.features,
            self.next_producer_id,
        )


def _topic(overlay: _Overlay, record: TopicRecord) -> None:
    overlay.topics[record.name] = TopicImage(record.name, record.topic_id, ())
    overlay.topic_names[record.topic_id] = record.name
    overlay.partitions.pop(record.name, None)
    overlay.changes.topics.add(record.name)


def _partition(overlay: _Overlay, record: PartitionRecord) -> None:
    partitions = overlay.partitions_of(overlay.topic_names[record.topic_id])
    state = PartitionState(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.directories),
    )
    assert record.partition_id <= len(partitions), "partitions are made in order"
    partitions[record.partition_id : record.partition_id + 1] = [state]


def _partition_change(overlay: _Overlay, record: PartitionChangeRecord) -> None:
    partitions = overlay.partitions_of(overlay.topic_names[record.topic_id])
    old = partitions[record.partition_id]
    elected = record.leader != LEADER_UNCHANGED
    partitions[record.partition_id] = PartitionState(
        replicas=old.replicas if record.replicas is None else tuple(record.replicas),
        isr=old.isr if record.isr is None else tuple(record.isr),
        leader=record.leader if elected else old.leader,
        leader_epoch=old.leader_epoch + 1 if elected else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        removing_replicas=old.removing_replicas
        if record.removing_replicas is None
        else tuple(record.removing_replicas),
        adding_replicas=old.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
        directories=old.directories if record.directories is None else tuple(record.directories),
    )


def _remove_topic(overlay: _Overlay, record: RemoveTopicRecord) -> None:
    name = overlay.topic_names.pop(record.topic_id)
    partitions = overlay.partitions.pop(name, None)
    topic = overlay.topics.pop(name)
    if partitions is not None:
        topic = replace(topic, partitions=tuple(partitions))
    overlay.configs.pop((ConfigResource.TOPIC, name), None)
    overlay.changes.topics.discard(name)
    overlay.changes.removed.append(topic)


def _register_broker(overlay: _Overlay, record: RegisterBrokerRecord) -> None:
    overlay.brokers[record.broker_id] = BrokerImage(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        record.rack,
        record.fenced,
        tuple(record.log_dirs),
    )


def _config(overlay: _Overlay, record: ConfigRecord) -> None:
    key = (record.resource_type, record.resource_name)
    configs = dict(overlay.configs.get(key, {}))
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value
    if configs:
        overlay.configs[key] = configs
    else:
        overlay.configs.pop(key, None)
    overlay.changes.configs.add(key)


def _feature_level(overlay: _Overlay, record: FeatureLevelRecord) -> None:
    if record.feature_level:
        overlay.features[record.name] = record.feature_level
    else:
        overlay.features.pop(record.name, None)


def _producer_ids(overlay: _Overlay, record: ProducerIdsRecord) -> None:
    overlay.next_producer_id = record.next_producer_id


_APPLY: dict[type[MetadataRecord], Callable[[_Overlay, Any], None]] = {
    TopicRecord: _topic,
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_change,
    RemoveTopicRecord: _remove_topic,
    RegisterBrokerRecord: _register_broker,
    ConfigRecord: _config,
    FeatureLevelRecord: _feature_level,
    ProducerIdsRecord: _producer_ids,
}
