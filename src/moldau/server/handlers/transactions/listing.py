"""ListTransactions v0–2 and DescribeTransactions v0: what the coordinator on this node knows of transactions."""

from __future__ import annotations

from typing import Any

from moldau.base.clock import Timers
from moldau.base.errors import KafkaError
from moldau.base.limits import COORDINATORS_FOUND_BYTES_MAX, TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, when_ready
from moldau.coordinator.transaction.listing import TransactionFilter, filter_of
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.server.handlers.answering import combine_replies, reply_or_error
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

MATCHED_IN_A_TURN = 4_096
"""Characters of transactional ids; the worst of patterns takes 10 µs for one."""
Response = ListTransactionsResponse | Promise[ListTransactionsResponse]


class ListTransactions:
    api = ApiKey.LIST_TRANSACTIONS
    versions = (0, 2)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
        self._timers = timers

    def answer(self, request: ListTransactionsRequest, caller: Caller) -> Response:
        return reply_or_error(lambda: self._listed(filter_of(request)), _list_refused)

    def _listed(self, wanted: TransactionFilter) -> Response:
        all_but_pattern = wanted._replace(pattern=None)
        shards = self._coordinator.submit_all(lambda transactions: transactions.listed(all_but_pattern))
        listed = combine_replies(
            shards,
            lambda found: (
                next((_list_refused(each) for each in found if isinstance(each, KafkaError)), None)
                or ListTransactionsResponse(
                    unknown_state_filters=wanted.unknown_states,
                    transaction_states=[each for of_shard in found for each in of_shard],
                )
            ),
        )
        if wanted.pattern is None:
            return listed
        return when_ready(listed, lambda whole: self._matched(wanted.pattern, whole))

    def _matched(self, pattern: Any, listed: ListTransactionsResponse) -> Promise[ListTransactionsResponse]:
        """Keeps what the pattern matches, a piece in each turn of the loop: a bad one takes its time."""
        left, matching = iter(listed.transaction_states), []
        answer: Promise[ListTransactionsResponse] = Promise()

        def go_on() -> None:
            characters = 0
            for each in left:
                if pattern.fullmatch(each.transactional_id) is not None:
                    matching.append(each)
                characters += len(each.transactional_id)
                if characters >= MATCHED_IN_A_TURN:
                    self._timers.soon(go_on)
                    return
            listed.transaction_states = matching
            answer.complete(listed)

        go_on()
        return answer


def _list_refused(refused: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=refused.code)


class DescribeTransactions:
    api = ApiKey.DESCRIBE_TRANSACTIONS
    versions = (0, 0)
    request_bytes_max = COORDINATORS_FOUND_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def answer(
        self, request: DescribeTransactionsRequest, caller: Caller
    ) -> DescribeTransactionsResponse | Promise[DescribeTransactionsResponse]:
        # Each once: a transaction may have thousands of partitions, and its id may be two bytes.
        found = [self._describe_transaction(each) for each in dict.fromkeys(request.transactional_ids)]
        return combine_replies(found, lambda states: DescribeTransactionsResponse(transaction_states=states))

    def _describe_transaction(self, transactional_id: str) -> TransactionState | Promise[TransactionState]:
        return reply_or_error(
            lambda: self._coordinator.submit(
                transactional_id, lambda transactions: transactions.describe(transactional_id)
            ),
            lambda refused: TransactionState(refused.code, transactional_id),
        )
