"""Offset, time and transaction indexes, compared with a search in a list."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from moldau.log.offset_index import OffsetIndex
from moldau.log.time_index import TimeIndex
from moldau.log.txn_index import AbortedTxn, TxnIndex
from moldau.testing.files import MemoryFiles

BASE = 1000
rising = st.lists(st.integers(1, 50), max_size=30)


def build(gaps: list[int]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index, entries, offset = OffsetIndex(BASE), [], BASE
    for number, gap in enumerate(gaps):
        offset += gap
        entries.append((offset, 100 * (number + 1)))
        index.append(*entries[-1])
    return index, entries


@given(gaps=rising, offset=st.integers(BASE, BASE + 1600))
def test_offset_lookup(gaps: list[int], offset: int) -> None:
    index, entries = build(gaps)
    before = [entry for entry in entries if entry[0] <= offset]
    assert index.lookup(offset) == (before[-1] if before else (None, 0))
    assert index.last() == (entries[-1] if entries else (None, 0))


@given(gaps=rising, offset=st.integers(BASE, BASE + 1600))
def test_offset_truncate(gaps: list[int], offset: int) -> None:
    index, entries = build(gaps)
    index.truncate(offset)
    assert [index.entry(i) for i in range(len(index))] == [entry for entry in entries if entry[0] < offset]


@given(points=st.lists(st.tuples(st.integers(0, 99), st.integers(1, 9)), max_size=30), target=st.integers(-1, 100))
def test_time_lookup(points: list[tuple[int, int]], target: int) -> None:
    index, offset, entries = TimeIndex(BASE), BASE, []
    for timestamp, gap in points:
        offset += gap
        index.append(timestamp, offset)
        if not entries or timestamp > entries[-1][0]:
            entries.append((timestamp, offset))
    older = [entry[1] for entry in entries if entry[0] < target]
    assert index.lookup(target) == (older[-1] if older else BASE)
    assert index.last()[:2] == (entries[-1] if entries else (-1, BASE))


def test_damaged_indexes_are_not_sane() -> None:
    index, _ = build([5, 5, 5])
    assert index.is_sane(log_bytes=301)
    assert not index.is_sane(log_bytes=300)
    assert not OffsetIndex(BASE, index.entries[:-1]).is_sane(1000)
    assert not OffsetIndex(BASE, bytes(24)).is_sane(1000)
    times = TimeIndex(BASE)
    times.append(5, BASE + 1)
    times.append(6, BASE + 2)
    assert times.is_sane(BASE + 3)
    assert not times.is_sane(BASE + 2)
    assert not TimeIndex(BASE, times.entries[:-5]).is_sane(BASE + 3)
    assert not TimeIndex(BASE, bytes(24)).is_sane(BASE + 3)


def test_the_transaction_index() -> None:
    files = MemoryFiles()
    files.mkdir("d")
    index = TxnIndex(files, "d/0.txnindex")
    assert index.transactions() == []
    assert not files.exists(index.path), "no file without a transaction"
    first, second = AbortedTxn(1, 10, 20, 15), AbortedTxn(2, 15, 30, 31)
    index.append(first)
    index.append(second)
    assert TxnIndex(files, index.path).transactions() == [first, second]
    assert index.overlapping(21, 100) == [second]
    assert index.overlapping(0, 15) == [first]
    files.open(index.path).pwrite(b"\0\0\0", 68)
    assert TxnIndex(files, index.path).transactions() == [first, second], "a partial entry is ignored"
    index.truncate(30)
    assert TxnIndex(files, index.path).transactions() == [first]
    index.truncate(0)
    assert not files.exists(index.path)


def test_batches_next_to_each_other_in_the_index_are_found_without_the_log() -> None:
    """Only if both a batch and the one after it are in the index and were written by this process."""
    index = OffsetIndex(100)
    index.append(109, 0, 100)
    index.append(119, 500, 110)
    index.append(139, 1500, 130)  # the batch of 120..129 before it is not in the index
    assert [index.exact(offset) for offset in (100, 105, 109)] == [(0, 100, 500)] * 3
    assert [index.exact(offset) for offset in (110, 119, 120, 129, 130, 139, 140)] == [None] * 7
    assert OffsetIndex(100, bytes(index.entries)).exact(105) is None
    index.truncate(110)
    assert index.exact(105) is None
