"""A consumer group whose members are all classic, as the classic group that it becomes."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, Protocol, State
from moldau.coordinator.group.consumer.member import ConsumerMember, Target
from moldau.coordinator.group.migration.embedded import write_assignment
from moldau.metadata.image import MetadataImage
from moldau.wire.consumer_protocol import PROTOCOL_TYPE


def classic_group_of(
    group_id: str, generation: int, members: Sequence[tuple[ConsumerMember, Target]], image: MetadataImage, now_ms: int
) -> ClassicGroup:
    """At rest, each member with what is said to be its own: whether that will do is for others to say."""
    made = ClassicGroup(
        group_id,
        State.STABLE,
        state_timestamp_ms=now_ms,
        generation=generation,
        protocol_type_or_none=PROTOCOL_TYPE,
    )
    for member, _ in members:
        made.add(_member(member))
    made.protocol_name = made.select_protocol()
    made.subscribed_topics = made.find_subscribed_topics()
    for member, has in members:
        classic = made.members[member.member_id]
        classic.assignment = write_assignment(has, image, classic.metadata_of(made.protocol_name))
    return made


def _member(member: ConsumerMember) -> ClassicMember:
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
