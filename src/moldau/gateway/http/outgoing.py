"""Records on their way out: in frames of server-sent events, in messages of a web socket, on a page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.gateway.http.intake import off_the_loop
from moldau.gateway.http.positions import text_of
from moldau.gateway.http.record_json import record_json
from moldau.gateway.ports import FoundRecord
from moldau.gateway.steady_reader import SteadyReader

RECORDS_PER_MESSAGE: Final = 500
RECORD_BYTES: Final = 100
"""What a record costs besides its value."""


class Outgoing:
    """The records of a reader, as far as they were told."""

    def __init__(self, reader: SteadyReader) -> None:
        self._reader = reader
        self._at = dict(reader.positions)
        self._left: list[FoundRecord] = []

    @property
    def position(self) -> str:
        """Behind the last record that was told."""
        return text_of(self._at)

    def is_behind(self, bounds: Mapping[int, tuple[int, int]]) -> bool:
        """Whether there is something behind its position."""
        return any(offset < bounds[partition][1] for partition, offset in self._at.items() if partition in bounds)

    def close(self) -> None:
        self._reader.close()

    async def events(self) -> Sequence[bytes]:
        """Wait for records and return each as an event, whose id is the position behind it."""
        records = await self._next(RECORDS_PER_MESSAGE)
        return await off_the_loop(_size(records), lambda: [self._event(record) for record in records])

    async def message(self) -> bytes:
        """Wait for records and return them with the position behind them."""
        records = await self._next(RECORDS_PER_MESSAGE)
        return await off_the_loop(_size(records), lambda: self._page(records))

    async def page(self, records_max: int, wait_s: float) -> bytes:
        """Return the records that are there, after some time without any none."""
        records: Sequence[FoundRecord] = ()
        try:
            async with asyncio.timeout(wait_s):
                records = await self._next(records_max)
        except TimeoutError:
            self._at |= self._reader.positions
        return await off_the_loop(_size(records), lambda: self._page(records))

    async def _next(self, records_max: int) -> Sequence[FoundRecord]:
        if not self._left:
            self._left = list(await self._reader.next())
        records, self._left = self._left[:records_max], self._left[records_max:]
        return records

    def _event(self, record: FoundRecord) -> bytes:
        self._at[record.partition] = record.offset + 1
        return b"id: %b\ndata: %b\n\n" % (self.position.encode(), record_json(record))

    def _page(self, records: Sequence[FoundRecord]) -> bytes:
        self._at |= {record.partition: record.offset + 1 for record in records}
        return b'{"records":[%b],"position":"%b"}' % (b",".join(map(record_json, records)), self.position.encode())


def _size(records: Sequence[FoundRecord]) -> int:
    return sum([RECORD_BYTES + len(record.value or b"") for record in records])
