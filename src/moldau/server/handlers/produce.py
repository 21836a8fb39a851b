"""Produce v3–13. Appends first, in order, then answers: now, or when the records are acknowledged.

v7: zstd; v8: per-record errors (KIP-467); v10: the current leader, if it is another (KIP-951); v13: topic ids instead
of names. acks=0 has no response, so an error can only close the connection, as in Kafka. Records of a transaction are
verified by a gate first; from v12 on this adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from moldau.base.clock import Clock, Timers
from moldau.base.counters import DECOMPRESSED_SIZE_REFUSED, UNVERIFIED_REFUSED, Counters
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import RECORD_ERRORS_OF_REQUEST_MAX, UNVERIFIED_BYTES_MAX
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems, WaitingSteps
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.base.turns import CHANGES_A_TURN
from moldau.log.log import Appended
from moldau.log.opening import BYTES_AT_ONCE, COMPRESSED_BYTES_AT_ONCE, RECORDS_AT_ONCE, open_batch, takes_long
from moldau.log.producer_batches import note_refusal
from moldau.log.validate import BatchExpandsTooMuch, Origin, RecordsRejected
from moldau.metadata.controller.views import produce_error
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import ACKS_ALL, Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.transaction_gate import TransactionalWrite, TransactionGate
from moldau.runtime.internal_errors import closing_error
from moldau.runtime.thread_work import in_thread
from moldau.security.acls.requirements import TOPIC_WRITE, TRANSACTION_WRITE
from moldau.server.conversation import LongReply
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.current_leaders import add_leaders_to_produce
from moldau.server.handlers.early_batches import EarlyBatches
from moldau.server.handlers.replies import item_count, run_steps
from moldau.server.handlers.transactions.transactional_produce import check_append, transactional_write
from moldau.server.late_replies import complete_long
from moldau.wire.apis import ApiKey
from moldau.wire.batch import (
    ATTRIBUTES_LOW_BYTE_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_BIT,
)
from moldau.wire.codec import NO_REPLY, NoReply
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
ZSTD = int(Compression.ZSTD)
_count: Final = struct.Struct(">i").unpack_from
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
Answered = ProduceResponse | NoReply | Promise[Any]
SlowBatch = tuple[TopicProduceData, PartitionProduceData, list[Any], int]
"""A batch that takes long to open, the results of its topic, and its place among them."""


class Opened(NamedTuple):
    """What is known of a batch that took long to open: whether its records are checked, and its size as it was sent."""

    origin: Origin
    sent_bytes: int | None


NOT_OPENED: Final = Opened(Origin.CLIENT, None)


class Production:
    """A Produce request: who sent it, the transaction to which it belongs, and what has come of it until now."""

    __slots__ = ("_record_errors", "acks", "caller", "is_refused", "request", "waiting", "write")

    def __init__(self, request: ProduceRequest, caller: Caller) -> None:
        self.request = request
        self.caller = caller
        self.acks = request.acks
        self.write: TransactionalWrite | None = None
        self.waiting: list[tuple[PartitionProduceResponse, Promise[ErrorCode]]] = []
        """Results whose records are not acknowledged yet."""
        self.is_refused = False
        """Whether a batch was refused with an error after which a client may look for the leader."""
        self._record_errors = 0

    def may_write(self, topic: str | None) -> bool:
        """Return whether the client may write to the topic. One that is unknown is not denied."""
        caller = self.caller
        return caller.is_unrestricted or topic is None or caller.access.allows(TOPIC_WRITE, topic)

    def refuse(self, index: int, error: KafkaError) -> PartitionProduceResponse:
        """Return the result of a refused batch. Those of the request name at most RECORD_ERRORS_OF_REQUEST_MAX records
        together."""
        errors = []
        if isinstance(error, RecordsRejected):
            some = error.record_errors[: RECORD_ERRORS_OF_REQUEST_MAX - self._record_errors]
            errors = [BatchIndexAndErrorMessage(record, message) for record, message in some]
            self._record_errors += len(errors)
        self.is_refused = True
        message = error.message or error.code.name
        return PartitionProduceResponse(index, error.code, -1, record_errors=errors, error_message=message)

    def refuse_all(self, code: ErrorCode) -> ProduceResponse | NoReply:
        """Return the error for every partition."""
        topics = [
            TopicProduceResponse(
                topic.topic_id,
                topic.name,
                [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
            )
            for topic in self.request.topic_data
        ]
        return self.without_acks(ProduceResponse(topics)) if self.acks == 0 else ProduceResponse(topics)

    def without_acks(self, response: ProduceResponse) -> NoReply:
        """A client with acks=0 gets no response to see an error in: raise MalformedData, which closes the connection,
        if there is one."""
        for topic in response.responses:
            for result in topic.partition_responses:
                if result.error_code:
                    raise MalformedData(f"produce with acks=0 failed with {ErrorCode(result.error_code).name}")
        return NO_REPLY


class Produce(Handler):
    api = ApiKey.PRODUCE
    versions = (3, 13)
    needs = (TRANSACTION_WRITE, TOPIC_WRITE)
    listed_from = 0  # librdkafka before 2.11.1 cannot compress otherwise (KAFKA-18659)
    request_bytes_max = sys.maxsize
    decoded_on_loop_bytes = 1_100_000  # mostly records, and clients send up to a mebibyte by default
    decoded_on_loop_elements = 128  # topics, and partitions of each: 128 of 128 take some 20 milliseconds
    total_elements_max = 20_000
    """The most topics and partitions. A partition without records takes six bytes, and a request may have a hundred
    megabytes. Clients stay below it: a batch has at least 68 bytes, and they send a mebibyte by default."""
    counts_as_produced = True

    def __init__(
        self,
        current: CurrentImage,
        partitions: Partitions,
        gate: TransactionGate,
        clock: Clock,
        timers: Timers,
        counters: Counters,
        run_codec: RunInThread,
    ) -> None:
        self._current = current
        self._partitions = partitions
        self._gate = gate
        self._clock = clock
        self._timers = timers
        self._unverified_bytes = 0
        self._counters = counters
        self._run_codec = run_codec
        self._early = EarlyBatches()

    def answer(self, request: ProduceRequest, caller: Caller) -> Answered:
        production, topics = Production(request, caller), request.topic_data
        if request.transactional_id is not None:
            return self._produce_verified(production)
        if len(topics) != 1 or len(topics[0].partition_data) != 1:
            return self._produce(production)
        # Most requests have one batch. A generator would cost more than what is done here.
        topic, data = topics[0], topics[0].partition_data[0]
        name = topic.name if caller.version < TOPIC_ID_MIN_VERSION else self._topic_name(topic, caller.version)
        if caller.is_unrestricted or production.may_write(name):
            result = self._append(production, name, data, self._clock.now_ms())
        else:
            result = denied(data)
        if result is None:
            return self._produce(production)
        topic_results = [TopicProduceResponse(topic.topic_id, topic.name, [result])]
        if production.is_refused or production.waiting or production.acks == 0:
            return self._finish(production, topic_results)
        return ProduceResponse(topic_results)

    def _produce_verified(self, production: Production) -> Answered:
        request, caller = production.request, production.caller
        assert request.transactional_id is not None
        may_write = caller.access.allows_quietly(TRANSACTION_WRITE, request.transactional_id)
        if not may_write and has_transactional_batch(request):
            caller.access.allows(TRANSACTION_WRITE, request.transactional_id)  # for the audit log
            return production.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

        def writable_name_of(topic: TopicProduceData, version: int) -> str | None:
            name = self._topic_name(topic, version)
            return name if name is not None and caller.access.allows_quietly(TOPIC_WRITE, name) else None

        write = production.write = transactional_write(request, caller.version, writable_name_of, self._partitions)
        verified = None if write is None else self._gate.verify(write)
        if write is None or verified is None:
            return self._produce(production)
        size = size_of_records(request)
        if self._unverified_bytes + size > UNVERIFIED_BYTES_MAX and self._unverified_bytes:
            self._counters.add(UNVERIFIED_REFUSED)
            write.refuse(write.sequences, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
            return self._produce(production)
        self._unverified_bytes += size
        copy_all_records(request)

        def append(_: None) -> Any:
            self._unverified_bytes -= size
            try:
                return self._produce(production)
            except Exception as fault:  # whoever completes the promise goes on with the writes of others
                return closing_error(fault, "a verified write failed")

        if is_long(request) or self._has_slow_batch(request, caller.version):
            reply = LongReply()
            verified.then(lambda _: complete_long(reply, append(_)))
            return reply
        if request.acks == 0:
            verified.then(append)  # an error can no longer be reported to the client
            return NO_REPLY
        return verified.and_then(append)

    def _has_slow_batch(self, request: ProduceRequest, version: int) -> bool:
        """Return whether it takes long to open one of the batches."""
        return any(
            isinstance(data.records, memoryview)
            and len(data.records) >= BATCH_HEADER_BYTES
            and (partition := self._partition(topic, data.index, version)) is not None
            and takes_long(data.records, partition.log.config, self._clock.now_ms())
            for topic in request.topic_data
            for data in topic.partition_data
        )

    def _partition(self, topic: TopicProduceData, index: int, version: int) -> Partition | None:
        name = self._topic_name(topic, version)
        return None if name is None else self._partitions.find(name, index)

    def _topic_name(self, topic: TopicProduceData, version: int) -> str | None:
        return self._current.image.topic_names.get(topic.topic_id) if version >= TOPIC_ID_MIN_VERSION else topic.name

    def _produce(self, production: Production) -> Answered:
        return run_steps(self._timers, self._append_all(production))

    def _append_all(self, production: Production) -> WaitingSteps[Answered]:
        """Append the batches, then answer. Those of a long request are appended in several turns; else those that take
        long to open wait for the others. Later requests of the connection wait, so that the order on the wire is the
        order in the log."""
        request, version = production.request, production.caller.version
        turn = TurnItems(CHANGES_A_TURN) if is_long(request) else None
        if turn is not None:
            copy_all_records(request)
        topics: list[TopicProduceResponse] = []
        slow: list[SlowBatch] = []
        now_ms = self._clock.now_ms()
        for topic in request.topic_data:
            name = self._topic_name(topic, version)
            may_write = production.caller.is_unrestricted or production.may_write(name)
            results: list[Any] = []
            topics.append(TopicProduceResponse(topic.topic_id, topic.name, results))
            for data in topic.partition_data if len(topic.partition_data) == 1 else last_batches(topic):
                result = self._append(production, name, data, now_ms) if may_write else denied(data)
                if result is None and turn is not None:
                    result = yield from self._append_opened(production, topic, data)
                    name, now_ms = self._topic_name(topic, version), self._clock.now_ms()
                elif result is None:
                    copy_records(data)
                    slow.append((topic, data, results, len(results)))
                results.append(result)
                if turn is not None and turn.ends_after(1):
                    yield None
                    # Between two turns, a topic of another id may have taken over the name.
                    name, now_ms = self._topic_name(topic, version), self._clock.now_ms()
            if turn is not None and not results and turn.ends_after(1):
                yield None
                now_ms = self._clock.now_ms()
        for topic, data, results, place in slow:
            results[place] = yield from self._append_opened(production, topic, data)
        return self._finish(production, topics)

    def _finish(self, production: Production, topics: list[TopicProduceResponse]) -> Answered:
        """Add what only some responses have: new leaders, a wait for other replicas, or no response at all."""
        response, caller = ProduceResponse(topics), production.caller
        if production.is_refused and caller.version >= CURRENT_LEADER_MIN_VERSION:
            add_leaders_to_produce(response, self._current.image, caller.listener, self._partitions.withheld)
        if production.acks == 0:
            return production.without_acks(response)
        return self._when_acknowledged(production, response) if production.waiting else response

    def _append(
        self,
        production: Production,
        name: str | None,
        data: PartitionProduceData,
        now_ms: int,
        opened: Opened | None = None,
    ) -> PartitionProduceResponse | None:
        """Append one partition's batch. An error is reported for this partition alone. If it takes long to open the
        batch, return None and do nothing: `_append_opened` does it, and then comes here with `opened`."""
        index, acks, records = data.index, production.acks, data.records
        if name in INTERNAL_TOPICS and production.caller.client_id != ADMIN_CLIENT_ID:
            # Only coordinators write to internal topics. Kafka excepts this one client id, for repairs.
            return PartitionProduceResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        partition = None if name is None else self._partitions.find(name, index)
        if partition is None and name is not None and name in self._current.image.views:
            return production.refuse(index, produce_error(self._current.image, name))
        if partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._partitions.absence(name, index)
            if name is not None:
                self._early.add(name, index, records, code, now_ms)
            production.is_refused = True
            return PartitionProduceResponse(index, code, -1)
        if self._early.batches and name is not None:
            self._early.pass_on(name, partition, index, now_ms)
        try:
            if acks not in VALID_ACKS or not isinstance(records, memoryview) or len(records) < BATCH_HEADER_BYTES:
                raise unusable(acks, records)
            attributes = records[ATTRIBUTES_LOW_BYTE_POSITION]
            if attributes & CODEC_MASK == ZSTD and production.caller.version < ZSTD_MIN_VERSION and opened is None:
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs produce version 7 or later")
            few_bytes = COMPRESSED_BYTES_AT_ONCE if attributes & CODEC_MASK else BYTES_AT_ONCE
            if (
                (len(records) > few_bytes or _count(records, RECORD_COUNT_POSITION)[0] > RECORDS_AT_ONCE)
                and opened is None
                and partition.is_leader
                and takes_long(records, partition.log.config, now_ms)
            ):
                partition.check_writable(acks)
                if attributes & TRANSACTIONAL_BIT:
                    self._check_transaction(production, partition)
                return None
            if attributes & TRANSACTIONAL_BIT:
                appended = self._append_in_transaction(production, partition, records, now_ms, opened)
            elif opened is None:
                appended = partition.append(records, acks, now_ms)
            else:
                appended = partition.append(records, acks, now_ms, opened.origin, sent_bytes=opened.sent_bytes)
        except KafkaError as error:
            return self._refuse(production, partition, index, records, error)
        first_offset, last_offset, log_append_time_ms, _ = appended
        result = PartitionProduceResponse(index, 0, first_offset, log_append_time_ms, partition.log.start_offset)
        if last_offset >= partition.high_watermark and acks:
            promise = partition.acknowledged(last_offset, acks)
            if promise is not None:
                production.waiting.append((result, promise))
        return result

    def _append_opened(
        self, production: Production, topic: TopicProduceData, data: PartitionProduceData
    ) -> WaitingSteps[PartitionProduceResponse]:
        """Open one partition's batch in a thread, then append it."""
        version = production.caller.version
        partition, sent = self._partition(topic, data.index, version), data.records
        opened, batch = NOT_OPENED, sent
        if partition is not None and isinstance(sent, memoryview):
            config = partition.log.config
            try:
                batch = yield from in_thread(self._run_codec, partial(open_batch, sent, config, self._clock.now_ms()))
            except KafkaError as error:
                partition.traffic.produces += 1
                return self._refuse(production, partition, data.index, sent, error)
            is_same = partition is self._partition(topic, data.index, version)
            origin = Origin.OPENED if is_same and partition.log.config is config else Origin.CLIENT
            opened = Opened(origin, len(sent))
        name, now_ms = self._topic_name(topic, version), self._clock.now_ms()
        data = PartitionProduceData(data.index, batch)
        result = self._append(production, name, data, now_ms, opened)
        assert result is not None
        return result

    def _refuse(
        self, production: Production, partition: Partition, index: int, records: Any, error: KafkaError
    ) -> PartitionProduceResponse:
        if isinstance(records, memoryview):
            note_refusal(partition.log.producers, records, error.code, self._clock.now_ms())
        if isinstance(error, BatchExpandsTooMuch):
            self._counters.add(DECOMPRESSED_SIZE_REFUSED)
        partition.traffic.failed_produces += error.code not in NO_FAILURES
        return production.refuse(index, error)

    def _check_transaction(self, production: Production, partition: Partition) -> TransactionalWrite:
        """Return the write. Raise KafkaError if it may not write to the partition."""
        write = production.write
        if write is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction without a transactional id"
            )
        check_append(self._gate, write, partition)
        return write

    def _append_in_transaction(
        self, production: Production, partition: Partition, records: memoryview, now_ms: int, opened: Opened | None
    ) -> Appended:
        write = self._check_transaction(production, partition)
        origin, sent_bytes = opened or NOT_OPENED
        version = write.transaction_version
        appended = partition.append(
            records, production.acks, now_ms, origin, transaction_version=version, sent_bytes=sent_bytes
        )
        if not appended.duplicate:
            self._gate.appended(write, partition)
        return appended

    def _when_acknowledged(self, production: Production, response: ProduceResponse) -> Promise[ProduceResponse]:
        """Answer when all partitions are acknowledged. After the client's timeout, the others get REQUEST_TIMED_OUT."""
        answer: Promise[ProduceResponse] = Promise()
        waiting = production.waiting
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

        timer = self._timers.after_ms(max(production.request.timeout_ms, 0), on_timeout)
        for result, promise in waiting:
            promise.then(partial(on_acknowledged, result))
        return answer


def denied(data: PartitionProduceData) -> PartitionProduceResponse:
    return PartitionProduceResponse(data.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


def last_batches(topic: TopicProduceData) -> Sequence[PartitionProduceData]:
    """Return the batches to append. If a partition is named twice, only its last batch is appended, as in Kafka."""
    return list({data.index: data for data in topic.partition_data}.values())


def has_transactional_batch(request: ProduceRequest) -> bool:
    return any(
        isinstance(data.records, memoryview)
        and len(data.records) >= BATCH_HEADER_BYTES
        and data.records[ATTRIBUTES_LOW_BYTE_POSITION] & TRANSACTIONAL_BIT
        for topic in request.topic_data
        for data in topic.partition_data
    )


def is_long(request: ProduceRequest) -> bool:
    """Return whether the request has so many batches that they are appended in several turns."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) <= CHANGES_A_TURN:
        return False
    return item_count(topic.partition_data for topic in topics) > CHANGES_A_TURN


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
