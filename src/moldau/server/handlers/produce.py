"""Produce v3–13. Appends first, in order, then answers: now, or when the records are acknowledged.

v7: zstd; v8: per-record errors (KIP-467); v10: the current leader, if it is another (KIP-951); v13: topic ids instead
of names. acks=0 has no response, so an error can only close the connection, as in Kafka. Records of a transaction are
verified by a gate first; from v12 on this adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from moldau.base.clock import Clock, Timers
from moldau.base.counters import DECOMPRESSED_SIZE_REFUSED, UNVERIFIED_REFUSED, Counters
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import RECORD_ERRORS_OF_REQUEST_MAX, UNVERIFIED_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.log.log import Appended
from moldau.log.validate import BatchExpandsTooMuch, RecordsRejected
from moldau.metadata.controller.views import produce_error
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import ACKS_ALL, Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.transaction_gate import TransactionalWrite, TransactionGate
from moldau.security.acls.requirements import TOPIC_WRITE, TRANSACTION_WRITE
from moldau.server.conversation import LongReply
from moldau.server.handlers.current_leaders import add_leaders_to_produce
from moldau.server.handlers.replies import item_count, partitions_in_turns
from moldau.server.handlers.transactions.transactional_produce import check_append, transactional_write
from moldau.server.late_replies import complete_long
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.batch import ATTRIBUTES_LOW_BYTE_POSITION, BATCH_HEADER_BYTES, CODEC_MASK, TRANSACTIONAL_BIT
from moldau.wire.compression import Compression
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

ZSTD_MIN_VERSION = 7
CURRENT_LEADER_MIN_VERSION = 10
TOPIC_ID_MIN_VERSION = 13
ADMIN_CLIENT_ID = "__admin_client"
PARTITIONS_A_TURN: Final = 200
"""Batches that are appended in one turn of the loop. A small one takes 20 microseconds."""
VALID_ACKS = (0, 1, ACKS_ALL)
ZSTD = int(Compression.ZSTD)
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
Waiting = list[tuple[PartitionProduceResponse, Promise[ErrorCode]]]


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


class Produce:
    api = ApiKey.PRODUCE
    versions = (3, 13)

    def __init__(
        self,
        current: CurrentImage,
        partitions: Partitions,
        gate: TransactionGate,
        clock: Clock,
        timers: Timers,
        counters: Counters,
    ) -> None:
        self._current = current
        self._partitions = partitions
        self._gate = gate
        self._clock = clock
        self._timers = timers
        self._unverified_bytes = 0
        self._counters = counters

    def answer(self, request: ProduceRequest, caller: Caller) -> ProduceResponse | Promise[ProduceResponse] | None:
        if request.transactional_id is None:
            return self._produce(request, caller, None)
        return self._produce_verified(request, caller)

    def _produce_verified(
        self, request: ProduceRequest, caller: Caller
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        assert request.transactional_id is not None
        may_write = caller.access.allows_quietly(TRANSACTION_WRITE, request.transactional_id)
        if not may_write and _has_transactional_batch(request):
            caller.access.allows(TRANSACTION_WRITE, request.transactional_id)  # for the audit log
            return _refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

        def writable_name_of(topic: TopicProduceData, version: int) -> str | None:
            name = self._topic_name(topic, version)
            return name if name is not None and caller.access.allows_quietly(TOPIC_WRITE, name) else None

        write = transactional_write(request, caller.version, writable_name_of, self._partitions)
        verified = None if write is None else self._gate.verify(write)
        if write is None or verified is None:
            return self._produce(request, caller, write)
        size = _size(request)
        if self._unverified_bytes + size > UNVERIFIED_BYTES_MAX and self._unverified_bytes:
            self._counters.add(UNVERIFIED_REFUSED)
            write.refuse(write.sequences, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
            return self._produce(request, caller, write)
        self._unverified_bytes += size
        _copy_records(request)

        def append(_: None) -> Any:
            self._unverified_bytes -= size
            try:
                return self._produce(request, caller, write)
            except MalformedData as error:  # only with acks=0
                return error

        if _batch_count(request) > PARTITIONS_A_TURN:
            reply = LongReply()
            verified.then(lambda _: complete_long(reply, append(_)))
            return reply
        if request.acks == 0:
            verified.then(append)  # an error can no longer be reported to the client
            return None
        return verified.and_then(append)

    def _topic_name(self, topic: TopicProduceData, version: int) -> str | None:
        return self._current.image.topic_names.get(topic.topic_id) if version >= TOPIC_ID_MIN_VERSION else topic.name

    def _produce(
        self, request: ProduceRequest, caller: Caller, write: TransactionalWrite | None
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        topic_data = request.topic_data
        if (len(topic_data) != 1 or len(topic_data[0].partition_data) > PARTITIONS_A_TURN) and (
            _batch_count(request) > PARTITIONS_A_TURN
        ):
            _copy_records(request)
            return self._produce_in_turns(request, caller, write)
        now_ms = self._clock.now_ms()
        waiting: Waiting = []
        refused = Refused()
        topics = []
        version, is_unrestricted = caller.version, caller.is_unrestricted
        for topic in topic_data:
            name = topic.name if version < TOPIC_ID_MIN_VERSION else self._topic_name(topic, version)
            batches = topic.partition_data if len(topic.partition_data) == 1 else _last_batches(topic)
            results = []
            if not (is_unrestricted or name is None or caller.access.allows(TOPIC_WRITE, name)):
                results = [_denied(data) for data in batches]
                batches = ()
            for data in batches:
                results.append(self._append(name, data, request, caller, now_ms, waiting, refused, write))
            topics.append(TopicProduceResponse(topic.topic_id, topic.name, results))
        response = ProduceResponse(topics)
        if refused or waiting or request.acks == 0:
            return self._finish(response, request, caller, waiting, refused)
        return response

    def _produce_in_turns(
        self, request: ProduceRequest, caller: Caller, write: TransactionalWrite | None
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        """Append the batches of a long request in several turns. Later requests of the connection wait, so that the
        order on the wire is the order in the log."""
        waiting: Waiting = []
        refused = Refused()

        def prepare(topic: TopicProduceData) -> tuple[tuple[TopicProduceData, bool], Sequence[PartitionProduceData]]:
            name = self._topic_name(topic, caller.version)
            return (topic, name is None or caller.access.allows(TOPIC_WRITE, name)), _last_batches(topic)

        def append(
            topic_and_right: tuple[TopicProduceData, bool], data: PartitionProduceData
        ) -> PartitionProduceResponse:
            topic, is_allowed = topic_and_right
            if not is_allowed:
                return _denied(data)
            # Looked up each time: between two turns, a topic of another id may have taken over the name.
            name = self._topic_name(topic, caller.version)
            return self._append(name, data, request, caller, self._clock.now_ms(), waiting, refused, write)

        def combine(results: list[list[PartitionProduceResponse]]) -> Any:
            responses = [
                TopicProduceResponse(topic.topic_id, topic.name, of_topic)
                for topic, of_topic in zip(request.topic_data, results, strict=True)
            ]
            return self._finish(ProduceResponse(responses), request, caller, waiting, refused)

        count = _batch_count(request)
        return partitions_in_turns(self._timers, request.topic_data, prepare, append, combine, PARTITIONS_A_TURN, count)

    def _finish(
        self,
        response: ProduceResponse,
        request: ProduceRequest,
        caller: Caller,
        waiting: Waiting,
        refused: Refused,
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        """Add what only some responses have: new leaders, a wait for other replicas, or no response at all."""
        if refused and caller.version >= CURRENT_LEADER_MIN_VERSION:
            add_leaders_to_produce(response, self._current.image, caller.listener)
        if request.acks == 0:
            _raise_if_failed(response)
            return None
        if waiting:
            return self._when_acknowledged(response, waiting, request.timeout_ms)
        return response

    def _append(
        self,
        name: str | None,
        data: PartitionProduceData,
        request: ProduceRequest,
        caller: Caller,
        now_ms: int,
        waiting: Waiting,
        refused: Refused,
        write: TransactionalWrite | None,
    ) -> PartitionProduceResponse:
        """Append one partition's batch. An error is reported for this partition alone."""
        index, acks, records = data.index, request.acks, data.records
        if name in INTERNAL_TOPICS and caller.client_id != ADMIN_CLIENT_ID:
            # Only coordinators write to internal topics. Kafka excepts this one client id, for repairs.
            return PartitionProduceResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        partition = None if name is None else self._partitions.find(name, index)
        if partition is None and name is not None and name in self._current.image.views:
            return refused.add(index, produce_error(self._current.image, name))
        if partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._partitions.absence(name, index)
            refused.append(PartitionProduceResponse(index, code, -1))
            return refused[-1]
        try:
            if acks not in VALID_ACKS or not isinstance(records, memoryview) or len(records) < BATCH_HEADER_BYTES:
                raise _unusable(acks, records)
            attributes = records[ATTRIBUTES_LOW_BYTE_POSITION]
            if attributes & CODEC_MASK == ZSTD and caller.version < ZSTD_MIN_VERSION:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7 or later")
            if attributes & TRANSACTIONAL_BIT:
                appended = self._append_in_transaction(partition, records, request, now_ms, write)
            else:
                appended = partition.append(records, acks, now_ms)
        except KafkaError as error:
            if isinstance(error, BatchExpandsTooMuch):
                self._counters.add(DECOMPRESSED_SIZE_REFUSED)
            partition.traffic.failed_produces += error.code not in NO_FAILURES
            return refused.add(index, error)
        first_offset, last_offset, log_append_time_ms, _ = appended
        result = PartitionProduceResponse(index, 0, first_offset, log_append_time_ms, partition.log.start_offset)
        if last_offset >= partition.high_watermark and acks:
            promise = partition.acknowledged(last_offset, acks)
            if promise is not None:
                waiting.append((result, promise))
        return result

    def _append_in_transaction(
        self,
        partition: Partition,
        records: memoryview,
        request: ProduceRequest,
        now_ms: int,
        write: TransactionalWrite | None,
    ) -> Appended:
        if write is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction without a transactional id"
            )
        check_append(self._gate, write, partition)
        appended = partition.append(records, request.acks, now_ms, transaction_version=write.transaction_version)
        self._gate.appended(write, partition)
        return appended

    def _when_acknowledged(
        self, response: ProduceResponse, waiting: Waiting, timeout_ms: int
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

        timer = self._timers.after_ms(max(timeout_ms, 0), on_timeout)
        for result, promise in waiting:
            promise.then(partial(on_acknowledged, result))
        return answer


def _denied(data: PartitionProduceData) -> PartitionProduceResponse:
    return PartitionProduceResponse(data.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


def _last_batches(topic: TopicProduceData) -> Sequence[PartitionProduceData]:
    """Return the batches to append. If a partition is named twice, only its last batch is appended, as in Kafka."""
    return list({data.index: data for data in topic.partition_data}.values())


def _batch_count(request: ProduceRequest) -> int:
    return item_count(topic.partition_data for topic in request.topic_data)


def _refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
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
        _raise_if_failed(response)
        return None
    return response


def _has_transactional_batch(request: ProduceRequest) -> bool:
    return any(
        isinstance(data.records, memoryview)
        and len(data.records) >= BATCH_HEADER_BYTES
        and data.records[ATTRIBUTES_LOW_BYTE_POSITION] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _size(request: ProduceRequest) -> int:
    """Return the total size of the records."""
    batches = (data.records for topic in request.topic_data for data in topic.partition_data)
    return sum(len(records) for records in batches if isinstance(records, memoryview))


def _copy_records(request: ProduceRequest) -> None:
    """Copy the records, because the connection's buffer will contain other requests when they are appended."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if isinstance(data.records, memoryview) and len(data.records):
                data.records = memoryview(bytearray(data.records))


def _unusable(acks: int, records: Records | None) -> KafkaError:
    """Return the error for a batch that is unacceptable before the log checks it."""
    if acks not in VALID_ACKS:
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if not isinstance(records, memoryview) or not len(records):
        return KafkaError(ErrorCode.INVALID_RECORD, "a produce request must hold one record batch for each partition")
    return KafkaError(ErrorCode.INVALID_RECORD, "the record batch is cut short")


def _raise_if_failed(response: ProduceResponse) -> None:
    """Raise MalformedData, which closes the connection: a client with acks=0 gets no response to see an error in."""
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise MalformedData(f"produce with acks=0 failed with {ErrorCode(result.error_code).name}")
