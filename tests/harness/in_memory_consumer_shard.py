"""The consumer groups of one shard, with a log, a clock and topics in memory. Records are committed at once.

Records are encoded and decoded before they are applied, as in a log; `replay` rebuilds everything from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from moldau.base.steps import TurnItems, finish
from moldau.coordinator.group.configs import GroupConfigs
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.heartbeat import ConsumerGroups
from moldau.coordinator.group.consumer.migration import Migration
from moldau.coordinator.group.serde import decode_record, encode_record
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, CoordinatorRecord, MayUseTopic, Outcome, any_topic
from moldau.metadata.apply import Changes, apply
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.testing.clock import FakeClock
from moldau.wire.log_records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from moldau.wire.schema import MetadataRecord

LATEST = 1
Bytes = tuple[bytes, bytes | None]
PartitionsByTopicName = dict[str, set[int]]
"""Partitions by the name of their topic."""


class InMemoryConsumerShard:
    def __init__(self, settings: GroupSettings | None = None, migration: Migration | None = None) -> None:
        self.clock = FakeClock()
        self.current = CurrentImage()
        self.log: list[Bytes] = []
        self._settings = settings or GroupSettings()
        self._migration = migration
        self._topics_created = 0
        self._open()

    def _open(self) -> None:
        self.state = GroupState(self._settings, self.current, self.clock, Random(1), GroupConfigs(self.current))
        self.groups = ConsumerGroups(self.state, self._migration)

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.state.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # --- requests, time and the log -----------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int = LATEST,
        may_describe: MayUseTopic = any_topic,
    ) -> tuple[ConsumerGroupHeartbeatResponse, Sequence[CoordinatorRecord]]:
        outcome = self.groups.heartbeat(request, Client("client", "/127.0.0.1", version), may_describe)
        assert isinstance(outcome.response, ConsumerGroupHeartbeatResponse)
        self.execute(outcome)
        return outcome.response, outcome.records

    def execute(self, outcome: Outcome[object]) -> None:
        for record in outcome.records:
            written = encode_record(record)
            self.log.append(written)
            self._apply(written)
        if outcome.on_applied is not None:
            outcome.on_applied()

    def _apply(self, written: Bytes) -> None:
        record = decode_record(*written)
        assert record is not None
        self.groups.apply(record.key, record.value)

    def advance(self, ms: int) -> list[CoordinatorRecord]:
        """Advance the time from deadline to deadline, and return the records that this wrote."""
        end_ms = self.clock.monotonic_ms() + ms
        written: list[CoordinatorRecord] = []
        while True:
            next_ms = self.state.deadlines.next_ms()
            until_ms = end_ms if next_ms is None else min(end_ms, max(next_ms, self.clock.monotonic_ms()))
            self.clock.move(until_ms - self.clock.monotonic_ms())
            for action in self.state.deadlines.due(self.clock.monotonic_ms()):
                outcome = action()
                self.execute(outcome)
                written += outcome.records
            next_ms = self.state.deadlines.next_ms()
            if until_ms == end_ms and (next_ms is None or next_ms > end_ms):
                return written

    def replay(self, *, compacted: bool = False) -> None:
        """Move the coordinator: a new one loads its state from the log."""
        if compacted:
            self.log = [(key, value) for index, (key, value) in enumerate(self.log) if self._is_last(key, index)]
        self._open()
        for written in self.log:
            self._apply(written)
        self.groups.loaded()

    def _is_last(self, key: bytes, index: int) -> bool:
        return all(other != key for other, _ in self.log[index + 1 :])

    # --- topics -------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        self._topics_created += 1
        topic_id = self._topics_created.to_bytes(16)
        self._publish([TopicRecord(name, topic_id), *(_partition(topic_id, index) for index in range(partitions))])

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = self.current.image.topics[name]
        self._publish([_partition(topic.id, index) for index in range(len(topic.partitions), partitions)])

    def delete_topic(self, name: str) -> None:
        self._publish([RemoveTopicRecord(self.current.image.topics[name].id)])

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        self._publish([ConfigRecord(ConfigResource.GROUP, group_id, name, value) for name, value in configs.items()])

    def _publish(self, records: list[MetadataRecord]) -> None:
        image, changes = self._apply_metadata(records)
        self.current.publish(image, changes)
        self.groups.topics_changed(TopicChanges.of(image, changes))
        finish(self.groups.match_new_topics(list(changes.topics), TurnItems(1)))

    def _apply_metadata(self, records: list[MetadataRecord]) -> tuple[MetadataImage, Changes]:
        image = self.current.image
        return apply(image, records, image.offset + len(records), 1)

    def ids(self, partitions: PartitionsByTopicName) -> list[RequestTopicPartitions]:
        topics = self.current.image.topics
        return [RequestTopicPartitions(topics[name].id, sorted(found)) for name, found in partitions.items()]


def _partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
