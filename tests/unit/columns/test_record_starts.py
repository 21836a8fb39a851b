"""`record_starts` finds where the records of a batch begin: the same as a plain walk, with few comparisons."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from harness.depth import deep
from hypothesis import given, settings

from moldau.columns import record_starts as module
from moldau.columns.record_starts import RUN_HOPED_FOR, RUN_MIN, STRETCH, record_starts, walk_long
from moldau.columns.varints import Bytes
from moldau.wire.records import append_varint

RUNS = st.lists(
    st.tuples(st.sampled_from([0, 1, 63, 64, 200, 8191, 8192]), st.sampled_from([1, 2, 17, 255, 256, 257, 600, 1500])),
    min_size=1,
    max_size=6,
)


def body_of(runs: list[tuple[int, int]]) -> tuple[Bytes, int]:
    """Return a batch's records, (size without the length, how many) of each run, and their number."""
    data = bytearray()
    for size, count in runs:
        one = bytearray()
        append_varint(one, size)
        data += (one + bytes(size)) * count
    return np.frombuffer(bytes(data), np.uint8), sum(count for _, count in runs)


@settings(max_examples=deep(20, quick=8), deadline=None)
@given(RUNS)
def test_the_starts_equal_those_of_a_plain_walk(runs: list[tuple[int, int]]) -> None:
    body, records = body_of(runs)
    assert record_starts(body, records).tolist() == [0, *walk_long(body.data, 0, records)][:-1]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many records each comparison compares, as they happen."""
    counts: list[int] = []
    compare = module._alike

    def count(body: Bytes, previous: int, position: int, size: int, records: int) -> int:
        counts.append(records)
        return compare(body, previous, position, size, records)

    monkeypatch.setattr(module, "_alike", count)
    return counts


@pytest.mark.parametrize("repeated", [100, 1000])
def test_short_runs_are_compared_only_a_few_times(compared: list[int], repeated: int) -> None:
    body, records = body_of([(10, STRETCH + 1), (11, STRETCH + 1)] * repeated)
    assert record_starts(body, records).tolist() == [0, *walk_long(body.data, 0, records)][:-1]
    assert 0 < sum(compared) <= 2 * RUN_MIN, "the same for any number of records"


def test_a_short_run_between_long_ones_costs_little(compared: list[int]) -> None:
    body, records = body_of([(10, RUN_HOPED_FOR * 2), (11, 40), (12, RUN_HOPED_FOR * 20)])
    record_starts(body, records)
    assert 0 < sum(compared) < 3 * records
