"""Asks the transaction coordinator whether a partition is part of a transaction, or adds it, before the partition's
first records are appended (KIP-890). Records outside of a transaction would block read_committed consumers forever,
because no marker would follow.

Each coordinator gets one request at a time, with the partitions that have queued up for it, as many as fit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.internal_errors import complete_alone
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

log = logging.getLogger("moldau.coordinator")
Codes = dict[TopicPartition, ErrorCode]
"""The error code of each partition that was not verified."""
NOT_ATTEMPTED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Only another partition of the same request had an error, for example because its topic was deleted."""
NOT_REACHED: Final = frozenset(
    {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSUPPORTED_VERSION}
)
"""There is no answer: callers get NETWORK_EXCEPTION, and tell their clients to retry."""
REQUEST_BYTES_MAX: Final = TRANSACTION_REQUEST_BYTES_MAX // 2
"""The limit for one request: one that is too long would be refused with everything in it, on every retry."""
PARTITION_BYTES: Final = 20
"""An upper bound for the size of a partition in a request, or of a topic or transaction without its name."""


class InTransaction(NamedTuple):
    """The transaction of a write. `adds`: the write itself adds the partitions (transaction version 2)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class _Write(NamedTuple):
    """The partitions of one write that wait for a request, or for its response."""

    partitions: frozenset[TopicPartition]
    size: int
    """An upper bound for the bytes that the write adds to a request."""
    promise: Promise[Codes]


_Sent = dict[str, tuple[InTransaction, list[_Write]]]
"""The writes of one request, by transactional id."""


class TransactionVerifier:
    def __init__(self, coordinator_of: Callable[[str], int], brokers: BrokerClient, timers: Timers) -> None:
        """`coordinator_of` returns the node that coordinates a transactional id, or raises KafkaError."""
        self._coordinator_of = coordinator_of
        self._brokers = brokers
        self._timers = timers
        self._queues: dict[int, dict[InTransaction, deque[_Write]]] = {}
        self._in_flight: set[int] = set()

    def verify(self, transaction: InTransaction, partitions: Iterable[TopicPartition]) -> Promise[Codes]:
        """Return a promise of the errors by partition; empty if all are part of the transaction."""
        requested = frozenset(partitions)
        result: Promise[Codes] = Promise()
        try:
            node_id = self._coordinator_of(transaction.transactional_id)
        except KafkaError as error:
            result.complete(dict.fromkeys(requested, error.code))
            return result
        queue = self._queues.setdefault(node_id, {})
        queue.setdefault(transaction, deque()).append(_Write(requested, _size(transaction, requested), result))
        self._send_next(node_id)
        return result

    def _send_next(self, node_id: int) -> None:
        queue = self._queues.get(node_id)
        if not queue or node_id in self._in_flight:
            return
        # A request can have one epoch of a producer; its other epochs go into the next request.
        batch: _Sent = {}
        size = 0
        for transaction in list(queue):
            if transaction.transactional_id in batch:
                continue
            writes = queue[transaction]
            taken: list[_Write] = []
            while writes and (size == 0 or size + writes[0].size <= REQUEST_BYTES_MAX):
                size += writes[0].size
                taken.append(writes.popleft())
            if taken:
                batch[transaction.transactional_id] = (transaction, taken)
                del queue[transaction]
            if writes:
                queue[transaction] = writes  # after the others, if it had its turn
                break
        if not queue:
            del self._queues[node_id]
        request = AddPartitionsToTxnRequest(
            [_request_entry(transaction, _partitions(writes)) for transaction, writes in batch.values()]
        )
        self._in_flight.add(node_id)
        response = self._brokers.ask(node_id, ApiKey.ADD_PARTITIONS_TO_TXN, request)
        response.then(partial(self._on_response, node_id, batch))

    def _on_response(
        self,
        node_id: int,
        sent: _Sent,
        response: AddPartitionsToTxnResponse | KafkaError,
    ) -> None:
        self._in_flight.discard(node_id)
        codes = _codes(response)
        for transactional_id, (transaction, writes) in sent.items():
            results = codes if isinstance(codes, ErrorCode) else codes.get(transactional_id, {})
            partitions = _partitions(writes)
            for requested, _, promise in writes:
                errors = _errors(requested, results)
                if set(errors.values()) == NOT_ATTEMPTED and requested < partitions:
                    # The error is in a partition of another write: verify this write's partitions alone.
                    self.verify(transaction, requested).then(promise.complete)
                else:
                    complete_alone(promise, errors, log, "its coordinator")
        self._timers.soon(lambda: self._send_next(node_id))


def _partitions(writes: Iterable[_Write]) -> frozenset[TopicPartition]:
    return frozenset().union(*(write.partitions for write in writes))


def _size(transaction: InTransaction, partitions: frozenset[TopicPartition]) -> int:
    """Return an upper bound for the size of a write in a request."""
    topics = {each.topic for each in partitions}
    strings = len(transaction.transactional_id.encode()) + sum(map(len, topics))
    return strings + PARTITION_BYTES * (1 + len(topics) + len(partitions))


def _request_entry(transaction: InTransaction, partitions: frozenset[TopicPartition]) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    return AddPartitionsToTxnTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        not transaction.adds,
        [AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic.items()],
    )


def _codes(response: AddPartitionsToTxnResponse | KafkaError) -> dict[str, Codes] | ErrorCode:
    """Return the error codes by transaction, or the error of the whole request."""
    if isinstance(response, KafkaError):
        return ErrorCode.NETWORK_EXCEPTION if response.code in NOT_REACHED else response.code
    if response.error_code:
        return ErrorCode(response.error_code)
    return {
        result.transactional_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _errors(requested: frozenset[TopicPartition], results: Codes | ErrorCode) -> Codes:
    """Return the errors of the requested partitions. A partition that the response lacks gets UNKNOWN_SERVER_ERROR."""
    if isinstance(results, ErrorCode):
        return dict.fromkeys(requested, results)
    codes = {each: results.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in requested}
    return {each: code for each, code in codes.items() if code}
