"""Sends the requests of one sink's transactions: each step goes to the right coordinator and is retried.

The requests are those of clients before the second part of KIP-890 (with AddPartitionsToTxn), which every broker since
3.0 supports. The second part of KIP-890 protects from late requests of an earlier transaction; here every transaction
has a new epoch, which protects as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition, by_topic
from moldau.client.admin.group_values import MICRO_BATCH_ID_METADATA
from moldau.client.cluster import GROUP, RETRIABLE, TRANSACTIONAL_ID, Cluster
from moldau.spark.options import WriteOptions
from moldau.spark.sending import RecordBatch, Sending
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from moldau.wire.schema import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)

INIT_PRODUCER_ID_VERSIONS: Final = (0, 5)
"""Version 6 adds two-phase commit."""
ADD_PARTITIONS_VERSIONS: Final = (0, 3)
"""From version 4 on the request is for brokers."""
TXN_OFFSET_COMMIT_VERSIONS: Final = (0, 4)
"""From version 5 on the request adds the group to the transaction, so AddOffsetsToTxn is not sent."""
END_TXN_VERSIONS: Final = (0, 4)
"""From version 5 on the response has a new epoch for the next transaction."""
OFFSET_FETCH_VERSIONS: Final = (8, 9)
"""Version 8 has a list of groups; from version 10 on topics are named by id."""
TRANSACTION_RETRIABLE: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT}
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
SEND_BYTES: Final = 8 << 20
BATCH_ID_PARTITION: Final = 0
ABORT_TIMEOUT_MS: Final = 3_000


class KafkaTransactionRequests:
    """Requests for one sink. Its transactional id and its group have the same name."""

    def __init__(self, cluster: Cluster, options: WriteOptions, sink_id: str, transaction_timeout_ms: int) -> None:
        self._cluster = cluster
        self._options = options
        self._sink_id = sink_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinators: dict[int, int] = {}

    def init_producer(self) -> ProducerIdAndEpoch:
        """Get a new epoch. Wait until an earlier writer's open transaction is aborted or, if decided, committed."""
        request = InitProducerIdRequest(self._sink_id, self._transaction_timeout_ms)

        def send() -> ProducerIdAndEpoch:
            response = self._request(
                TRANSACTIONAL_ID, ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, INIT_PRODUCER_ID_VERSIONS
            )
            self._check(response.error_code)
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        return self._retry(send)

    def last_micro_batch_id(self) -> int | None:
        """Return the highest micro-batch id that is committed for any topic, or None if there is none.

        Each transaction commits the id for all its topics, because a deleted topic loses its committed offset.
        """
        group = OffsetFetchRequestGroup(group_id=self._sink_id, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=True)

        def send() -> int | None:
            response = self._request(GROUP, ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, OFFSET_FETCH_VERSIONS)
            (group_response,) = response.groups
            self._check(group_response.error_code)
            partitions = [partition for topic in group_response.topics for partition in topic.partitions]
            for partition in partitions:
                self._check(partition.error_code)
            # A partition without a committed offset has -1.
            return max((each.committed_offset for each in partitions if each.committed_offset >= 0), default=None)

        return self._retry(send)

    def add_partitions(self, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> None:
        topics = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic(partitions).items()]
        request = AddPartitionsToTxnRequest((), self._sink_id, *producer, topics)

        def send() -> None:
            response = self._request(
                TRANSACTIONAL_ID,
                ApiKey.ADD_PARTITIONS_TO_TXN,
                request,
                AddPartitionsToTxnResponse,
                ADD_PARTITIONS_VERSIONS,
            )
            results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
            codes = {ErrorCode(each.partition_error_code) for each in results} - {ErrorCode.NONE}
            # If one partition is invalid, the valid ones get OPERATION_NOT_ATTEMPTED, which does not say why.
            self._check(next(iter(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes), ErrorCode.NONE))

        self._retry(send)

    def add_group(self, producer: ProducerIdAndEpoch) -> None:
        request = AddOffsetsToTxnRequest(self._sink_id, *producer, self._sink_id)

        def send() -> None:
            response = self._request(TRANSACTIONAL_ID, ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse)
            self._check(response.error_code)

        self._retry(send)

    def write(self, record_batches: Iterator[RecordBatch]) -> None:
        """Send the record batches, about SEND_BYTES at a time, and wait until all are acknowledged."""
        sending = Sending(self._cluster, self._options, self._sink_id)
        try:
            waiting: list[RecordBatch] = []
            size = 0
            for batch in record_batches:
                waiting.append(batch)
                size += len(batch.data)
                if size >= SEND_BYTES:
                    sending.send(waiting)
                    waiting, size = [], 0
            sending.send(waiting)
            sending.flush()
        except KafkaError as error:
            if error.code in FENCED:
                self._check(error.code)  # in the words for the sink, not for a partition
            raise
        finally:
            sending.abandon()

    def commit_micro_batch_id(self, producer: ProducerIdAndEpoch, micro_batch_id: int, topics: Sequence[str]) -> None:
        offset = TxnOffsetCommitRequestPartition(
            BATCH_ID_PARTITION, micro_batch_id, committed_metadata=MICRO_BATCH_ID_METADATA
        )
        request = TxnOffsetCommitRequest(
            self._sink_id,
            self._sink_id,
            *producer,
            topics=[TxnOffsetCommitRequestTopic(name, [offset]) for name in topics],
        )

        def send() -> None:
            response = self._request(
                GROUP, ApiKey.TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse, TXN_OFFSET_COMMIT_VERSIONS
            )
            for topic in response.topics:
                for partition in topic.partitions:
                    # Most ACLs for a writer have only WRITE.
                    needed = "; an exactly-once sink needs READ on its topic too, to note its micro-batches"
                    is_denied = partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    self._check(partition.error_code, f"topic {topic.name}{needed}" if is_denied else None)

        self._retry(send)

    def end(self, producer: ProducerIdAndEpoch, commit: bool) -> None:
        """Commit or abort the transaction. It is safe to retry: a coordinator repeats its decision.

        An abort waits only ABORT_TIMEOUT_MS for an unavailable cluster, because the coordinator aborts the transaction
        anyway after the transaction timeout.
        """
        request = EndTxnRequest(self._sink_id, *producer, commit)

        def send() -> None:
            response = self._request(TRANSACTIONAL_ID, ApiKey.END_TXN, request, EndTxnResponse, END_TXN_VERSIONS)
            self._check(response.error_code)

        self._retry(send, self._options.metadata_timeout_ms if commit else ABORT_TIMEOUT_MS)

    # --- requests ---------------------------------------------------------------------------------------------------

    def _request(
        self,
        kind: int,
        key: ApiKey,
        request: Message,
        response: type[M],
        versions: tuple[int, int] | None = None,
    ) -> M:
        if kind not in self._coordinators:
            self._coordinators[kind] = self._coordinator(kind)
        return self._cluster.channel(self._coordinators[kind]).ask(key, request, response, versions)

    def _coordinator(self, kind: int) -> int:
        (coordinator,) = self._cluster.coordinators(kind, [self._sink_id])
        self._check(coordinator.error_code)
        if coordinator.node_id not in self._cluster.addresses:
            self._check(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # it has just started or stopped
        return coordinator.node_id

    def _retry(self, action: Callable[[], T], timeout_ms: int | None = None) -> T:
        def attempt() -> T:
            try:
                return action()
            except (OSError, MalformedData, KafkaError):
                # The coordinator may have moved to another broker: the next attempt finds it again.
                self._coordinators.clear()
                raise

        return self._cluster.retry(attempt, timeout_ms or self._options.metadata_timeout_ms, TRANSACTION_RETRIABLE)

    def _check(self, error_code: int, message: str | None = None) -> None:
        """Raise KafkaError unless the code is 0."""
        if not error_code:
            return
        code = ErrorCode(error_code)
        if code in FENCED:
            message = f"{self._sink_id}: another run of this query has taken over, or the transaction timed out"
        raise KafkaError(code, f"{message or self._sink_id}: {code.name}")
