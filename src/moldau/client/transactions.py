"""What transaction coordinators, and the leaders of partitions, are asked about transactions, and how one is ended.

A coordinator that is loading, or has moved, is asked again until the time is over; so is a leader that has moved. A
topic that is not there is told at once. Errors of a transactional id or of a partition are values or KafkaErrors; whose
words they are told in is each tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster, by_topic
from moldau.client.transaction_values import (
    ActiveProducer,
    DescribedTransaction,
    ListedTransaction,
    state_name,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages import describe_producers, describe_transactions
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

T = TypeVar("T")

TRANSIENT: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
AT_ONCE: Final = 500
"""Transactional ids, or partitions, that are asked about in one request."""
TRANSACTIONAL_ID: Final = 1
"""FindCoordinator's type of keys."""
MANY_COORDINATORS: Final = (4, 6)
"""FindCoordinator with several keys in one request."""
TERMINATION_TIMEOUT_MS: Final = 30_000
"""The transaction timeout that a terminated id is left with, until its next producer brings another."""

Described = dict[str, DescribedTransaction | KafkaError]
Producers = dict[TopicPartition, list[ActiveProducer] | KafkaError]


class Transactions:
    """The transactions of a cluster. Every call ends within `timeout_ms`, or raises."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    # --- what there is ----------------------------------------------------------------------------------------------

    def listed(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """All that pass the filters, broker by broker, as each knows those it coordinates."""
        request = ListTransactionsRequest(states, producer_ids, longer_than_ms, pattern or None)

        def ask() -> list[ListedTransaction]:
            found: list[ListedTransaction] = []
            for node_id in list(self._cluster.nodes()):
                answer = self._cluster.channel(node_id).ask(ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse)
                if answer.error_code:
                    raise BrokerRefused(node_id, ErrorCode(answer.error_code))
                found += [
                    ListedTransaction(
                        each.transactional_id, node_id, each.producer_id, state_name(each.transaction_state)
                    )
                    for each in answer.transaction_states
                ]
            return found

        return self._patiently(ask)

    def described(self, transactional_ids: Iterable[str]) -> Described:
        """Each transactional id, or why not."""
        found: Described = {}
        for some in _chunks(list(dict.fromkeys(transactional_ids))):
            found |= self._patiently(partial(self._describe, some))
        return found

    def _describe(self, transactional_ids: Sequence[str]) -> Described:
        api = describe_transactions
        found: Described = {}
        for coordinator, theirs in self._by_coordinator(transactional_ids):
            answer = self._cluster.channel(coordinator).ask(
                ApiKey.DESCRIBE_TRANSACTIONS,
                api.DescribeTransactionsRequest(theirs),
                api.DescribeTransactionsResponse,
            )
            found.update((each.transactional_id, _described(each, coordinator)) for each in answer.transaction_states)
        return found

    def producers(self, partitions: Iterable[TopicPartition], broker_id: int | None = None) -> Producers:
        """Who writes to each partition, as its leader knows, or as this broker does; or why that is not told."""
        found: Producers = {}
        for some in _chunks(list(partitions)):
            found |= self._patiently(partial(self._describe_producers, some, broker_id))
        return found

    def _describe_producers(self, partitions: Sequence[TopicPartition], broker_id: int | None) -> Producers:
        api = describe_producers
        if broker_id is None:
            asked = self._cluster.by_leader(partitions)
        elif broker_id in self._cluster.nodes():
            asked = {broker_id: list(partitions)}
        else:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"There is no broker {broker_id} in the cluster")
        found: Producers = {}
        for node_id, theirs in asked.items():
            request = api.DescribeProducersRequest([api.TopicRequest(*each) for each in by_topic(theirs).items()])
            answer = self._cluster.channel(node_id).ask(
                ApiKey.DESCRIBE_PRODUCERS, request, api.DescribeProducersResponse
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    found[where] = _producers(each, is_leader=broker_id is None)
        return found

    # --- how one is ended -------------------------------------------------------------------------------------------

    def abort(self, where: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Ends the open transaction of a producer in one partition, past its coordinator."""
        marker = WritableTxnMarker(
            producer_id,
            producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(where.topic, [where.partition])],
            coordinator_epoch=max(0, coordinator_epoch),
        )
        request = WriteTxnMarkersRequest([marker])

        def ask() -> None:
            channel = self._cluster.channel(self._cluster.leader(where))
            answer = channel.ask(ApiKey.WRITE_TXN_MARKERS, request, WriteTxnMarkersResponse)
            for written in answer.markers:
                for topic in written.topics:
                    for each in topic.partitions:
                        _raise(each.error_code)

        self._patiently(ask)

    def terminate(self, transactional_id: str) -> None:
        """Aborts whatever transaction the id has open, and fences its producer off."""
        request = InitProducerIdRequest(transactional_id, TERMINATION_TIMEOUT_MS)

        def ask() -> None:
            ((coordinator, _),) = self._by_coordinator([transactional_id])
            answer = self._cluster.channel(coordinator).ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            _raise(answer.error_code)

        self._patiently(ask)

    def _by_coordinator(self, transactional_ids: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """Which broker coordinates which of these ids."""
        self._cluster.nodes()
        request = FindCoordinatorRequest(key_type=TRANSACTIONAL_ID, coordinator_keys=transactional_ids)
        answer = self._cluster.ask_any(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, MANY_COORDINATORS)
        led: dict[int, list[str]] = {}
        for found in answer.coordinators:
            _raise(found.error_code, found.error_message)
            led.setdefault(found.node_id, []).append(found.key)
        yield from led.items()

    def _patiently(self, action: Callable[[], T]) -> T:
        return self._cluster.retry(action, self._timeout_ms, TRANSIENT)


class BrokerRefused(KafkaError):
    """A refusal of a request that went to every broker, and whose it was."""

    def __init__(self, node_id: int, code: ErrorCode) -> None:
        super().__init__(code)
        self.node_id = node_id


def _raise(error_code: int, message: str | None = None) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)


def _chunks(asked: Sequence[T]) -> Iterator[Sequence[T]]:
    for begin in range(0, len(asked), AT_ONCE):
        yield asked[begin : begin + AT_ONCE]


def _described(state: describe_transactions.TransactionState, coordinator: int) -> DescribedTransaction | KafkaError:
    if state.error_code:
        return _settled(KafkaError(ErrorCode(state.error_code)))
    return DescribedTransaction(
        state.transactional_id,
        coordinator,
        state.producer_id,
        state.producer_epoch,
        state_name(state.transaction_state),
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        tuple(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions),
    )


def _producers(partition: describe_producers.PartitionResponse, is_leader: bool) -> list[ActiveProducer] | KafkaError:
    """A leader that has moved is asked for again; a broker that was named is not replaced by another."""
    if partition.error_code:
        error = KafkaError(ErrorCode(partition.error_code), partition.error_message)
        return _settled(error) if is_leader else error
    return [
        ActiveProducer(
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in partition.active_producers
    ]


def _settled(error: KafkaError) -> KafkaError:
    """The error, if it will not pass by itself; raises what will, to be asked again."""
    if error.code in TRANSIENT:
        raise error
    return error
