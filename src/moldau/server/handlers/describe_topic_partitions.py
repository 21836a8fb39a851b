"""DescribeTopicPartitions v0 (KIP-966). Topics in pages: up to a number of partitions, then a cursor to continue."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode
from moldau.base.limits import METADATA_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems
from moldau.base.topic_names import INTERNAL_TOPICS, topic_name_problem
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState
from moldau.replica.partitions import Partitions
from moldau.security.acls.access import Access
from moldau.security.acls.allowed_operations import allowed_bits
from moldau.security.acls.bindings import ResourceType
from moldau.security.acls.requirements import TOPIC_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.current_leaders import known_states
from moldau.server.handlers.reachable_brokers import ReachableBrokers
from moldau.server.handlers.replies import run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

PARTITIONS_PER_PAGE_MAX = 2000


class DescribeTopicPartitions(Handler):
    api = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    versions = (0, 0)
    needs = (TOPIC_DESCRIBE,)
    request_bytes_max = METADATA_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, partitions: Partitions, timers: Timers) -> None:
        self._current = current
        self._partitions = partitions
        self._timers = timers

    def answer(
        self, request: DescribeTopicPartitionsRequest, caller: Caller
    ) -> DescribeTopicPartitionsResponse | Promise[DescribeTopicPartitionsResponse]:
        return run_steps(self._timers, self._steps(request, caller))

    def _steps(self, request: DescribeTopicPartitionsRequest, caller: Caller) -> Steps[DescribeTopicPartitionsResponse]:
        image = self._current.image
        brokers = ReachableBrokers(image, caller.listener)
        left = max(1, min(request.response_partition_limit, PARTITIONS_PER_PAGE_MAX))
        response = DescribeTopicPartitionsResponse()
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        denied: list[DescribeTopicPartitionsResponseTopic] = []
        may_describe = caller.access.allows if request.topics else caller.access.allows_quietly
        turn = TurnItems(ITEMS_A_TURN)
        for name, first in _requested(image, request):
            if turn.ends_after(1):
                yield
            if not may_describe(TOPIC_DESCRIBE, name):
                if request.topics:
                    denied.append(DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
                continue
            topic = image.topics.get(name)
            if topic is None:
                topics.append(_missing_topic(name, caller.access))
                continue
            if left == 0:
                response.next_cursor = ResponseCursor(name, first)
                break
            if first < 0:
                topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.INVALID_REQUEST, name))
                continue
            page = known_states(topic, self._partitions.withheld)[first : first + left]
            topics.append(
                DescribeTopicPartitionsResponseTopic(
                    0,
                    name,
                    topic.id,
                    name in INTERNAL_TOPICS,
                    [_partition(first + i, state, brokers) for i, state in enumerate(page)],
                    allowed_bits(caller.access, ResourceType.TOPIC, name),
                )
            )
            left -= len(page)
            if first + len(page) < len(topic.partitions):
                response.next_cursor = ResponseCursor(name, first + len(page))
                break
        response.topics = [*topics, *denied]
        return response


def _requested(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
    """Yield topic names in order, starting at the cursor, with the first partition of each; all topics if none is
    named."""
    names = sorted({topic.name for topic in request.topics} or image.topics)
    cursor = request.cursor
    for name in names:
        if cursor is None or name > cursor.topic_name:
            yield name, 0
        elif name == cursor.topic_name:
            yield name, cursor.partition_index


def _missing_topic(name: str, access: Access) -> DescribeTopicPartitionsResponseTopic:
    problem = topic_name_problem(name)
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if problem else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    operations = allowed_bits(access, ResourceType.TOPIC, name)
    return DescribeTopicPartitionsResponseTopic(code, name, topic_authorized_operations=operations)


def _partition(
    index: int, state: PartitionState, brokers: ReachableBrokers
) -> DescribeTopicPartitionsResponsePartition:
    """Describe a partition. As in Kafka, one without a leader has no error."""
    return DescribeTopicPartitionsResponsePartition(
        0,
        index,
        brokers.leader(state),
        state.leader_epoch,
        state.replicas,
        state.isr,
        (),
        (),
        brokers.offline_replicas(state),
    )
