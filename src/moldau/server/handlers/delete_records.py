"""DeleteRecords v0–2. Moves the start of a log up to an offset; -1 means all that consumers can see.

Answered when no replica that lives has the records any more, or the client's time is up.
"""

from __future__ import annotations

from functools import partial

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1
Waiting = list[tuple[DeleteRecordsPartitionResult, Partition, Promise[ErrorCode]]]


class DeleteRecords:
    api = ApiKey.DELETE_RECORDS
    versions = (0, 2)

    def __init__(self, partitions: Partitions, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers

    def answer(
        self, request: DeleteRecordsRequest, caller: Caller
    ) -> DeleteRecordsResponse | Promise[DeleteRecordsResponse]:
        waiting: Waiting = []
        response = DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    topic.name, [self._delete(topic.name, wanted, waiting) for wanted in topic.partitions]
                )
                for topic in request.topics
            ]
        )
        return self._when_deleted(response, waiting, request.timeout_ms) if waiting else response

    def _delete(self, topic: str, wanted: DeleteRecordsPartition, waiting: Waiting) -> DeleteRecordsPartitionResult:
        index = wanted.partition_index
        try:
            partition = self._partitions.get(topic, index)
            partition.fence(-1)
            before_offset = partition.high_watermark if wanted.offset == -1 else wanted.offset
            low_watermark = partition.delete_records(wanted.offset)
        except KafkaError as refused:
            return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, refused.code)
        result = DeleteRecordsPartitionResult(index, low_watermark, 0)
        if partition.leadership is not None:
            promise = partition.leadership.deleted_below(before_offset, low_watermark)
            if promise is not None:
                waiting.append((result, partition, promise))
        return result

    def _when_deleted(
        self, response: DeleteRecordsResponse, waiting: Waiting, timeout_ms: int
    ) -> Promise[DeleteRecordsResponse]:
        answer: Promise[DeleteRecordsResponse] = Promise()
        left = len(waiting)

        def settle(result: DeleteRecordsPartitionResult, partition: Partition, code: ErrorCode) -> None:
            nonlocal left
            left -= 1
            if answer.done:
                return
            _settle(result, partition, code)
            if not left:
                timer.cancel()
                answer.complete(response)

        def time_is_up() -> None:
            for result, partition, promise in waiting:
                if not promise.done:
                    _settle(result, partition, ErrorCode.REQUEST_TIMED_OUT)
            answer.complete(response)

        timer = self._timers.after_ms(max(timeout_ms, 0), time_is_up)
        for result, partition, promise in waiting:
            promise.then(partial(settle, result, partition))
        return answer


def _settle(result: DeleteRecordsPartitionResult, partition: Partition, code: ErrorCode) -> None:
    result.error_code = code
    leadership = partition.leadership
    if code is ErrorCode.NONE and leadership is not None:
        result.low_watermark = leadership.low_watermark(partition.log.start_offset)
    else:
        result.low_watermark = NO_LOW_WATERMARK
