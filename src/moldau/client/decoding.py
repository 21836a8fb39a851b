"""Decodes batches that come from anywhere, with a bound on what they may grow to: a batch of a few kilobytes can hold
gigabytes. For the console, and for the lag in seconds of `moldau group describe`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.base.errors import MalformedData
from moldau.wire.batch import BatchHeader
from moldau.wire.compression import DecompressedTooLarge
from moldau.wire.records import Record, decompressed_body, read_records

BYTES_MAX: Final = 64 << 20
RECORDS_MAX: Final = 50_000
"""Of all batches of one budget."""
BATCH_RECORDS_MAX: Final = 500_000
"""A batch is decoded as a whole. The first may have more records than a budget, so that whoever reads gets ahead."""
BATCH_HEADERS_MAX: Final = 1_000_000


class BatchTooLarge(MalformedData):
    """A batch that no budget is enough for."""


@dataclass(slots=True)
class DecodingBudget:
    """What may still be decoded for one answer of the console, or for one group: bytes after decompression, and
    records."""

    bytes_max: int = BYTES_MAX
    records_max: int = RECORDS_MAX
    bytes: int = 0
    records: int = 0
    batches: int = 0

    def decode(self, header: BatchHeader, batch: memoryview) -> list[Record] | None:
        """Return the records of a batch; None if there is no room for it after what was decoded before."""
        if header.record_count > BATCH_RECORDS_MAX:
            raise BatchTooLarge(f"it has {header.record_count} records, more than {BATCH_RECORDS_MAX}")
        left = self.bytes_max - self.bytes
        if self.batches and (left <= 0 or self.records + header.record_count > self.records_max):
            return None
        try:
            body = decompressed_body(batch, header, left)
        except DecompressedTooLarge as error:
            if self.batches:
                return None
            raise BatchTooLarge(str(error)) from error
        records = read_records(body, header, BATCH_HEADERS_MAX)
        self.bytes += len(body)
        self.records += len(records)
        self.batches += 1
        return records
