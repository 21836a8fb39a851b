"""Which partition a record goes to: as told, by its key, or all of a topic that have none to one partition.

A topic that nobody knows yet keeps its own records waiting, and no others.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition as Where
from moldau.client.cluster import RETRIABLE, Cluster, Topic
from moldau.client.murmur2 import partition_of
from moldau.client.stand_in.outbox import Delivered, Queued, Result
from moldau.client.stand_in.values import FAILURES, KafkaError, error_of

MISSING_SECONDS_MAX: Final = 30.0
"""A topic that is not there may just be being created; so long."""


class Pending(NamedTuple):
    """A record that has to be taken until then."""

    record: Queued
    deadline: float


class Placing:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._missing_since: dict[str, float] = {}
        self.waiting: dict[str, deque[Pending]] = {}
        """By topic, those that have no place yet."""

    def add(self, records: Sequence[Queued], deadline: float) -> None:
        for each in records:
            self.waiting.setdefault(each.topic, deque()).append(Pending(each, deadline))

    def place(
        self, now: float, enqueue: Callable[[Where, Pending], None], done: list[Delivered], troubles: list[Exception]
    ) -> None:
        """Enqueues those whose place is known. What cannot be sent is done with; what may pass is a trouble."""
        for name in list(self.waiting):
            try:
                topic = self._topic(name)
            except BrokerError as error:
                if self._is_hopeless(name, error, now):
                    done += [failed(each.record, error_of(error)) for each in self.waiting.pop(name)]
                else:
                    troubles.append(error)
            except FAILURES as error:
                troubles.append(error)
                return
            else:
                self._place(topic, enqueue, done)

    def give_up(self, until: float, error: KafkaError) -> list[Delivered]:
        """Those that had to be taken until then."""
        late = [each for some in self.waiting.values() for each in some if each.deadline <= until]
        rest = {name: deque(each for each in some if each.deadline > until) for name, some in self.waiting.items()}
        self.waiting = {name: some for name, some in rest.items() if some}
        return [failed(each.record, error) for each in late]

    def _topic(self, name: str) -> Topic:
        topic = self._cluster.topic(name, create=True)
        if max(each.record.partition for each in self.waiting[name]) in (-1, *topic.leaders):
            return topic
        # It may have grown since its partitions were asked for.
        self._cluster.refresh([name])
        return self._cluster.topic(name)

    def _is_hopeless(self, name: str, error: BrokerError, now: float) -> bool:
        """Brokers that do not answer are waited for as long as the record may wait; a missing topic not so long."""
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error.code not in RETRIABLE
        since = self._missing_since.setdefault(name, now)
        return now - since >= MISSING_SECONDS_MAX or now >= self.waiting[name][0].deadline

    def _place(self, topic: Topic, enqueue: Callable[[Where, Pending], None], done: list[Delivered]) -> None:
        """Each is in one place at any time: no mistake on the way may lose it."""
        self._missing_since.pop(topic.name, None)
        waiting = self.waiting[topic.name]
        count = len(topic.leaders)
        sticky = random.randrange(count)
        while waiting:
            record = waiting[0].record
            if record.partition < 0:
                partition = sticky if record.key is None else partition_of(record.key, count)
                enqueue(Where(topic.name, partition), waiting[0])
            elif record.partition in topic.leaders:
                enqueue(Where(topic.name, record.partition), waiting[0])
            else:
                said = f"There is no partition {record.partition} in topic {topic.name}, which has {count}"
                done.append(failed(record, KafkaError(KafkaError._UNKNOWN_PARTITION, said)))
            waiting.popleft()
        del self.waiting[topic.name]


def failed(record: Queued, error: KafkaError) -> Delivered:
    return Delivered(record, Result(error, record.partition, None))
