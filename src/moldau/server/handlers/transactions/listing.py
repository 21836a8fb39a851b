"""ListTransactions v0–2 and DescribeTransactions v0: the transactions of the coordinator on this node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX, TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, when_ready
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import CHARACTERS_A_TURN, CHECKS_A_TURN, LISTED_A_TURN
from moldau.coordinator.machine import Outcome
from moldau.coordinator.transaction.listing import TransactionFilter, filter_of
from moldau.coordinator.transaction.transactions import Transactions
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import TOPIC_DESCRIBE, TRANSACTION_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import combine_replies, reply_or_error, run_steps, uneven_in_turns
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.list_transactions import TransactionState as ListedTransaction

TRANSACTION_COST: Final = 10
Response = ListTransactionsResponse | Promise[ListTransactionsResponse]


class ListTransactions(Handler):
    api = ApiKey.LIST_TRANSACTIONS
    versions = (0, 2)
    needs = (TRANSACTION_DESCRIBE,)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, transactions: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = transactions
        self._timers = timers

    def answer(self, request: ListTransactionsRequest, caller: Caller) -> Response:
        try:
            filters = filter_of(request)
        except KafkaError as error:
            return _list_error(error)
        return run_steps(self._timers, self._steps(filters, caller.access))

    def _steps(self, filters: TransactionFilter, access: Access) -> Steps[Response]:
        turn = TurnItems(LISTED_A_TURN)
        try:
            replies = yield from self._coordinator.shards.read_all(lambda each: _read(each, filters, access, turn))
        except KafkaError as error:
            return _list_error(error)
        return combine_replies(replies, lambda parts: _list_response(parts, filters.unknown_states))


def _read(
    transactions: Transactions, filters: TransactionFilter, access: Access, turn: TurnItems
) -> Steps[list[ListedTransaction]]:
    """List the transactions of a shard that the client may describe."""
    kept: list[ListedTransaction] = []
    listed = yield from transactions.listed(filters._replace(pattern=None), turn)
    for some in split(listed, LISTED_A_TURN) if listed else ((),):
        kept += [each for each in some if access.allows_quietly(TRANSACTION_DESCRIBE, each.transactional_id)]
        if turn.ends_after(len(some)):
            yield
    return kept if filters.pattern is None else (yield from _matching(filters.pattern, kept))


def _matching(pattern: Any, listed: Sequence[ListedTransaction]) -> Steps[list[ListedTransaction]]:
    """Keep the transactions that match; a bad pattern is slow."""
    matching = []
    turn = TurnItems(CHARACTERS_A_TURN)
    for transaction in listed:
        if pattern.fullmatch(transaction.transactional_id) is not None:
            matching.append(transaction)
        if turn.ends_after(len(transaction.transactional_id)):
            yield
    return matching


def _list_response(
    parts: Sequence[list[ListedTransaction] | KafkaError], unknown_states: Sequence[str]
) -> ListTransactionsResponse:
    states: list[ListedTransaction] = []
    for part in parts:
        if not isinstance(part, KafkaError):
            states += part
        elif part.code is not ErrorCode.NOT_COORDINATOR:  # the transactions of that shard are on another node now
            return _list_error(part)
    return ListTransactionsResponse(unknown_state_filters=unknown_states, transaction_states=states)


def _list_error(error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)


class DescribeTransactions(Handler):
    api = ApiKey.DESCRIBE_TRANSACTIONS
    versions = (0, 0)
    needs = (TRANSACTION_DESCRIBE, TOPIC_DESCRIBE)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, transactions: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = transactions
        self._timers = timers

    def answer(
        self, request: DescribeTransactionsRequest, caller: Caller
    ) -> DescribeTransactionsResponse | Promise[DescribeTransactionsResponse]:
        # Each id once: a transaction may have thousands of partitions, and its id may be two bytes.
        return uneven_in_turns(
            self._timers,
            list(dict.fromkeys(request.transactional_ids)),
            lambda each: self._describe_transaction(each, caller.access),
            lambda states: DescribeTransactionsResponse(transaction_states=states),
            CHECKS_A_TURN,
        )

    def _describe_transaction(self, transactional_id: str, access: Access) -> tuple[Any, int]:
        """Return the transaction, or a promise of it, and what it costs."""
        cost = TRANSACTION_COST
        if not access.allows(TRANSACTION_DESCRIBE, transactional_id):
            return TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id), cost

        def describe(transactions: Transactions) -> Outcome[TransactionState]:
            nonlocal cost
            transaction = transactions.transactions.get(transactional_id)
            cost += 0 if transaction is None else len(transaction.partitions)
            return transactions.describe(transactional_id)

        described = reply_or_error(
            lambda: self._coordinator.submit(transactional_id, describe),
            lambda error: TransactionState(error.code, transactional_id),
        )
        return when_ready(described, lambda state: _with_described_topics(state, access)), cost


def _with_described_topics(state: TransactionState, access: Access) -> TransactionState:
    """Leave out the topics that the client may not describe."""
    state.topics = [each for each in state.topics if access.allows_quietly(TOPIC_DESCRIBE, each.topic)]
    return state
