"""AddPartitionsToTxn v0–5 and AddOffsetsToTxn v0–4: add partitions to a transaction before it writes to them.

AddPartitionsToTxn up to v3 comes from clients, for one transaction. From v4 on it comes from brokers, for several: to
verify what a client added before, or to add the partition it starts to write to (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import COMMIT_WAIT_MS, TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, finish, split
from moldau.base.topic_names import INTERNAL_TOPICS
from moldau.base.turns import CHECKS_A_TURN, SLOW_ITEMS_A_TURN
from moldau.coordinator.machine import Outcome
from moldau.coordinator.transaction.transaction import TV_0, TV_2
from moldau.coordinator.transaction.transactions import Transactions
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import CLUSTER_ACTION, GROUP_READ, TOPIC_WRITE, TRANSACTION_WRITE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import (
    TimeLimit,
    combine_replies,
    item_count,
    reply_or_error,
    run_steps,
    steps_when_ready,
)
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BROKERS_MIN_VERSION = 4
"""From this version on, brokers send the request for their producers; below it, producers send it themselves."""
PRODUCER_FENCED_MIN_VERSION = 2
CodeOf = Callable[[str, int], ErrorCode]
"""Returns the error code of a partition, by its topic and index."""


class AddPartitionsToTxn(Handler):
    api = ApiKey.ADD_PARTITIONS_TO_TXN
    versions = (0, 5)
    needs = (TRANSACTION_WRITE, TOPIC_WRITE, CLUSTER_ACTION)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, transactions: TransactionCoordinator, timers: Timers) -> None:
        self._current = current
        self._coordinator = transactions
        self._timers = timers

    def answer(
        self, request: AddPartitionsToTxnRequest, caller: Caller
    ) -> AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]:
        if caller.version >= BROKERS_MIN_VERSION:
            if not caller.access.allows(CLUSTER_ACTION):
                return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            limit = TimeLimit(self._timers, COMMIT_WAIT_MS, lambda _: _same(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            transactions, combine = request.transactions, _response_to_broker
        else:
            limit, combine = None, _response_to_client
            transactions = [
                AddPartitionsToTxnTransaction(
                    request.v3_and_below_transactional_id,
                    request.v3_and_below_producer_id,
                    request.v3_and_below_producer_epoch,
                    False,
                    request.v3_and_below_topics,
                )
            ]
        return run_steps(self._timers, self._response_steps(transactions, caller, combine, limit))

    def _response_steps(
        self,
        transactions: Sequence[AddPartitionsToTxnTransaction],
        caller: Caller,
        combine: Callable[[list[AddPartitionsToTxnResult]], AddPartitionsToTxnResponse],
        limit: TimeLimit | None,
    ) -> Steps[AddPartitionsToTxnResponse | Promise[AddPartitionsToTxnResponse]]:
        replies = []
        turn = TurnItems(SLOW_ITEMS_A_TURN)
        for transaction in transactions:
            replies.append((yield from self._steps(transaction, caller)))
            if turn.ends_after(1):
                yield
        results = partial(_results_steps, transactions, combine)
        codes = combine_replies(replies, lambda codes: codes, limit)
        if not isinstance(codes, Promise):
            return (yield from results(codes))
        if item_count(topic.partitions for each in transactions for topic in each.topics) <= CHECKS_A_TURN:
            return codes.map(lambda codes: finish(results(codes)))
        return steps_when_ready(self._timers, codes, results)

    def _steps(self, request: AddPartitionsToTxnTransaction, caller: Caller) -> Steps[CodeOf | Promise[CodeOf]]:
        """Add the partitions of a transaction, or verify them; return the error code of each."""
        version = caller.version
        is_from_client = version < BROKERS_MIN_VERSION
        if is_from_client and not caller.access.allows(TRANSACTION_WRITE, request.transactional_id):
            return _same(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        access = caller.access if is_from_client else None
        checks: dict[str, tuple[ErrorCode, int]] = {}
        is_any_wrong = False
        partitions: dict[TopicPartition, None] = {}
        turn = TurnItems(CHECKS_A_TURN)
        for topic in request.topics:
            _, count = checks[topic.name] = self._check_topic(topic.name, access)
            for some in split(topic.partitions, CHECKS_A_TURN) if topic.partitions else ((),):
                is_any_wrong = is_any_wrong or any(not 0 <= index < count for index in some)
                if not is_any_wrong:
                    partitions.update(dict.fromkeys(TopicPartition(topic.name, index) for index in some))
                if turn.ends_after(len(some)):
                    yield
        if is_any_wrong:
            # If one partition cannot be added, none is added.
            return lambda topic, index: _code_of(checks[topic], index)
        return reply_or_error(
            lambda: self._coordinator.submit(
                request.transactional_id, lambda transactions: _decide(transactions, request, list(partitions), version)
            ),
            lambda error: _same(error_for_version(error.code, version)),
        )

    def _check_topic(self, name: str, access: Access | None) -> tuple[ErrorCode, int]:
        """Return the error code of partitions that cannot be added, and how many can. `access` is that of a client;
        brokers have checked it when their client wrote."""
        if access is not None and (name in INTERNAL_TOPICS or not access.allows(TOPIC_WRITE, name)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0
        if name in self._current.image.views:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, 0
        image = self._current.image.topics.get(name)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0 if image is None else len(image.partitions)


def _decide(
    transactions: Transactions,
    request: AddPartitionsToTxnTransaction,
    partitions: Sequence[TopicPartition],
    version: int,
) -> Outcome[CodeOf]:
    if request.verify_only:
        verified = transactions.verify_partitions(
            request.transactional_id, request.producer_id, request.producer_epoch, partitions
        )
        assert isinstance(verified.response, dict), "verification never waits"
        codes = verified.response
        return Outcome(lambda topic, index: codes[TopicPartition(topic, index)])
    client_transaction_version = TV_2 if version >= BROKERS_MIN_VERSION else TV_0
    added = transactions.add_partitions(
        request.transactional_id, request.producer_id, request.producer_epoch, partitions, client_transaction_version
    )
    assert isinstance(added.response, ErrorCode), "adding waits for the log only"
    return Outcome(
        _same(error_for_version(added.response, version)),
        added.records,
        added.answers,
        on_applied=added.on_applied,
        spare_bytes=added.spare_bytes,
    )


def error_for_version(code: ErrorCode, version: int) -> ErrorCode:
    """Return the error code that a client of this version knows."""
    is_old = code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_MIN_VERSION
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else code


def _code_of(check: tuple[ErrorCode, int], index: int) -> ErrorCode:
    code, count = check
    return ErrorCode.OPERATION_NOT_ATTEMPTED if 0 <= index < count else code


def _same(code: ErrorCode) -> CodeOf:
    return lambda *_: code


def _response_to_client(results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _response_to_broker(results: list[AddPartitionsToTxnResult]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _results_steps(
    transactions: Sequence[AddPartitionsToTxnTransaction],
    combine: Callable[[list[AddPartitionsToTxnResult]], AddPartitionsToTxnResponse],
    codes: Sequence[CodeOf],
) -> Steps[AddPartitionsToTxnResponse]:
    """Return the response to all transactions, with the codes of each."""
    results = []
    turn = TurnItems(CHECKS_A_TURN)
    for transaction, code_of in zip(transactions, codes, strict=True):
        topics = []
        for topic in transaction.topics:
            partitions: list[AddPartitionsToTxnPartitionResult] = []
            for some in split(topic.partitions, CHECKS_A_TURN) if topic.partitions else ((),):
                partitions += [AddPartitionsToTxnPartitionResult(index, code_of(topic.name, index)) for index in some]
                if turn.ends_after(len(some)):
                    yield
            topics.append(AddPartitionsToTxnTopicResult(topic.name, partitions))
        results.append(AddPartitionsToTxnResult(transaction.transactional_id, topics))
    return combine(results)


class AddOffsetsToTxn(Handler):
    api = ApiKey.ADD_OFFSETS_TO_TXN
    versions = (0, 4)
    needs = (TRANSACTION_WRITE, GROUP_READ)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, transactions: TransactionCoordinator, groups: GroupCoordinator) -> None:
        self._coordinator = transactions
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
                TV_0,
            )

        added = reply_or_error(lambda: self._coordinator.submit(request.transactional_id, add), _error_code)
        return combine_replies(
            [added], lambda codes: AddOffsetsToTxnResponse(error_code=error_for_version(codes[0], caller.version))
        )


def _error_code(error: KafkaError) -> ErrorCode:
    return error.code
