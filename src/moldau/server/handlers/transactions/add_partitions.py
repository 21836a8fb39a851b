"""AddPartitionsToTxn v0–5 and AddOffsetsToTxn v0–4: add partitions to a transaction before it writes to them.

AddPartitionsToTxn up to v3 comes from clients, for one transaction. From v4 on it comes from brokers, for several: to
verify what a client added before, or to add the partition it starts to write to (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.coordinator.machine import Outcome
from moldau.coordinator.transaction.transactions import Transactions
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_ACTION, GROUP_READ, TOPIC_WRITE, TRANSACTION_WRITE
from moldau.server.handlers.replies import TimeLimit, combine_replies, in_turns, reply_or_error
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BROKERS_MIN_VERSION = 4
"""From this version on, brokers send the request for their producers; below it, producers send it themselves."""
PRODUCER_FENCED_MIN_VERSION = 2
CLIENT_VERSION = 0
"""The transaction version of clients that add partitions by name; those that add them by writing use version 2."""
BROKER_VERSION = 2
TRANSACTIONS_A_TURN: Final = 100
COMMIT_WAIT_MS = 5_000
"""A shard whose log lost its in-sync replicas commits nothing: transactions of other shards in the same request must
not wait for it."""


class AddPartitionsToTxn:
    api = ApiKey.ADD_PARTITIONS_TO_TXN
    versions = (0, 5)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, coordinator: TransactionCoordinator, timers: Timers) -> None:
        self._current = current
        self._coordinator = coordinator
        self._timers = timers

    def answer(
        self, request: AddPartitionsToTxnRequest, caller: Caller
    ) -> AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]:
        if caller.version >= BROKERS_MIN_VERSION:
            if not caller.access.allows(CLUSTER_ACTION):
                return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            limit = TimeLimit(
                self._timers, COMMIT_WAIT_MS, lambda index: _timed_out_result(request.transactions[index])
            )
            return in_turns(
                self._timers,
                request.transactions,
                lambda transaction: self._result(transaction, caller),
                lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
                TRANSACTIONS_A_TURN,
                limit,
            )
        transaction = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            request.v3_and_below_topics,
        )
        return combine_replies(
            [self._result(transaction, caller)],
            lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results),
        )

    def _result(
        self, request: AddPartitionsToTxnTransaction, caller: Caller
    ) -> AddPartitionsToTxnResult | Promise[AddPartitionsToTxnResult]:
        version = caller.version
        requested = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
        partitions = list(dict.fromkeys(requested))
        is_from_client = version < BROKERS_MIN_VERSION
        if is_from_client and not caller.access.allows(TRANSACTION_WRITE, request.transactional_id):
            denied_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _result(request, dict.fromkeys(partitions, denied_code))
        errors = self._errors(request.topics, caller.access if is_from_client else None)
        if errors:
            # If one partition cannot be added, none is added.
            return _result(request, dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | errors)
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.transactional_id, lambda transactions: _decide(transactions, request, partitions, version)
            ),
            lambda error: _result(request, dict.fromkeys(partitions, error_for_version(error.code, version))),
        )

    def _errors(
        self, topics: Sequence[AddPartitionsToTxnTopic], access: Access | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Return the error codes of partitions that cannot be added. `access` is that of a client; brokers have checked
        it when their client wrote."""
        errors: dict[TopicPartition, ErrorCode] = {}
        for topic in topics:
            code, count = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0
            if access is not None and (topic.name in INTERNAL_TOPICS or not access.allows(TOPIC_WRITE, topic.name)):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif (image := self._current.image.topics.get(topic.name)) is not None:
                count = len(image.partitions)
            for index in topic.partitions:
                if not 0 <= index < count:
                    errors[TopicPartition(topic.name, index)] = code
        return errors


def _decide(
    transactions: Transactions,
    request: AddPartitionsToTxnTransaction,
    partitions: Sequence[TopicPartition],
    version: int,
) -> Outcome[AddPartitionsToTxnResult]:
    if request.verify_only:
        verified = transactions.verify_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, partitions
        )
        assert isinstance(verified.response, dict), "verification never waits"
        return Outcome(_result(request, verified.response))
    client_version = BROKER_VERSION if version >= BROKERS_MIN_VERSION else CLIENT_VERSION
    added = transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, partitions, client_version
    )
    assert isinstance(added.response, ErrorCode), "adding waits for the log only"
    codes = dict.fromkeys(partitions, error_for_version(added.response, version))
    return Outcome(
        _result(request, codes),
        added.records,
        added.answers,
        on_applied=added.on_applied,
        spare_bytes=added.spare_bytes,
    )


def error_for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code that a client of this version knows."""
    is_old = code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_MIN_VERSION
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else code


def _timed_out_result(request: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    partitions = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
    return _result(request, dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _result(request: AddPartitionsToTxnTransaction, codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(request.transactional_id, [_topic_result(topic, codes) for topic in request.topics])


def _topic_result(
    topic: AddPartitionsToTxnTopic, codes: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnTopicResult:
    results = [
        AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, index)]) for index in topic.partitions
    ]
    return AddPartitionsToTxnTopicResult(topic.name, results)


class AddOffsetsToTxn:
    api = ApiKey.ADD_OFFSETS_TO_TXN
    versions = (0, 4)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator, groups: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._groups = groups

    def answer(
        self, request: AddOffsetsToTxnRequest, caller: Caller
    ) -> AddOffsetsToTxnResponse | Promise[AddOffsetsToTxnResponse]:
        if not caller.access.allows(TRANSACTION_WRITE, request.transactional_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not caller.access.allows(GROUP_READ, request.group_id):
            return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)

        def add(transactions: Transactions) -> Outcome[ErrorCode]:
            offsets_partition = self._groups.topic.partition_of(request.group_id)
            return transactions.add_partitions(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                [offsets_partition],
                CLIENT_VERSION,
            )

        added = reply_or_error(lambda: self._coordinator.submit(request.transactional_id, add), _error_code)
        return combine_replies(
            [added], lambda codes: AddOffsetsToTxnResponse(error_code=error_for_version(codes[0], caller.version))
        )


def _error_code(error: KafkaError) -> ErrorCode:
    return error.code
