"""A classic group as the consumer group that it becomes: its members stay, with what they have and their generation."""

from __future__ import annotations

from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, State
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, Partitions
from moldau.coordinator.group.consumer.target import metadata_hash
from moldau.coordinator.group.consumer_records import ClassicMemberMetadata, ClassicProtocol
from moldau.coordinator.group.migration.embedded import by_topic_id, read_assignment
from moldau.coordinator.machine import CoordinatorRecord
from moldau.metadata.image import MetadataImage
from moldau.wire.consumer_protocol import Subscription, read

NO_TIMESTAMP = 0
"""The leader shared out, at a time that nobody wrote down."""
Slots = set[tuple[Uuid, int]]


def consumer_group_of(group: ClassicGroup, image: MetadataImage) -> ConsumerGroup:
    """Raises MalformedData if a member of it cannot be understood."""
    made = ConsumerGroup(group.group_id)
    made.assignment_epoch = group.generation
    targets = {
        member.member_id: read_assignment(member.assignment, group.protocol_name, image)
        for member in group.members.values()
    }
    made.targets.update(targets)
    given = {slot for target in targets.values() for slot in _slots(target)}
    taken = set(given)
    for member in group.members.values():
        subscription, _ = read(Subscription, _said(group, member))
        # A cooperative member goes on to read what the last generation did not leave to it, until it hears of that.
        claimed = _slots(by_topic_id(subscription.owned_partitions, image)) - taken
        taken |= claimed
        has = claimed | _slots(targets[member.member_id])
        made.put(_member(member, subscription, group.generation, _since(group.generation, has)))
    # While a rebalance is under way, what the members have is not what they should have: a new target is due.
    is_settled = group.state is State.STABLE and taken == given
    made.epoch = group.generation if is_settled else group.generation + 1
    made.metadata_hash = metadata_hash(made.subscriptions.topics, image)
    return made


def _slots(partitions: dict[Uuid, frozenset[int]]) -> Slots:
    return {(topic_id, index) for topic_id, found in partitions.items() for index in found}


def _since(epoch: int, slots: Slots) -> Partitions:
    partitions: dict[Uuid, dict[int, int]] = {}
    for topic_id, index in sorted(slots):
        partitions.setdefault(topic_id, {})[index] = epoch
    return partitions


def _member(member: ClassicMember, subscription: Subscription, generation: int, assigned: Partitions) -> ConsumerMember:
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


def _said(group: ClassicGroup, member: ClassicMember) -> bytes:
    """A member that came since may not know the protocol of the generation before, and the first has none yet."""
    known = (protocol.metadata for protocol in member.protocols if protocol.name == group.protocol_name)
    return next(known, member.protocols[0].metadata)


def records_of(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """What makes the group, in the order that Apache's reader insists on."""
    group_id, members = group.group_id, list(group.members.values())
    return [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, group.epoch, group.metadata_hash),
        *(records.member_target(group_id, member.member_id, group.target_of(member.member_id)) for member in members),
        records.target_epoch(group_id, group.assignment_epoch, NO_TIMESTAMP),
        *(records.member_assignment(group_id, member) for member in members),
    ]
