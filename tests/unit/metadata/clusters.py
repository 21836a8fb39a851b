"""Images of small clusters, and short functions that build requests to their controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from moldau.base.config_def import BrokerLayers
from moldau.base.steps import finish
from moldau.base.topic_configs import check_topic_configs
from moldau.metadata.apply import apply
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.topics import TopicRules, decide_create_topics
from moldau.metadata.image import BrokerImage, MetadataImage
from moldau.metadata.records import decode_record, encode_record
from moldau.metadata.snapshot import image_records
from moldau.wire.log_records.metadata import BrokerEndpoint, RegisterBrokerRecord
from moldau.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from moldau.wire.schema import MetadataRecord

NODE_ID = 1


def applied(image: MetadataImage, records: Iterable[MetadataRecord], epoch: int = 1) -> MetadataImage:
    records = list(records)
    return apply(image, records, image.offset + len(records), epoch)[0]


def cluster(racks: Mapping[int, str | None] | Sequence[int] = (1,), fenced: Sequence[int] = ()) -> MetadataImage:
    """Return an image with these brokers, given by id or as id to rack."""
    rack_by_id = racks if isinstance(racks, Mapping) else dict.fromkeys(racks)
    return applied(
        MetadataImage(),
        [
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=broker,
                end_points=[BrokerEndpoint("PLAINTEXT", "localhost", 9092)],
                rack=rack,
                fenced=broker in fenced,
                log_dirs=[bytes([broker]) * 16],
            )
            for broker, rack in rack_by_id.items()
        ],
    )


def layers(image: MetadataImage | None = None) -> BrokerLayers:
    return broker_layers(image or MetadataImage(), NODE_ID, {})


def topic_rules(partitions: int = 1, replication_factor: int = 1, delete_enabled: bool = True) -> TopicRules:
    return TopicRules(
        num_partitions=partitions,
        replication_factor=replication_factor,
        delete_enabled=delete_enabled,
        check_configs=lambda overrides: check_topic_configs(overrides, layers()),
        describe_configs=lambda overrides: (),
    )


def topic(
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    *,
    assign: Mapping[int, Sequence[int]] | Sequence[tuple[int, Sequence[int]]] = (),
    configs: Mapping[str, str | None] | None = None,
) -> CreatableTopic:
    pairs = assign.items() if isinstance(assign, Mapping) else assign
    return CreatableTopic(
        name,
        partitions,
        replication_factor,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in pairs],
        [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()],
    )


def create(
    image: MetadataImage, *topics: CreatableTopic, validate_only: bool = False, seed: int = 1, **rules: int
) -> Decision:  # type: ignore[type-arg]
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return finish(decide_create_topics(image, request, topic_rules(**rules), Random(seed)))  # type: ignore[arg-type]


def with_topics(image: MetadataImage, *topics: CreatableTopic) -> MetadataImage:
    decision = create(image, *topics)
    assert all(result.error_code == 0 for result in decision.response.topics), decision.response
    return applied(image, decision.records)


def restore(image: MetadataImage) -> MetadataImage:
    """Return the image that the encoded records of a snapshot give."""
    records = [decode_record(encode_record(record)) for record in image_records(image)]
    return apply(MetadataImage(), records, image.offset, image.epoch)[0]


def broker(broker_id: int, rack: str | None = None) -> BrokerImage:
    return BrokerImage(broker_id, 0, bytes(16), (), rack, fenced=False)
