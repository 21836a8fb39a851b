"""One shard of the transaction coordinator as a machine: what it can be asked, what is laid over it, what it does by
itself.

A request is refused in its answer, never by an exception: also a refusal rests on what may not be committed yet, and
waits for it. A record is laid over the state when it is decided; what must not happen before it is committed is the
sending of markers, and that is an answer to the machine itself. An end that is decided is PREPARE_* until its markers
are written, and nothing but that makes it COMPLETE_*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.coordinator.machine import (
    NOTHING,
    Action,
    Answer,
    Client,
    CoordinatorRecord,
    Deadlines,
    Outcome,
    ProducerIdAndEpoch,
)
from moldau.coordinator.transaction import adding, ending, initializing, listing, serde
from moldau.coordinator.transaction.listing import TransactionFilter
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.coordinator.transaction.records import TransactionLogKey, TransactionLogValue
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import (
    COMPLETED,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    PREPARED,
    State,
    Transaction,
    record_of,
    tombstone_of,
    transaction_of,
)
from moldau.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import TransactionState as ListedTransaction
from moldau.wire.schema import Buffer

R = TypeVar("R")
INIT_FENCED_FROM: Final = 4
END_FENCED_FROM: Final = 2
END_BUMPS_FROM: Final = 5
END_SPARE_BYTES: Final = 64
"""More than the record of a transaction's end is longer than that of the transaction. One that could not be written
down would never end."""
ABORT_AGAIN_MS: Final = 1_000
"""When to try again to abort a transaction whose time is up, if no producer id was at hand or the log refused."""


class Transactions:
    """`version` gives the finalized transaction.version. `take_producer_id` raises KafkaError if none is at hand.
    `send` is to bring markers to their partitions, and when all are written to submit `markers_written`."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        coordinator_epoch: Callable[[], int],
        version: Callable[[], int],
        take_producer_id: Callable[[], int],
        send: Callable[[TransactionMarkers], None],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        """By their transactional ids."""
        self._settings = settings
        self._clock = clock
        self._coordinator_epoch = coordinator_epoch
        self._version = version
        self._take_producer_id = take_producer_id
        self._send = send
        self._deadlines = Deadlines()
        self._unwritten: dict[str, TransactionMarkers] = {}
        """Of every transaction whose end is decided."""

    # --- asked by producers -------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerIdRequest, client: Client) -> Outcome[InitProducerIdResponse]:
        try:
            after = self._initialized(request)
        except KafkaError as refused:
            return Outcome(_not_initialized(_for_older(refused.code, client.version, INIT_FENCED_FROM)))
        if after.state is State.PREPARE_ABORT:
            return self._end(after, _not_initialized(ErrorCode.CONCURRENT_TRANSACTIONS))
        response = InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return self._change(response, after)

    def _initialized(self, request: InitProducerIdRequest) -> Transaction:
        expected = initializing.check(request, self._settings)
        now_ms, timeout_ms = self._clock.now_ms(), request.transaction_timeout_ms
        assert request.transactional_id is not None
        before = self.transactions.get(request.transactional_id)
        if before is None:
            return initializing.created(request.transactional_id, self._take_producer_id(), timeout_ms, now_ms)
        return initializing.initialized(before, expected, timeout_ms, now_ms, self._version(), self._take_producer_id)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        client_version: int,
    ) -> Outcome[ErrorCode]:
        """One answer for all of them. `client_version` is the client's version of transactions: 0 where it adds
        partitions itself, 2 where they are added as it writes to them."""
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            before = self._known(transactional_id)
            after = adding.added(before, producer, partitions, client_version, self._clock.now_ms())
        except KafkaError as refused:
            return Outcome(refused.code)
        if after is before:
            return Outcome(ErrorCode.NONE)
        added = self._change(ErrorCode.NONE, after)
        added.spare_bytes = END_SPARE_BYTES
        return added

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> Outcome[dict[TopicPartition, ErrorCode]]:
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            return Outcome(adding.verified(self._known(transactional_id), producer, partitions))
        except KafkaError as refused:
            return Outcome(dict.fromkeys(partitions, refused.code))

    def end(self, request: EndTxnRequest, client: Client) -> Outcome[EndTxnResponse]:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        is_bumping = client.version >= END_BUMPS_FROM
        now_ms = self._clock.now_ms()
        try:
            before = self._known(request.transactional_id)
            if is_bumping:
                after = ending.ended_with_bump(before, producer, request.committed, now_ms, self._take_producer_id)
            else:
                after = ending.ended(before, producer, request.committed, now_ms)
        except KafkaError as refused:
            return Outcome(EndTxnResponse(error_code=_for_older(refused.code, client.version, END_FENCED_FROM)))
        told = ending.following_producer(after) if is_bumping else NO_PRODUCER
        response = EndTxnResponse(producer_id=told.producer_id, producer_epoch=told.producer_epoch)
        return Outcome(response) if after is before else self._end(after, response)

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST
            raise KafkaError(unknown)
        return transaction

    # --- asked by others ----------------------------------------------------------------------------------------

    def markers_written(self, markers: TransactionMarkers) -> Outcome[None]:
        """Into all of their partitions that still exist. Nothing comes of any but those that were sent last."""
        if self._unwritten.get(markers.transactional_id) is not markers:
            return NOTHING
        prepared = self.transactions[markers.transactional_id]
        return self._change(None, ending.completed(prepared, self._clock.now_ms()))

    def listed(self, wanted: TransactionFilter) -> Outcome[list[ListedTransaction]]:
        return Outcome(listing.listed(self.transactions.values(), wanted, self._clock.now_ms()))

    def describe(self, transactional_id: str) -> Outcome[DescribedTransaction]:
        return Outcome(listing.describe(transactional_id, self.transactions.get(transactional_id)))

    # --- what comes of it ---------------------------------------------------------------------------------------

    def _end(self, prepared: Transaction, response: R) -> Outcome[R]:
        """The end is decided. Where nothing was written there is nothing to mark."""
        if not prepared.partitions:
            return self._change(response, prepared, ending.completed(prepared, self._clock.now_ms()))
        markers = self._markers(prepared)
        committed: Promise[Any] = Promise()
        committed.then(lambda told: None if isinstance(told, KafkaError) else self._send(markers))
        outcome = self._change(response, prepared, markers=markers)
        outcome.answers = [Answer(committed, None)]
        return outcome

    def _change(self, response: R, *steps: Transaction, markers: TransactionMarkers | None = None) -> Outcome[R]:
        applied = partial(self._settle, steps[-1], markers)
        return Outcome(response, [record_of(step) for step in steps], applied=applied)

    def _settle(self, transaction: Transaction, markers: TransactionMarkers | None) -> None:
        """The transaction is what was decided: what of that the log does not keep is added."""
        transactional_id = transaction.transactional_id
        applied = self.transactions[transactional_id]
        assert (applied.state, applied.producer) == (transaction.state, transaction.producer)
        assert (transaction.state in PREPARED) == (markers is not None)
        self.transactions[transactional_id] = transaction
        if markers is not None:
            self._unwritten[transactional_id] = markers
        else:
            self._unwritten.pop(transactional_id, None)
        if transaction.state is not State.ONGOING:
            self._deadlines.cancel(transactional_id)
        elif transactional_id not in self._deadlines:
            self._watch(transaction)

    def _markers(self, prepared: Transaction) -> TransactionMarkers:
        return TransactionMarkers(
            prepared.transactional_id,
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.state is State.PREPARE_COMMIT,
            self._coordinator_epoch(),
            prepared.client_version,
            tuple(sorted(prepared.partitions)),
        )

    # --- by itself ----------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def due(self, now_ms: int) -> Iterator[Action]:
        return self._deadlines.due(now_ms)

    def expire(self, now_ms: int) -> Iterator[Outcome[None]]:
        """Transactional ids that nobody used for long, one by one."""
        oldest_ms = now_ms - self._settings.id_expiration_ms
        for transaction in list(self.transactions.values()):
            is_idle = transaction.state is State.EMPTY or transaction.state in COMPLETED
            if is_idle and transaction.last_update_ms <= oldest_ms:
                yield Outcome(None, [tombstone_of(transaction)])

    def waiting(self) -> Iterator[Promise[Any]]:
        """Nobody: all are answered when what was decided is committed."""
        return iter(())

    def _watch(self, open_transaction: Transaction) -> None:
        """It is aborted when its time is up. It began by the clock on the wall, here or elsewhere; what it has left is
        never more than all of it."""
        left_ms = open_transaction.start_ms + open_transaction.timeout_ms - self._clock.now_ms()
        self._abort_after_ms(open_transaction.transactional_id, min(max(left_ms, 0), open_transaction.timeout_ms))

    def _abort_after_ms(self, transactional_id: str, delay_ms: int) -> None:
        at_ms = self._clock.elapsed_ms() + delay_ms
        self._deadlines.schedule(transactional_id, at_ms, partial(self._time_is_up, transactional_id))

    def _time_is_up(self, transactional_id: str) -> Outcome[None]:
        transaction = self.transactions[transactional_id]
        assert transaction.state is State.ONGOING

        def later(_: KafkaError) -> Outcome[None]:
            self._abort_after_ms(transactional_id, ABORT_AGAIN_MS)
            return NOTHING

        try:
            prepared = ending.fenced_and_aborted(
                transaction, self._clock.now_ms(), self._version(), self._take_producer_id
            )
        except KafkaError as refused:
            return later(refused)
        outcome = self._end(prepared, None)
        outcome.refused = later
        return outcome

    # --- the log ------------------------------------------------------------------------------------------------

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return serde.encode_record(record, self._version())

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        record = serde.decode_record(key, value)
        if record is not None:
            self.apply(record)

    def apply(self, record: CoordinatorRecord) -> None:
        key, value = record
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            return
        assert isinstance(value, TransactionLogValue)
        self.transactions[key.transactional_id] = transaction_of(key.transactional_id, value)

    def loaded(self) -> None:
        """The whole log was replayed, and all of it is committed: ends that were decided are brought to theirs."""
        for transaction in list(self.transactions.values()):
            if transaction.state is State.ONGOING:
                self._watch(transaction)
            elif transaction.state in PREPARED:
                self._resume(transaction)

    def _resume(self, prepared: Transaction) -> None:
        markers = self._markers(prepared)
        self._unwritten[prepared.transactional_id] = markers
        if markers.partitions:
            self._send(markers)
        else:
            # As Apache Kafka leaves them, for a moment: there is nothing to write before the last word.
            at_ms = self._clock.elapsed_ms()
            self._deadlines.schedule(prepared.transactional_id, at_ms, partial(self.markers_written, markers))


def _not_initialized(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


def _for_older(code: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Clients of old do not know the newer word for having been replaced (KIP-588)."""
    is_unknown = code is ErrorCode.PRODUCER_FENCED and version < fenced_from
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else code
