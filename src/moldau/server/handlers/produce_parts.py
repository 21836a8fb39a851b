"""Parts of Produce requests and responses: the batches of a request, and how refused and waiting ones are
answered."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import RECORD_ERRORS_OF_REQUEST_MAX
from moldau.base.promise import Promise
from moldau.log.validate import Origin, RecordsRejected
from moldau.replica.partition import ACKS_ALL
from moldau.server.handlers.replies import item_count
from moldau.wire.batch import ATTRIBUTES_LOW_BYTE_POSITION, BATCH_HEADER_BYTES, TRANSACTIONAL_BIT
from moldau.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from moldau.wire.schema import Records

VALID_ACKS = (0, 1, ACKS_ALL)
NO_FAILURES = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
    )
)
"""Errors that are not counted as failed requests, as in Kafka: a client that looks for the leader, or sent nonsense."""
SlowBatch = tuple[TopicProduceData, PartitionProduceData, list[Any], int]
"""A batch that takes long to open, the results of its topic, and its place among them."""
Waiting = list[tuple[PartitionProduceResponse, Promise[ErrorCode]]]
"""Results whose records are not acknowledged yet."""


class Opened(NamedTuple):
    """What is known of a batch that took long to open: whether its records are checked, and its size as it was sent."""

    origin: Origin
    sent_bytes: int | None


NOT_OPENED: Final = Opened(Origin.CLIENT, None)


class Refused(list[PartitionProduceResponse]):
    """The responses of a request's refused batches. Together they name at most RECORD_ERRORS_OF_REQUEST_MAX records."""

    record_errors = 0

    def add(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        errors = []
        if isinstance(error, RecordsRejected):
            some = error.record_errors[: RECORD_ERRORS_OF_REQUEST_MAX - self.record_errors]
            errors = [BatchIndexAndErrorMessage(record, message) for record, message in some]
            self.record_errors += len(errors)
        message = error.message or error.code.name
        self.append(PartitionProduceResponse(index, error.code, -1, record_errors=errors, error_message=message))
        return self[-1]


def denied(data: PartitionProduceData) -> PartitionProduceResponse:
    return PartitionProduceResponse(data.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


def last_batches(topic: TopicProduceData) -> Sequence[PartitionProduceData]:
    """Return the batches to append. If a partition is named twice, only its last batch is appended, as in Kafka."""
    return list({data.index: data for data in topic.partition_data}.values())


def batch_count(request: ProduceRequest) -> int:
    return item_count(topic.partition_data for topic in request.topic_data)


def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    """Return the error for every partition."""
    response = ProduceResponse(
        [
            TopicProduceResponse(
                topic.topic_id,
                topic.name,
                [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
    if request.acks == 0:
        raise_if_failed(response)
        return None
    return response


def has_transactional_batch(request: ProduceRequest) -> bool:
    return any(
        isinstance(data.records, memoryview)
        and len(data.records) >= BATCH_HEADER_BYTES
        and data.records[ATTRIBUTES_LOW_BYTE_POSITION] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
    )


def size_of_records(request: ProduceRequest) -> int:
    """Return the total size of the records."""
    batches = (data.records for topic in request.topic_data for data in topic.partition_data)
    return sum(len(records) for records in batches if isinstance(records, memoryview))


def copy_records(data: PartitionProduceData) -> None:
    """Copy the records, because the connection's buffer will contain other requests when they are appended."""
    if isinstance(data.records, memoryview) and len(data.records):
        data.records = memoryview(bytearray(data.records))


def copy_all_records(request: ProduceRequest) -> None:
    for topic in request.topic_data:
        for data in topic.partition_data:
            copy_records(data)


def unusable(acks: int, records: Records | None) -> KafkaError:
    """Return the error for a batch that is unacceptable before the log checks it."""
    if acks not in VALID_ACKS:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if not isinstance(records, memoryview) or not len(records):
        return KafkaError(ErrorCode.INVALID_RECORD, "a produce request must hold one record batch for each partition")
    return KafkaError(ErrorCode.INVALID_RECORD, "the record batch is cut short")


def raise_if_failed(response: ProduceResponse) -> None:
    """Raise MalformedData, which closes the connection: a client with acks=0 gets no response to see an error in."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise MalformedData(f"produce with acks=0 failed with {ErrorCode(result.error_code).name}")


def when_acknowledged(
    timers: Timers, response: ProduceResponse, waiting: Waiting, timeout_ms: int
) -> Promise[ProduceResponse]:
    """Answer when all partitions are acknowledged. After the client's timeout, the others get REQUEST_TIMED_OUT."""
    answer: Promise[ProduceResponse] = Promise()
    pending = len(waiting)

    def on_acknowledged(result: PartitionProduceResponse, code: ErrorCode) -> None:
        nonlocal pending
        pending -= 1
        if answer.done:
            return
        if code:
            result.error_code, result.base_offset = code, -1
        if not pending:
            timer.cancel()
            answer.complete(response)

    def on_timeout() -> None:
        for result, promise in waiting:
            if not promise.done:
                result.error_code, result.base_offset = ErrorCode.REQUEST_TIMED_OUT, -1
        answer.complete(response)

    timer = timers.after_ms(max(timeout_ms, 0), on_timeout)
    for result, promise in waiting:
        promise.then(partial(on_acknowledged, result))
    return answer
