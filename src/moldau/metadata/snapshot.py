"""An image as records, the content of a snapshot of the metadata log. Applied to an empty image they restore it.

The order is Kafka's: features first, since they define how to read the rest; a topic before its partitions. Each kind
is sorted by name or id, so that two nodes with the same image write the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moldau.metadata.apply import Changes
from moldau.metadata.image import BrokerImage, ControllerImage, MetadataImage, PartitionState, TopicImage
from moldau.security.delegation_tokens import DelegationToken
from moldau.security.quotas.entities import Entity
from moldau.wire.log_records.metadata import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from moldau.wire.schema import MetadataRecord


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    levels: Mapping[str, int] = {**image.features, **dict.fromkeys(image.features_off, 0)}
    for name in sorted(levels):
        yield FeatureLevelRecord(name, levels[name])
    for broker_id in sorted(image.brokers):
        yield _broker_record(image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        yield _controller_record(image.controllers[controller_id])
    for name in sorted(image.topics):
        yield from _topic_records(image.topics[name])
    for kind, name in sorted(image.configs):
        for key, value in image.configs[kind, name].items():
            yield ConfigRecord(kind, name, key, value)
    if image.next_producer_id:
        yield ProducerIdsRecord(next_producer_id=image.next_producer_id)
    for entity in sorted(image.client_quotas, key=_entity_order):
        parts = [QuotaEntity(*part) for part in sorted(entity, key=_part_order)]
        for key, limit in sorted(image.client_quotas[entity].items()):
            yield ClientQuotaRecord(parts, key, limit)
    for acl_id in sorted(image.acls):
        yield AccessControlEntryRecord(acl_id, *image.acls[acl_id])
    for mechanism, user in sorted(image.scram_credentials):
        yield UserScramCredentialRecord(user, mechanism, *image.scram_credentials[mechanism, user])
    for token_id in sorted(image.delegation_tokens):
        yield token_record(image.delegation_tokens[token_id])


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        str(token.owner),
        str(token.requester),
        [str(renewer) for renewer in token.renewers],
        token.issued_ms,
        token.max_ms,
        token.expires_ms,
        token.id,
    )


def _entity_order(entity: Entity) -> list[tuple[str, bool, str]]:
    return sorted(map(_part_order, entity))


def _part_order(part: tuple[str, str | None]) -> tuple[str, bool, str]:
    """A default, which has no name, comes after the names."""
    kind, name = part
    return kind, name is None, name or ""


def changes_between(old: MetadataImage, new: MetadataImage) -> Changes:
    """Return the changes between two images, for a node that loads a snapshot instead of the records in between."""
    removed = [topic for topic in old.topics.values() if topic.id not in new.topic_names]
    configs = {*old.configs, *new.configs}
    brokers = {*old.brokers, *new.brokers}
    return Changes(
        topics={
            topic.name: _changed_partitions(old.topics.get(topic.name), topic)
            for topic in new.topics.values()
            if old.topics.get(topic.name) != topic
        },
        removed=sorted(removed, key=lambda topic: topic.name),
        configs={key for key in configs if old.configs.get(key) != new.configs.get(key)},
        brokers={key for key in brokers if old.brokers.get(key) != new.brokers.get(key)},
        acls_added=[binding for binding in new.acl_ids if binding not in old.acl_ids],
        acls_removed=[binding for binding in old.acl_ids if binding not in new.acl_ids],
        has_client_quotas=dict(old.client_quotas) != dict(new.client_quotas),
    )


def _changed_partitions(old: TopicImage | None, new: TopicImage) -> set[int]:
    before = old.partitions if old is not None and old.id == new.id else ()
    return {index for index, state in enumerate(new.partitions) if index >= len(before) or before[index] != state}


def _broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[BrokerEndpoint(e.listener, e.host, e.port, e.security_protocol) for e in broker.endpoints],
        features=[BrokerFeature(name, low, high) for name, (low, high) in broker.features.items()],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cannot_write=broker.cannot_write,
    )


def _controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        end_points=[ControllerEndpoint(e.listener, e.host, e.port, e.security_protocol) for e in controller.endpoints],
        features=[ControllerFeature(name, low, high) for name, (low, high) in controller.features.items()],
    )


def _topic_records(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(topic.name, topic.id)
    if topic.is_view:  # it shares the partitions of its source, which its configs name
        return
    for index, state in enumerate(topic.partitions):
        yield _partition_record(topic, index, state)


def _partition_record(topic: TopicImage, index: int, state: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic.id,
        replicas=state.replicas,
        isr=state.isr,
        removing_replicas=state.removing_replicas,
        adding_replicas=state.adding_replicas,
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=state.directories,
    )
