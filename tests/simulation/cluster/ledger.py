"""Everything that was committed to one partition, batch by batch, as a replica or consumer first showed it. Anything
else shown later is a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.wire.batch import BatchHeader
from moldau.wire.records import Record, decode_records

Complain = Callable[[str], None]
NAME_HEADER = "name"


def name_of(record: Record) -> bytes:
    """Return the bytes that identify a record: its value, or a header for records that have none or may lose it."""
    return next((value or b"" for key, value in record.headers if key == NAME_HEADER), record.value or b"")


class Ledger:
    def __init__(self, name: str, complain: Complain) -> None:
        self.name = name
        self.is_internal = name.startswith("__")
        """Whether coordinators write it: then their responses are checked instead of its records."""
        self._complain = complain
        self._batches: dict[int, tuple[int, int, int]] = {}
        """By base offset: next offset, leader epoch and CRC of each batch."""
        self.values: list[bytes] = []
        self._next_numbers: dict[str, int] = {}
        """The number of the next record of each lane of an idempotent producer."""
        self._seen: dict[bytes, int] = {}
        """The offsets of the records of careless producers."""
        self._promised: dict[int, bytes] = {}
        """Acknowledged records beyond the end, by offset."""
        self.promised_end = 0
        """The next offset after the last acknowledged record."""
        self.acknowledged = 0
        self.start = 0
        """Records below may be deleted."""

    @property
    def end(self) -> int:
        return len(self.values)

    def delete_below(self, offset: int) -> None:
        """Allow records below an offset to be deleted; all of them were seen before."""
        assert offset <= self.end
        self.start = max(self.start, offset)

    def begins(self, who: str, offset: int) -> None:
        """Check the log start offset of a replica or response."""
        if offset > self.start:
            self._complain(
                f"the log of {self.name} on {who} starts at {offset}, it must start at or below {self.start}"
            )

    def show(self, who: str, header: BatchHeader, batch: memoryview) -> None:
        """Check a batch that a replica or consumer shows as committed."""
        shown = (header.next_offset, header.leader_epoch, header.crc)
        expected = self._batches.get(header.base_offset)
        if expected == shown:
            return
        if expected is not None or header.base_offset < self.end:
            self._complain(
                f"{who} has (next, epoch, CRC) {shown} in {self.name} at {header.base_offset}, it was {expected}"
            )
        elif header.base_offset > self.end:
            self._complain(f"{who} has a batch of {self.name} at {header.base_offset}, after a gap from {self.end}")
        else:
            self._batches[header.base_offset] = shown
            self._extend(header, batch)

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        for record in decode_records(batch, header):
            value = name_of(record)
            if record.offset != self.end:
                self._complain(f"{self.name} has offset {record.offset} where {self.end} should follow")
            promised = self._promised.pop(self.end, value)
            if promised != value:
                self._complain(f"{promised!r} was acknowledged in {self.name} at {self.end}, but {value!r} is there")
            self._judge(value)
            self.values.append(value)

    def _judge(self, value: bytes) -> None:
        if self.is_internal:
            return
        lane, _, number = value.decode().rpartition("/")
        if lane.endswith("/-"):
            if value in self._seen:
                self._complain(f"{value!r} is in {self.name} at {self._seen[value]} and again at {self.end}")
            self._seen[value] = self.end
            return
        expected = self._next_numbers.get(lane, 0)
        if int(number) != expected:
            self._complain(f"{self.name} has {value!r} at {self.end}, number {expected} should follow")
        self._next_numbers[lane] = int(number) + 1

    def promise(self, offset: int, values: Sequence[bytes]) -> None:
        """Note that a leader has acknowledged these records with acks=all."""
        self.acknowledged += len(values)
        self.promised_end = max(self.promised_end, offset + len(values))
        for place, value in enumerate(values, offset):
            if place >= self.end:
                self._promised[place] = value
            elif self.values[place] != value:
                self._complain(
                    f"{value!r} is acknowledged in {self.name} at {place}, but {self.values[place]!r} is there"
                )
