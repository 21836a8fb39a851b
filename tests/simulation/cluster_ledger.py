"""What was committed to one partition, remembered for ever: batch by batch, as any replica or consumer first showed it.
Whoever shows something else later is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.wire.batch import BatchHeader
from moldau.wire.records import Record, decode_records

Complain = Callable[[str], None]
NAME_HEADER = "name"


def name_of(record: Record) -> bytes:
    """By which a record is known: its value, but for those that have none, or may lose it."""
    return next((value or b"" for key, value in record.headers if key == NAME_HEADER), record.value or b"")


class Ledger:
    def __init__(self, name: str, complain: Complain) -> None:
        self.name = name
        self.is_internal = name.startswith("__")
        """What coordinators write is judged by what they answer."""
        self._complain = complain
        self._batches: dict[int, tuple[int, int, int]] = {}
        """From the first offset of each: what follows it, its leader epoch, its CRC."""
        self.values: list[bytes] = []
        self._next_numbers: dict[str, int] = {}
        """Of each lane of an idempotent producer, the number of the record that must come next."""
        self._seen: dict[bytes, int] = {}
        """Where the records of careless producers are."""
        self._promised: dict[int, bytes] = {}
        """What was acknowledged beyond the end."""
        self.promised_end = 0
        """Behind the last record that was acknowledged."""
        self.acknowledged = 0
        self.start = 0
        """What lies below may be gone."""

    @property
    def end(self) -> int:
        return len(self.values)

    def delete_below(self, offset: int) -> None:
        """Somebody has asked for that. What is to go was seen before."""
        assert offset <= self.end
        self.start = max(self.start, offset)

    def begins(self, who: str, offset: int) -> None:
        """Somebody has nothing below an offset."""
        if offset > self.start:
            self._complain(f"{who} has {self.name} from {offset} on, from {self.start} on it must be there")

    def show(self, who: str, header: BatchHeader, batch: memoryview) -> None:
        """Somebody shows a batch as committed."""
        shown = (header.next_offset, header.leader_epoch, header.crc)
        known = self._batches.get(header.base_offset)
        if known == shown:
            return
        if known is not None or header.base_offset < self.end:
            self._complain(
                f"{who} shows {self.name} at {header.base_offset} as (next, epoch, CRC) {shown}, it was {known}"
            )
        elif header.base_offset > self.end:
            self._complain(f"{who} shows {self.name} at {header.base_offset}, before it ended at {self.end}")
        else:
            self._batches[header.base_offset] = shown
            self._extend(header, batch)

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        for record in decode_records(batch, header):
            value = name_of(record)
            if record.offset != self.end:
                self._complain(f"{self.name} has {record.offset} where {self.end} belongs")
            promised = self._promised.pop(self.end, value)
            if promised != value:
                self._complain(f"{promised!r} was acknowledged at {self.end} of {self.name}, where {value!r} is")
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
            self._complain(f"{self.name} has {value!r} at {self.end}, number {expected} should come next")
        self._next_numbers[lane] = int(number) + 1

    def promise(self, offset: int, values: Sequence[bytes]) -> None:
        """A leader has acknowledged these records, to one who asked for all in-sync replicas to have them."""
        self.acknowledged += len(values)
        self.promised_end = max(self.promised_end, offset + len(values))
        for place, value in enumerate(values, offset):
            if place >= self.end:
                self._promised[place] = value
            elif self.values[place] != value:
                self._complain(f"{value!r} is acknowledged at {place} of {self.name}, where {self.values[place]!r} is")
