"""Follows partitions of a topic: fetches from each leader, one response of each at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import RETRIABLE, Topic
from moldau.client.fetching.batches import malformed
from moldau.client.fetching.requests import Fetch, FetchedPartition, FetchLimits
from moldau.gateway.kafka.brokers import Brokers
from moldau.gateway.kafka.partition_queue import BACKOFF_S_FIRST, BACKOFF_S_MAX, MISSING_FAILURES_MAX
from moldau.gateway.ports import FoundRecord
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader
from moldau.wire.records import decode_records

LIMITS: Final = FetchLimits(wait_ms=5_000, bytes_max=512 << 10, partition_bytes_max=128 << 10)
REQUEST_MS: Final = 20_000
LOOP_BYTES_MAX: Final = 32 << 10
"""More than this is decoded in a thread."""


class Reader:
    """A `Following` with connections of its own: a fetch that waits holds up all other requests of a connection."""

    def __init__(
        self, brokers: Brokers, topic: str, positions: Mapping[int, int], on_close: Callable[[Reader], None]
    ) -> None:
        self._brokers, self._topic, self._on_close = brokers, topic, on_close
        self.positions: dict[int, int] = dict(positions)
        self._fetches: dict[int, asyncio.Task[Sequence[FetchedPartition]]] = {}
        """By leader."""
        self._failures = 0
        self._is_closed = False

    async def next(self) -> Sequence[FoundRecord]:
        """Whoever is cancelled meanwhile has missed nothing: the next call returns the same records."""
        while not self._is_closed:
            if records := await self._received():
                return records
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the reader of {self._topic} was closed")

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for fetch in self._fetches.values():
            fetch.cancel()
        self._brokers.close()
        self._on_close(self)

    async def _received(self) -> list[FoundRecord]:
        """Return the records of the next responses; none if they had none, or to wait was necessary first."""
        try:
            await self._ask_leaders()
        except KafkaError as error:
            await self._recover(error)
            return []
        done, _ = await asyncio.wait(self._fetches.values(), return_when=asyncio.FIRST_COMPLETED)
        if self._is_closed:
            return []
        nodes = [node for node, fetch in self._fetches.items() if fetch in done]
        records: list[FoundRecord] = []
        errors: list[KafkaError] = []
        positions = dict(self.positions)
        for node in nodes:
            try:
                for fetched in self._fetches[node].result():
                    records += await self._read(fetched, positions, errors)
            except KafkaError as error:
                errors.append(error)
        for node in nodes:
            del self._fetches[node]
        self._advance(positions)
        if not errors:
            self._failures = 0
        elif records:  # first these: an error that stays comes again
            self._brokers.forget(self._topic)
        else:
            await self._recover(next((each for each in errors if each.code not in RETRIABLE), errors[0]))
        return records

    def _advance(self, positions: Mapping[int, int]) -> None:
        """Whoever had records is asked for last: brokers fill a response in the order of the request."""
        for partition, position in positions.items():
            if position != self.positions[partition]:
                del self.positions[partition]
                self.positions[partition] = position

    async def _recover(self, error: KafkaError) -> None:
        """Wait before it is tried again, with the leaders of then. Raise an error that stays."""
        self._failures += 1
        is_missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._failures > MISSING_FAILURES_MAX
        if error.code not in RETRIABLE or is_missing:
            raise error
        self._brokers.forget(self._topic)
        await asyncio.sleep(min(BACKOFF_S_MAX, BACKOFF_S_FIRST * 2 ** min(self._failures, 10)))

    async def _ask_leaders(self) -> None:
        """Ask each leader for its partitions, unless a fetch from it is under way. KafkaError if there is none."""
        topic = await self._brokers.topic(self._topic)
        led, without_leader = self._brokers.by_leader(topic, self.positions)
        if without_leader:
            self._brokers.forget(self._topic)
            if not led:
                raise without_leader[0]
        for node, partitions in led.items():
            if node not in self._fetches:
                fetch = self._fetch(topic, node, partitions)
                self._fetches[node] = asyncio.get_running_loop().create_task(fetch, name=f"fetch {self._topic}")

    async def _fetch(self, topic: Topic, node: int, partitions: Sequence[TopicPartition]) -> Sequence[FetchedPartition]:
        fetch = Fetch(lambda _: topic, {each: self.positions[each.partition] for each in partitions}, LIMITS, True)
        response: Any = await self._brokers.ask(node, ApiKey.FETCH, fetch.request, REQUEST_MS)
        try:
            return list(fetch.partitions(response))
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None

    async def _read(
        self, fetched: FetchedPartition, positions: dict[int, int], errors: list[KafkaError]
    ) -> list[FoundRecord]:
        """Return the records of one partition, and move its position behind them; or append its error."""
        index = fetched.partition.partition
        if fetched.position != positions[index]:
            return []  # another leader has answered before
        if fetched.error:
            errors.append(KafkaError(fetched.error, f"{fetched.partition}: {fetched.error.name}"))
            return []
        if len(fetched.records) > LOOP_BYTES_MAX:
            records, positions[index] = await asyncio.to_thread(_decoded, fetched)
        else:
            records, positions[index] = _decoded(fetched)
        return records


def _decoded(fetched: FetchedPartition) -> tuple[list[FoundRecord], int]:
    """Return the records from the position on, and where the next fetch begins."""
    records: list[FoundRecord] = []
    position = fetched.position
    try:
        for header, batch, holds_records in fetched.batches():
            if holds_records:
                records += _records(fetched, header, batch)
            position = max(position, header.next_offset)
    except MalformedData as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{fetched.partition}: {error}") from None
    return records, position


def _records(fetched: FetchedPartition, header: BatchHeader, batch: memoryview) -> list[FoundRecord]:
    try:
        decoded = decode_records(batch, header)
    except MalformedData as error:
        raise malformed(header.base_offset, error) from error
    index, position = fetched.partition.partition, fetched.position
    return [
        FoundRecord(index, offset, timestamp, key, value, headers)
        for offset, timestamp, key, value, headers in decoded
        if offset >= position
    ]
