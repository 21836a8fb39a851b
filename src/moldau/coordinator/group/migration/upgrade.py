"""Converts a classic group to a consumer group: its members keep their partitions and their generation."""

from __future__ import annotations

from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, State
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, Partitions
from moldau.coordinator.group.migration.assignment_codec import by_topic_id, read_assignment
from moldau.coordinator.group.subscriptions import metadata_hash
from moldau.coordinator.machine import CoordinatorRecord
from moldau.metadata.image import MetadataImage
from moldau.wire.consumer_protocol import read
from moldau.wire.log_records.consumer_protocol import Subscription
from moldau.wire.log_records.offsets import ClassicMemberMetadata, ClassicProtocol

NO_TIMESTAMP = 0
"""The time when the leader of the classic group assigned the partitions is unknown."""
TopicIdPartitions = set[tuple[Uuid, int]]


def consumer_group_of(group: ClassicGroup, image: MetadataImage) -> ConsumerGroup:
    """Return the consumer group. Raise MalformedData if a member's subscription or assignment cannot be decoded."""
    converted = ConsumerGroup(group.group_id)
    converted.assignment_epoch = group.generation
    targets = {
        member.member_id: read_assignment(member.assignment, group.protocol_name, image)
        for member in group.members.values()
    }
    converted.targets.update(targets)
    targeted = {partition for target in targets.values() for partition in _flatten(target)}
    subscriptions = {
        member.member_id: read(Subscription, _subscription_bytes(group, member))[0] for member in group.members.values()
    }
    claims = _claims(subscriptions, targeted, image)
    for member_id, member in group.members.items():
        assigned = _with_epoch(group.generation, claims[member_id] | _flatten(targets[member_id]))
        converted.put(_consumer_member(member, subscriptions[member_id], group.generation, assigned))
    # During a rebalance the members do not have what they should have: the higher epoch makes a new target due.
    is_stable = group.state is State.STABLE and not any(claims.values())
    converted.epoch = group.generation if is_stable else group.generation + 1
    converted.metadata_hash = metadata_hash(converted.subscriptions.topics, image)
    return converted


def _claims(
    subscriptions: dict[str, Subscription], targeted: TopicIdPartitions, image: MetadataImage
) -> dict[str, TopicIdPartitions]:
    """Return by member id the partitions that no member was assigned, but that the member says it owns.

    A cooperative member still reads partitions that the last generation took from it, until it learns of that. If
    several members claim a partition, the one of the highest generation gets it, as in Kafka's sticky assignors
    (KIP-792): the others have missed a rebalance.
    """
    claims = {}
    owned = set(targeted)
    for member_id in sorted(subscriptions, key=lambda each: subscriptions[each].generation_id, reverse=True):
        claims[member_id] = _flatten(by_topic_id(subscriptions[member_id].owned_partitions, image)) - owned
        owned |= claims[member_id]
    return claims


def _flatten(partitions: dict[Uuid, frozenset[int]]) -> TopicIdPartitions:
    return {(topic_id, index) for topic_id, indexes in partitions.items() for index in indexes}


def _with_epoch(epoch: int, partitions: TopicIdPartitions) -> Partitions:
    """Return the partitions by topic, each assigned in `epoch`."""
    by_topic: dict[Uuid, dict[int, int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, {})[index] = epoch
    return by_topic


def _consumer_member(
    member: ClassicMember, subscription: Subscription, generation: int, assigned: Partitions
) -> ConsumerMember:
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=generation,
        previous_member_epoch=generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        assigned=assigned,
        classic_member_metadata=ClassicMemberMetadata(
            member.session_timeout_ms, [ClassicProtocol(*protocol) for protocol in member.protocols]
        ),
    )


def _subscription_bytes(group: ClassicGroup, member: ClassicMember) -> bytes:
    """Return the member's metadata for the group's protocol, or for the member's first protocol if the group has none
    yet or a new member does not support it."""
    matching = (protocol.metadata for protocol in member.protocols if protocol.name == group.protocol_name)
    return next(matching, member.protocols[0].metadata)


def records_of(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the records that create the group, in the order that Apache Kafka needs on replay."""
    group_id, members = group.group_id, list(group.members.values())
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, group.epoch, group.metadata_hash),
        *(records.member_target(group_id, member.member_id, group.target_of(member.member_id)) for member in members),
        records.target_epoch(group_id, group.assignment_epoch, NO_TIMESTAMP),
        *(records.member_assignment(group_id, member) for member in members),
    ]
