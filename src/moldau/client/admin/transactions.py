"""Requests about transactions to transaction coordinators and partition leaders, and how to end a transaction.

Requests to a coordinator that is loading or has moved, or to a leader that has moved, are retried until the timeout. A
missing topic is reported at once. Errors of a transactional id or a partition are values or KafkaErrors; each tool
words them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.admin.transaction_values import (
    ActiveProducer,
    DescribedTransaction,
    ListedTransaction,
    state_name,
)
from moldau.client.cluster import TRANSACTIONAL_ID, Cluster
from moldau.client.requests.ask import raise_error
from moldau.wire.apis import ApiKey
from moldau.wire.messages import describe_producers, describe_transactions
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
"""The number of transactional ids, or partitions, in one request."""
TERMINATION_TIMEOUT_MS: Final = 30_000
"""The transaction timeout of a terminated id, until its next producer sets another."""

Described = dict[str, DescribedTransaction | KafkaError]
Producers = dict[TopicPartition, list[ActiveProducer] | KafkaError]


class Transactions:
    """The transactions of a cluster. Requests are repeated until `timeout_ms` has passed; each part of a call that is
    sent by itself (500 ids or partitions) has that time."""

    def __init__(self, cluster: Cluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    # --- list and describe ------------------------------------------------------------------------------------------

    def listed(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Return all transactions that pass the filters; each broker lists those it coordinates."""
        request = ListTransactionsRequest(states, producer_ids, longer_than_ms, pattern or None)

        def attempt() -> list[ListedTransaction]:
            transactions: list[ListedTransaction] = []
            for node_id in list(self._cluster.nodes()):
                response = self._cluster.channel(node_id).ask(
                    ApiKey.LIST_TRANSACTIONS, request, ListTransactionsResponse
                )
                if response.error_code:
                    raise BrokerRefused(node_id, ErrorCode(response.error_code))
                transactions += [
                    ListedTransaction(
                        each.transactional_id, node_id, each.producer_id, state_name(each.transaction_state)
                    )
                    for each in response.transaction_states
                ]
            return transactions

        return self._retry(attempt)

    def described(self, transactional_ids: Iterable[str]) -> Described:
        """Return each transactional id, or its error."""
        transactions: Described = {}
        for chunk in _chunks(list(dict.fromkeys(transactional_ids))):
            transactions |= self._retry(partial(self._describe, chunk))
        return transactions

    def _describe(self, transactional_ids: Sequence[str]) -> Described:
        api = describe_transactions
        transactions: Described = {}
        for coordinator, ids in self._by_coordinator(transactional_ids):
            response = self._cluster.channel(coordinator).ask(
                ApiKey.DESCRIBE_TRANSACTIONS,
                api.DescribeTransactionsRequest(ids),
                api.DescribeTransactionsResponse,
            )
            transactions.update(
                (each.transactional_id, _transaction(each, coordinator)) for each in response.transaction_states
            )
        return transactions

    def producers(self, partitions: Iterable[TopicPartition], broker_id: int | None = None) -> Producers:
        """Return the producers of each partition, or its error, from its leader or from this broker."""
        results: Producers = {}
        for chunk in _chunks(list(partitions)):
            results |= self._retry(partial(self._describe_producers, chunk, broker_id))
        return results

    def _describe_producers(self, partitions: Sequence[TopicPartition], broker_id: int | None) -> Producers:
        api = describe_producers
        if broker_id is None:
            by_node = self._cluster.by_leader(partitions)
        elif broker_id in self._cluster.nodes():
            by_node = {broker_id: list(partitions)}
        else:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"There is no broker {broker_id} in the cluster")
        results: Producers = {}
        for node_id, its_partitions in by_node.items():
            request = api.DescribeProducersRequest(
                [api.TopicRequest(*each) for each in by_topic(its_partitions).items()]
            )
            response = self._cluster.channel(node_id).ask(
                ApiKey.DESCRIBE_PRODUCERS, request, api.DescribeProducersResponse
            )
            for topic in response.topics:
                for each in topic.partitions:
                    where = TopicPartition(topic.name, each.partition_index)
                    results[where] = _producers(each, is_leader=broker_id is None)
        return results

    # --- end a transaction ------------------------------------------------------------------------------------------

    def abort(self, where: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """End the open transaction of a producer in one partition, bypassing its coordinator."""
        marker = WritableTxnMarker(
            producer_id,
            producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(where.topic, [where.partition])],
            coordinator_epoch=max(0, coordinator_epoch),
        )
        request = WriteTxnMarkersRequest([marker])

        def attempt() -> None:
            channel = self._cluster.channel(self._cluster.leader(where))
            response = channel.ask(ApiKey.WRITE_TXN_MARKERS, request, WriteTxnMarkersResponse)
            for result in response.markers:
                for topic in result.topics:
                    for each in topic.partitions:
                        raise_error(each.error_code)

        self._retry(attempt)

    def terminate(self, transactional_id: str) -> None:
        """Abort the open transaction of the id, if there is one, and fence its producer."""
        request = InitProducerIdRequest(transactional_id, TERMINATION_TIMEOUT_MS)

        def attempt() -> None:
            ((coordinator, _),) = self._by_coordinator([transactional_id])
            response = self._cluster.channel(coordinator).ask(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            raise_error(response.error_code)

        self._retry(attempt)

    def _by_coordinator(self, transactional_ids: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        """Group the ids by coordinator."""
        by_node: dict[int, list[str]] = {}
        for coordinator in self._cluster.coordinators(TRANSACTIONAL_ID, transactional_ids):
            raise_error(coordinator.error_code, coordinator.error_message)
            by_node.setdefault(coordinator.node_id, []).append(coordinator.key)
        yield from by_node.items()

    def _retry(self, action: Callable[[], T]) -> T:
        return self._cluster.retry(action, self._timeout_ms, TRANSIENT)


class BrokerRefused(KafkaError):
    """An error of a request that went to every broker, with the id of the broker."""

    def __init__(self, node_id: int, code: ErrorCode) -> None:
        super().__init__(code)
        self.node_id = node_id


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def _transaction(state: describe_transactions.TransactionState, coordinator: int) -> DescribedTransaction | KafkaError:
    if state.error_code:
        return _final_error(KafkaError(ErrorCode(state.error_code)))
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
    """Retry if the leader has moved; a broker that the caller named is not replaced by another."""
    if partition.error_code:
        error = KafkaError(ErrorCode(partition.error_code), partition.error_message)
        return _final_error(error) if is_leader else error
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


def _final_error(error: KafkaError) -> KafkaError:
    """Return the error if it is final; raise a temporary one, so that the request is retried."""
    if error.code in TRANSIENT:
        raise error
    return error
