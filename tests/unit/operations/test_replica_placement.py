"""Where the replicas of a topic are placed."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from moldau.operations.failures import InvalidChoice
from moldau.operations.replica_placement import place_replicas


@pytest.mark.parametrize("seed", range(20))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    placed = place_replicas(dict.fromkeys((1, 2, 5)), 6, 2, random.Random(seed))
    assert all(len(set(replicas)) == 2 for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {2}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {4}


@pytest.mark.parametrize("seed", range(20))
def test_replicas_are_placed_in_different_racks(seed: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas(racks, 12, 3, random.Random(seed))
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in placed)
    assert max(Counter(replicas[0] for replicas in placed).values()) <= 3


@pytest.mark.parametrize("seed", range(20))
def test_every_broker_leads_if_there_are_more_racks_than_replicas(seed: int) -> None:
    placed = place_replicas({0: "a", 1: "a", 2: "b", 3: "b"}, 4, 1, random.Random(seed))
    assert sorted(placed) == [[0], [1], [2], [3]]


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(InvalidChoice, match="The target replication factor of 2 cannot be reached because only 1"):
        place_replicas({1: None}, 1, 2, random.Random(0))
    with pytest.raises(InvalidChoice, match="All brokers are currently fenced"):
        place_replicas({}, 1, 2, random.Random(0))
