"""The topic of a coordinator's records. It is created when a client first looks for the coordinator. The leader of one
of its partitions is the coordinator of the keys in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise, resolved
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.channel import TopicCreator
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

log = logging.getLogger("moldau.coordinator")
CACHED_HASHES_MAX: Final = 4_096
CACHED_LENGTH_MAX: Final = 256
"""The longest text whose hash is cached: clients choose the texts and could fill the memory with long ones."""


class CoordinatorTopic:
    def __init__(self, topic: CreatableTopic, current: CurrentImage, creator: TopicCreator) -> None:
        self.name = topic.name
        self._topic = topic
        self.current = current
        self._creator = creator
        self._count = 0

    def create_if_missing(self) -> Promise[ErrorCode]:
        if self.name in self.current.image.topics:
            return resolved(ErrorCode.NONE)
        creation = self._creator.create_topics(CreateTopicsRequest([self._topic]))
        return creation.map(
            lambda response: (
                response.code if isinstance(response, KafkaError) else ErrorCode(response.topics[0].error_code)
            )
        )

    def warn_of_loss(self, image: MetadataImage, changes: Changes, loss: str) -> None:
        """Log a warning if coordinators lost their state, which Kafka allows too: the topic was deleted, or partitions
        were added, so that the hash of a key selects another partition."""
        is_deleted = any(removed.name == self.name for removed in changes.removed)
        if not is_deleted and self.name not in changes.topics:
            return
        topic = image.topics.get(self.name)
        before, self._count = self._count, 0 if topic is None else len(topic.partitions)
        if is_deleted:
            log.warning("%s was deleted: %s", self.name, loss)
        elif 0 < before < self._count:
            log.warning("%s has %d partitions instead of %d: %s", self.name, self._count, before, loss)

    def partition_of(self, key: str) -> TopicPartition:
        """Return the partition for the records of `key`, also before the topic is created."""
        topic = self.current.image.topics.get(self.name)
        count = self._topic.num_partitions if topic is None else len(topic.partitions)
        return TopicPartition(self.name, java_hash(key) % count)

    def leader_of(self, key: str) -> int:
        """Return the node that leads the partition of `key`. Raise KafkaError if there is none now."""
        topic = self.current.image.topics.get(self.name)
        leader = -1 if topic is None else topic.partitions[self.partition_of(key).partition].leader
        if leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader


def topic_spec(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    topic_configs = [CreatableTopicConfig(config, value) for config, value in configs.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=topic_configs)


def java_hash(text: str) -> int:
    """Return the absolute value of Java's `String.hashCode()`, by which Kafka selects the partition of a group or
    transactional id; 0 for -2³¹, which has no absolute value in 32 bits."""
    return _cached_hash(text) if len(text) <= CACHED_LENGTH_MAX else _hash(text)


def _hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


_cached_hash = lru_cache(maxsize=CACHED_HASHES_MAX)(_hash)
