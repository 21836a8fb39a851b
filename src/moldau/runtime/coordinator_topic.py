"""The topic that a coordinator's facts are kept in: made when somebody first looks for the coordinator, and who leads
which of its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later
from moldau.metadata.current import CurrentImage
from moldau.runtime.controller_channel import TopicCreator
from moldau.runtime.shards import java_hash
from moldau.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest


class CoordinatorTopic:
    def __init__(self, topic: CreatableTopic, current: CurrentImage, creator: TopicCreator) -> None:
        self.name = topic.name
        self._topic = topic
        self._current = current
        self._creator = creator

    def open(self) -> Later[ErrorCode]:
        """Makes the topic if it is not there."""
        done: Later[ErrorCode] = Later()
        if self.name in self._current.image.topics:
            done.complete(ErrorCode.NONE)
            return done
        made = self._creator.create_topics(CreateTopicsRequest([self._topic]))
        return made.map(
            lambda given: given.code if isinstance(given, KafkaError) else ErrorCode(given.topics[0].error_code)
        )

    def partition_of(self, key: str) -> TopicPartition:
        """Where what belongs to `key` is kept, or will be once the topic is made."""
        topic = self._current.image.topics.get(self.name)
        count = self._topic.num_partitions if topic is None else len(topic.partitions)
        return TopicPartition(self.name, java_hash(key) % count)

    def leader_of(self, index: int) -> int:
        """The node that leads one of its partitions; KafkaError if nobody does now."""
        topic = self._current.image.topics.get(self.name)
        if topic is None or topic.partitions[index].leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return topic.partitions[index].leader


def described(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    said = [CreatableTopicConfig(config, value) for config, value in configs.items()]
    return CreatableTopic(name, partitions, replication_factor, configs=said)
