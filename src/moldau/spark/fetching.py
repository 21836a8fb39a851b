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
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.channel import Channel
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, EARLIEST, LATEST, RETRIABLE, Cluster
from moldau.spark.connections import connect
from moldau.spark.offsets import Range
from moldau.spark.options import ReadOptions
from moldau.spark.records.decode import FetchedRecords, decode, next_offset
from moldau.wire.apis import ApiKey
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

WAIT_MS_MAX: Final = 500
VIEW_WAIT_MS_MAX: Final = 50
"""A range of a view exists, and only its evaluation takes time. If nothing is shown at its end, the broker says so when
this time is over."""
ROWS_PER_BATCH_MIN: Final = 8_192
"""Smaller Arrow batches are merged: each costs Spark about as much as a thousand rows."""


@dataclass(slots=True)
class _UnreadRange:
    """The part of a range that is still to be read."""

    partition: TopicPartition
    position: int
    end: int


class DataLoss(Exception):
    """Records are missing: by retention, or because the topic was truncated or created again."""


def report_loss(options: ReadOptions, loss: str) -> None:
    """Raise DataLoss or warn, by the option failOnDataLoss."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{loss}. To read on past the loss, set failOnDataLoss=false")
    warnings.warn(f"{loss}; reading on (failOnDataLoss=false)", stacklevel=2)


def fetch(
    cluster: Cluster, ranges: Sequence[Range], schema: pa.Schema, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield every record of the ranges, in order within a partition."""
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
        self._unread_ranges = [_UnreadRange(each.partition, each.start, each.end) for each in ranges if each.size > 0]
        self._progress_at = time.monotonic()
        self._backoff = BACKOFF_SECONDS_FIRST

    def batches(self) -> Iterator[pa.RecordBatch]:
        while self._unread_ranges:
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
        node = self._cluster.leader(self._unread_ranges[0].partition)
        led_ranges = [unread for unread in self._unread_ranges if self._cluster.leader(unread.partition) == node]
        channel = self._cluster.channel(node)
        try:
            self._send(channel, led_ranges)
            while led_ranges:
                error: Exception | None
                fetched, error = self._take_response(channel.receive(FetchResponse), led_ranges)
                led_ranges = [unread for unread in led_ranges if unread.position < unread.end]
                if led_ranges and error is None:
                    error = self._send_ahead(channel, led_ranges)
                for records in fetched:
                    yield from self._decode(records)
                if error is not None:
                    raise error
                self._report_if_stuck(led_ranges)
        finally:
            # Also after an error or if the caller stops: a response still to come must not be taken for that of the
            # next user's request.
            self._unread_ranges = [unread for unread in self._unread_ranges if unread.position < unread.end]
            if channel.in_flight:
                self._cluster.drop(node)

    def _send_ahead(self, channel: Channel, unread_ranges: Sequence[_UnreadRange]) -> Exception | None:
        """Send the next request. Return a failure instead of raising it: records already received must be read
        first."""
        try:
            self._send(channel, unread_ranges)
        except (OSError, KafkaError) as error:
            return error
        return None

    def _decode(self, fetched: FetchedRecords) -> Iterator[pa.RecordBatch]:
        """Decode records. Malformed ones end the read: the position has moved past them, so a retry would skip them."""
        try:
            yield from decode(fetched, self._schema)
        except MalformedData as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error

    def _send(self, channel: Channel, unread_ranges: Sequence[_UnreadRange]) -> None:
        positions = {unread.partition: unread.position for unread in unread_ranges}
        topics = [
            FetchTopic(
                self._cluster.topic(name).topic_id,
                name,
                [
                    FetchPartition(
                        index,
                        fetch_offset=positions[TopicPartition(name, index)],
                        partition_max_bytes=self._options.partition_bytes_max,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(positions).items()
        ]
        request = FetchRequest(
            max_wait_ms=WAIT_MS_MAX if self._options.shape is None else VIEW_WAIT_MS_MAX,
            min_bytes=1,
            max_bytes=self._options.fetch_bytes_max,
            isolation_level=int(self._options.read_committed),
            topics=topics,
        )
        channel.send(ApiKey.FETCH, request)

    def _take_response(
        self, response: FetchResponse, unread_ranges: Sequence[_UnreadRange]
    ) -> tuple[list[FetchedRecords], KafkaError | None]:
        """Return (records for the decoder, the error of a partition that must be fetched elsewhere).

        Positions move only when the whole response is parsed: else records could be lost by an error in another
        partition.
        """
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        by_partition = {unread.partition: unread for unread in unread_ranges}
        names = {
            self._cluster.topic(unread.partition.topic).topic_id: unread.partition.topic for unread in unread_ranges
        }
        fetched: list[FetchedRecords] = []
        moves: list[tuple[_UnreadRange, int]] = []
        error: KafkaError | None = None
        for topic in response.responses:
            name = topic.topic or names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                unread = by_partition.get(TopicPartition(name, data.partition_index))
                if unread is None:
                    raise MalformedData(f"the response has {name}-{data.partition_index}, which was not in the request")
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._skip_lost(unread)
                elif data.error_code:
                    error = KafkaError(
                        ErrorCode(data.error_code), f"{unread.partition}: {ErrorCode(data.error_code).name}"
                    )
                elif (after := _next_position(unread, data)) > unread.position:
                    fetched.append(_records(unread, data))
                    moves.append((unread, after))
        for unread, after in moves:
            unread.position = after
        if moves:
            self._progress_at = time.monotonic()
            self._backoff = BACKOFF_SECONDS_FIRST
        return fetched, error

    # --- missing records --------------------------------------------------------------------------------------------

    def _skip_lost(self, unread: _UnreadRange) -> None:
        """Report that the position is before the log start offset or after the log end offset, and skip the gap.

        If the position is valid by now, do nothing: the next fetch reads from it.
        """
        start = self._list_offset(unread.partition, EARLIEST)
        end = self._list_offset(unread.partition, LATEST)
        if unread.position < start:
            last = min(start, unread.end) - 1
            report_loss(
                self._options,
                f"{unread.partition}: offsets {unread.position} to {last} are deleted, the log starts at {start}",
            )
            unread.position = start
        elif unread.position > end:
            report_loss(
                self._options, f"{unread.partition}: offset {unread.position} was expected, but the log ends at {end}"
            )
            unread.position = unread.end

    def _list_offset(self, partition: TopicPartition, timestamp: int) -> int:
        """Return the offset for EARLIEST or LATEST. It uses other connections: these may have a request in flight."""
        cluster = connect(self._options)
        try:
            offsets = cluster.retry(lambda: cluster.list_offsets({partition: timestamp}), self._options.poll_timeout_ms)
            return offsets[partition]
        finally:
            cluster.close()

    def _report_if_stuck(self, unread_ranges: Sequence[_UnreadRange]) -> None:
        if unread_ranges and (time.monotonic() - self._progress_at) * 1000 > self._options.poll_timeout_ms:
            stuck = unread_ranges[0]
            report_loss(
                self._options,
                f"{stuck.partition}: no record from offset {stuck.position} on (expected up to {stuck.end}) within"
                f" {self._options.poll_timeout_ms / 1000:.0f} s",
            )
            for unread in unread_ranges:
                unread.position = unread.end


def _next_position(unread: _UnreadRange, data: PartitionData) -> int:
    """Return the offset of the next fetch. Malformed bytes end the read: a retry would get the same bytes."""
    if not data.records:
        return unread.position
    assert isinstance(data.records, memoryview)
    try:
        return next_offset(data.records, unread.position)
    except MalformedData as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{unread.partition}, {error}") from error


def _records(unread: _UnreadRange, data: PartitionData) -> FetchedRecords:
    assert isinstance(data.records, memoryview)
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    return FetchedRecords(*unread.partition, data.records, unread.position, unread.end, aborted)
