"""What a log remembers of its idempotent and transactional producers: enough to know a repeat from a gap (KIP-98).

State follows from the batches alone, so followers and restarts arrive at the same: `check` refuses and never changes,
`record` and `end_transaction` change and never refuse. No clock: ages are told by the caller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import PRODUCER_BATCHES_KEPT
from moldau.wire.records import EndTxnMarker

NO_TRANSACTION: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1
EPOCH_MAX: Final = 2**15 - 1
EPOCH_BUMPED_FROM_VERSION: Final = 2
"""From this transaction version on the end of a transaction is the end of its producer's epoch (KIP-890)."""


class BatchMemory(NamedTuple):
    """One batch that was appended: a repeat of it is answered with these offsets."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    epoch: int
    last_timestamp: int
    coordinator_epoch: int = -1
    transaction_start: int = NO_TRANSACTION
    batches: deque[BatchMemory] = field(default_factory=lambda: deque(maxlen=PRODUCER_BATCHES_KEPT))
    is_from_snapshot: bool = field(default=False, compare=False)
    """Snapshots know the last batch alone: those before it are in the log."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Producers:
    __slots__ = ("_entries", "_ongoing", "ended_known_from", "unreplicated")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id. Appended in order, so the first is the oldest."""
        self.unreplicated: deque[CompletedTxn] = deque()
        """Transactions that ended, but whose marker the high watermark has not passed, in the order of the markers."""
        self.ended_known_from = 0
        """Of markers below this offset nothing is known here: snapshots tell what is open, not what has just ended."""

    def active(self) -> list[ProducerEntry]:
        return list(self._entries.values())

    def load(self, entries: list[ProducerEntry], offset: int = 0) -> None:
        """Begins anew from a snapshot of that offset."""
        self._entries = {entry.producer_id: entry for entry in entries}
        for entry in entries:
            entry.is_from_snapshot = True
        open_ones = [entry for entry in entries if entry.transaction_start != NO_TRANSACTION]
        open_ones.sort(key=lambda entry: entry.transaction_start)
        self._ongoing = {entry.transaction_start: entry.producer_id for entry in open_ones}
        self.unreplicated = deque()
        self.ended_known_from = offset

    # --- a batch arrives ----------------------------------------------------------------------------------------

    def find_repeat(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> BatchMemory | None:
        """The batch of which this one is a repeat, if it is among the last few."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            return None
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def forgotten_before(self, producer_id: int, epoch: int, first_sequence: int) -> int | None:
        """The offset below which a batch may lie of which this one is a repeat and which only the log remembers."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch or not entry.is_from_snapshot or not entry.batches:
            return None
        if len(entry.batches) == PRODUCER_BATCHES_KEPT or first_sequence == _expected_sequence(entry, epoch):
            return None
        return entry.batches[0].first_offset

    def recall(self, producer_id: int, earlier: list[BatchMemory]) -> None:
        """These were written just before those that are remembered."""
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
        """Refuses what the producer's own promises rule out. A producer not known here may begin anywhere: what it has
        written may be deleted. Unless every transaction has its own epoch: then each begins to count anew."""
        entry = self._entries.get(producer_id)
        if entry is None:
            begins_anew = is_transactional and transaction_version >= EPOCH_BUMPED_FROM_VERSION
            if check_sequence and begins_anew and first_sequence != 0:
                raise _out_of_order(producer_id, epoch, first_sequence, 0)
            return
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {epoch}, but epoch {entry.epoch} has written already.",
            )
        if check_sequence and first_sequence != (expected := _expected_sequence(entry, epoch)):
            raise _out_of_order(producer_id, epoch, first_sequence, expected)
        if entry.transaction_start != NO_TRANSACTION and not is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id} has a transaction open and must write within it.",
            )

    def check_marker(self, producer_id: int, epoch: int, marker: EndTxnMarker, transaction_version: int) -> None:
        """A marker of a fenced producer or of a coordinator that lost its place is refused."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch or (transaction_version >= EPOCH_BUMPED_FROM_VERSION and _is_late(entry, epoch)):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker for producer {producer_id} has epoch {epoch}, its epoch is {entry.epoch}.",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The marker for producer {producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
                f"epoch {entry.coordinator_epoch} has written already.",
            )

    def record(self, producer_id: int, epoch: int, batch: BatchMemory, is_transactional: bool) -> None:
        """A data batch is in the log."""
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
            self._ongoing[batch.first_offset] = producer_id

    def end_transaction(
        self, producer_id: int, epoch: int, marker: EndTxnMarker, offset: int, timestamp: int
    ) -> CompletedTxn | None:
        """A marker is in the log. None if it ended nothing that has records here."""
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
        del self._ongoing[first_offset]
        completed = CompletedTxn(producer_id, first_offset, offset, not marker.committed)
        self.unreplicated.append(completed)
        return completed

    # --- what readers and housekeeping ask ----------------------------------------------------------------------

    @property
    def oldest_open_transaction(self) -> int | None:
        """First offset of the oldest transaction without a marker."""
        return next(iter(self._ongoing), None)

    def epoch_of(self, producer_id: int) -> int | None:
        """The latest that has written here; None for a producer that is not known."""
        entry = self._entries.get(producer_id)
        return None if entry is None else entry.epoch

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written here under that epoch, and no marker has followed."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start != NO_TRANSACTION and entry.epoch == epoch

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Offset of the oldest transaction that a reader of committed data may not look into yet."""
        oldest = self.oldest_open_transaction
        if not self.unreplicated:
            return oldest
        self.forget_replicated(high_watermark)
        ended = min((txn.first_offset for txn in self.unreplicated), default=None)
        if ended is None or oldest is None:
            return oldest if ended is None else ended
        return min(oldest, ended)

    def recall_ended(self, earlier: list[CompletedTxn], from_offset: int) -> None:
        """These ended before all that are known, and no others from that offset on."""
        self.unreplicated.extendleft(reversed(earlier))
        self.ended_known_from = from_offset

    def forget_replicated(self, high_watermark: int) -> None:
        """Markers below the high watermark are where all in-sync replicas have them."""
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            unreplicated.popleft()

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forgets producers that were silent for so long; never one with an open transaction. Returns how many."""
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_start == NO_TRANSACTION and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)


def _expected_sequence(entry: ProducerEntry, epoch: int) -> int:
    """A new epoch begins at 0; so does the count after 2^31-1."""
    if epoch != entry.epoch or entry.last_sequence == SEQUENCE_MAX:
        return 0
    return entry.last_sequence + 1


def _is_late(entry: ProducerEntry, epoch: int) -> bool:
    """Whether a marker that should have ended an epoch belongs to an earlier transaction than the one that is open.

    Where none is open it is the same marker sent again, which does no harm (KAFKA-19999). The last epoch of all cannot
    be followed by another one: a transaction begun under it could never be ended.
    """
    return epoch == entry.epoch != EPOCH_MAX and entry.transaction_start != NO_TRANSACTION


def _out_of_order(producer_id: int, epoch: int, sequence: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Producer {producer_id} with epoch {epoch} sent sequence {sequence}, {expected} was to come.",
    )
