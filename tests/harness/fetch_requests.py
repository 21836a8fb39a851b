"""Short functions that send Fetch requests to an `InMemoryNode` and summarise the responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from harness.in_memory_node import InMemoryNode
from moldau.base.ids import ZERO_UUID
from moldau.base.promise import Promise
from moldau.server.handler import Caller
from moldau.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

BY_NAME, BY_ID = 12, 16
Key = tuple[str | bytes, int]


class PartitionResult(NamedTuple):
    """The result of one partition in a fetch response."""

    error: int
    high_watermark: int
    log_start: int
    size: int


def partition_result(data: PartitionData) -> PartitionResult:
    records = data.records
    size = 0 if not records else records.length if hasattr(records, "length") else len(records)
    return PartitionResult(data.error_code, data.high_watermark, data.log_start_offset, size)


def partition_results(answer: FetchResponse | Promise[FetchResponse]) -> dict[Key, PartitionResult]:
    """Return the results of all partitions in a response, in its order."""
    response = answer.value() if isinstance(answer, Promise) else answer
    assert len({topic.topic or topic.topic_id for topic in response.responses}) == len(response.responses)
    return {
        (topic.topic if topic.topic_id == ZERO_UUID else topic.topic_id, data.partition_index): partition_result(data)
        for topic in response.responses
        for data in topic.partitions
    }


def fetch(
    node: InMemoryNode,
    positions: Mapping[Key, int] | None = None,
    *,
    session: int = 0,
    epoch: int = -1,
    forget: Iterable[Key] = (),
    version: int = BY_NAME,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 30,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> FetchResponse | Promise[FetchResponse]:
    topics: list[FetchTopic] = []
    for (topic, index), offset in (positions or {}).items():
        wanted = FetchPartition(
            index, leader_epoch, offset, last_fetched_epoch, partition_max_bytes=partition_max_bytes
        )
        by_id = isinstance(topic, bytes)
        topics.append(FetchTopic(topic if by_id else ZERO_UUID, "" if by_id else topic, [wanted]))  # type: ignore[arg-type]
    forgotten = [
        ForgottenTopic(topic, "", [index]) if isinstance(topic, bytes) else ForgottenTopic(ZERO_UUID, topic, [index])
        for topic, index in forget
    ]
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session,
        session_epoch=epoch,
        topics=topics,
        forgotten_topics_data=forgotten,
    )
    return node.fetch.answer(request, Caller("PLAINTEXT", "test:1", "test", version))


def immediate(answer: FetchResponse | Promise[FetchResponse]) -> FetchResponse:
    """Check that the response did not have to wait, and return it."""
    assert not isinstance(answer, Promise), "the fetch waits"
    return answer


def parked(answer: FetchResponse | Promise[FetchResponse]) -> Promise[FetchResponse]:
    assert isinstance(answer, Promise), "the fetch did not wait"
    assert not answer.done, "the fetch did not wait"
    return answer
