"""The topic that a coordinator's facts are kept in: made when somebody first looks for the coordinator, and who leads
which of its partitions."""

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
HASHES_KEPT: Final = 4_096
KEPT_LENGTH_MAX: Final = 256
"""Of the texts whose hashes are kept: clients choose them, and could fill a node's memory with long ones."""


class CoordinatorTopic:
    def __init__(self, topic: CreatableTopic, current: CurrentImage, creator: TopicCreator) -> None:
        self.name = topic.name
        self._topic = topic
        self._current = current
        self._creator = creator
        self._count = 0

    def open(self) -> Promise[ErrorCode]:
        """Makes the topic if it is not there."""
        if self.name in self._current.image.topics:
            return resolved(ErrorCode.NONE)
        made = self._creator.create_topics(CreateTopicsRequest([self._topic]))
        return made.map(
            lambda given: given.code if isinstance(given, KafkaError) else ErrorCode(given.topics[0].error_code)
        )

    def warn_of_loss(self, image: MetadataImage, changes: Changes, loss: str) -> None:
        """Says so where somebody makes coordinators forget what they knew, as Kafka allows it too: by deleting the
        topic, or by adding partitions, for what belongs to a key is looked for in another one then."""
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
        """Where what belongs to `key` is kept, or will be once the topic is made."""
        topic = self._current.image.topics.get(self.name)
        count = self._topic.num_partitions if topic is None else len(topic.partitions)
        return TopicPartition(self.name, java_hash(key) % count)

    def leader_of(self, key: str) -> int:
        """The node that leads the partition of `key`; KafkaError if nobody does now."""
        topic = self._current.image.topics.get(self.name)
        leader = -1 if topic is None else topic.partitions[self.partition_of(key).partition].leader
        if leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader


def topic_spec(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    said = [CreatableTopicConfig(config, value) for config, value in configs.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=said)


def java_hash(text: str) -> int:
    """The absolute value of Java's hash of a string, by which Kafka places groups and transactional ids; 0 for the one
    number that has none in 32 bits."""
    return _kept_hash(text) if len(text) <= KEPT_LENGTH_MAX else _hash(text)


def _hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >> 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)


_kept_hash = lru_cache(maxsize=HASHES_KEPT)(_hash)
