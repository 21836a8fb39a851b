"""What was committed to one partition, with its transactions: who wrote which offsets, how each transaction ended, and
the last stable offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.ledger import Complain, Ledger

from moldau.wire.batch import BatchHeader
from moldau.wire.records import decode_records, read_end_txn_marker

NOT_ENDED = -1


@dataclass(slots=True, eq=False)
class Part:
    """The part of one transaction in one partition."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    end_offset: int = NOT_ENDED
    """Offset of its marker."""
    is_committed: bool = False
    offsets: list[int] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)


class Claim(NamedTuple):
    """A response's claim that everything below `stable_offset` is decided, at that high watermark."""

    who: str
    last_stable_offset: int
    high_watermark: int
    start_offset: int
    """The log start offset of the response: transactions without records beyond it may be unknown there."""


class TransactionalLedger(Ledger):
    def __init__(self, name: str, complain: Complain) -> None:
        super().__init__(name, complain)
        self.parts: list[Part] = []
        self.open: dict[int, Part] = {}
        """Open transactions by producer id."""
        self._epochs: dict[int, int] = {}
        self._plain: list[int] = []
        """Offsets of non-transactional records."""
        self._claims: list[Claim] = []
        self._lane_ends: dict[str, int] = {}
        """Offset of the last record of each lane."""
        self._repeats: set[int] = set()
        """Offsets of duplicates whose originals are below the log start offset of a replica, which cannot recognise
        them."""

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        if header.producer_id >= 0:
            self._check_epoch(header)
        if header.is_control:
            self._end_part(header, batch)
            return
        first = self.end
        super()._extend(header, batch)
        if not header.is_transactional:
            self._plain += range(first, self.end)
            return
        part = self.open.get(header.producer_id)
        if part is None:
            part = Part(header.producer_id, header.producer_epoch, first)
            self.open[header.producer_id] = part
            self.parts.append(part)
        if part.producer_epoch != header.producer_epoch:
            self._complain(
                f"{self.name} has a batch of producer {header.producer_id} with epoch {header.producer_epoch} at "
                f"{first} in a transaction of epoch {part.producer_epoch}"
            )
        part.offsets += range(first, self.end)
        part.values += [self.values[each] for each in range(first, self.end) if each not in self._repeats]
        names = {value.partition(b"/")[0] for value in part.values}
        if len(names) > 1 and not self.is_internal:
            self._complain(f"{self.name} has records of several transactions in one: {sorted(names)} up to {first}")

    def _judge(self, value: bytes) -> None:
        """A value's text after a semicolon is for other checks."""
        if self.is_internal:
            return
        if self.start and value in self.values[: self.start]:
            self._repeats.add(self.end)
            return
        name = value.partition(b";")[0]
        lane, _, number = name.decode().rpartition("/")
        if self._lane_ends.get(lane, self.start) < self.start:
            # A replica that starts after all its records accepts any sequence: the producer will have to abort.
            self._next_numbers[lane] = int(number)
        self._lane_ends[lane] = self.end
        super()._judge(name)

    def _check_epoch(self, header: BatchHeader) -> None:
        known = self._epochs.get(header.producer_id, -1)
        if header.producer_epoch < known:
            self._complain(
                f"{self.name} has producer {header.producer_id} with epoch {header.producer_epoch} at "
                f"{header.base_offset}, epoch {known} has written before"
            )
        self._epochs[header.producer_id] = header.producer_epoch

    def _end_part(self, header: BatchHeader, batch: memoryview) -> None:
        for record in decode_records(batch, header):
            if record.offset != self.end:
                self._complain(f"{self.name} has offset {record.offset} where {self.end} should follow")
            self.values.append(b"")
            marker = read_end_txn_marker(record)
            part = self.open.pop(header.producer_id, None)
            if marker is not None and part is not None:
                part.end_offset, part.is_committed = record.offset, marker.committed

    # --- the last stable offset -----------------------------------------------------------------------------------

    def claim(self, who: str, last_stable_offset: int, high_watermark: int, start_offset: int) -> None:
        self._claims.append(Claim(who, last_stable_offset, high_watermark, start_offset))

    def judge_claims(self) -> None:
        """Check the claims about what is known by now."""
        ready = [claim for claim in self._claims if claim.high_watermark <= self.end]
        if not ready:
            return
        self._claims = [claim for claim in self._claims if claim.high_watermark > self.end]
        for claim in sorted(set(ready)):
            who, last_stable_offset, high_watermark, start_offset = claim
            for part in self.parts:
                is_ended = part.end_offset != NOT_ENDED and part.end_offset < high_watermark
                below = [each for each in part.offsets if start_offset <= each < last_stable_offset]
                if not is_ended and any(not self.may_be_cleaned(part, each) for each in below):
                    self._complain(
                        f"{who} got last stable offset {last_stable_offset} of {self.name} with high watermark "
                        f"{high_watermark}, but a transaction of producer {part.producer_id} began at "
                        f"{part.first_offset} and its marker is at {part.end_offset}"
                    )
            if last_stable_offset < start_offset:
                self._complain(
                    f"{who} got last stable offset {last_stable_offset} of {self.name}, its log start is {start_offset}"
                )
            if last_stable_offset > high_watermark:
                self._complain(
                    f"{who} got a last stable offset of {self.name} above its high watermark {high_watermark}"
                )

    def may_be_cleaned(self, part: Part, offset: int) -> bool:
        """Whether a replica may have removed this record of a transaction: its log does not show it then."""
        return False

    def last_plain_offset(self) -> int:
        """Return the offset of the last non-transactional record."""
        return self._plain[-1] if self._plain else self.end

    def committed(self) -> list[tuple[int, bytes]]:
        """Return what a read_committed consumer must get, in order."""
        offsets = list(self._plain)
        for part in self.parts:
            if part.is_committed:
                offsets += part.offsets
        return [(offset, self.values[offset]) for offset in sorted(offsets)]


class FleetingLedger(TransactionalLedger):
    """The ledger of a recreated topic: a producer that writes by name may have begun in its predecessor."""

    def _judge(self, value: bytes) -> None:
        lane, _, number = value.partition(b";")[0].decode().rpartition("/")
        self._next_numbers.setdefault(lane, int(number))
        super()._judge(value)
