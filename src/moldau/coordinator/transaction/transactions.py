"""One shard of the transaction coordinator as a state machine: its requests, its records and its deadlines.

A request is refused by an error code in its response, never by an exception: a refusal too depends on records that may
not be committed yet, and must wait for them. Records are applied as soon as they are decided. Only the markers must
not be sent before the records are committed, so sending them is an answer to the machine itself. A transaction is
PREPARE_* until its markers are written, and only then becomes COMPLETE_*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from moldau.base.buffers import Buffer
from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.coordinator.machine import (
    NOTHING,
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
from moldau.wire.log_records.transactions import TransactionLogKey, TransactionLogValue
from moldau.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.list_transactions import TransactionState as ListedTransaction

R = TypeVar("R")
INIT_FENCED_MIN_VERSION: Final = 4
END_FENCED_MIN_VERSION: Final = 2
END_BUMPS_EPOCH_MIN_VERSION: Final = 5
END_SPARE_BYTES: Final = 64
"""An upper bound of how much longer the record of the end is than the record of the transaction. Without this reserve
the record of the end could be too large, and the transaction would never end."""
ABORT_RETRY_MS: Final = 1_000
"""When to retry the abort of an expired transaction, if no producer id was available or the log refused the record."""


class Transactions:
    """`transaction_version` returns that of the cluster. `take_producer_id` raises KafkaError if none is available.
    `send` writes markers to their partitions and submits `markers_written` when all are written."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        coordinator_epoch: Callable[[], int],
        transaction_version: Callable[[], int],
        take_producer_id: Callable[[], int],
        send: Callable[[TransactionMarkers], None],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        """By transactional id."""
        self._settings = settings
        self._clock = clock
        self._coordinator_epoch = coordinator_epoch
        self._transaction_version = transaction_version
        self._take_producer_id = take_producer_id
        self._send = send
        self.deadlines = Deadlines()
        self._pending_markers: dict[str, TransactionMarkers] = {}
        """The markers of every PREPARE_* transaction, by transactional id."""

    # --- requests of producers ----------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerIdRequest, client: Client) -> Outcome[InitProducerIdResponse]:
        try:
            after = self._initialize(request)
        except KafkaError as error:
            return Outcome(_init_error(_code_for_version(error.code, client.version, INIT_FENCED_MIN_VERSION)))
        if after.state is State.PREPARE_ABORT:
            return self._end(after, _init_error(ErrorCode.CONCURRENT_TRANSACTIONS))
        response = InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
        return self._change(response, after)

    def _initialize(self, request: InitProducerIdRequest) -> Transaction:
        expected = initializing.check(request, self._settings)
        now_ms, timeout_ms = self._clock.now_ms(), request.transaction_timeout_ms
        assert request.transactional_id is not None
        before = self.transactions.get(request.transactional_id)
        if before is None:
            if len(self.transactions) >= self._settings.ids_max:
                # Kafka has no such limit, and no error for it. Clients show this one, and do not retry.
                raise KafkaError(ErrorCode.POLICY_VIOLATION)
            return initializing.create(request.transactional_id, self._take_producer_id(), timeout_ms, now_ms)
        return initializing.initialize(
            before, expected, timeout_ms, now_ms, self._transaction_version(), self._take_producer_id
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        client_transaction_version: int,
    ) -> Outcome[ErrorCode]:
        """Add all partitions or none. `client_transaction_version` is TV_0 if the client adds partitions itself, TV_2
        if the broker adds them when the client writes to them."""
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            before = self._find(transactional_id)
            after = adding.add(before, producer, partitions, client_transaction_version, self._clock.now_ms())
        except KafkaError as error:
            return Outcome(error.code)
        if after is before:
            return Outcome(ErrorCode.NONE)
        outcome = self._change(ErrorCode.NONE, after)
        outcome.spare_bytes = END_SPARE_BYTES
        return outcome

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> Outcome[dict[TopicPartition, ErrorCode]]:
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            return Outcome(adding.verify(self._find(transactional_id), producer, partitions))
        except KafkaError as error:
            return Outcome(dict.fromkeys(partitions, error.code))

    def end(self, request: EndTxnRequest, client: Client) -> Outcome[EndTxnResponse]:
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        is_bumping = client.version >= END_BUMPS_EPOCH_MIN_VERSION
        now_ms = self._clock.now_ms()
        try:
            before = self._find(request.transactional_id)
            if is_bumping:
                after = ending.end_with_bump(before, producer, request.committed, now_ms, self._take_producer_id)
            else:
                after = ending.end(before, producer, request.committed, now_ms)
        except KafkaError as error:
            return Outcome(
                EndTxnResponse(error_code=_code_for_version(error.code, client.version, END_FENCED_MIN_VERSION))
            )
        following = ending.following_producer(after) if is_bumping else NO_PRODUCER
        response = EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.producer_epoch)
        return Outcome(response) if after is before else self._end(after, response)

    def _find(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST)
        return transaction

    # --- other requests -----------------------------------------------------------------------------------------

    def markers_written(self, markers: TransactionMarkers) -> Outcome[None]:
        """Complete the transaction: its markers are in all partitions that still exist. Ignore markers that are not
        the ones sent last."""
        if self._pending_markers.get(markers.transactional_id) is not markers:
            return NOTHING
        prepared = self.transactions[markers.transactional_id]
        return self._change(None, ending.complete(prepared, self._clock.now_ms()))

    def listed(self, criteria: TransactionFilter, turn: TurnItems) -> Steps[list[ListedTransaction]]:
        """List transactions in steps: each is as it was in its step, if it is not gone by then."""
        return listing.list_transactions(self.transactions, criteria, self._clock.now_ms(), turn)

    def describe(self, transactional_id: str) -> Outcome[DescribedTransaction]:
        return Outcome(listing.describe(transactional_id, self.transactions.get(transactional_id)))

    # --- outcomes -----------------------------------------------------------------------------------------------

    def _end(self, prepared: Transaction, response: R) -> Outcome[R]:
        """Return the outcome of a prepared end. A transaction without partitions needs no markers: it completes."""
        if not prepared.partitions:
            return self._change(response, prepared, ending.complete(prepared, self._clock.now_ms()))
        markers = self._markers(prepared)
        committed: Promise[Any] = Promise()
        committed.then(lambda result: None if isinstance(result, KafkaError) else self._send(markers))
        outcome = self._change(response, prepared, markers=markers)
        outcome.answers = [Answer(committed, None)]
        return outcome

    def _change(self, response: R, *steps: Transaction, markers: TransactionMarkers | None = None) -> Outcome[R]:
        applied = partial(self._update_soft_state, steps[-1], markers)
        return Outcome(response, [record_of(step) for step in steps], on_applied=applied)

    def _update_soft_state(self, transaction: Transaction, markers: TransactionMarkers | None) -> None:
        """Update the soft state after the records were applied: fields that are not in the log, markers, deadline."""
        transactional_id = transaction.transactional_id
        applied = self.transactions[transactional_id]
        assert (applied.state, applied.producer) == (transaction.state, transaction.producer)
        assert (transaction.state in PREPARED) == (markers is not None)
        self.transactions[transactional_id] = transaction
        if markers is not None:
            self._pending_markers[transactional_id] = markers
        else:
            self._pending_markers.pop(transactional_id, None)
        if transaction.state is not State.ONGOING:
            self.deadlines.cancel(transactional_id)
        elif transactional_id not in self.deadlines:
            self._watch(transaction)

    def _markers(self, prepared: Transaction) -> TransactionMarkers:
        return TransactionMarkers(
            prepared.transactional_id,
            prepared.producer_id,
            prepared.producer_epoch,
            prepared.state is State.PREPARE_COMMIT,
            self._coordinator_epoch(),
            prepared.client_transaction_version,
            tuple(sorted(prepared.partitions)),
        )

    # --- deadlines ----------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> Iterator[Outcome[None] | None]:
        """Yield the removal of transactional ids that were not used for `id_expiration_ms`, and None where a turn of
        the loop ends. Each outcome must be submitted before the next one is asked for."""
        oldest_ms = now_ms - self._settings.id_expiration_ms
        for some in split(list(self.transactions.values()), ITEMS_A_TURN):
            tombstones = [tombstone_of(each) for each in some if self._is_unused(each, oldest_ms)]
            if tombstones:
                yield Outcome(None, tombstones, is_divisible=True)
            yield None

    def _is_unused(self, transaction: Transaction, oldest_ms: int) -> bool:
        """Whether the transaction is idle since `oldest_ms`, and neither changed nor removed in an earlier turn."""
        is_idle = transaction.state is State.EMPTY or transaction.state in COMPLETED
        is_current = self.transactions.get(transaction.transactional_id) is transaction
        return is_current and is_idle and transaction.last_update_ms <= oldest_ms

    def waiting(self) -> Iterator[Promise[Any]]:
        """Return no promises: no request waits for another one; each is answered when its own records are committed."""
        return iter(())

    def _watch(self, open_transaction: Transaction) -> None:
        """Schedule the abort after the timeout. The start is wall-clock time, perhaps of another broker, so the
        remaining time is limited to the timeout."""
        remaining_ms = open_transaction.start_ms + open_transaction.timeout_ms - self._clock.now_ms()
        self._abort_after_ms(open_transaction.transactional_id, min(max(remaining_ms, 0), open_transaction.timeout_ms))

    def _abort_after_ms(self, transactional_id: str, delay_ms: int) -> None:
        at_ms = self._clock.monotonic_ms() + delay_ms
        self.deadlines.schedule(transactional_id, at_ms, partial(self._abort_expired, transactional_id))

    def _abort_expired(self, transactional_id: str) -> Outcome[None]:
        transaction = self.transactions[transactional_id]
        assert transaction.state is State.ONGOING

        def retry_later(_: KafkaError) -> Outcome[None]:
            self._abort_after_ms(transactional_id, ABORT_RETRY_MS)
            return NOTHING

        try:
            prepared = ending.fence_and_abort(
                transaction, self._clock.now_ms(), self._transaction_version(), self._take_producer_id
            )
        except KafkaError as error:
            return retry_later(error)
        outcome = self._end(prepared, None)
        outcome.on_refused = retry_later
        return outcome

    # --- the log ------------------------------------------------------------------------------------------------

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return serde.encode_record(record, self._transaction_version())

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        record = serde.decode_record(key, value)
        if record is not None:
            self.apply(record)

    def apply_all(self, records: Sequence[CoordinatorRecord]) -> None:
        for record in records:
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
        """Resume prepared ends and timeouts. Called when the whole log was replayed and all of it is committed."""
        for transaction in list(self.transactions.values()):
            if transaction.state is State.ONGOING:
                self._watch(transaction)
            elif transaction.state in PREPARED:
                self._resume(transaction)

    def _resume(self, prepared: Transaction) -> None:
        markers = self._markers(prepared)
        self._pending_markers[prepared.transactional_id] = markers
        if markers.partitions:
            self._send(markers)
        else:
            # Apache Kafka also writes a prepared end without partitions. It needs no markers, so complete it at once.
            at_ms = self._clock.monotonic_ms()
            self.deadlines.schedule(prepared.transactional_id, at_ms, partial(self.markers_written, markers))


def _init_error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


def _code_for_version(code: ErrorCode, version: int, fenced_min_version: int) -> ErrorCode:
    """Return the code for a client of this request version: older ones do not know PRODUCER_FENCED (KIP-588)."""
    is_unknown = code is ErrorCode.PRODUCER_FENCED and version < fenced_min_version
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else code
