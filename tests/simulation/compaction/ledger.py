"""Everything that was committed to one partition of a compacted topic. Replicas and consumers may show less of it, each
for itself, but nothing else: offsets stay, and so does the last record of each key.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from cluster.ledger import Complain, name_of
from transactions.ledger import NOT_ENDED, Part, TransactionalLedger

from moldau.wire.batch import BatchHeader
from moldau.wire.records import Record, decode_records


class Content(NamedTuple):
    """What must not change of a record."""

    key: bytes | None
    name: bytes
    is_tombstone: bool


class Deleted(NamedTuple):
    """The last confirmed DeleteRecords."""

    below: int
    epoch: int
    """Epoch of the leader."""
    processes_ended: int
    """How many processes had ended by then: the log start offset is written to disk only now and then."""


class CompactedLedger(TransactionalLedger):
    def __init__(self, name: str, complain: Complain) -> None:
        super().__init__(name, complain)
        self._contents: dict[int, Content] = {}
        """By offset, without markers."""
        self._of_key: dict[bytes, list[int]] = {}
        """The offsets of each key, ascending."""
        self.deleted = Deleted(0, 0, 0)

    def show(self, who: str, header: BatchHeader, batch: memoryview) -> None:
        expected = self._batches.get(header.base_offset)
        if expected is None or expected == (header.next_offset, header.leader_epoch, header.crc):
            super().show(who, header, batch)
        elif expected[:2] != (header.next_offset, header.leader_epoch):
            self._complain(
                f"{who} has (next, epoch) {(header.next_offset, header.leader_epoch)} in {self.name} at "
                f"{header.base_offset}, it was {expected[:2]}"
            )
        elif not header.is_control:
            for record in decode_records(batch, header):
                self._compare(who, record)

    def _compare(self, who: str, record: Record) -> None:
        expected, shown = self._contents.get(record.offset), _content_of(record)
        if expected != shown:
            self._complain(f"{who} has {shown} in {self.name} at {record.offset}, it was {expected}")

    def _extend(self, header: BatchHeader, batch: memoryview) -> None:
        super()._extend(header, batch)
        if header.is_control:
            return
        for record in decode_records(batch, header):
            self._contents[record.offset] = _content_of(record)
            if record.key is not None:
                self._of_key.setdefault(record.key, []).append(record.offset)

    # --- what must be there ---------------------------------------------------------------------------------------

    def hidden(self) -> set[int]:
        """Return the offsets that were aborted or are not decided yet."""
        return {offset for part in self.parts if not part.is_committed for offset in part.offsets}

    def has(self, record: Record) -> bool:
        return self._contents.get(record.offset) == _content_of(record)

    def may_be_cleaned(self, part: Part, offset: int) -> bool:
        if part.end_offset == NOT_ENDED or self.key_at(offset) is None:
            return False
        return not part.is_committed or self.is_tombstone(offset) or self.is_followed(offset)

    def is_tombstone(self, offset: int) -> bool:
        content = self._contents.get(offset)
        return content is not None and content.is_tombstone

    def key_at(self, offset: int) -> bytes | None:
        return self._contents[offset].key

    def last_of_each_key(self, below: int) -> dict[bytes, int]:
        """Return the last committed record of each key below an offset."""
        hidden = self.hidden()
        found = {}
        for key, offsets in self._of_key.items():
            last = next((each for each in reversed(offsets) if each < below and each not in hidden), None)
            if last is not None:
                found[key] = last
        return found

    def is_followed(self, offset: int, remaining: Container[int] | None = None, below: int | None = None) -> bool:
        """Whether a later committed record of the same key is below an offset and among those that are left."""
        key = self._contents[offset].key
        assert key is not None
        hidden = self.hidden()
        return any(
            each > offset and each not in hidden
            for each in self._of_key[key]
            if (remaining is None or each in remaining) and (below is None or each < below)
        )

    def has_tombstone_from(self, offset: int) -> bool:
        """Whether this record or a later committed one of its key is a tombstone: all may be removed one day."""
        key = self._contents[offset].key
        assert key is not None
        hidden = self.hidden()
        return any(
            each >= offset and each not in hidden and self._contents[each].is_tombstone for each in self._of_key[key]
        )

    def judge_remaining(
        self, who: str, before: Container[int], remaining: Container[int], start_offset: int, cleaned_up_to: int
    ) -> None:
        """Check what is left after a replica has cleaned its log up to an offset. A record that was missing before may
        never have reached the replica: its leader may have removed it because of a record that the replica has yet to
        fetch."""
        for key, last in self.last_of_each_key(cleaned_up_to).items():
            if last < start_offset or last in remaining or self.is_followed(last, remaining):
                continue
            if last not in before and (self.has_tombstone_from(last) or self.is_followed(last)):
                continue
            if not self.is_tombstone(last):
                self._complain(
                    f"{who} has lost {self._contents[last]} of {self.name} at {last}, the last record of its key"
                )
                continue
            older = [each for each in self._of_key[key] if each < last and each in remaining]
            if set(older) - self.hidden():
                self._complain(
                    f"{who} has {key!r} of {self.name} at {older}, but not the tombstone that followed at {last}"
                )


def _content_of(record: Record) -> Content:
    return Content(record.key, name_of(record), record.value is None)
