"""One Produce request to a leader, and its response by partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.cluster import Topic
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ALL: Final = -1
"""The value of `acks` with which all in-sync replicas have the records before the response."""


class Produce:
    def __init__(
        self,
        topic: Callable[[str], Topic],
        batches: Mapping[TopicPartition, Buffer],
        timeout_ms: int,
        acks: int = ALL,
        transactional_id: str | None = None,
    ) -> None:
        """`batches` are of partitions that the asked node leads, one of each."""
        self._partitions = batches.keys()
        self._names: dict[bytes, str] = {}
        topics = []
        for name, indexes in by_topic(batches).items():
            topic_id = topic(name).topic_id
            self._names[topic_id] = name
            data = [PartitionProduceData(index, batches[TopicPartition(name, index)]) for index in indexes]
            topics.append(TopicProduceData(topic_id, name, data))
        self.request = ProduceRequest(transactional_id, acks, timeout_ms, topics)

    def partitions(self, response: ProduceResponse) -> dict[TopicPartition, PartitionProduceResponse]:
        """Return what became of each batch. MalformedData if it is the response to something else."""
        results = {
            TopicPartition(topic.name or self._names.get(bytes(topic.topic_id), ""), each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }
        if results.keys() != self._partitions:
            raise MalformedData("the produce response has other partitions than the request")
        return results
