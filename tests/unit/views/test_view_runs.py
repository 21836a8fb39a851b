"""Kept results of views and the index of runs: batches for a reader, evicted results, skipped runs."""

from __future__ import annotations

import random

from moldau.views.definition import view_definition
from moldau.views.field_ranges import (
    KEYS_MAX,
    RUNS_MAX,
    FieldKey,
    IndexedRun,
    RunIndex,
    can_match,
    constraints_of,
    indexed_fields,
    is_short,
)
from moldau.views.jobs import Evaluated
from moldau.views.shown_runs import ResultBudget, ShownPartition, ShownRecords
from moldau.wire.batch import read_header


def result(begin: int, *batches: tuple[int, int]) -> Evaluated:
    """A run from `begin` on; each batch is its last offset and its size."""
    positions, position = [], 0
    for _, size in batches:
        positions.append(position)
        position += size
    lasts = tuple(last for last, _ in batches)
    bases = (begin, *(last + 1 for last in lasts))
    parts = [base.to_bytes(8, "big").ljust(size, b"x") for base, (_, size) in zip(bases[:-1], batches, strict=True)]
    return Evaluated(begin, lasts[-1] + 1, b"".join(parts), tuple(positions), lasts, 1, 1, 0, True)


def empty_run(begin: int, end: int) -> Evaluated:
    return Evaluated(begin, end, b"marker", (0,), (end - 1,), 1, 0, 0, False)


def test_a_run_is_cut_at_batches() -> None:
    partition = ShownPartition(ResultBudget(10_000))
    partition.add(0, result(0, (4, 10), (9, 20), (14, 30)))
    run = partition.find(7)
    assert run is not None
    cuts = {
        (0, 99, 100, True): (60, 15),  # all of it
        (5, 99, 100, True): (50, 15),  # from the batch that holds the offset on
        (0, 10, 100, True): (30, 10),  # below the last stable offset
        (0, 99, 35, True): (30, 10),  # what fits
        (0, 99, 5, True): (10, 5),  # the first batch is sent whole
        (0, 99, 5, False): (0, 0),
        (10, 12, 100, True): (0, 10),  # a batch that is not yet readable to its end
    }
    for (offset, up_to, bytes_max, at_least_one), (size, behind) in cuts.items():
        cut = run.cut(offset, up_to, bytes_max, at_least_one)
        assert (len(cut.batches), cut.behind) == (size, behind), (offset, up_to)
        assert cut.is_full == (bytes_max < 100)


def test_a_reader_advances_to_the_first_batch_that_it_may_not_read() -> None:
    partition = ShownPartition(ResultBudget(10_000))
    shown = result(7, (9, 20), (19, 20))
    partition.add(0, shown._replace(last_offsets=(9, 19)))
    run = partition.find(3)
    assert run is not None
    assert run.cut(3, 5, 100, True)[1:] == (5, False), "up to the last stable offset"
    assert run.cut(3, 9, 100, True)[1:] == (7, False), "up to the batch"
    assert run.cut(8, 9, 100, True)[1:] == (8, False), "never back"


def test_results_are_evaluated_ahead_only_if_they_do_not_evict_each_other() -> None:
    budget = ResultBudget(5_000)
    partition = ShownPartition(budget)
    assert budget.has_room_ahead(5_000)
    partition.add(0, result(0, (9, 3000)))
    assert not budget.has_room_ahead(3_000)
    assert partition.find(5) is not None
    assert budget.has_room_ahead(3_000), "it was read"
    partition.add(10, result(10, (19, 3000)))
    partition.clear()
    assert (budget.bytes, budget.unread_bytes) == (0, 0)


def test_empty_runs_are_merged() -> None:
    partition = ShownPartition(ResultBudget(10_000))
    for begin in range(0, 100, 10):
        partition.add(begin, empty_run(begin, begin + 10))
    assert len(partition.runs) == 1
    run = partition.find(55)
    assert run is not None
    assert (run.begin, run.end) == (0, 100)
    assert partition.find(100) is None


def test_the_least_recently_used_result_is_evicted_first() -> None:
    budget = ResultBudget(5_000)
    one, two = ShownPartition(budget), ShownPartition(budget)
    one.add(0, result(0, (9, 1000)))
    two.add(0, result(0, (9, 1000)))
    assert one.find(0) is not None
    two.add(10, result(10, (19, 1000)))
    two.add(20, result(20, (29, 1000)))
    assert two.find(0) is None
    assert one.find(0) is not None
    one.clear()
    two.clear()
    assert budget.bytes == 0


def test_a_marker_advances_the_consumer() -> None:
    records = ShownRecords.nothing_up_to(50, 3)
    header = read_header(records)
    assert (header.next_offset, header.leader_epoch, header.is_control, records.length) == (50, 3, True, 0)


def test_random_runs_are_found_by_every_offset_inside() -> None:
    rng = random.Random(5)
    partition, edges = ShownPartition(ResultBudget(1 << 20)), sorted(rng.sample(range(1, 5000), 60))
    pairs = list(zip([0, *edges[:-1]], edges, strict=True))
    rng.shuffle(pairs)
    for begin, end in pairs:
        partition.add(begin, result(begin, (end - 1, 5)) if rng.random() < 0.5 else empty_run(begin, end))
    for offset in range(edges[-1]):
        run = partition.find(offset)
        assert run is not None
        assert run.begin <= offset < run.end


AMOUNT, USER = FieldKey(("amount",), False), FieldKey(("user",), True)


def may_match(where: str, low: float, high: float, *texts: str) -> bool:
    constraints = constraints_of(view_definition({"moldau.view.where": where}).where)
    return can_match(constraints, {AMOUNT: (low, high), USER: (min(texts), max(texts)) if texts else None})


def test_conditions_that_cannot_match_a_range() -> None:
    assert not may_match("amount > 100", 0, 100)
    assert may_match("amount >= 100", 0, 100)
    assert not may_match("5 < amount and user = 'x'", 0, 5, "x")
    assert not may_match("amount between 10 and 20", 30, 40)
    assert not may_match("amount in (1, 50)", 2, 49)
    assert may_match("amount in (1, 30)", 2, 49)
    assert not may_match("user = 'bob'", 0, 1, "carl", "dora")
    assert not may_match("user = 'bob'", 0, 1)
    assert may_match("amount > 100 or user = 'bob'", 0, 1)
    assert may_match("not amount > 100", 0, 1)
    assert may_match("other = 5", 0, 1)


def test_the_index_is_bounded_and_dropped_with_its_records() -> None:
    index = RunIndex()
    index.check_version((1, 0))
    for begin in range(RUNS_MAX + 10):
        index.add(IndexedRun(begin, begin + 1, {}, 0, False))
    assert index.find(0) is None
    assert index.find(RUNS_MAX) is not None
    index.check_version((2, 0))
    assert index.find(RUNS_MAX) is None


def test_the_number_and_length_of_indexed_keys_are_limited() -> None:
    index = RunIndex()
    for number in range(3 * KEYS_MAX):
        index.add(IndexedRun(0, 10, {FieldKey((f"a{number}",), False): (1.0, 2.0)}, 0, False))
    run = index.find(5)
    assert run is not None
    assert len(run.ranges) == KEYS_MAX
    where = " and ".join([*(f"a{number} = 1" for number in range(30)), f"{'b' * 65} = 1"])
    keys = indexed_fields(constraints_of(view_definition({"moldau.view.where": f"{'b' * 65} = 1 and {where}"}).where))
    assert [key.path for key in keys] == [(f"a{number}",) for number in range(KEYS_MAX)]
    assert is_short(("a", "b" * 64))
    assert not is_short(("a", "b" * 65))
