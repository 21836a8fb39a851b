"""Searches with a limit of work each: they end, and each continues where the last one ended. Also malformed batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness.depth import few
from kept_batches import KeptBatches, log_of

from moldau.base.errors import MalformedData
from moldau.client import decoding
from moldau.client.cluster import Cluster
from moldau.client.decoding import BatchTooLarge, DecodingBudget
from moldau.console.records import search
from moldau.console.records.choosing import Choice, Fields, choice_of
from moldau.console.records.fetching import fetch
from moldau.console.records.search import NewestFirst, Work, oldest_first
from moldau.runtime.views.ports import BatchesTask
from moldau.views.jobs import ViewFailed
from moldau.web.failures import ApiError
from moldau.wire.batch import read_header
from moldau.wire.compression import Compression
from moldau.wire.messages.fetch import AbortedTransaction
from moldau.wire.records import EndTxnMarker, Record, build_batch, end_txn_marker


def no_condition(task: BatchesTask) -> ViewFailed:
    raise AssertionError("these searches have no condition")


NO_RECORD = choice_of({"key": "missing"}, no_condition)
EVERY_RECORD = choice_of({}, no_condition)
PATIENT = 1e9
ABORT_KEY = end_txn_marker(EndTxnMarker(False, 0), 0).key


def search_from_the_end(
    cluster: KeptBatches, ends: dict[int, int], work: dict[str, Any], filters: dict[str, str], limit: int = 50
) -> tuple[list[tuple[int, int]], list[int]]:
    """Search on until the start is reached. Return the found offsets, and the bytes read by each search."""
    uppers, found, read = dict(ends), [], []
    while True:
        newest = NewestFirst(cast(Cluster, cluster), "t", dict.fromkeys(ends, 0), uppers)
        answer = newest.search(choice_of(filters, no_condition), limit, Work(seconds_max=PATIENT, **work), {})
        found += [(each.partition, each.record.offset) for each in answer.records]
        read.append(answer.work.bytes)
        if answer.next is None:
            return found, read
        assert answer.next != uppers, "each search makes progress"
        uppers = dict(answer.next)


@pytest.mark.parametrize("partitions", few([1, 12], of=[1, 12, 60]))
def test_a_filtered_newest_first_search_reaches_the_start(partitions: int) -> None:
    """Twelve windows of 2,000 records are more than one search may read."""
    cluster = KeptBatches({index: log_of(300, 1000) for index in range(partitions)})
    ends = dict.fromkeys(range(partitions), 300)
    found, read = search_from_the_end(cluster, ends, {"records_max": 500, "bytes_max": 500_000}, {"key": "missing"})
    assert found == []
    assert len(read) < 6 * partitions + 6
    everything, _ = search_from_the_end(cluster, ends, {}, {}, limit=500)
    assert sorted(everything) == [(index, offset) for index in range(partitions) for offset in range(300)]


def test_a_newest_first_search_reaches_the_start_with_oversized_batches() -> None:
    cluster = KeptBatches({index: log_of(40, 100_000, per_batch=10) for index in range(4)})
    work = {"bytes_max": 100_000, "records_max": 5}
    found, _ = search_from_the_end(cluster, dict.fromkeys(range(4), 40), work, {"tombstones": "without"})
    assert sorted(found) == [(index, offset) for index in range(4) for offset in range(40)]


@pytest.mark.parametrize("is_newest_first", [True, False])
def test_a_search_with_a_slow_filter_ends_after_its_time_and_gets_ahead(
    monkeypatch: pytest.MonkeyPatch, is_newest_first: bool
) -> None:
    seconds, chosen = 0.0, []
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: seconds))

    def is_chosen_slowly(fields: Fields) -> bool:
        nonlocal seconds
        seconds += 2.0
        chosen.append(fields.found.record.offset)
        return True

    cluster = cast(Cluster, KeptBatches({0: log_of(8, 100)}))
    at: dict[int, int] | None = {0: 8 if is_newest_first else 0}
    searches = 0
    while at is not None:
        searches += 1
        choice, work = Choice((is_chosen_slowly,)), Work(seconds_max=3.0, begin=seconds)
        if is_newest_first:
            at = NewestFirst(cluster, "t", {0: 0}, at).search(choice, 50, work, {}).next
        else:
            at = oldest_first(cluster, "t", at, {0: 8}, choice, 50, work).next
    assert sorted(chosen) == [*range(8)]
    assert searches >= 4


def test_a_search_counts_decompressed_bytes() -> None:
    cluster = KeptBatches({0: log_of(100, 100_000, per_batch=10, compression=Compression.ZSTD)})
    work = Work(bytes_max=5_000_000, seconds_max=PATIENT)
    found = oldest_first(cast(Cluster, cluster), "t", {0: 0}, {0: 100}, NO_RECORD, 50, work)
    assert found.stopped == "end"
    assert work.bytes > 10_000_000
    small = Work(bytes_max=5_000_000, seconds_max=PATIENT)
    found = oldest_first(cast(Cluster, cluster), "t", {0: 0, 1: 0}, {0: 100, 1: 0}, NO_RECORD, 50, small)
    assert small.bytes == work.bytes


def test_oldest_first_merges_more_partitions_than_fill_a_response() -> None:
    cluster = KeptBatches({index: log_of(100, 6_000, per_batch=2) for index in range(30)})
    ends = dict.fromkeys(range(30), 100)
    found = oldest_first(cast(Cluster, cluster), "t", dict.fromkeys(ends, 0), ends, EVERY_RECORD, 90, Work())
    assert sorted((each.partition, each.record.offset) for each in found.records) == [
        (index, offset) for index in range(30) for offset in range(3)
    ]


def test_oldest_first_reads_partitions_with_large_batches_in_turn() -> None:
    """Only the first partition of a response gets a batch that is larger than its share."""
    cluster = KeptBatches({index: log_of(10, 600_000, per_batch=1) for index in range(3)})
    ends = dict.fromkeys(range(3), 10)
    found = oldest_first(cast(Cluster, cluster), "t", dict.fromkeys(ends, 0), ends, EVERY_RECORD, 9, Work())
    assert [each.partition for each in found.records] == [0, 1, 2] * 3


def test_a_fetch_decodes_no_more_than_its_budget() -> None:
    """A response of some kilobytes holds much more: what does not fit is read by the next fetch."""
    bombs = log_of(100, 1 << 20, per_batch=10, compression=Compression.ZSTD)
    cluster = KeptBatches({0: bombs, 1: bombs})
    assert sum(map(len, bombs)) < 100_000
    positions = {0: 0, 1: 0}
    offsets: list[tuple[int, int]] = []
    for _ in range(100):
        fetched = fetch(cast(Cluster, cluster), "t", positions, partition_bytes=1 << 20)
        assert sum(each.bytes for each in fetched.values()) <= decoding.BYTES_MAX
        offsets += [(index, each.record.offset) for index, part in fetched.items() for each in part.records]
        positions = {index: part.next_offset for index, part in fetched.items()}
        if positions == {0: 100, 1: 100}:
            break
    assert sorted(offsets) == [(index, offset) for index in (0, 1) for offset in range(100)]
    many = KeptBatches({0: log_of(120_000, 1, per_batch=20_000)})
    assert len(fetch(cast(Cluster, many), "t", {0: 0}, partition_bytes=8 << 20)[0].records) == 40_000


def test_a_fetch_decodes_no_batches_beyond_the_requested_range() -> None:
    cluster = KeptBatches({0: log_of(100, 10, per_batch=10)})
    (part,) = fetch(cast(Cluster, cluster), "t", {0: 12}, partition_bytes=1 << 20, ends={0: 25}).values()
    assert [each.record.offset for each in part.records] == list(range(12, 30))
    assert part.next_offset == 30


def batch_of(records: list[Record], compression: Compression = Compression.ZSTD) -> memoryview:
    return memoryview(build_batch(records, compression=compression))


def test_a_batch_larger_than_the_decoding_budget_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "BATCH_RECORDS_MAX", 1000)
    monkeypatch.setattr(decoding, "BATCH_HEADERS_MAX", 1000)
    many = batch_of([Record(at, 0, None, None) for at in range(1001)])
    large = batch_of([Record(0, 0, None, bytes(decoding.BYTES_MAX))])
    for batch in (many, large):
        with pytest.raises(BatchTooLarge):
            DecodingBudget().decode(read_header(batch), batch)
    headers = batch_of([Record(at, 0, None, None, (("", None),) * 600) for at in range(2)])
    with pytest.raises(MalformedData, match="600 headers"):
        DecodingBudget().decode(read_header(headers), headers)
    with pytest.raises(ApiError, match="t-0 cannot be read: batch at offset 0"):
        fetch(cast(Cluster, KeptBatches({0: [bytes(many)]})), "t", {0: 0}, partition_bytes=1 << 20)


@pytest.mark.parametrize(
    "record",
    [Record(0, 0, None, None), Record(0, 0, ABORT_KEY, None)],
    ids=["without a key", "without a value"],
)
def test_a_malformed_control_batch_is_refused_with_bad_records(record: Record) -> None:
    marker = bytes(build_batch([record], producer_id=7, producer_epoch=0, is_transactional=True, is_control=True))
    cluster = cast(Cluster, KeptBatches({0: [marker]}, [AbortedTransaction(7, 0)]))
    with pytest.raises(ApiError, match="t-0 cannot be read: batch at offset 0") as refused:
        fetch(cluster, "t", {0: 0}, partition_bytes=1 << 20)
    assert (refused.value.status, refused.value.code) == (422, "BAD_RECORDS")
