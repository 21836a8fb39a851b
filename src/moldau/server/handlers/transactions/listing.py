"""ListTransactions v0–2 and DescribeTransactions v0: what the coordinator on this node knows of transactions."""

from __future__ import annotations

from moldau.base.errors import KafkaError
from moldau.base.later import Later
from moldau.base.limits import COORDINATORS_FOUND_BYTES_MAX, TRANSACTION_REQUEST_BYTES_MAX
from moldau.coordinator.transaction.listing import TransactionFilter, filter_of
from moldau.runtime.transaction_coordinator import TransactionCoordinator
from moldau.server.handlers.answering import answered, gathered
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class ListTransactions:
    api = ApiKey.LIST_TRANSACTIONS
    versions = (0, 2)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def answer(
        self, ask: ListTransactionsRequest, caller: Caller
    ) -> ListTransactionsResponse | Later[ListTransactionsResponse]:
        return answered(lambda: self._listed(filter_of(ask)), _list_refused)

    def _listed(self, wanted: TransactionFilter) -> ListTransactionsResponse | Later[ListTransactionsResponse]:
        shards = self._coordinator.submit_all(lambda transactions: transactions.listed(wanted))
        return gathered(
            shards,
            lambda found: (
                next((_list_refused(each) for each in found if isinstance(each, KafkaError)), None)
                or ListTransactionsResponse(
                    unknown_state_filters=wanted.unknown_states,
                    transaction_states=[each for of_shard in found for each in of_shard],
                )
            ),
        )


def _list_refused(refused: KafkaError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=refused.code)


class DescribeTransactions:
    api = ApiKey.DESCRIBE_TRANSACTIONS
    versions = (0, 0)
    request_bytes_max = COORDINATORS_FOUND_BYTES_MAX

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def answer(
        self, ask: DescribeTransactionsRequest, caller: Caller
    ) -> DescribeTransactionsResponse | Later[DescribeTransactionsResponse]:
        # Each once: a transaction may have thousands of partitions, and its id may be two bytes.
        found = [self._described(each) for each in dict.fromkeys(ask.transactional_ids)]
        return gathered(found, lambda states: DescribeTransactionsResponse(transaction_states=states))

    def _described(self, transactional_id: str) -> TransactionState | Later[TransactionState]:
        return answered(
            lambda: self._coordinator.submit(
                transactional_id, lambda transactions: transactions.described(transactional_id)
            ),
            lambda refused: TransactionState(refused.code, transactional_id),
        )
