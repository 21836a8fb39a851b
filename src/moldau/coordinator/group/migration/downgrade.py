"""Converts a consumer group whose members are all classic to a classic group."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, Protocol, State
from moldau.coordinator.group.consumer.member import ConsumerMember, PartitionsByTopicId
from moldau.coordinator.group.migration.assignment_codec import write_assignment
from moldau.metadata.image import MetadataImage
from moldau.wire.consumer_protocol import PROTOCOL_TYPE


def classic_group_of(
    group_id: str,
    generation: int,
    members: Sequence[tuple[ConsumerMember, PartitionsByTopicId]],
    image: MetadataImage,
    now_ms: int,
) -> ClassicGroup:
    """Return a stable group whose members have these assignments. The caller decides whether it must rebalance."""
    converted = ClassicGroup(
        group_id,
        State.STABLE,
        state_timestamp_ms=now_ms,
        generation=generation,
        protocol_type_or_none=PROTOCOL_TYPE,
    )
    for member, _ in members:
        converted.add(_classic_member(member))
    converted.protocol_name = converted.select_protocol()
    converted.subscribed_topics = converted.find_subscribed_topics()
    for member, assignment in members:
        classic = converted.members[member.member_id]
        classic.assignment = write_assignment(assignment, image, classic.metadata_of(converted.protocol_name))
    return converted


def _classic_member(member: ConsumerMember) -> ClassicMember:
    classic = member.classic_member_metadata
    assert classic is not None, "only classic members are left"
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
    )
