"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: log start, log end, and offsets by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from batches import batch, now_ms
from kio.schema.errors import ErrorCode
from protocol_requests import fetch, list_offset, produce
from wire_client import Wire, message

CreateTopic = Callable[..., str]
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic()


@pytest.fixture
def timed(wire: Wire, name: str) -> tuple[str, int]:
    """Times 0, 10, 20 | 15, 40, 30 | 35 (ms after the start, | between batches), at offsets 0 to 6."""
    start = now_ms() - 100_000
    for times in ([0, 10, 20], [15, 40, 30], [35]):
        produce(wire, name, batch([b"v"] * len(times), timestamps=[start + time for time in times]))
    return name, start


def delete_records(wire: Wire, name: str, offset: int, partition: int = 0) -> Any:
    topics = [{"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}]
    return wire.ask(message("delete_records", 2, topics=topics, timeout=5000)).topics[0].partitions[0]


@pytest.mark.parametrize(("requested", "offset"), [(LATEST, 7), (EARLIEST, 0), (EARLIEST_LOCAL, 0)])
def test_log_start_and_end_have_no_timestamp(wire: Wire, timed: tuple[str, int], requested: int, offset: int) -> None:
    answer = list_offset(wire, timed[0], requested, version=8)
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, offset, -1, 0)


def test_offsets_of_an_empty_log(wire: Wire, name: str) -> None:
    for requested, expected in [(LATEST, (0, 0, -1, 0)), (EARLIEST, (0, 0, -1, 0)), (MAX_TIMESTAMP, (0, -1, -1, -1))]:
        answer = list_offset(wire, name, requested)
        assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == expected, requested


def test_max_timestamp_returns_the_record_with_the_latest_time(wire: Wire, timed: tuple[str, int]) -> None:
    name, start = timed
    answer = list_offset(wire, name, MAX_TIMESTAMP)
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, 4, start + 40, 0)


@pytest.mark.parametrize(
    ("requested", "offset", "found"), [(-5, 0, 0), (0, 0, 0), (1, 1, 10), (12, 2, 20), (21, 4, 40), (40, 4, 40)]
)
def test_a_lookup_by_time_returns_the_first_record_not_older(
    wire: Wire, timed: tuple[str, int], requested: int, offset: int, found: int
) -> None:
    name, start = timed
    answer = list_offset(wire, name, start + requested)
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, offset, start + found, 0)


def test_a_lookup_by_time_after_the_last_record_finds_nothing(wire: Wire, timed: tuple[str, int]) -> None:
    answer = list_offset(wire, timed[0], timed[1] + 41)
    assert (answer.error_code, answer.offset, answer.timestamp, answer.leader_epoch) == (0, -1, -1, -1)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_lookup_by_time_inside_a_compressed_batch(wire: Wire, name: str, codec: str) -> None:
    start = now_ms() - 1000
    assert produce(wire, name, batch([b"v"] * 50, codec, timestamps=[start + n for n in range(50)])).error_code == 0
    answer = list_offset(wire, name, start + 33)
    assert (answer.offset, answer.timestamp) == (33, start + 33)
    assert list_offset(wire, name, MAX_TIMESTAMP).offset == 49


def test_max_timestamp_returns_the_first_of_equal_timestamps(wire: Wire, name: str) -> None:
    start = now_ms() - 1000
    produce(wire, name, batch([b"v"] * 3, timestamps=[start, start + 5, start + 5]))
    produce(wire, name, batch([b"v"], timestamps=[start + 5]))
    assert list_offset(wire, name, MAX_TIMESTAMP).offset == 1


@pytest.mark.parametrize("isolation", [0, 1])
def test_isolation_makes_no_difference_without_transactions(wire: Wire, timed: tuple[str, int], isolation: int) -> None:
    assert list_offset(wire, timed[0], LATEST, isolation_level=isolation).offset == 7


@pytest.mark.parametrize(
    ("requested", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (EARLIEST_PENDING, 9), (-7, 9)],
)
def test_special_timestamps_are_refused_before_their_version(
    wire: Wire, timed: tuple[str, int], requested: int, version: int
) -> None:
    answer = list_offset(wire, timed[0], requested, version=version)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.unsupported_version, -1, -1)


@pytest.mark.parametrize(("requested", "version"), [(LATEST_TIERED, 9), (EARLIEST_PENDING, 11)])
def test_tiered_offsets_do_not_exist_without_tiered_storage(
    wire: Wire, timed: tuple[str, int], requested: int, version: int
) -> None:
    answer = list_offset(wire, timed[0], requested, version=version, **({"timeout": 1000} if version >= 10 else {}))
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_of_list_offsets(wire: Wire, timed: tuple[str, int], version: int) -> None:
    partition = {"partition_index": 0, "timestamp": LATEST}
    fields: dict[str, Any] = {"replica_id": -1, "topics": [{"name": timed[0], "partitions": [partition]}]}
    if version >= 2:
        fields["isolation_level"] = 0
    if version >= 10:
        fields["timeout"] = 1000
    assert wire.ask(message("list_offsets", version, **fields)).topics[0].partitions[0].offset == 7


def test_wrong_leader_epochs_are_fenced(wire: Wire, timed: tuple[str, int]) -> None:
    assert list_offset(wire, timed[0], LATEST, current_leader_epoch=0).error_code == 0
    older = list_offset(wire, timed[0], LATEST, current_leader_epoch=-2)
    assert (older.error_code, older.offset) == (ErrorCode.fenced_leader_epoch, -1)
    newer = list_offset(wire, timed[0], LATEST, current_leader_epoch=3)
    assert (newer.error_code, newer.offset) == (ErrorCode.unknown_leader_epoch, -1)


def test_unknown_topics_and_partitions_are_refused(wire: Wire, name: str, topic: Callable[[], str]) -> None:
    assert list_offset(wire, topic(), LATEST).error_code == ErrorCode.unknown_topic_or_partition
    assert list_offset(wire, name, LATEST, partition_index=4).error_code == ErrorCode.unknown_topic_or_partition


def test_a_duplicate_partition_is_refused(wire: Wire, name: str) -> None:
    requested = [{"partition_index": 0, "timestamp": LATEST}, {"partition_index": 0, "timestamp": EARLIEST}]
    topics = [{"name": name, "partitions": requested}]
    answer = wire.ask(message("list_offsets", 7, replica_id=-1, isolation_level=0, topics=topics))
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.offset) == (ErrorCode.invalid_request, -1)


# ---- OffsetForLeaderEpoch


def epoch_end(wire: Wire, name: str, leader_epoch: int, current: int = -1, partition: int = 0, version: int = 4) -> Any:
    requested = {"partition": partition, "current_leader_epoch": current, "leader_epoch": leader_epoch}
    fields = {"replica_id": -1} if version >= 3 else {}
    request = message("offset_for_leader_epoch", version, topics=[{"topic": name, "partitions": [requested]}], **fields)
    return wire.ask(request).topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_current_epoch_ends_at_the_log_end(wire: Wire, timed: tuple[str, int], version: int) -> None:
    answer = epoch_end(wire, timed[0], 0, version=version)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 7)


def test_an_unknown_epoch_has_no_end_offset(wire: Wire, timed: tuple[str, int]) -> None:
    answer = epoch_end(wire, timed[0], 9)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -1, -1)
    answer = epoch_end(wire, timed[0], -1)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -1, -1)


def test_epoch_queries_are_fenced_too(wire: Wire, timed: tuple[str, int]) -> None:
    assert epoch_end(wire, timed[0], 0, current=5).error_code == ErrorCode.unknown_leader_epoch
    assert epoch_end(wire, timed[0], 0, current=-2).error_code == ErrorCode.fenced_leader_epoch
    assert epoch_end(wire, timed[0], 0, partition=5).error_code == ErrorCode.unknown_topic_or_partition


def test_the_current_epoch_of_an_empty_log(wire: Wire, name: str) -> None:
    answer = epoch_end(wire, name, 0)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 0)


# ---- DeleteRecords


def test_delete_records_moves_only_the_log_start(wire: Wire, timed: tuple[str, int]) -> None:
    name, start = timed
    assert (delete_records(wire, name, 4).error_code, delete_records(wire, name, 4).low_watermark) == (0, 4)
    assert list_offset(wire, name, EARLIEST).offset == 4
    assert list_offset(wire, name, LATEST).offset == 7
    assert produce(wire, name, batch([b"v"])).log_start_offset == 4
    answer = list_offset(wire, name, start)
    assert (answer.offset, answer.timestamp) == (4, start + 40)


def test_delete_records_never_moves_the_log_start_back(wire: Wire, timed: tuple[str, int]) -> None:
    assert delete_records(wire, timed[0], 5).low_watermark == 5
    again = delete_records(wire, timed[0], 2)
    assert (again.error_code, again.low_watermark) == (0, 5)


def test_delete_all_records(wire: Wire, timed: tuple[str, int]) -> None:
    name, _ = timed
    answer = delete_records(wire, name, -1)
    assert (answer.error_code, answer.low_watermark) == (0, 7)
    assert bytes(fetch(wire, name, 7).records) == b""
    assert produce(wire, name, batch([b"v"])).base_offset == 7


@pytest.mark.parametrize(("offset", "code"), [(8, 1), (-2, 1), (2**62, 1)])
def test_delete_records_out_of_range_is_refused(wire: Wire, timed: tuple[str, int], offset: int, code: int) -> None:
    answer = delete_records(wire, timed[0], offset)
    assert (answer.error_code, answer.low_watermark) == (code, -1)


def test_delete_records_of_an_unknown_partition_is_refused(wire: Wire, name: str, topic: Callable[[], str]) -> None:
    assert delete_records(wire, name, 0, partition=8).error_code == ErrorCode.unknown_topic_or_partition
    assert delete_records(wire, topic(), 0).error_code == ErrorCode.unknown_topic_or_partition


def test_delete_records_on_a_compacted_topic_is_refused(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(config={"cleanup.policy": "compact"})
    produce(wire, name, batch([b"v"], keys=[b"k"]))
    assert delete_records(wire, name, 1).error_code == ErrorCode.policy_violation
