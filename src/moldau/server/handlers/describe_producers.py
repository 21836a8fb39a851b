"""DescribeProducers v0. The idempotent producers in a partition's producer state."""

from __future__ import annotations

from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.topic_names import topic_name_problem
from moldau.replica.partitions import Partitions
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import TOPIC_READ
from moldau.server.handlers.replies import item_count, partitions_in_turns
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

PARTITIONS_A_TURN: Final = 500
UNKNOWN_MESSAGE: Final = "This server does not host this topic-partition."


class DescribeProducers:
    api = ApiKey.DESCRIBE_PRODUCERS
    versions = (0, 0)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers

    def answer(
        self, request: DescribeProducersRequest, caller: Caller
    ) -> DescribeProducersResponse | Promise[DescribeProducersResponse]:
        return partitions_in_turns(
            self._timers,
            request.topics,
            lambda topic: (topic.name, topic.partition_indexes),
            lambda topic, index: self._describe(topic, index, caller.access),
            lambda results: DescribeProducersResponse(
                topics=[TopicResponse(topic.name, each) for topic, each in zip(request.topics, results, strict=True)]
            ),
            PARTITIONS_A_TURN,
            item_count(topic.partition_indexes for topic in request.topics),
        )

    def _describe(self, topic: str, index: int, access: Access) -> PartitionResponse:
        try:
            if topic_name_problem(topic):
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            if not access.allows(TOPIC_READ, topic):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
            partition = self._partitions.get_readable(topic, index)
            partition.check_leader_epoch(-1)
        except KafkaError as error:
            message = UNKNOWN_MESSAGE if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.message
            return PartitionResponse(index, error.code, message)
        producers = [
            ProducerState(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
            for entry in partition.log.producers.active()
        ]
        return PartitionResponse(index, 0, None, producers)
