"""Replication throttles: a rate in bytes per second for the throttled replicas of a topic."""

from __future__ import annotations

import pytest

from moldau.base.ids import TopicPartition
from moldau.base.persistent_map import PersistentMap
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.metadata.records import ConfigResource
from moldau.replica.throttle import RateLimit, Throttles
from moldau.testing.clock import FakeClock

NODE_ID = 1
TOPIC = (int(ConfigResource.TOPIC), "a")
BROKER, EVERYONE = (int(ConfigResource.BROKER), "1"), (int(ConfigResource.BROKER), "")


def test_a_rate_limit_allows_its_rate_per_second() -> None:
    clock = FakeClock()
    limit = RateLimit(clock)
    limit.set(1_000)
    sent = 0
    for _ in range(1_000):
        if not limit.is_exceeded:
            limit.spend(300)
            sent += 300
        clock.move(10)
    assert 10_000 <= sent <= 11_300, "one second in advance at the start"


def test_a_large_response_exceeds_the_limit_for_several_seconds() -> None:
    clock = FakeClock()
    limit = RateLimit(clock)
    limit.set(1_000)
    limit.spend(6_000)
    clock.move(5_000)
    assert limit.is_exceeded
    clock.move(1)
    assert not limit.is_exceeded


def test_without_a_limit_nothing_is_exceeded() -> None:
    limit = RateLimit(FakeClock())
    limit.spend(1 << 60)
    assert not limit.is_exceeded


def configure(throttles: Throttles, key: tuple[int, str], **configs: str) -> None:
    image = MetadataImage(
        configs=PersistentMap({key: {name.replace("_", "."): text for name, text in configs.items()}})
    )
    throttles.on_image(image, Changes(configs={key}))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("*", [0, 1, 2]),
        ("*,*", [0, 1, 2]),
        ("0:1,2:1", [0, 2]),
        ("0:2, 1:1", [1]),
        ("0:2", []),
        ("", []),
        (f"0:1,1:{'1' * 5_000},{'1' * 5_000}:1,x,2:y", [0]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_which_replicas_are_throttled(text: str, named: list[int]) -> None:
    throttles = Throttles(NODE_ID, {}, FakeClock())
    configure(throttles, TOPIC, leader_replication_throttled_replicas=text)
    assert [index for index in range(3) if throttles.leader.includes(TopicPartition("a", index))] == named
    assert not throttles.leader.includes(TopicPartition("b", 0))
    assert not throttles.follower.includes(TopicPartition("a", 0))
    topic = TopicImage("a", bytes(16), ())
    throttles.on_image(MetadataImage(), Changes(removed=[topic]))
    assert not throttles.leader.includes(TopicPartition("a", named[0] if named else 0))


def test_rates_come_from_static_configs_and_can_be_changed_dynamically() -> None:
    throttles = Throttles(NODE_ID, {"follower.replication.throttled.rate": "500"}, FakeClock())
    configure(throttles, TOPIC, follower_replication_throttled_replicas="*")
    partition = TopicPartition("a", 0)
    assert not throttles.follower.is_throttled(partition)
    throttles.follower.limit.spend(500)
    assert throttles.follower.is_throttled(partition)
    configure(throttles, EVERYONE, follower_replication_throttled_rate="9000")
    assert not throttles.follower.is_throttled(partition)
    throttles.follower.limit.spend(9000)
    configure(throttles, BROKER, follower_replication_throttled_rate="100")
    throttles.follower.limit.spend(99)
    assert not throttles.follower.is_throttled(partition)
    throttles.follower.limit.spend(1)
    assert throttles.follower.is_throttled(partition)
