"""Fetches ranges of records as Arrow batches: one request ahead of the decoder, follows leaders, reports data loss.

One request asks for all ranges that a node leads, so a thousand small partitions cost a few round trips. The decoder
drops records beyond a range's end. Records deleted by retention are an error or skipped, by `failOnDataLoss`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.channel import Channel
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, EARLIEST, LATEST, RETRIABLE, Cluster, by_topic
from moldau.spark.offsets import Range
from moldau.spark.options import ReadOptions
from moldau.spark.records.decode import FetchedRecords, decode, next_offset
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

WAIT_MS_MAX: Final = 500
ROWS_PER_BATCH_MIN: Final = 8_192
"""Smaller Arrow batches are merged: each costs Spark about as much as a thousand rows."""


@dataclass(slots=True)
class _RangeLeft:
    """The part of a range that is still to be read."""

    where: TopicPartition
    position: int
    end: int


class DataLoss(Exception):
    """Records are missing: by retention, or because the topic was truncated or created again."""


def report_loss(options: ReadOptions, what: str) -> None:
    """Raise DataLoss or warn, by the option failOnDataLoss."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{what}. To read on past the loss, set failOnDataLoss=false")
    warnings.warn(f"{what}; reading on (failOnDataLoss=false)", stacklevel=2)


def fetch(
    cluster: Cluster, ranges: Sequence[Range], schema: pa.Schema, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Every record of the ranges, in order within a partition."""
    return _merge_small(_Fetching(cluster, ranges, schema, options).batches())


def _merge_small(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not waiting and batch.num_rows >= ROWS_PER_BATCH_MIN:
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_PER_BATCH_MIN:
            yield from _merge(waiting)
            waiting, rows = [], 0
    if rows:
        yield from _merge(waiting)


def _merge(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) == 1:
        yield batches[0]
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


class _Fetching:
    def __init__(self, cluster: Cluster, ranges: Sequence[Range], schema: pa.Schema, options: ReadOptions) -> None:
        self._cluster = cluster
        self._schema = schema
        self._options = options
        self._rests = [_RangeLeft(one.where, one.start, one.end) for one in ranges if one.size > 0]
        self._progress_at = time.monotonic()
        self._backoff = BACKOFF_SECONDS_FIRST

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._rests:
            try:
                yield from self._from_next_leader()
            except (OSError, MalformedData) as error:
                self._cluster.close()
                self._wait_or_give_up(error)
            except KafkaError as error:
                if error.code not in RETRIABLE:
                    raise
                self._wait_or_give_up(error)

    def _wait_or_give_up(self, error: Exception) -> None:
        """Raise the error if there was no progress within the poll timeout, else wait."""
        if (time.monotonic() - self._progress_at) * 1000 > self._options.poll_timeout_ms:
            raise error
        time.sleep(self._backoff)
        self._backoff = min(1.0, self._backoff * 2)
        self._cluster.forget()

    def _from_next_leader(self) -> Iterator[pa.RecordBatch]:
        """Read all ranges of one leader. The next request is in flight while a response is decoded."""
        node = self._cluster.leader(self._rests[0].where)
        led_ranges = [rest for rest in self._rests if self._cluster.leader(rest.where) == node]
        channel = self._cluster.channel(node)
        try:
            self._send(channel, led_ranges)
            while led_ranges:
                error: Exception | None
                fetched, error = self._take_response(channel.receive(FetchResponse), led_ranges)
                led_ranges = [rest for rest in led_ranges if rest.position < rest.end]
                if led_ranges and error is None:
                    error = self._send_ahead(channel, led_ranges)
                for one in fetched:
                    yield from self._decode(one)
                if error is not None:
                    raise error
                self._give_up_if_stuck(led_ranges)
        finally:
            self._rests = [rest for rest in self._rests if rest.position < rest.end]
            if channel.in_flight:
                self._cluster.drop(node)

    def _send_ahead(self, channel: Channel, rests: Sequence[_RangeLeft]) -> Exception | None:
        """Send the next request. Return a failure instead of raising it: records already received must be read
        first."""
        try:
            self._send(channel, rests)
        except (OSError, KafkaError) as error:
            return error
        return None

    def _decode(self, fetched: FetchedRecords) -> Iterator[pa.RecordBatch]:
        """Decode records. Malformed ones end the read: the position has moved past them, so a retry would skip them."""
        try:
            yield from decode(fetched, self._schema)
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def _send(self, channel: Channel, rests: Sequence[_RangeLeft]) -> None:
        at = {rest.where: rest.position for rest in rests}
        topics = [
            FetchTopic(
                self._cluster.topic(name).topic_id,
                name,
                [
                    FetchPartition(
                        index,
                        fetch_offset=at[TopicPartition(name, index)],
                        partition_max_bytes=self._options.partition_bytes_max,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(at).items()
        ]
        request = FetchRequest(
            max_wait_ms=WAIT_MS_MAX,
            min_bytes=1,
            max_bytes=self._options.fetch_bytes_max,
            isolation_level=int(self._options.read_committed),
            topics=topics,
        )
        channel.send(ApiKey.FETCH, request)

    def _take_response(
        self, response: FetchResponse, rests: Sequence[_RangeLeft]
    ) -> tuple[list[FetchedRecords], KafkaError | None]:
        """Return (records for the decoder, the error of a partition that must be fetched elsewhere).

        Positions move only when the whole response is parsed: else records could be lost by an error in another
        partition.
        """
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        waiting = {rest.where: rest for rest in rests}
        names = {self._cluster.topic(rest.where.topic).topic_id: rest.where.topic for rest in rests}
        fetched: list[FetchedRecords] = []
        moves: list[tuple[_RangeLeft, int]] = []
        error: KafkaError | None = None
        for topic in response.responses:
            name = topic.topic or names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                rest = waiting.get(TopicPartition(name, data.partition_index))
                if rest is None:
                    raise MalformedData(f"the response has {name}-{data.partition_index}, which was not in the request")
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._skip_lost(rest)
                elif data.error_code:
                    error = KafkaError(ErrorCode(data.error_code), f"{rest.where}: {ErrorCode(data.error_code).name}")
                elif (after := _next_position(rest, data)) > rest.position:
                    fetched.append(_records(rest, data))
                    moves.append((rest, after))
        for rest, after in moves:
            rest.position = after
        if moves:
            self._progress_at = time.monotonic()
            self._backoff = BACKOFF_SECONDS_FIRST
        return fetched, error

    # --- missing records --------------------------------------------------------------------------------------------

    def _skip_lost(self, rest: _RangeLeft) -> None:
        """The position is before the log start or beyond the log end offset: report it and skip."""
        start = self._bound(rest.where, EARLIEST)
        end = self._bound(rest.where, LATEST)
        if rest.position < start:
            last = min(start, rest.end) - 1
            report_loss(
                self._options, f"{rest.where}: offsets {rest.position} to {last} are gone, the log starts at {start}"
            )
            rest.position = start
        elif rest.position > end:
            report_loss(self._options, f"{rest.where}: offset {rest.position} was expected, but the log ends at {end}")
            rest.position = rest.end

    def _bound(self, where: TopicPartition, which: int) -> int:
        """Look up an end of the log on a separate connection: this one may have a request in flight."""
        aside = Cluster(self._cluster.bootstrap, self._options.properties)
        try:
            return aside.retry(lambda: aside.list_offsets({where: which}), self._options.poll_timeout_ms)[where]
        finally:
            aside.close()

    def _give_up_if_stuck(self, rests: Sequence[_RangeLeft]) -> None:
        if rests and (time.monotonic() - self._progress_at) * 1000 > self._options.poll_timeout_ms:
            stuck = rests[0]
            report_loss(
                self._options,
                f"{stuck.where}: nothing came at offset {stuck.position} (up to {stuck.end} was expected) within"
                f" {self._options.poll_timeout_ms / 1000:.0f} s",
            )
            for rest in rests:
                rest.position = rest.end


def _next_position(rest: _RangeLeft, data: PartitionData) -> int:
    """Where the next fetch begins. Malformed bytes end the read: a retry would get the same."""
    if not data.records:
        return rest.position
    assert isinstance(data.records, memoryview)
    try:
        return next_offset(data.records, rest.position)
    except MalformedData as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{rest.where}, {error}") from error


def _records(rest: _RangeLeft, data: PartitionData) -> FetchedRecords:
    assert isinstance(data.records, memoryview)
    aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
    return FetchedRecords(*rest.where, data.records, rest.position, rest.end, aborted)
