"""DeleteRecords v0–2. Moves the log start offset up to an offset; -1 means the high watermark.

It is answered when no live replica has the records any more, or when the client's timeout has passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PARTITIONS_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.turns import CHANGES_A_TURN
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.security.acls.requirements import TOPIC_DELETE
from moldau.server.admin_actions import AdminAction
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import item_count, partitions_in_turns
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


class DeleteRecords(Handler):
    api = ApiKey.DELETE_RECORDS
    versions = (0, 2)
    needs = (TOPIC_DELETE,)
    request_bytes_max = PARTITIONS_REQUEST_BYTES_MAX

    def __init__(self, partitions: Partitions, timers: Timers) -> None:
        self._partitions = partitions
        self._timers = timers

    def answer(
        self, request: DeleteRecordsRequest, caller: Caller
    ) -> DeleteRecordsResponse | Promise[DeleteRecordsResponse]:
        waiting: Waiting = []

        def combine(
            results: list[list[DeleteRecordsPartitionResult]],
        ) -> DeleteRecordsResponse | Promise[DeleteRecordsResponse]:
            response = DeleteRecordsResponse(
                topics=[
                    DeleteRecordsTopicResult(topic.name, each)
                    for topic, each in zip(request.topics, results, strict=True)
                ]
            )
            return self._when_deleted(response, waiting, request.timeout_ms) if waiting else response

        return partitions_in_turns(
            self._timers,
            request.topics,
            lambda topic: (
                topic.name if caller.access.allows(TOPIC_DELETE, topic.name) else None,
                topic.partitions,
            ),
            lambda topic, requested: self._delete(topic, requested, waiting),
            combine,
            CHANGES_A_TURN,
            item_count(topic.partitions for topic in request.topics),
        )

    def _delete(
        self, topic: str | None, requested: DeleteRecordsPartition, waiting: Waiting
    ) -> DeleteRecordsPartitionResult:
        """`topic` is None if the client may not delete from it."""
        index = requested.partition_index
        if topic is None:
            return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            if self._partitions.is_view(topic):
                raise KafkaError(ErrorCode.POLICY_VIOLATION, "a view has no records of its own")
            partition = self._partitions.get(topic, index)
            partition.check_leader_epoch(-1)
            before_offset = partition.high_watermark if requested.offset == -1 else requested.offset
            low_watermark = partition.delete_records(requested.offset)
        except KafkaError as error:
            return DeleteRecordsPartitionResult(index, NO_LOW_WATERMARK, error.code)
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
        pending = len(waiting)

        def on_deleted(result: DeleteRecordsPartitionResult, partition: Partition, code: ErrorCode) -> None:
            nonlocal pending
            pending -= 1
            if answer.done:
                return
            _set_outcome(result, partition, code)
            if not pending:
                timer.cancel()
                answer.complete(response)

        def on_timeout() -> None:
            for result, partition, promise in waiting:
                if not promise.done:
                    _set_outcome(result, partition, ErrorCode.REQUEST_TIMED_OUT)
            answer.complete(response)

        timer = self._timers.after_ms(max(timeout_ms, 0), on_timeout)
        for result, partition, promise in waiting:
            promise.then(partial(on_deleted, result, partition))
        return answer

    @staticmethod
    def admin_actions(request: Any, response: Any) -> Iterator[AdminAction]:
        for topic in response.topics:
            for each in topic.partitions:
                yield AdminAction(
                    f"partition:{topic.name}-{each.partition_index}", each.error_code, f"before={each.low_watermark}"
                )


def _set_outcome(result: DeleteRecordsPartitionResult, partition: Partition, code: ErrorCode) -> None:
    result.error_code = code
    leadership = partition.leadership
    if code is ErrorCode.NONE and leadership is not None:
        result.low_watermark = leadership.low_watermark(partition.log.start_offset)
    else:
        result.low_watermark = NO_LOW_WATERMARK
