"""The ends of partitions anywhere in the cluster, for the lag of share groups (KIP-1226): asked of their leaders."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise, resolved
from moldau.metadata.current import CurrentImage
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.wire.apis import ApiKey
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

LATEST: Final = -1
CONSUMER: Final = -1
"""The replica id of those that are none: they get the high watermark."""


class End(NamedTuple):
    error_code: ErrorCode
    offset: int = -1


Ends = Mapping[TopicPartition, End]


class PartitionEnds:
    def __init__(self, current: CurrentImage, brokers: BrokerClient) -> None:
        self._current = current
        self._brokers = brokers

    def ask(self, partitions: Collection[TopicPartition]) -> Promise[Ends]:
        """Return a promise of the end of each partition, or why it is unknown."""
        ends: dict[TopicPartition, End] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leader_of(partition)
            if leader is None:
                ends[partition] = End(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif leader < 0:
                ends[partition] = End(ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                by_leader.setdefault(leader, []).append(partition)
        if not by_leader:
            return resolved(ends)
        result: Promise[Ends] = Promise()
        missing = set(by_leader)

        def on_response(leader: int, response: Any) -> None:
            ends.update(_ends(by_leader[leader], response))
            missing.discard(leader)
            if not missing:
                result.complete(ends)

        for leader, asked in by_leader.items():
            response = self._brokers.ask(leader, ApiKey.LIST_OFFSETS, _request(asked))
            response.then(partial(on_response, leader))
        return result

    def _leader_of(self, partition: TopicPartition) -> int | None:
        topic = self._current.image.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition].leader


def _request(partitions: Collection[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(ListOffsetsPartition(index, timestamp=LATEST))
    return ListOffsetsRequest(CONSUMER, topics=[ListOffsetsTopic(*topic) for topic in topics.items()])


def _ends(asked: Collection[TopicPartition], response: Any) -> dict[TopicPartition, End]:
    if isinstance(response, KafkaError):
        return dict.fromkeys(asked, End(response.code))
    if isinstance(response, MalformedData):
        return dict.fromkeys(asked, End(ErrorCode.NETWORK_EXCEPTION))
    found = {
        TopicPartition(topic.name, each.partition_index): End(ErrorCode(each.error_code), each.offset)
        for topic in response.topics
        for each in topic.partitions
    }
    return {partition: found.get(partition, End(ErrorCode.UNKNOWN_SERVER_ERROR)) for partition in asked}
