"""Produce v3–13. Appends first, in order, then answers: now, or when the records are acknowledged.

v7: zstd; v8: per-record errors (KIP-467); v10: the current leader, if it is another (KIP-951); v13: topic ids instead
of names. acks=0 has no response, so an error can only close the connection, as in Kafka. Records of a transaction are
verified by a gate first; from v12 on this adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Any, Final

from moldau.base.clock import Clock, Timers
from moldau.base.counters import DECOMPRESSED_SIZE_REFUSED, UNVERIFIED_REFUSED, Counters
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import UNVERIFIED_BYTES_MAX
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems, WaitingSteps
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.base.turns import CHANGES_A_TURN
from moldau.log.log import Appended
from moldau.log.opening import BYTES_AT_ONCE, COMPRESSED_BYTES_AT_ONCE, RECORDS_AT_ONCE, open_batch, takes_long
from moldau.log.producer_batches import note_refusal
from moldau.log.validate import BatchExpandsTooMuch, Origin
from moldau.metadata.controller.views import produce_error
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.transaction_gate import TransactionalWrite, TransactionGate
from moldau.security.acls.requirements import TOPIC_WRITE, TRANSACTION_WRITE
from moldau.server.conversation import LongReply
from moldau.server.handlers.current_leaders import add_leaders_to_produce
from moldau.server.handlers.early_batches import EarlyBatches
from moldau.server.handlers.produce_parts import (
    NO_FAILURES,
    NOT_OPENED,
    VALID_ACKS,
    Opened,
    Refused,
    SlowBatch,
    Waiting,
    batch_count,
    copy_all_records,
    copy_records,
    denied,
    has_transactional_batch,
    last_batches,
    raise_if_failed,
    refuse,
    size_of_records,
    unusable,
    when_acknowledged,
)
from moldau.server.handlers.replies import in_thread, run_steps
from moldau.server.handlers.transactions.transactional_produce import check_append, transactional_write
from moldau.server.late_replies import complete_long
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.batch import (
    ATTRIBUTES_LOW_BYTE_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    RECORD_COUNT_POSITION,
    TRANSACTIONAL_BIT,
)
from moldau.wire.compression import Compression
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

ZSTD_MIN_VERSION = 7
CURRENT_LEADER_MIN_VERSION = 10
TOPIC_ID_MIN_VERSION = 13
ADMIN_CLIENT_ID = "__admin_client"
ZSTD = int(Compression.ZSTD)
_count: Final = struct.Struct(">i").unpack_from


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

    def answer(self, request: ProduceRequest, caller: Caller) -> ProduceResponse | Promise[ProduceResponse] | None:
        if request.transactional_id is None:
            return self._produce(request, caller, None)
        return self._produce_verified(request, caller)

    def _produce_verified(
        self, request: ProduceRequest, caller: Caller
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        assert request.transactional_id is not None
        may_write = caller.access.allows_quietly(TRANSACTION_WRITE, request.transactional_id)
        if not may_write and has_transactional_batch(request):
            caller.access.allows(TRANSACTION_WRITE, request.transactional_id)  # for the audit log
            return refuse(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

        def writable_name_of(topic: TopicProduceData, version: int) -> str | None:
            name = self._topic_name(topic, version)
            return name if name is not None and caller.access.allows_quietly(TOPIC_WRITE, name) else None

        write = transactional_write(request, caller.version, writable_name_of, self._partitions)
        verified = None if write is None else self._gate.verify(write)
        if write is None or verified is None:
            return self._produce(request, caller, write)
        size = size_of_records(request)
        if self._unverified_bytes + size > UNVERIFIED_BYTES_MAX and self._unverified_bytes:
            self._counters.add(UNVERIFIED_REFUSED)
            write.refuse(write.sequences, KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))
            return self._produce(request, caller, write)
        self._unverified_bytes += size
        copy_all_records(request)

        def append(_: None) -> Any:
            self._unverified_bytes -= size
            try:
                return self._produce(request, caller, write)
            except MalformedData as error:  # only with acks=0
                return error

        if batch_count(request) > CHANGES_A_TURN or self._has_slow_batch(request, caller.version):
            reply = LongReply()
            verified.then(lambda _: complete_long(reply, append(_)))
            return reply
        if request.acks == 0:
            verified.then(append)  # an error can no longer be reported to the client
            return None
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

    def _produce(
        self, request: ProduceRequest, caller: Caller, write: TransactionalWrite | None
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        topic_data = request.topic_data
        if (len(topic_data) != 1 or len(topic_data[0].partition_data) > CHANGES_A_TURN) and (
            batch_count(request) > CHANGES_A_TURN
        ):
            copy_all_records(request)
            return self._produce_in_turns(request, caller, write)
        now_ms = self._clock.now_ms()
        waiting: Waiting = []
        refused = Refused()
        slow: list[SlowBatch] = []
        topics = []
        version, is_unrestricted = caller.version, caller.is_unrestricted
        for topic in topic_data:
            name = topic.name if version < TOPIC_ID_MIN_VERSION else self._topic_name(topic, version)
            batches = topic.partition_data if len(topic.partition_data) == 1 else last_batches(topic)
            results: list[Any] = []
            if not (is_unrestricted or name is None or caller.access.allows(TOPIC_WRITE, name)):
                results = [denied(data) for data in batches]
                batches = ()
            for data in batches:
                result = self._append(name, data, request, caller, now_ms, waiting, refused, write)
                if result is None:
                    copy_records(data)
                    slow.append((topic, data, results, len(results)))
                results.append(result)
            topics.append(TopicProduceResponse(topic.topic_id, topic.name, results))
        response = ProduceResponse(topics)
        if slow:
            return self._finish_slow(response, slow, request, caller, waiting, refused, write)
        if refused or waiting or request.acks == 0:
            return self._finish(response, request, caller, waiting, refused)
        return response

    def _finish_slow(
        self,
        response: ProduceResponse,
        slow: list[SlowBatch],
        request: ProduceRequest,
        caller: Caller,
        waiting: Waiting,
        refused: Refused,
        write: TransactionalWrite | None,
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        """Append the batches that take long to open, then answer. Later requests of the connection wait."""

        def steps() -> WaitingSteps[Any]:
            for topic, data, results, place in slow:
                results[place] = yield from self._append_opened(topic, data, request, caller, waiting, refused, write)
            return self._finish(response, request, caller, waiting, refused)

        return run_steps(self._timers, steps())

    def _produce_in_turns(
        self, request: ProduceRequest, caller: Caller, write: TransactionalWrite | None
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        """Append the batches of a long request in several turns. Later requests of the connection wait, so that the
        order on the wire is the order in the log."""
        waiting: Waiting = []
        refused = Refused()

        def steps() -> WaitingSteps[Any]:
            turn = TurnItems(CHANGES_A_TURN)
            topics = []
            for topic in request.topic_data:
                name = self._topic_name(topic, caller.version)
                is_allowed = name is None or caller.access.allows(TOPIC_WRITE, name)
                results: list[Any] = []
                for data in last_batches(topic):
                    if not is_allowed:
                        result: PartitionProduceResponse | None = denied(data)
                    else:
                        # Looked up each time: between two turns, a topic of another id may have taken over the name.
                        name, now_ms = self._topic_name(topic, caller.version), self._clock.now_ms()
                        result = self._append(name, data, request, caller, now_ms, waiting, refused, write)
                        if result is None:
                            result = yield from self._append_opened(
                                topic, data, request, caller, waiting, refused, write
                            )
                    results.append(result)
                    if turn.ends_after(1):
                        yield None
                topics.append(TopicProduceResponse(topic.topic_id, topic.name, results))
                if not results and turn.ends_after(1):
                    yield None
            return self._finish(ProduceResponse(topics), request, caller, waiting, refused)

        return run_steps(self._timers, steps())

    def _finish(
        self, response: ProduceResponse, request: ProduceRequest, caller: Caller, waiting: Waiting, refused: Refused
    ) -> ProduceResponse | Promise[ProduceResponse] | None:
        """Add what only some responses have: new leaders, a wait for other replicas, or no response at all."""
        if refused and caller.version >= CURRENT_LEADER_MIN_VERSION:
            add_leaders_to_produce(response, self._current.image, caller.listener, self._partitions.withheld)
        if request.acks == 0:
            raise_if_failed(response)
            return None
        if waiting:
            return when_acknowledged(self._timers, response, waiting, request.timeout_ms)
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
        opened: Opened | None = None,
    ) -> PartitionProduceResponse | None:
        """Append one partition's batch. An error is reported for this partition alone. If it takes long to open the
        batch, return None and do nothing: `_append_opened` does it, and then comes here with `opened`."""
        index, acks, records = data.index, request.acks, data.records
        if name in INTERNAL_TOPICS and caller.client_id != ADMIN_CLIENT_ID:
            # Only coordinators write to internal topics. Kafka excepts this one client id, for repairs.
            return PartitionProduceResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
        partition = None if name is None else self._partitions.find(name, index)
        if partition is None and name is not None and name in self._current.image.views:
            return refused.add(index, produce_error(self._current.image, name))
        if partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else self._partitions.absence(name, index)
            if name is not None:
                self._early.add(name, index, records, code, now_ms)
            refused.append(PartitionProduceResponse(index, code, -1))
            return refused[-1]
        if self._early.batches and name is not None:
            self._early.pass_on(name, partition, index, now_ms)
        try:
            if acks not in VALID_ACKS or not isinstance(records, memoryview) or len(records) < BATCH_HEADER_BYTES:
                raise unusable(acks, records)
            attributes = records[ATTRIBUTES_LOW_BYTE_POSITION]
            if attributes & CODEC_MASK == ZSTD and caller.version < ZSTD_MIN_VERSION and opened is None:
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
                    self._check_transaction(partition, write)
                return None
            if attributes & TRANSACTIONAL_BIT:
                appended = self._append_in_transaction(partition, records, request, now_ms, write, opened)
            elif opened is None:
                appended = partition.append(records, acks, now_ms)
            else:
                appended = partition.append(records, acks, now_ms, opened.origin, sent_bytes=opened.sent_bytes)
        except KafkaError as error:
            return self._refuse(partition, index, records, error, refused)
        first_offset, last_offset, log_append_time_ms, _ = appended
        result = PartitionProduceResponse(index, 0, first_offset, log_append_time_ms, partition.log.start_offset)
        if last_offset >= partition.high_watermark and acks:
            promise = partition.acknowledged(last_offset, acks)
            if promise is not None:
                waiting.append((result, promise))
        return result

    def _append_opened(
        self,
        topic: TopicProduceData,
        data: PartitionProduceData,
        request: ProduceRequest,
        caller: Caller,
        waiting: Waiting,
        refused: Refused,
        write: TransactionalWrite | None,
    ) -> WaitingSteps[PartitionProduceResponse]:
        """Open one partition's batch in a thread, then append it."""
        partition, sent = self._partition(topic, data.index, caller.version), data.records
        opened, batch = NOT_OPENED, sent
        if partition is not None and isinstance(sent, memoryview):
            config = partition.log.config
            try:
                batch = yield from in_thread(self._run_codec, partial(open_batch, sent, config, self._clock.now_ms()))
            except KafkaError as error:
                partition.traffic.produces += 1
                return self._refuse(partition, data.index, sent, error, refused)
            is_same = partition is self._partition(topic, data.index, caller.version)
            origin = Origin.OPENED if is_same and partition.log.config is config else Origin.CLIENT
            opened = Opened(origin, len(sent))
        name, now_ms = self._topic_name(topic, caller.version), self._clock.now_ms()
        data = PartitionProduceData(data.index, batch)
        result = self._append(name, data, request, caller, now_ms, waiting, refused, write, opened)
        assert result is not None
        return result

    def _refuse(
        self, partition: Partition, index: int, records: Any, error: KafkaError, refused: Refused
    ) -> PartitionProduceResponse:
        if isinstance(records, memoryview):
            note_refusal(partition.log.producers, records, error.code, self._clock.now_ms())
        if isinstance(error, BatchExpandsTooMuch):
            self._counters.add(DECOMPRESSED_SIZE_REFUSED)
        partition.traffic.failed_produces += error.code not in NO_FAILURES
        return refused.add(index, error)

    def _check_transaction(self, partition: Partition, write: TransactionalWrite | None) -> TransactionalWrite:
        """Return the write. Raise KafkaError if it may not write to the partition."""
        if write is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "records of a transaction without a transactional id"
            )
        check_append(self._gate, write, partition)
        return write

    def _append_in_transaction(
        self,
        partition: Partition,
        records: memoryview,
        request: ProduceRequest,
        now_ms: int,
        write: TransactionalWrite | None,
        opened: Opened | None,
    ) -> Appended:
        write = self._check_transaction(partition, write)
        origin, sent_bytes = opened or NOT_OPENED
        version = write.transaction_version
        appended = partition.append(
            records, request.acks, now_ms, origin, transaction_version=version, sent_bytes=sent_bytes
        )
        if not appended.duplicate:
            self._gate.appended(write, partition)
        return appended
