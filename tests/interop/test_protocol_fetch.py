"""Fetch, byte by byte: whole batches, limits, waiting, ranges, fencing and topic ids."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from batches import batch, headers_of
from kio.schema.errors import ErrorCode
from protocol_requests import NEVER_MS, end_offset, fetch, fetch_request, produce, topic_id
from wire_client import Wire, message

CreateTopic = Callable[..., str]


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic()


@pytest.fixture
def three_batches(wire: Wire, name: str) -> str:
    """Offsets 0-2, 3-5 and 6-8."""
    for start in (0, 3, 6):
        produce(wire, name, batch([b"%d" % n * 100 for n in range(start, start + 3)]))
    return name


def base_offsets(records: bytes | None) -> list[int]:
    return [header.base_offset for header in headers_of(records)]


def test_a_fetch_inside_a_batch_returns_the_whole_batch(wire: Wire, three_batches: str) -> None:
    for offset, expected in [(0, [0, 3, 6]), (1, [0, 3, 6]), (3, [3, 6]), (5, [3, 6]), (8, [6])]:
        answer = fetch(wire, three_batches, offset)
        assert (answer.error_code, base_offsets(answer.records)) == (0, expected)
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (9, 9, 0)


def test_a_fetch_at_the_log_end_returns_no_records_and_no_error(wire: Wire, three_batches: str) -> None:
    answer = fetch(wire, three_batches, 9)
    assert (answer.error_code, bytes(answer.records)) == (0, b"")


@pytest.mark.parametrize("offset", [10, 1000, 2**62, -1, -2])
def test_offsets_outside_the_log_are_out_of_range(wire: Wire, three_batches: str, offset: int) -> None:
    answer = fetch(wire, three_batches, offset)
    assert answer.error_code == ErrorCode.offset_out_of_range
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
    assert not answer.records


def test_an_out_of_range_fetch_does_not_wait(wire: Wire, three_batches: str) -> None:
    assert fetch(wire, three_batches, 10, max_wait=NEVER_MS, min_bytes=1).error_code == 1


def test_a_fetch_before_the_log_start_is_out_of_range(wire: Wire, three_batches: str) -> None:
    partitions = [{"partition_index": 0, "offset": 4}]
    wire.ask(message("delete_records", 2, topics=[{"name": three_batches, "partitions": partitions}], timeout=5000))
    assert fetch(wire, three_batches, 3).error_code == ErrorCode.offset_out_of_range
    answer = fetch(wire, three_batches, 4)
    assert (answer.error_code, answer.log_start_offset, base_offsets(answer.records)) == (0, 4, [3, 6])


# ---- sizes


def test_the_first_batch_is_returned_whole_however_small_the_limit(wire: Wire, three_batches: str) -> None:
    """KIP-74: progress is always possible."""
    assert base_offsets(fetch(wire, three_batches, 3, partition_max_bytes=1).records) == [3]
    assert base_offsets(fetch(wire, three_batches, 3, max_bytes=1).records) == [3]
    assert base_offsets(fetch(wire, three_batches, 3, partition_max_bytes=0).records) == [3]


def test_partition_max_bytes_limits_the_records(wire: Wire, three_batches: str) -> None:
    """Apache may fill the limit with the start of the next batch, which clients drop; whole batches are allowed too."""
    size = len(bytes(fetch(wire, three_batches, 6).records))
    records = bytes(fetch(wire, three_batches, 0, partition_max_bytes=size + 10).records)
    assert size <= len(records) <= size + 10
    assert next(headers_of(records[:size])).base_offset == 0


def test_only_the_first_partition_with_data_may_exceed_the_limit(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=3)
    for partition in (1, 2):
        produce(wire, name, batch([b"x" * 500]), partition=partition)
    requested = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 10} for n in (0, 1, 2)]
    answer = wire.ask(
        message("fetch", 12, max_wait=0, min_bytes=0, max_bytes=10, topics=[{"topic": name, "partitions": requested}])
    )
    sizes = [len(partition.records or b"") for partition in answer.responses[0].partitions]
    assert sizes[0] == 0
    assert sizes[1] > 500
    assert sizes[2] == 0


def test_partitions_are_returned_in_the_order_requested(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=4)
    order = [2, 0, 3, 1]
    requested = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1000} for n in order]
    answer = wire.ask(message("fetch", 12, max_wait=0, min_bytes=0, topics=[{"topic": name, "partitions": requested}]))
    assert [partition.partition_index for partition in answer.responses[0].partitions] == order


# ---- waiting


def test_a_fetch_waits_for_a_write_on_another_connection(wire: Wire, bootstrap: str, name: str) -> None:
    with Wire(bootstrap) as waiter:
        waiter.post(fetch_request(name, 0, max_wait=NEVER_MS, min_bytes=1))
        assert waiter.is_silent(0.2)
        produce(wire, name, batch([b"wake up"]))
        answer = waiter.collect().responses[0].partitions[0]
        assert base_offsets(answer.records) == [0]
        assert answer.high_watermark == 1


def test_a_fetch_waits_until_min_bytes_are_available(wire: Wire, bootstrap: str, name: str) -> None:
    with Wire(bootstrap) as waiter:
        waiter.post(fetch_request(name, 0, max_wait=NEVER_MS, min_bytes=2000))
        produce(wire, name, batch([b"x" * 100]))
        assert waiter.is_silent(0.2)
        produce(wire, name, batch([b"x" * 3000]))
        assert base_offsets(waiter.collect().responses[0].partitions[0].records) == [0, 1]


def test_a_waiting_fetch_ends_after_max_wait(wire: Wire, name: str) -> None:
    answer = fetch(wire, name, 0, max_wait=50, min_bytes=1)
    assert (answer.error_code, bytes(answer.records)) == (0, b"")


def test_a_fetch_with_min_bytes_zero_does_not_wait(wire: Wire, name: str) -> None:
    assert fetch(wire, name, 0, max_wait=NEVER_MS, min_bytes=0).error_code == 0


def test_an_error_in_one_partition_ends_the_wait(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    requested = [
        {"partition": n, "fetch_offset": offset, "partition_max_bytes": 1000} for n, offset in ((0, 0), (1, 7))
    ]
    topics = [{"topic": name, "partitions": requested}]
    answer = wire.ask(message("fetch", 12, max_wait=NEVER_MS, min_bytes=1, topics=topics))
    codes = {partition.partition_index: partition.error_code for partition in answer.responses[0].partitions}
    assert codes == {0: 0, 1: ErrorCode.offset_out_of_range}


def test_a_fetch_of_only_unknown_partitions_does_not_wait(wire: Wire, name: str) -> None:
    assert fetch(wire, name, 0, partition=5, max_wait=NEVER_MS, min_bytes=1).error_code == 3


def test_a_fetch_of_no_partitions_does_not_wait(wire: Wire) -> None:
    assert wire.ask(message("fetch", 12, max_wait=NEVER_MS, min_bytes=1, topics=[])).responses == ()


def test_a_waiting_fetch_ends_when_its_topic_is_deleted(wire: Wire, bootstrap: str, name: str) -> None:
    with Wire(bootstrap) as waiter:
        waiter.post(fetch_request(name, 0, max_wait=NEVER_MS, min_bytes=1))
        assert waiter.is_silent(0.1)
        wire.ask(message("delete_topics", 5, topic_names=[name], timeout=5000))
        answer = waiter.collect().responses[0].partitions[0]
        assert not answer.records
        assert answer.error_code in (3, 6)


# ---- fencing and names


def test_a_newer_leader_epoch_is_refused(wire: Wire, three_batches: str) -> None:
    assert fetch(wire, three_batches, 0, current_leader_epoch=0).error_code == 0
    assert fetch(wire, three_batches, 0, current_leader_epoch=-1).error_code == 0
    newer = fetch(wire, three_batches, 0, current_leader_epoch=1)
    assert newer.error_code == ErrorCode.unknown_leader_epoch
    assert not newer.records


def test_an_unknown_last_fetched_epoch_is_out_of_range(wire: Wire, three_batches: str) -> None:
    """KIP-320: only for an epoch that the leader knows could the response tell where it ended."""
    fine = fetch(wire, three_batches, 3, last_fetched_epoch=0)
    assert (fine.error_code, fine.diverging_epoch.epoch, base_offsets(fine.records)) == (0, -1, [3, 6])
    assert fetch(wire, three_batches, 9, last_fetched_epoch=5).error_code == ErrorCode.offset_out_of_range


def test_a_fetch_of_unknown_topics_and_partitions_is_refused(wire: Wire, name: str, topic: Callable[[], str]) -> None:
    unknown = fetch(wire, topic(), 0)
    assert unknown.error_code == ErrorCode.unknown_topic_or_partition
    assert (unknown.high_watermark, unknown.last_stable_offset, unknown.log_start_offset) == (-1, -1, -1)
    assert fetch(wire, name, 0, partition=5).error_code == ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("version", [13, 15, 16, 17, 18])
def test_a_fetch_by_topic_id(wire: Wire, three_batches: str, version: int) -> None:
    answer = fetch(wire, topic_id(wire, three_batches), 4, version=version)
    assert (answer.error_code, base_offsets(answer.records)) == (0, [3, 6])
    assert fetch(wire, uuid4(), 0, version=version).error_code == ErrorCode.unknown_topic_id
    assert fetch(wire, None, 0, version=version).error_code == ErrorCode.unknown_topic_id


def test_the_old_id_of_a_recreated_topic_is_unknown(wire: Wire, create_topic: CreateTopic) -> None:
    name = create_topic()
    old = topic_id(wire, name)
    assert wire.ask(message("delete_topics", 5, topic_names=[name], timeout=5000)).responses[0].error_code == 0
    create_topic(name=name)
    new = topic_id(wire, name)
    assert new != old
    assert fetch(wire, old, 0, version=13).error_code == ErrorCode.unknown_topic_id
    assert fetch(wire, new, 0, version=13).error_code == 0


@pytest.mark.parametrize("version", range(4, 13))
def test_a_fetch_by_name_in_every_version(wire: Wire, three_batches: str, version: int) -> None:
    fields = {"isolation_level": 0, "max_bytes": 1 << 20, "replica_id": -1}
    assert base_offsets(fetch(wire, three_batches, 0, version=version, **fields).records) == [0, 3, 6]


@pytest.mark.parametrize("version", [4, 9, 10])
def test_zstd_batches_are_returned_in_any_version(wire: Wire, create_topic: CreateTopic, version: int) -> None:
    """There is no down-conversion any more: a client that cannot read zstd must find out by itself."""
    name = create_topic(config={"compression.type": "zstd"})
    produce(wire, name, batch([b"v"], "zstd"))
    answer = fetch(wire, name, 0, version=version)
    assert (answer.error_code, base_offsets(answer.records)) == (0, [0])


def test_read_committed_without_transactions_returns_all_records(wire: Wire, three_batches: str) -> None:
    answer = fetch(wire, three_batches, 0, isolation_level=1)
    assert base_offsets(answer.records) == [0, 3, 6]
    assert not answer.aborted_transactions


def test_acknowledged_records_can_be_fetched_at_once(wire: Wire, name: str) -> None:
    for n in range(20):
        produce(wire, name, batch([b"v"]))
        assert base_offsets(fetch(wire, name, n).records) == [n]
    assert end_offset(wire, name) == 20
