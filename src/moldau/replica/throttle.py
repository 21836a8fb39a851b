"""Limits replication traffic, in bytes a second, for the configured replicas.

`leader.replication.throttled.rate` and `follower.replication.throttled.rate` are configs of a broker. The replicas they
apply to are in a topic's `{leader,follower}.replication.throttled.replicas`: `*`, or `partition:broker,…`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from moldau.base.broker_configs import broker_integer
from moldau.base.clock import Clock
from moldau.base.config_def import ConfigDef
from moldau.base.ids import TopicPartition
from moldau.base.limits import INT64_MAX
from moldau.base.settings import cluster, topics
from moldau.base.settings.topics import THROTTLED_REPLICA
from moldau.metadata.apply import Changes
from moldau.metadata.broker_configs import broker_layers
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource

UNLIMITED: Final = INT64_MAX
ALL: Final = range(2**31)
"""Every partition of a topic."""


class RateLimit:
    """A token bucket that fills by `rate` bytes a second and holds one second's worth. A large response may overdraw
    it; the limit is exceeded until it is filled again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = UNLIMITED
        self._tokens: float = 0
        self._filled_ms = clock.monotonic_ms()

    def set(self, rate: int) -> None:
        if rate != self._rate:
            self._rate = self._tokens = rate
            self._filled_ms = self._clock.monotonic_ms()

    @property
    def is_exceeded(self) -> bool:
        if self._rate == UNLIMITED:
            return False
        now_ms = self._clock.monotonic_ms()
        self._tokens = min(self._rate, self._tokens + self._rate * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens <= 0

    def spend(self, size: int) -> None:
        if self._rate != UNLIMITED:
            self._tokens -= size


class ThrottledReplicas:
    """The limit of one side, and the partitions that it applies to."""

    def __init__(
        self, rate: ConfigDef, replicas: ConfigDef, node_id: int, static: Mapping[str, str], clock: Clock
    ) -> None:
        self.limit = RateLimit(clock)
        self._rate = rate
        self._replicas = replicas
        self._node_id = node_id
        self._static = static
        self._throttled: dict[str, Container[int]] = {}
        self._set_rate(MetadataImage())

    def includes(self, partition: TopicPartition) -> bool:
        throttled = self._throttled.get(partition.topic)
        return throttled is not None and partition.partition in throttled

    def is_throttled(self, partition: TopicPartition) -> bool:
        return bool(self._throttled) and self.includes(partition) and self.limit.is_exceeded

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        for topic in changes.removed:
            self._throttled.pop(topic.name, None)
        for kind, name in changes.configs:
            if kind == ConfigResource.TOPIC:
                self._throttle(name, image.configs_of(kind, name).get(self._replicas.name, ""))
        if any(kind == ConfigResource.BROKER for kind, _ in changes.configs):
            self._set_rate(image)

    def _set_rate(self, image: MetadataImage) -> None:
        self.limit.set(broker_integer(self._rate, broker_layers(image, self._node_id, self._static)))

    def _throttle(self, topic: str, throttled_replicas: str) -> None:
        """Leave out what is no replica: our controller refuses it, but another one may have accepted it."""
        replicas = {item.strip() for item in throttled_replicas.split(",") if item.strip()}
        if replicas == {"*"}:
            self._throttled[topic] = ALL
        elif replicas:
            pairs = [found.groups() for item in replicas if (found := THROTTLED_REPLICA.fullmatch(item)) is not None]
            self._throttled[topic] = frozenset(int(index) for index, node in pairs if int(node) == self._node_id)
        else:
            self._throttled.pop(topic, None)


class Throttles:
    """The limits of both sides. `static` has the configs of the broker's properties file."""

    def __init__(self, node_id: int, static: Mapping[str, str], clock: Clock) -> None:
        self.leader = ThrottledReplicas(
            cluster.LEADER_REPLICATION_THROTTLED_RATE,
            topics.LEADER_REPLICATION_THROTTLED_REPLICAS,
            node_id,
            static,
            clock,
        )
        self.follower = ThrottledReplicas(
            cluster.FOLLOWER_REPLICATION_THROTTLED_RATE,
            topics.FOLLOWER_REPLICATION_THROTTLED_REPLICAS,
            node_id,
            static,
            clock,
        )

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        self.leader.on_image(image, changes)
        self.follower.on_image(image, changes)
