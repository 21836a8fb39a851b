"""One sink's transactions on the wire: each step is a request to the right coordinator, with retries.

The requests are those of clients before the second part of KIP-890 (AddPartitionsToTxn for partitions), which every
broker since 3.0 supports. That part protects from late requests of an earlier transaction; here a new epoch for every
transaction does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import RETRIABLE, Cluster, by_topic
from moldau.client.group_values import BATCH_NUMBER
from moldau.spark.exactly_once.committing import Producer
from moldau.spark.options import WriteOptions
from moldau.spark.sending import Batch, Sending
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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

GROUP: Final = 0
TRANSACTION: Final = 1
"""Key types of FindCoordinator."""
SEVERAL_KEYS: Final = (4, 6)
TAKING_OVER: Final = (0, 5)
CLIENT_VERSIONS: Final = (0, 3)
"""AddPartitionsToTxn from version 4 on is for brokers."""
EXPLICIT_GROUP: Final = (0, 4)
SAME_EPOCH_VERSIONS: Final = (0, 4)
STABLE_BY_NAME: Final = (8, 9)
TRANSACTION_RETRIABLE: Final = RETRIABLE | {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT}
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
SEND_BYTES: Final = 8 << 20
BATCH_ID_PARTITION: Final = 0
ABORT_TIMEOUT_MS: Final = 3_000


class KafkaWire:
    """Requests for one sink. Its transactional id and its group have the same name."""

    def __init__(self, cluster: Cluster, options: WriteOptions, sink_id: str, transaction_timeout_ms: int) -> None:
        self._cluster = cluster
        self._options = options
        self._sink_id = sink_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._coordinators: dict[int, int] = {}

    def take_over(self) -> Producer:
        """Get a new epoch. Waits until an earlier owner's open transaction is aborted or, if decided, committed."""
        request = InitProducerIdRequest(self._sink_id, self._transaction_timeout_ms)

        def send() -> Producer:
            response = self._request(TRANSACTION, ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse, TAKING_OVER)
            self._check(response.error_code)
            return Producer(response.producer_id, response.producer_epoch)

        return self._retry(send)

    def last_batch(self) -> int | None:
        """The highest batch id committed for any topic: a deleted topic has lost its own."""
        group = OffsetFetchRequestGroup(group_id=self._sink_id, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=True)

        def send() -> int | None:
            response = self._request(GROUP, ApiKey.OFFSET_FETCH, request, OffsetFetchResponse, STABLE_BY_NAME)
            (found,) = response.groups
            self._check(found.error_code)
            partitions = [each for topic in found.topics for each in topic.partitions]
            for each in partitions:
                self._check(each.error_code)
            return max((each.committed_offset for each in partitions if each.committed_offset >= 0), default=None)

        return self._retry(send)

    def add_partitions(self, producer: Producer, partitions: Sequence[TopicPartition]) -> None:
        topics = [AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic(partitions).items()]
        request = AddPartitionsToTxnRequest((), self._sink_id, *producer, topics)

        def send() -> None:
            response = self._request(
                TRANSACTION, ApiKey.ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, CLIENT_VERSIONS
            )
            results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
            codes = {ErrorCode(each.partition_error_code) for each in results} - {ErrorCode.NONE}
            # Valid partitions are rejected along with the others; their error does not say why.
            self._check(next(iter(codes - {ErrorCode.OPERATION_NOT_ATTEMPTED} or codes), ErrorCode.NONE))

        self._retry(send)

    def add_group(self, producer: Producer) -> None:
        request = AddOffsetsToTxnRequest(self._sink_id, *producer, self._sink_id)

        def send() -> None:
            response = self._request(TRANSACTION, ApiKey.ADD_OFFSETS_TO_TXN, request, AddOffsetsToTxnResponse)
            self._check(response.error_code)

        self._retry(send)

    def write(self, batches: Iterator[Batch]) -> None:
        sending = Sending(self._cluster, self._options, self._sink_id)
        try:
            waiting: list[Batch] = []
            size = 0
            for batch in batches:
                waiting.append(batch)
                size += len(batch.data)
                if size >= SEND_BYTES:
                    sending.send(waiting)
                    waiting, size = [], 0
            sending.send(waiting)
            sending.flush()
        except KafkaError as error:
            self._check(error.code, str(error))
        finally:
            sending.abandon()

    def note_batch(self, producer: Producer, batch_id: int, topics: Sequence[str]) -> None:
        batch_note = [TxnOffsetCommitRequestPartition(BATCH_ID_PARTITION, batch_id, committed_metadata=BATCH_NUMBER)]
        request = TxnOffsetCommitRequest(
            self._sink_id,
            self._sink_id,
            *producer,
            topics=[TxnOffsetCommitRequestTopic(name, batch_note) for name in topics],
        )

        def send() -> None:
            response = self._request(GROUP, ApiKey.TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse, EXPLICIT_GROUP)
            for topic in response.topics:
                for each in topic.partitions:
                    self._check(each.error_code)

        self._retry(send)

    def end(self, producer: Producer, commit: bool) -> None:
        """End the transaction. It is safe to retry: a coordinator repeats its decision.

        An abort only spares consumers the transaction timeout, so an unavailable cluster is not waited for.
        """
        request = EndTxnRequest(self._sink_id, *producer, commit)

        def send() -> None:
            response = self._request(TRANSACTION, ApiKey.END_TXN, request, EndTxnResponse, SAME_EPOCH_VERSIONS)
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
        nodes = self._cluster.nodes()
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[self._sink_id])
        response = self._cluster.ask_any(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, SEVERAL_KEYS)
        (found,) = response.coordinators
        self._check(found.error_code if found.node_id in nodes else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found.node_id

    def _retry(self, action: Callable[[], T], timeout_ms: int | None = None) -> T:
        def attempt() -> T:
            try:
                return action()
            except (OSError, MalformedData, KafkaError):
                self._coordinators.clear()
                raise

        return self._cluster.retry(attempt, timeout_ms or self._options.metadata_timeout_ms, TRANSACTION_RETRIABLE)

    def _check(self, error_code: int, message: str | None = None) -> None:
        if not error_code:
            return
        code = ErrorCode(error_code)
        if code in FENCED:
            message = f"{self._sink_id}: another run of this query has taken over, or the transaction timed out"
        raise KafkaError(code, f"{message or self._sink_id}: {code.name}")
