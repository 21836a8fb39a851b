"""Chooses the partition of a record: the given one, by its key, or, for all records without a key that are sent
together, one random partition.

Records of an unknown topic wait without delaying those of other topics.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import RETRIABLE, Cluster, Topic
from moldau.client.murmur2 import partition_of
from moldau.client.stand_in.outbox import FinishedRecord, QueuedRecord, Result
from moldau.client.stand_in.values import CLIENT_ERRORS, KafkaError, to_kafka_error

MISSING_SECONDS_MAX: Final = 30.0
"""A missing topic may just be in creation; records wait this long for it."""


class Pending(NamedTuple):
    """A record with the time until which it must be accepted."""

    record: QueuedRecord
    deadline: float


class Partitioner:
    """Keeps records until their topic is known, and then chooses their partition."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._missing_since: dict[str, float] = {}
        self.waiting: dict[str, deque[Pending]] = {}
        """Records without a partition so far, by topic."""

    def add(self, records: Sequence[QueuedRecord], deadline: float) -> None:
        for each in records:
            self.waiting.setdefault(each.topic, deque()).append(Pending(each, deadline))

    def assign_partitions(
        self,
        now: float,
        enqueue: Callable[[TopicPartition, Pending], None],
        done: list[FinishedRecord],
        errors: list[Exception],
    ) -> None:
        """Enqueue the records whose partition is known. Append final failures to `done`, retriable errors to
        `errors`."""
        for name in list(self.waiting):
            try:
                topic = self._topic(name)
            except BrokerError as error:
                if self._is_final(name, error, now):
                    done += [failed(each.record, to_kafka_error(error)) for each in self.waiting.pop(name)]
                else:
                    errors.append(error)
            except CLIENT_ERRORS as error:
                errors.append(error)
                return
            else:
                self._assign(topic, enqueue, done)

    def take_expired(self, until: float, error: KafkaError) -> list[FinishedRecord]:
        """Remove the records whose deadline is not after `until`, and return them as failed with this error."""
        expired = [each for queue in self.waiting.values() for each in queue if each.deadline <= until]
        remaining = {
            name: deque(each for each in queue if each.deadline > until) for name, queue in self.waiting.items()
        }
        self.waiting = {name: queue for name, queue in remaining.items() if queue}
        return [failed(each.record, error) for each in expired]

    def _topic(self, name: str) -> Topic:
        topic = self._cluster.topic(name, create=True)
        if max(each.record.partition for each in self.waiting[name]) in (-1, *topic.leaders):
            return topic
        # The topic may have more partitions since its metadata was requested.
        self._cluster.refresh([name])
        return self._cluster.topic(name)

    def _is_final(self, name: str, error: BrokerError, now: float) -> bool:
        """Return whether the records of the topic fail now. A missing topic is retried for a shorter time than brokers
        that cannot be reached, which are retried until the deadline."""
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error.code not in RETRIABLE
        since = self._missing_since.setdefault(name, now)
        return now - since >= MISSING_SECONDS_MAX or now >= self.waiting[name][0].deadline

    def _assign(
        self, topic: Topic, enqueue: Callable[[TopicPartition, Pending], None], done: list[FinishedRecord]
    ) -> None:
        """Keep each record in exactly one queue at any time, so that no exception can lose it."""
        self._missing_since.pop(topic.name, None)
        waiting = self.waiting[topic.name]
        count = len(topic.leaders)
        partition_without_key = random.randrange(count)
        while waiting:
            record = waiting[0].record
            if record.partition < 0:
                partition = partition_without_key if record.key is None else partition_of(record.key, count)
                enqueue(TopicPartition(topic.name, partition), waiting[0])
            elif record.partition in topic.leaders:
                enqueue(TopicPartition(topic.name, record.partition), waiting[0])
            else:
                reason = f"There is no partition {record.partition} in topic {topic.name}, which has {count}"
                done.append(failed(record, KafkaError(KafkaError._UNKNOWN_PARTITION, reason)))
            waiting.popleft()
        del self.waiting[topic.name]


def failed(record: QueuedRecord, error: KafkaError) -> FinishedRecord:
    return FinishedRecord(record, Result(error, record.partition, None))
