"""Placement of replicas: on different brokers, over as many racks as possible, with evenly spread leaders."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from clusters import broker
from harness.depth import deep
from harness.operations import operations_of
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.controller.placement import interleave_racks, place

RACKS = st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=12)


@given(RACKS, st.integers(1, 40), st.integers(0, 5), st.data())
@settings(max_examples=deep(70, quick=20), deadline=None)
def test_replicas_and_leaders_are_spread_evenly(
    racks: list[str | None], partitions: int, seed: int, data: st.DataObject
) -> None:
    brokers = [broker(number * 3 + 1, rack) for number, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(brokers)), "replication factor")
    placed = place(brokers, partitions, factor, Random(seed))
    assert len(placed) == partitions
    rack_of = {each.id: each.rack for each in brokers}
    sizes = Counter(racks)
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= rack_of.keys()
        used = Counter(rack_of[each] for each in replicas)
        assert len(used) == min(factor, len(sizes)), "a rack is used twice only when all are used"
        for rack, count in used.items():
            for other, size in sizes.items():
                assert count <= used[other] + 1 or used[other] == size, f"{other} had room, {rack} got {count}"
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[each.id] for each in brokers) <= 1


def test_many_small_topics_are_spread_over_all_brokers() -> None:
    brokers = [broker(number) for number in range(5)]
    rng = Random(7)
    leaders = Counter(place(brokers, 1, 1, rng)[0][0] for _ in range(500))
    assert set(leaders) == set(range(5))
    assert min(leaders.values()) > 50


def test_the_same_seed_gives_the_same_placement() -> None:
    brokers = [broker(number, "ab"[number % 2]) for number in range(6)]
    assert place(brokers, 9, 3, Random(3)) == place(list(reversed(brokers)), 9, 3, Random(3))


@pytest.mark.parametrize(("count", "factor"), [(0, 1), (1, 2), (3, 4)])
def test_more_replicas_than_brokers_are_refused(count: int, factor: int) -> None:
    with pytest.raises(KafkaError, match=f"only {count} broker") as refused:
        place([broker(number) for number in range(count)], 1, factor, Random(1))
    assert refused.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_brokers_of_different_racks_alternate() -> None:
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b"), broker(4, "b"), broker(5, "c")]
    assert interleave_racks(brokers) == [1, 3, 5, 2, 4]


@given(RACKS, st.integers(0, 5), st.data())
@settings(max_examples=deep(70, quick=20), deadline=None)
def test_each_replica_is_on_the_next_broker_of_the_least_used_rack(
    racks: list[str | None], seed: int, data: st.DataObject
) -> None:
    fenced = data.draw(st.lists(st.booleans(), min_size=len(racks), max_size=len(racks)), "fenced")
    fenced[data.draw(st.integers(0, len(racks) - 1), "a live one")] = False
    brokers = {number: replace(broker(number, rack), fenced=fenced[number]) for number, rack in enumerate(racks)}
    live = interleave_racks([each for each in brokers.values() if not each.fenced])
    rest = interleave_racks([each for each in brokers.values() if each.fenced])
    for replicas in place(brokers.values(), len(brokers), len(brokers), Random(seed)):
        start = live.index(replicas[0])
        left, used = [*live[start:], *live[:start], *rest], Counter[str | None]()
        for chosen in replicas:
            assert chosen == min(left, key=lambda each: (used[brokers[each].rack], brokers[each].fenced))
            left.remove(chosen)
            used[brokers[chosen].rack] += 1


def test_a_hundred_replicas_on_a_hundred_brokers_are_placed_in_a_short_time() -> None:
    brokers = [broker(number, f"rack {number % 7}") for number in range(100)]
    assert operations_of(lambda: place(brokers, 100, 100, Random(1))) < 200_000
