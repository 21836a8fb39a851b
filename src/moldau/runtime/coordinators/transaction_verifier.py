"""Before a partition takes the first records of a transaction, the coordinator is asked whether it is part of it, or
told that it now is (KIP-890): what belongs to no transaction would hold readers up for ever.

One request at a time is under way to each coordinator, and takes along all that has come up meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.broker.other_brokers import Brokers
from moldau.wire.apis import ApiKey
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

Codes = dict[TopicPartition, ErrorCode]
"""Of the partitions that were not verified, why."""
FOR_OTHERS: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Nothing was wrong but with another partition of the same question, as one whose topic was deleted."""
NOT_REACHED: Final = frozenset(
    {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSUPPORTED_VERSION}
)


QUESTION_BYTES_MAX: Final = TRANSACTION_REQUEST_BYTES_MAX // 2
"""One that is too long would be refused with all that is in it, now and when it is asked again."""
PARTITION_BYTES: Final = 20
"""More than a partition takes in a request, or the head of a topic or a transaction without its name."""


class InTransaction(NamedTuple):
    """Whose partitions they are said to be, and whether they become so by being asked for (transaction version 2)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool


class _Asked:
    __slots__ = ("partitions", "waiting")

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.waiting: list[tuple[frozenset[TopicPartition], Promise[Codes]]] = []


class TransactionVerifier:
    def __init__(self, coordinator_of: Callable[[str], int], brokers: Brokers, timers: Timers) -> None:
        """`coordinator_of` gives the node that coordinates a transactional id, or raises KafkaError."""
        self._coordinator_of = coordinator_of
        self._brokers = brokers
        self._timers = timers
        self._queues: dict[int, dict[InTransaction, _Asked]] = {}
        self._under_way: set[int] = set()

    def verify(self, transaction: InTransaction, partitions: Iterable[TopicPartition]) -> Promise[Codes]:
        """Comes to what is wrong, by partition: nothing if they are part of the transaction."""
        wanted = frozenset(partitions)
        answer: Promise[Codes] = Promise()
        try:
            node_id = self._coordinator_of(transaction.transactional_id)
        except KafkaError as refused:
            answer.complete(dict.fromkeys(wanted, refused.code))
            return answer
        asked = self._queues.setdefault(node_id, {}).setdefault(transaction, _Asked())
        asked.partitions |= wanted
        asked.waiting.append((wanted, answer))
        self._ask(node_id)
        return answer

    def _ask(self, node_id: int) -> None:
        queue = self._queues.get(node_id)
        if not queue or node_id in self._under_way:
            return
        # Of several epochs of one producer the request has room for one; the others go with the next.
        now: dict[str, tuple[InTransaction, _Asked]] = {}
        size = 0
        for transaction in list(queue):
            if transaction.transactional_id in now:
                continue
            size += _size(transaction, queue[transaction])
            if now and size > QUESTION_BYTES_MAX:
                break
            now[transaction.transactional_id] = (transaction, queue.pop(transaction))
        if not queue:
            del self._queues[node_id]
        request = AddPartitionsToTxnRequest([_request_entry(transaction, asked) for transaction, asked in now.values()])
        self._under_way.add(node_id)
        answer = self._brokers.ask(node_id, ApiKey.ADD_PARTITIONS_TO_TXN, request)
        answer.then(partial(self._answered, node_id, now))

    def _answered(
        self,
        node_id: int,
        asked: dict[str, tuple[InTransaction, _Asked]],
        response: AddPartitionsToTxnResponse | KafkaError,
    ) -> None:
        self._under_way.discard(node_id)
        codes = _codes(response)
        for transactional_id, (transaction, each) in asked.items():
            told = codes if isinstance(codes, ErrorCode) else codes.get(transactional_id, {})
            for wanted, waiting in each.waiting:
                wrong = _wrong(wanted, told)
                if set(wrong.values()) == FOR_OTHERS and wanted < each.partitions:
                    # They wrote to other partitions in other requests: by itself this one may well be good.
                    self.verify(transaction, wanted).then(waiting.complete)
                else:
                    waiting.complete(wrong)
        self._timers.soon(lambda: self._ask(node_id))


def _size(transaction: InTransaction, asked: _Asked) -> int:
    """What it takes in a request, or more."""
    topics = {each.topic for each in asked.partitions}
    strings = len(transaction.transactional_id.encode()) + sum(map(len, topics))
    return strings + PARTITION_BYTES * (1 + len(topics) + len(asked.partitions))


def _request_entry(transaction: InTransaction, asked: _Asked) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for each in sorted(asked.partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    return AddPartitionsToTxnTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        not transaction.adds,
        [AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic.items()],
    )


def _codes(response: AddPartitionsToTxnResponse | KafkaError) -> dict[str, Codes] | ErrorCode:
    """By transaction; or what was wrong with the whole."""
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


def _wrong(wanted: frozenset[TopicPartition], told: Codes | ErrorCode) -> Codes:
    if isinstance(told, ErrorCode):
        return dict.fromkeys(wanted, told)
    codes = {each: told.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in wanted}
    return {each: code for each, code in codes.items() if code}
