"""ListTransactions v0–2 and DescribeTransactions v0: the transactions of the coordinator on this node."""

from __future__ import annotations

from typing import Any, Final

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX, TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, when_ready
from moldau.coordinator.transaction.listing import TransactionFilter, filter_of
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Access
from moldau.security.acls.requirements import TOPIC_DESCRIBE, TRANSACTION_DESCRIBE
from moldau.server.handlers.replies import combine_replies, in_turns, reply_or_error
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

MATCHED_CHARACTERS_MAX = 4_096
"""Characters of transactional ids that are matched in one iteration of the event loop. The slowest pattern takes
10 µs for one character."""
DESCRIBED_A_TURN: Final = 200
Response = ListTransactionsResponse | Promise[ListTransactionsResponse]


class ListTransactions:
    api = ApiKey.LIST_TRANSACTIONS
    versions = (0, 2)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
        self._timers = timers

    def answer(self, request: ListTransactionsRequest, caller: Caller) -> Response:
        return reply_or_error(lambda: self._list(filter_of(request), caller.access), _list_error)

    def _list(self, filters: TransactionFilter, access: Access) -> Response:
        all_but_pattern = filters._replace(pattern=None)
        replies = self._coordinator.shards.submit_to_all(lambda transactions: transactions.listed(all_but_pattern))
        response = combine_replies(
            replies,
            lambda replies: (
                next((_list_error(each) for each in replies if isinstance(each, KafkaError)), None)
                or ListTransactionsResponse(
                    unknown_state_filters=filters.unknown_states,
                    transaction_states=[
                        each
                        for of_shard in replies
                        for each in of_shard
                        if access.allows_quietly(TRANSACTION_DESCRIBE, each.transactional_id)
                    ],
                )
            ),
        )
        if filters.pattern is None:
            return response
        return when_ready(response, lambda listed: self._match(filters.pattern, listed))

    def _match(self, pattern: Any, listed: ListTransactionsResponse) -> Promise[ListTransactionsResponse]:
        """Keep the transactions that match, some in each iteration of the event loop: a bad pattern is slow."""
        remaining, matching = iter(listed.transaction_states), []
        promise: Promise[ListTransactionsResponse] = Promise()

        def match_some() -> None:
            characters = 0
            for transaction in remaining:
                if pattern.fullmatch(transaction.transactional_id) is not None:
                    matching.append(transaction)
                characters += len(transaction.transactional_id)
                if characters >= MATCHED_CHARACTERS_MAX:
                    self._timers.soon(match_some)
                    return
            listed.transaction_states = matching
            promise.complete(listed)

        match_some()
        return promise


def _list_error(error: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)


class DescribeTransactions:
    api = ApiKey.DESCRIBE_TRANSACTIONS
    versions = (0, 0)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator, timers: Timers) -> None:
        self._coordinator = coordinator
        self._timers = timers

    def answer(
        self, request: DescribeTransactionsRequest, caller: Caller
    ) -> DescribeTransactionsResponse | Promise[DescribeTransactionsResponse]:
        # Each id once: a transaction may have thousands of partitions, and its id may be two bytes.
        return in_turns(
            self._timers,
            list(dict.fromkeys(request.transactional_ids)),
            lambda each: self._describe_transaction(each, caller.access),
            lambda states: DescribeTransactionsResponse(transaction_states=states),
            DESCRIBED_A_TURN,
        )

    def _describe_transaction(
        self, transactional_id: str, access: Access
    ) -> TransactionState | Promise[TransactionState]:
        if not access.allows(TRANSACTION_DESCRIBE, transactional_id):
            return TransactionState(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, transactional_id)
        described = reply_or_error(
            lambda: self._coordinator.submit(
                transactional_id, lambda transactions: transactions.describe(transactional_id)
            ),
            lambda error: TransactionState(error.code, transactional_id),
        )
        return when_ready(described, lambda state: _with_described_topics(state, access))


def _with_described_topics(state: TransactionState, access: Access) -> TransactionState:
    """Leave out the topics that the client may not describe."""
    state.topics = [each for each in state.topics if access.allows_quietly(TOPIC_DESCRIBE, each.topic)]
    return state
