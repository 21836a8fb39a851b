"""AddPartitionsToTxn v0–5 and AddOffsetsToTxn v0–4: partitions become part of a transaction before it writes to them.

AddPartitionsToTxn up to v3 comes from clients, for one transaction. From v4 on it comes from brokers, for several: to
verify what a client said before, or to add what it begins to write to (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.names import INTERNAL_TOPICS
from moldau.base.promise import Promise
from moldau.coordinator.machine import Outcome
from moldau.coordinator.transaction.transactions import Transactions
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.server.handlers.answering import Limit, combine_replies, reply_or_error
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

BROKERS_FROM_VERSION = 4
FENCED_FROM_VERSION = 2
CLIENT_VERSION = 0
"""The transaction version of who adds partitions by name; those who add them by writing speak version 2."""
BROKER_VERSION = 2
COMMIT_WAIT_MS = 5_000
"""A shard whose log lost its in-sync replicas commits nothing: those of other shards, asked about in the same request,
are not to wait for it."""


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
        if caller.version >= BROKERS_FROM_VERSION:
            results = [self._result(each, caller.version) for each in request.transactions]
            limit = Limit(self._timers, COMMIT_WAIT_MS, lambda place: _late(request.transactions[place]))
            return combine_replies(results, lambda done: AddPartitionsToTxnResponse(results_by_transaction=done), limit)
        one = AddPartitionsToTxnTransaction(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            False,
            request.v3_and_below_topics,
        )
        return combine_replies(
            [self._result(one, caller.version)],
            lambda done: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=done[0].topic_results),
        )

    def _result(
        self, request: AddPartitionsToTxnTransaction, version: int
    ) -> AddPartitionsToTxnResult | Promise[AddPartitionsToTxnResult]:
        named = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
        partitions = list(dict.fromkeys(named))
        refused = {each: code for each in partitions if (code := self._refusal(each, version))}
        if refused:
            # One that cannot be added means that none is.
            return _result(request, dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.transactional_id, lambda transactions: _decided(transactions, request, partitions, version)
            ),
            lambda refused: _result(request, dict.fromkeys(partitions, said(refused.code, version))),
        )

    def _refusal(self, partition: TopicPartition, version: int) -> ErrorCode:
        if version < BROKERS_FROM_VERSION and partition.topic in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._current.image.topics.get(partition.topic)
        is_known = topic is not None and 0 <= partition.partition < len(topic.partitions)
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _decided(
    transactions: Transactions,
    request: AddPartitionsToTxnTransaction,
    partitions: Sequence[TopicPartition],
    version: int,
) -> Outcome[AddPartitionsToTxnResult]:
    if request.verify_only:
        verified = transactions.verify_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, partitions
        )
        assert isinstance(verified.response, dict), "what is only looked up is known at once"
        return Outcome(_result(request, verified.response))
    client_version = BROKER_VERSION if version >= BROKERS_FROM_VERSION else CLIENT_VERSION
    added = transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, partitions, client_version
    )
    assert isinstance(added.response, ErrorCode), "whoever adds waits for nobody but the log"
    codes = dict.fromkeys(partitions, said(added.response, version))
    return Outcome(
        _result(request, codes),
        added.records,
        added.answers,
        on_applied=added.on_applied,
        spare_bytes=added.spare_bytes,
    )


def said(code: ErrorCode, version: int) -> ErrorCode:
    """Older clients know of no other way to be told."""
    is_old = code is ErrorCode.PRODUCER_FENCED and version < FENCED_FROM_VERSION
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else code


def _late(request: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    named = [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partitions]
    return _result(request, dict.fromkeys(named, ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _result(request: AddPartitionsToTxnTransaction, codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(request.transactional_id, [_of_topic(topic, codes) for topic in request.topics])


def _of_topic(topic: AddPartitionsToTxnTopic, codes: dict[TopicPartition, ErrorCode]) -> AddPartitionsToTxnTopicResult:
    told = [
        AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, index)]) for index in topic.partitions
    ]
    return AddPartitionsToTxnTopicResult(topic.name, told)


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
        def add(transactions: Transactions) -> Outcome[ErrorCode]:
            kept_in = self._groups.topic.partition_of(request.group_id)
            return transactions.add_partitions(
                request.transactional_id, request.producer_id, request.producer_epoch, [kept_in], CLIENT_VERSION
            )

        added = reply_or_error(lambda: self._coordinator.submit(request.transactional_id, add), _code)
        return combine_replies(
            [added], lambda codes: AddOffsetsToTxnResponse(error_code=said(codes[0], caller.version))
        )


def _code(refused: KafkaError) -> ErrorCode:
    return refused.code
