"""Transactions as administrators see them: ListTransactions, DescribeTransactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.pattern import compile_pattern
from moldau.base.steps import Steps, TurnItems, split
from moldau.coordinator.transaction.transaction import STATES_BY_TITLE, State, Transaction, partitions_by_topic
from moldau.wire.messages.describe_transactions import TopicData
from moldau.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from moldau.wire.messages.list_transactions import ListTransactionsRequest
from moldau.wire.messages.list_transactions import TransactionState as ListedTransaction


class TransactionFilter(NamedTuple):
    """Which transactions to list. An empty or None criterion matches all."""

    states: frozenset[State]
    unknown_states: tuple[str, ...]
    """Requested states that do not exist. A request with only such states lists nothing."""
    producer_ids: frozenset[int]
    older_than_ms: int | None
    pattern: Any
    """A compiled RE2 pattern that must match the whole transactional id."""

    def takes(self, transaction: Transaction, now_ms: int) -> bool:
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if (self.states or self.unknown_states) and transaction.state not in self.states:
            return False
        # A transaction that never began counts as very old, as in Kafka.
        if self.older_than_ms is not None and now_ms - transaction.start_ms <= self.older_than_ms:
            return False
        return self.pattern is None or self.pattern.fullmatch(transaction.transactional_id) is not None


def filter_of(request: ListTransactionsRequest) -> TransactionFilter:
    """Return the filter of a request. Raise KafkaError if its pattern is invalid."""
    return TransactionFilter(
        states=frozenset(STATES_BY_TITLE[name] for name in request.state_filters if name in STATES_BY_TITLE),
        unknown_states=tuple(dict.fromkeys(name for name in request.state_filters if name not in STATES_BY_TITLE)),
        producer_ids=frozenset(request.producer_id_filters),
        older_than_ms=request.duration_filter if request.duration_filter >= 0 else None,
        pattern=compile_pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None,
    )


def list_transactions(
    transactions: Mapping[str, Transaction], criteria: TransactionFilter, now_ms: int, turn: TurnItems
) -> Steps[list[ListedTransaction]]:
    listed: list[ListedTransaction] = []
    for some in split(list(transactions), turn.items_a_turn):
        found = filter(None, map(transactions.get, some))  # those that were not removed in an earlier step
        listed += [
            ListedTransaction(each.transactional_id, each.producer_id, each.state.title)
            for each in found
            if criteria.takes(each, now_ms)
        ]
        if turn.ends_after(len(some)):
            yield
    return listed


def describe(transactional_id: str, transaction: Transaction | None) -> DescribedTransaction:
    if transaction is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return DescribedTransaction(code, transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic, numbers) for topic, numbers in partitions_by_topic(transaction).items()],
    )
