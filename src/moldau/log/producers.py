"""The state of a log's idempotent and transactional producers: enough to tell a repeated batch from a gap (KIP-98).

The state depends on the batches alone, so followers and restarts compute the same state. `check` only raises, `record`
and `end_transaction` only change the state. There is no clock here: the caller passes the time.

Only a leader knows the batches that it has refused. Clients have several batches in flight, and send a refused one
again: until then those behind it are refused with the same error. A gap in the sequence (OUT_OF_ORDER_SEQUENCE_NUMBER)
would make them begin a new epoch for all partitions, and send again under it what other leaders have already written.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PRODUCER_BATCHES_KEPT, REFUSED_PRODUCERS_MAX
from moldau.wire.batch import SEQUENCE_MAX
from moldau.wire.records import EndTxnMarker

NO_TRANSACTION: Final = -1
NO_SEQUENCE: Final = -1
EPOCH_MAX: Final = 2**15 - 1
EPOCH_BUMP_MIN_VERSION: Final = 2
"""From this transaction version on, the producer's epoch is bumped at the end of each transaction (KIP-890)."""
REFUSAL_MS: Final = 600_000
"""How long a refused batch is remembered if its client never sends it again. Batches that were in flight behind it
arrive within the client's request timeout, seconds or a few minutes later."""


class BatchMetadata(NamedTuple):
    """A batch that was appended. If the producer sends it again, the response has these offsets."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Refusal(NamedTuple):
    """The first batch of a producer that was refused and is expected again."""

    epoch: int
    first_sequence: int
    code: ErrorCode
    at_ms: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    epoch: int
    last_timestamp: int
    coordinator_epoch: int = -1
    transaction_start: int = NO_TRANSACTION
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=PRODUCER_BATCHES_KEPT))
    is_from_snapshot: bool = field(default=False, compare=False)
    """A snapshot holds only the last batch of a producer; the batches before it must be looked up in the log."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Producers:
    __slots__ = ("_entries", "_refusals", "ended_known_from", "ongoing", "unreplicated")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._refusals: dict[int, Refusal] = {}
        self.ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id. Appended in order, so the first is the oldest."""
        self.unreplicated: deque[CompletedTxn] = deque()
        """Transactions that have ended, but whose marker is not below the high watermark yet, in marker order."""
        self.ended_known_from = 0
        """`unreplicated` lacks transactions with markers below this offset, because a snapshot lists only open ones."""

    def active(self) -> list[ProducerEntry]:
        return list(self._entries.values())

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def load(self, entries: list[ProducerEntry], offset: int = 0) -> None:
        """Replace all state by a snapshot that was taken at `offset`."""
        self._entries = {entry.producer_id: entry for entry in entries}
        self._refusals.clear()
        for entry in entries:
            entry.is_from_snapshot = True
        open_entries = [entry for entry in entries if entry.transaction_start != NO_TRANSACTION]
        open_entries.sort(key=lambda entry: entry.transaction_start)
        self.ongoing = {entry.transaction_start: entry.producer_id for entry in open_entries}
        self.unreplicated = deque()
        self.ended_known_from = offset

    # --- a batch arrives ----------------------------------------------------------------------------------------

    def find_repeat(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """Return the earlier batch with these sequences, if it is among the producer's last few batches."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def forgotten_before(self, producer_id: int, epoch: int, first_sequence: int) -> int | None:
        """Return the offset below which the log may contain the same batch: a state from a snapshot lacks the earlier
        batches. Return None if the log need not be searched."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch or not entry.is_from_snapshot or not entry.batches:
            return None
        if len(entry.batches) == PRODUCER_BATCHES_KEPT or first_sequence == _expected_sequence(entry, epoch):
            return None
        return entry.batches[0].first_offset

    def recall(self, producer_id: int, earlier: list[BatchMetadata]) -> None:
        """Add batches that were written just before the ones in the state."""
        entry = self._entries[producer_id]
        entry.batches = deque([*earlier, *entry.batches], maxlen=PRODUCER_BATCHES_KEPT)
        entry.is_from_snapshot = False

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        is_transactional: bool,
        *,
        check_sequence: bool = True,
        transaction_version: int = 0,
    ) -> None:
        """Raise KafkaError for a fenced epoch, a sequence gap, or a write outside the open transaction. If the gap is
        due to a refused batch, the error is the same as that of the refused batch.

        An unknown producer may begin at any sequence, because its records may have been deleted, but not after a
        refused batch. With transaction version 2 it must begin at 0, because each transaction has its own epoch.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            if check_sequence and self._refusals:
                self._check_refusal(producer_id, epoch, first_sequence)
            starts_at_zero = is_transactional and transaction_version >= EPOCH_BUMP_MIN_VERSION
            if check_sequence and starts_at_zero and first_sequence != 0:
                raise _out_of_order(producer_id, epoch, first_sequence, 0)
            return
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {epoch}, but epoch {entry.epoch} has already written.",
            )
        if check_sequence and first_sequence != (expected := _expected_sequence(entry, epoch)):
            self._check_refusal(producer_id, epoch, first_sequence)
            raise _out_of_order(producer_id, epoch, first_sequence, expected)
        if entry.transaction_start != NO_TRANSACTION and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has a transaction open and must write within it.",
            )

    def _check_refusal(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """Raise KafkaError if a batch before this one was refused and has not arrived again."""
        refusal = self._refusals.get(producer_id)
        if refusal is not None and refusal.epoch == epoch and _is_after(first_sequence, refusal.first_sequence):
            raise KafkaError(
                refusal.code,
                f"Producer {producer_id} with epoch {epoch} sent sequence {first_sequence}, but its batch "
                f"{refusal.first_sequence} was refused and must come first.",
            )

    def refuse(self, producer_id: int, epoch: int, first_sequence: int, code: ErrorCode, now_ms: int) -> None:
        """Remember a batch that was refused with this error, unless it is one that is refused because of an earlier
        one, or repeats a batch in the log. It is forgotten when the producer's next batch is appended."""
        entry = self._entries.get(producer_id)
        if entry is not None and (epoch < entry.epoch or first_sequence != _expected_sequence(entry, epoch)):
            return
        earlier = self._refusals.get(producer_id)
        if earlier is not None and (
            earlier.epoch > epoch or (earlier.epoch == epoch and _is_after(first_sequence, earlier.first_sequence))
        ):
            return
        if earlier is None and len(self._refusals) >= REFUSED_PRODUCERS_MAX:
            del self._refusals[next(iter(self._refusals))]
        self._refusals[producer_id] = Refusal(epoch, first_sequence, code, now_ms)

    def forget_refusals(self) -> None:
        """Called when this node no longer leads the partition: the next leader does not know of them either."""
        self._refusals.clear()

    def check_marker(self, producer_id: int, epoch: int, marker: EndTxnMarker, transaction_version: int) -> None:
        """Raise KafkaError for the marker of a fenced producer or of a fenced coordinator."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch or (transaction_version >= EPOCH_BUMP_MIN_VERSION and _is_late(entry, epoch)):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker for producer {producer_id} has epoch {epoch}, its epoch is {entry.epoch}.",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The marker for producer {producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
                f"but epoch {entry.coordinator_epoch} has already written.",
            )

    def record(self, producer_id: int, epoch: int, batch: BatchMetadata, is_transactional: bool) -> None:
        """Update the producer's state after a data batch was appended."""
        if self._refusals:
            self._refusals.pop(producer_id, None)
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch, batch.timestamp)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.batches.append(batch)
        entry.last_timestamp = batch.timestamp
        if is_transactional and entry.transaction_start == NO_TRANSACTION:
            entry.transaction_start = batch.first_offset
            self.ongoing[batch.first_offset] = producer_id

    def end_transaction(
        self, producer_id: int, epoch: int, marker: EndTxnMarker, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        """Update the producer's state after a marker was appended. Return None if the marker did not end a transaction
        with records in this log."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch, timestamp)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset, entry.transaction_start = entry.transaction_start, NO_TRANSACTION
        if first_offset == NO_TRANSACTION:
            return None
        del self.ongoing[first_offset]
        completed = CompletedTxn(producer_id, first_offset, offset, not marker.committed)
        self.unreplicated.append(completed)
        return completed

    # --- queries and maintenance --------------------------------------------------------------------------------

    @property
    def oldest_open_transaction(self) -> int | None:
        """First offset of the oldest transaction without a marker."""
        return next(iter(self.ongoing), None)

    def epoch_of(self, producer_id: int) -> int | None:
        """The latest epoch that has written to this log; None for an unknown producer."""
        entry = self._entries.get(producer_id)
        return None if entry is None else entry.epoch

    def first_missing(self, producer_id: int, epoch: int, sequence: int) -> int:
        """Return the sequence, or a later one if the log has it already: a batch that begins there repeats another."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return sequence
        expected = _expected_sequence(entry, epoch)
        return expected if _is_after(expected, sequence) else sequence

    def has_ended(self, producer_id: int, offset: int) -> bool:
        """Whether the transaction of the producer's batch at that offset has a marker."""
        entry = self._entries.get(producer_id)
        return entry is None or entry.transaction_start == NO_TRANSACTION or offset < entry.transaction_start

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written to this log with that epoch, and no marker has followed."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start != NO_TRANSACTION and entry.epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated; None without one."""
        oldest = self.oldest_open_transaction
        if not self.unreplicated:
            return oldest
        self.forget_replicated(high_watermark)
        ended = min((txn.first_offset for txn in self.unreplicated), default=None)
        if ended is None or oldest is None:
            return oldest if ended is None else ended
        return min(oldest, ended)

    def recall_ended(self, earlier: list[CompletedTxn], from_offset: int) -> None:
        """Add transactions that ended before those in `unreplicated`: all with markers from `from_offset` on."""
        self.unreplicated.extendleft(reversed(earlier))
        self.ended_known_from = from_offset

    def forget_replicated(self, high_watermark: int) -> None:
        """Drop transactions whose marker is below the high watermark: all in-sync replicas have it."""
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[0].marker_offset < high_watermark:
            unreplicated.popleft()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Drop producers that have not written for `expiration_ms` and have no open transaction. Return how many."""
        if self._refusals:
            self._refusals = {id: each for id, each in self._refusals.items() if now_ms - each.at_ms < REFUSAL_MS}
        if not self._entries:
            return 0
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_start == NO_TRANSACTION and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)


def _expected_sequence(entry: ProducerEntry, epoch: int) -> int:
    """Return the sequence that must come next: 0 for a new epoch and after 2^31-1."""
    if epoch != entry.epoch or entry.last_sequence == SEQUENCE_MAX:
        return 0
    return entry.last_sequence + 1


def _is_after(sequence: int, earlier: int) -> bool:
    """Whether a batch that begins with `sequence` comes after one that begins with `earlier`. 0 follows 2^31-1."""
    return 0 < (sequence - earlier) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


def _is_late(entry: ProducerEntry, epoch: int) -> bool:
    """Whether a marker belongs to an earlier transaction than the open one: it does not bump the epoch, but should.

    Without an open transaction it is the same marker sent again, which is harmless (KAFKA-19999). EPOCH_MAX cannot be
    bumped: without this exception a transaction with that epoch could never end.
    """
    return epoch == entry.epoch != EPOCH_MAX and entry.transaction_start != NO_TRANSACTION


def _out_of_order(producer_id: int, epoch: int, sequence: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {producer_id} with epoch {epoch} sent sequence {sequence}, expected {expected}.",
    )
