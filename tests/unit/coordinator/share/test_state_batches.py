"""The merging of state batches, against a model that keeps the state of each offset."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.share.batches import Batch, merge

Oracle = dict[int, tuple[int, int]]
"""The delivery count and state of each offset."""


def batch(first: int, length: int, state: int, count: int) -> Batch:
    return Batch(first, first + length - 1, state, count)


BATCHES = st.lists(
    st.builds(batch, st.integers(0, 30), st.integers(0, 12), st.sampled_from([0, 2, 4]), st.integers(0, 3)), max_size=12
)
WRITES = st.lists(st.tuples(BATCHES, st.integers(-1, 35)), max_size=6)


def offsets_of(batches: tuple[Batch, ...]) -> Oracle:
    return {
        offset: (each.delivery_count, each.delivery_state)
        for each in batches
        for offset in range(each.first_offset, each.last_offset + 1)
    }


@given(WRITES)
def test_offsets_have_their_highest_state(writes: list[tuple[list[Batch], int]]) -> None:
    current: tuple[Batch, ...] = ()
    oracle: Oracle = {}
    for batches, start_offset in writes:
        current = merge(current, batches, start_offset)
        for each in batches:
            for offset, state in offsets_of((each,)).items():
                oracle[offset] = max(state, oracle.get(offset, state))
        oracle = {offset: state for offset, state in oracle.items() if offset >= start_offset}
        assert offsets_of(current) == oracle
        assert all(each.first_offset <= each.last_offset for each in current)
        for before, after in pairwise(current):
            is_joinable = before.last_offset + 1 == after.first_offset and before[2:] == after[2:]
            assert before.last_offset < after.first_offset
            assert not is_joinable


@given(BATCHES, BATCHES, BATCHES, st.integers(-1, 35))
def test_the_order_of_changes_makes_no_difference(
    current: list[Batch], first: list[Batch], second: list[Batch], start_offset: int
) -> None:
    """A change that is late, or comes twice, does no harm."""
    before = merge((), current, start_offset)
    in_order = merge(merge(before, first, start_offset), second, start_offset)
    late = merge(merge(before, second, start_offset), first, start_offset)
    at_once = merge(before, [*second, *first, *second], start_offset)
    assert in_order == late == at_once


@pytest.mark.parametrize(
    ("current", "changes", "start_offset", "merged"),
    [
        # The examples of KIP-932: acknowledgements split what was available, and neighbours are joined.
        ([(0, 9, 0, 1)], [(3, 5, 2, 1)], -1, [(0, 2, 0, 1), (3, 5, 2, 1), (6, 9, 0, 1)]),
        ([(0, 4, 2, 1)], [(5, 9, 2, 1)], -1, [(0, 9, 2, 1)]),
        ([(0, 4, 2, 1)], [(5, 9, 2, 2)], -1, [(0, 4, 2, 1), (5, 9, 2, 2)]),
        # The start offset moves into a batch.
        ([(0, 9, 2, 1), (10, 19, 0, 1)], [], 5, [(5, 9, 2, 1), (10, 19, 0, 1)]),
        ([(0, 9, 2, 1), (10, 19, 0, 1)], [(8, 12, 0, 2)], 10, [(10, 12, 0, 2), (13, 19, 0, 1)]),
        # A state that is lower than the present one comes late.
        ([(0, 9, 2, 2)], [(0, 9, 0, 1), (5, 12, 0, 1)], -1, [(0, 9, 2, 2), (10, 12, 0, 1)]),
        # Ranges without offsets.
        ([], [(5, 4, 2, 1)], -1, []),
        # The largest offset there is.
        ([(2**63 - 2, 2**63 - 1, 0, 1)], [(2**63 - 1, 2**63 - 1, 2, 1)], 0,
         [(2**63 - 2, 2**63 - 2, 0, 1), (2**63 - 1, 2**63 - 1, 2, 1)]),
    ],
)  # fmt: skip
def test_examples(
    current: list[tuple[int, int, int, int]],
    changes: list[tuple[int, int, int, int]],
    start_offset: int,
    merged: list[tuple[int, int, int, int]],
) -> None:
    before = merge((), [Batch(*each) for each in current], -1)
    assert merge(before, [Batch(*each) for each in changes], start_offset) == tuple(Batch(*each) for each in merged)
