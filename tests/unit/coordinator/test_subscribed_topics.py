"""The topics that the members of a classic group subscribe to."""

from __future__ import annotations

import pytest
from harness.operations import operations_of

from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, Protocol
from moldau.wire.consumer_protocol import write
from moldau.wire.log_records.consumer_protocol import Subscription, TopicPartitions

TOPICS = [f"topic-{number}" for number in range(100)]


def group_of(*subscriptions: bytes) -> ClassicGroup:
    group = ClassicGroup("g", protocol_type_or_none="consumer", protocol_name="range")
    for number, subscription in enumerate(subscriptions):
        protocols = (Protocol("range", subscription),)
        group.add(ClassicMember(f"member-{number}", None, "client", "/host", 1, 1, protocols))
    return group


def test_the_subscribed_topics_are_those_of_all_members() -> None:
    topics = [["a"], ["a", "b"], ["a"], [], ["b", "a"], ["ab", "c"], ["a", "b"]]
    subscriptions = [
        write(Subscription(names, b"x" * number, [TopicPartitions("a", [number])]), number % 4)
        for number, names in enumerate(topics)
    ]
    assert group_of(*subscriptions).find_subscribed_topics() == {"a", "b", "ab", "c"}


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1", b"\0\0\0\0\0\1\0\1a", b"\0\0\0\0\0\2\0\1a\0\1"])
def test_the_topics_are_unknown_if_one_member_has_metadata_of_another_format(metadata: bytes) -> None:
    assert group_of(write(Subscription(["a"]), 1), metadata).find_subscribed_topics() is None


def test_topics_that_many_members_share_are_decoded_once() -> None:
    def cost(members: int) -> int:
        owned = [TopicPartitions(TOPICS[number], [number]) for number in range(members)]
        group = group_of(*(write(Subscription(TOPICS, None, [each], -1, "rack"), 3) for each in owned))
        return operations_of(group.find_subscribed_topics)

    assert cost(50) < 2 * cost(1)
