"""Nodes that lose the processor for a while: time in which a node did not run does not count against the others."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from harness.depth import deep
from harness.quorum_world import SETTINGS, QuorumWorld


def world_with_a_leader(seed: int) -> QuorumWorld:
    world = QuorumWorld(seed, voters=3, observers=1)
    world.settings = replace(SETTINGS, fetch_timeout_ms=2_000, election_timeout_ms=1_000)  # the defaults
    for node in world.nodes.values():
        node.start()
    world.run(5_000)
    assert len(world.leaders()) == 1
    return world


def pause(world: QuorumWorld, node_ids: list[int], ms: int) -> None:
    for node_id in node_ids:
        world.nodes[node_id].paused_until_ms = world.timers.clock.monotonic_ms() + ms


@pytest.mark.parametrize("seed", range(deep(10, quick=3)))
def test_a_quorum_that_was_paused_as_a_whole_keeps_its_leader(seed: int) -> None:
    world, rng = world_with_a_leader(seed), Random(seed)
    (leader,) = world.leaders()
    epoch = leader.driver.leader_epoch  # type: ignore[union-attr]
    for _ in range(10):
        pause(world, list(world.nodes), rng.randint(100, 3_000))
        world.run(rng.randint(3_000, 6_000))
    assert [node.id for node in world.leaders()] == [leader.id]
    assert leader.driver.leader_epoch == epoch  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(deep(10, quick=3)))
def test_a_follower_that_was_paused_alone_starts_no_election(seed: int) -> None:
    world, rng = world_with_a_leader(seed), Random(seed)
    (leader,) = world.leaders()
    epoch = leader.driver.leader_epoch  # type: ignore[union-attr]
    followers = [node_id for node_id in world.nodes if node_id != leader.id]
    for _ in range(10):
        pause(world, [rng.choice(followers)], rng.randint(100, 3_000))
        world.run(rng.randint(3_000, 6_000))
    assert leader.driver.leader_epoch == epoch  # type: ignore[union-attr]


def test_a_paused_leader_is_replaced_and_steps_down() -> None:
    world = world_with_a_leader(1)
    (old,) = world.leaders()
    pause(world, [old.id], 10_000)
    world.run(9_000)
    assert len([node for node in world.leaders() if node is not old]) == 1
    world.run(5_000)
    (new,) = world.leaders()
    assert new is not old
