"""How far a group is behind: in records, and how old the first waiting record is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import Committed, ShareOffset
from moldau.client.cluster import Cluster, Offsets, Topic
from moldau.client.decoding import DecodingBudget
from moldau.client.fetching.batches import whole_batches
from moldau.operations.lag import (
    PartitionLag,
    ShareLag,
    first_timestamp,
    first_timestamps,
    log_ends,
    partition_lags,
    share_lags,
)
from moldau.wire.batch import (
    BATCH_HEADER,
    BATCH_HEADER_BYTES,
    DELETE_HORIZON_BIT,
    LENGTH_PREFIX,
    MAGIC_POSITION,
    read_header,
)
from moldau.wire.compression import Compression
from moldau.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from moldau.wire.records import ControlType, Record, append_varint, build_batch, control_record

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("committed", "end", "records"), [(3, 10, 7), (10, 10, 0), (12, 10, 0), (None, 10, None), (3, None, None)]
)
def test_lag_in_records(committed: int | None, end: int | None, records: int | None) -> None:
    assert PartitionLag(TopicPartition("t", 0), committed, end, None).records == records


def batch_of(*timestamps: int, base_offset: int = 0, codec: Compression = Compression.NONE) -> bytes:
    records = [Record(-1, timestamp, None, b"v") for timestamp in timestamps]
    return bytes(build_batch(records, base_offset=base_offset, compression=codec))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_the_timestamp_of_the_first_waiting_record(codec: Compression) -> None:
    ((header, batch),) = whole_batches(memoryview(batch_of(100, 200, 300, base_offset=7, codec=codec)))
    found = [first_timestamp(header, batch, offset, DecodingBudget()) for offset in (0, 7, 8, 9, 10)]
    assert found == [100, 100, 200, 300, None]


def test_a_batch_beyond_the_budget_has_the_least_possible_age() -> None:
    spent = DecodingBudget(records_max=2, batches=1)
    ((header, batch),) = whole_batches(memoryview(batch_of(100, 200, 300, base_offset=7)))
    assert first_timestamp(header, batch, 8, spent) == 300
    assert first_timestamp(header._replace(record_count=1_000_000), batch, 8, DecodingBudget()) == 300


def test_a_delete_horizon_is_not_the_timestamp_of_a_record() -> None:
    tombstone = bytearray(1)
    for number in (100 - NOW_MS, 0, 1):  # Timestamp delta from the horizon, offset delta, bytes of the key.
        append_varint(tombstone, number)
    tombstone += b"k\x01\x00"
    body = bytearray()
    append_varint(body, len(tombstone))
    body += tombstone
    header = read_header(batch_of(100, base_offset=7))._replace(
        batch_length=BATCH_HEADER_BYTES - LENGTH_PREFIX.size + len(body),
        attributes=DELETE_HORIZON_BIT,
        base_timestamp=NOW_MS,
    )
    batch = memoryview(BATCH_HEADER.pack(*header) + body)
    assert first_timestamp(header, batch, 7, DecodingBudget()) == 100


def test_markers_are_not_records() -> None:
    marker = bytes(build_batch([control_record(ControlType.COMMIT, b"", 5)], is_control=True))
    ((header, batch),) = whole_batches(memoryview(marker))
    assert first_timestamp(header, batch, 0, DecodingBudget()) is None


class Moving(Cluster):
    """A topic `t` whose leader moves: requests fail with these errors first."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__("localhost:1", {})
        self._errors = list(errors)

    def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
        self._addresses = {1: ("host", 1)}
        self._topics = {"t": Topic("t", b"", {0: 1})}

    def list_offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Offsets:
        if self._errors:
            raise self._errors.pop(0)
        return dict.fromkeys(timestamps, 7)


def test_the_lag_waits_for_a_leader_that_moves() -> None:
    moved, dead = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ConnectionRefusedError("Connection refused")
    partition = TopicPartition("t", 0)
    assert log_ends(Moving(dead, moved), [partition]) == {partition: 7}
    with pytest.raises(KafkaError):
        log_ends(Moving(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)), [partition])


def test_the_age_is_unknown_if_the_leader_dies() -> None:
    class Dead(Moving):
        def channel(self, node_id: int) -> Any:
            raise ConnectionRefusedError("Connection refused")

    (lag,) = partition_lags(Dead(), [], {TopicPartition("t", 0): Committed(5)}, NOW_MS)
    assert (lag.records, lag.seconds) == (2, None)


def test_the_lag_of_a_share_group_is_what_its_coordinator_says() -> None:
    """The records from the start offset on may be acknowledged already: then nothing waits."""
    fetched: list[int] = []

    class FourPartitions(Moving):
        def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
            self._addresses = {1: ("host", 1)}
            self._topics = {"t": Topic("t", b"", dict.fromkeys(range(4), 1))}

        def channel(self, node_id: int) -> Any:
            return SimpleNamespace(ask=answer)

    def answer(_: object, request: FetchRequest, *__: object) -> FetchResponse:
        asked = [each.partition for topic in request.topics for each in topic.partitions]
        fetched.extend(asked)
        data = [PartitionData(each, records=memoryview(batch_of(NOW_MS - 3000, base_offset=5))) for each in asked]
        return FetchResponse(responses=[FetchableTopicResponse(b"", "t", data)])

    behind, done, unread, unknown = (TopicPartition("t", index) for index in range(4))
    offsets = {behind: ShareOffset(5, 0, 1), done: ShareOffset(5, 0, 0), unknown: KafkaError(ErrorCode.NOT_COORDINATOR)}
    assert share_lags(FourPartitions(), [unread], offsets, NOW_MS) == [
        ShareLag(behind, 5, 7, 1, 3.0),
        ShareLag(done, 5, 7, 0, 0.0),
        ShareLag(unread, None, 7, None, None),
        ShareLag(unknown, None, 7, None, None),
    ]
    assert fetched == [0]


def test_a_dead_leader_is_dialled_once_for_the_ages_of_all_records() -> None:
    """The other leader has a marker before the record, so that it is asked twice."""
    marker = bytes(build_batch([control_record(ControlType.COMMIT, b"", 5)], is_control=True))
    batches = [marker, batch_of(NOW_MS, base_offset=1)]
    dialled: list[int] = []

    def answer(*_: object) -> FetchResponse:
        data = PartitionData(0, records=memoryview(batches.pop(0)))
        return FetchResponse(responses=[FetchableTopicResponse(b"", "t", [data])])

    class HalfDead(Moving):
        def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
            self._addresses = {1: ("host", 1), 2: ("host", 2)}
            self._topics = {"t": Topic("t", b"", {0: 1, 1: 2})}

        def channel(self, node_id: int) -> Any:
            dialled.append(node_id)
            if node_id == 2:
                raise ConnectionRefusedError("Connection refused")
            return SimpleNamespace(ask=answer)

    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert first_timestamps(HalfDead(), {first: 0, second: 0}) == {first: NOW_MS}
    assert dialled == [1, 2, 1]


def test_records_in_a_format_that_is_not_read_have_no_age_and_others_keep_theirs() -> None:
    old = bytearray(40)
    old[8:12] = (28).to_bytes(4, "big")
    old[MAGIC_POSITION] = 1
    contents = [bytes(old), batch_of(NOW_MS)]

    class TwoPartitions(Moving):
        def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
            self._addresses = {1: ("host", 1)}
            self._topics = {"t": Topic("t", b"", {0: 1, 1: 1})}

        def channel(self, node_id: int) -> Any:
            return SimpleNamespace(ask=answer)

    def answer(*_: object) -> FetchResponse:
        data = [PartitionData(index, records=memoryview(content)) for index, content in enumerate(contents)]
        return FetchResponse(responses=[FetchableTopicResponse(b"", "t", data)])

    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert first_timestamps(TwoPartitions(), {first: 0, second: 0}) == {second: NOW_MS}


def test_the_start_of_a_log_is_asked_for_when_the_records_of_other_partitions_were_read() -> None:
    """A channel has one buffer: the next response overwrites the records of the one before."""
    buffer = bytearray(batch_of(NOW_MS))
    listed: list[list[TopicPartition]] = []
    deleted, second_deleted, readable = (TopicPartition("t", index) for index in (0, 1, 2))

    class OneBuffer(Moving):
        def refresh(self, names: Iterable[str] | None, create: bool = False) -> None:
            self._addresses = {1: ("host", 1)}
            self._topics = {"t": Topic("t", b"", {0: 1, 1: 1, 2: 1})}

        def list_offsets(self, timestamps: Mapping[TopicPartition, int], read_committed: bool = False) -> Offsets:
            listed.append(list(timestamps))
            buffer[:] = bytes(len(buffer))
            return dict.fromkeys(timestamps, 0)

        def channel(self, node_id: int) -> Any:
            return SimpleNamespace(ask=answer)

    def answer(*_: object) -> FetchResponse:
        data = [
            PartitionData(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
            PartitionData(1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
            PartitionData(2, records=memoryview(buffer)),
        ]
        return FetchResponse(responses=[FetchableTopicResponse(b"", "t", data)])

    assert first_timestamps(OneBuffer(), {deleted: 5, second_deleted: 5, readable: 0}) == {readable: NOW_MS}
    assert listed == [[deleted, second_deleted]]
