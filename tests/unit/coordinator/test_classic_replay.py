"""A classic group rebuilt from its log: each record has the whole group, so the last one is enough."""

from __future__ import annotations

from moldau.coordinator.group.classic.group import ClassicGroup, Protocol
from moldau.wire.consumer_protocol import write
from moldau.wire.log_records.consumer_protocol import Subscription
from moldau.wire.log_records.offsets import GroupMetadataValue, MemberMetadata


def group_metadata(generation: int, topic: str, rebalance_ms: int = 1, session_ms: int = 1) -> GroupMetadataValue:
    subscription = write(Subscription([topic]), 1)
    member = MemberMetadata("m", None, "client", "/host", rebalance_ms, session_ms, subscription, b"")
    return GroupMetadataValue("consumer", generation, "range", "m", -1, [member])


def test_a_member_is_replayed_with_its_last_subscription() -> None:
    group = ClassicGroup("g")
    group.load(group_metadata(1, "a"))
    group.load(group_metadata(2, "b", rebalance_ms=20, session_ms=30))
    member = group.members["m"]
    assert group.subscribed_topics == {"b"}
    assert member.metadata_of("range") == write(Subscription(["b"]), 1)
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (20, 30)
    assert group.protocol_counts == {"range": 1}


def test_a_live_member_keeps_the_protocols_that_are_not_in_the_log() -> None:
    group = ClassicGroup("g")
    group.load(group_metadata(1, "a"))
    member = group.members["m"]
    known = (*member.protocols, Protocol("roundrobin", b"more"))
    group.update(member, known, member.rebalance_timeout_ms, member.session_timeout_ms)
    group.load(group_metadata(2, "a"))
    assert member.protocols == known
