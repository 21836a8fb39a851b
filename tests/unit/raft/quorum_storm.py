"""A storm: a quorum and its faults chosen by chance, then calm, in which everything must come right again."""

from __future__ import annotations

from random import Random

from quorum_world import LISTENER, Broken, World, directory_of, host_of

from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

STEPS = 45
STEP_MS = 150
CALM_MS = 12_000


def run_storm(seed: int) -> World:
    """Raises Broken, or any assertion of the quorum's own; gives the world for those who count what happened."""
    rng = Random(seed)
    is_dynamic = rng.random() < 0.35
    world = World(
        seed, voters=rng.choice([1, 2, 3, 3, 3, 4, 5]), observers=rng.choice([0, 1, 2]), is_dynamic=is_dynamic
    )
    world.loss = rng.choice([0, 0.02, 0.1, 0.2])
    world.repetition = rng.choice([0, 0.05, 0.2])
    world.delay_max_ms = rng.choice([3, 20, 120])
    world.flush_max_ms = rng.choice([2, 30, 200])
    for node in world.nodes.values():
        node.start()
    for _ in range(STEPS):
        world.run(rng.randint(1, STEP_MS))
        for _ in range(rng.choice([0, 1, 1, 3])):
            world.append()
        _befall(world, rng)
    _calm(world)
    return world


def _befall(world: World, rng: Random) -> None:
    node = rng.choice(list(world.nodes.values()))
    chance = rng.random()
    if not node.is_up:
        if chance < 0.5:
            node.start()
        return
    if chance < 0.10:
        node.crash()
        world.happened.append("crash")
    elif chance < 0.16:
        node.paused_until_ms = world.timers.clock.elapsed_ms() + rng.randint(100, 3_000)
        world.happened.append("pause")
    elif chance < 0.22:
        other = rng.choice(list(world.nodes))
        world.cut |= {(node.id, other), (other, node.id)} if rng.random() < 0.7 else {(node.id, other)}
        world.happened.append("cut")
    elif chance < 0.28:
        world.cut.clear()
    elif chance < 0.36:
        node.snapshot()
        world.happened.append("snapshot")
    elif chance < 0.46 and not world.static:
        change_voters(world, rng)


def change_voters(world: World, rng: Random) -> None:
    for leader in world.leaders():
        voters = leader.driver.quorum.voters
        other = rng.choice(list(world.nodes))
        if voters.get(other) is not None:
            ask = RemoveRaftVoterRequest(None, other, directory_of(other))
        else:
            ask = AddRaftVoterRequest(
                None, 5_000, other, directory_of(other), [Listener(LISTENER, host_of(other), 9093)]
            )
        world.happened.append(type(ask).__name__)
        leader.driver.answer(ask, 0)


def _calm(world: World) -> None:
    """The faults are over: within a time that people would call short there is one leader, and everyone has all."""
    world.loss = world.repetition = 0.0
    world.delay_max_ms, world.flush_max_ms = 5, 5
    world.cut.clear()
    for node in world.nodes.values():
        node.paused_until_ms = 0
        if not node.is_up:
            node.start()
    world.run(CALM_MS)
    leaders = world.leaders()
    if len(leaders) != 1:
        raise Broken(f"in calm weather {[node.id for node in leaders]} lead")
    world.append()
    world.run(2_000)
    leader = world.leaders()[0]
    for node in world.nodes.values():
        if node.high_watermark != leader.log.end_offset or node.log.end_offset != leader.log.end_offset:
            raise Broken(f"node {node.id} is at {node.high_watermark} of {leader.log.end_offset} in calm weather")
        if node.applied != leader.applied:
            raise Broken(f"node {node.id} does not have what the leader has")
