"""DescribeProducers v0. The idempotent producers in a partition's producer state. A partition that is named several
times is described once: it may have tens of thousands of producers."""

from __future__ import annotations

from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.topic_names import topic_name_problem
from moldau.base.turns import ITEMS_A_TURN
from moldau.log.producers import ProducerEntry
from moldau.replica.partitions import Partitions
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import TOPIC_READ
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

UNKNOWN_MESSAGE: Final = "This server does not host this topic-partition."


class DescribeProducers(Handler):
    api = ApiKey.DESCRIBE_PRODUCERS
    versions = (0, 0)
    needs = (TOPIC_READ,)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers

    def answer(
        self, request: DescribeProducersRequest, caller: Caller
    ) -> DescribeProducersResponse | Promise[DescribeProducersResponse]:
        return run_steps(self._timers, self._steps(request, caller.access))

    def _steps(self, request: DescribeProducersRequest, access: Access) -> Steps[DescribeProducersResponse]:
        turn = TurnItems(ITEMS_A_TURN)
        topics: dict[str, dict[int, PartitionResponse]] = {}
        for topic in request.topics:
            described = topics.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                if index not in described:
                    described[index] = yield from self._describe(turn, topic.name, index, access)
                if turn.ends_after(1):
                    yield
            if turn.ends_after(1):
                yield
        return DescribeProducersResponse(
            topics=[TopicResponse(name, list(described.values())) for name, described in topics.items()]
        )

    def _describe(self, turn: TurnItems, topic: str, index: int, access: Access) -> Steps[PartitionResponse]:
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
        producers = yield from map_in_steps(turn, partition.log.producers.active(), _producer_state)
        return PartitionResponse(index, 0, None, producers)


def _producer_state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_start,
    )
