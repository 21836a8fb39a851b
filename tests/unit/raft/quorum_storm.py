"""A storm: a quorum with random faults, then a calm time in which it must recover."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from harness.quorum_world import LISTENER, Broken, QuorumWorld, directory_of, host_of

from moldau.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from moldau.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

STEPS = 45
STEP_MS = 150
CALM_MS = 12_000
ROUNDS = 12


def run_storm(seed: int) -> QuorumWorld:
    """Run a storm; return the world, to count what happened. Raise Broken, or an assertion of the quorum itself."""
    rng = Random(seed)
    is_dynamic = rng.random() < 0.35
    world = QuorumWorld(
        seed, voters=rng.choice([1, 2, 3, 3, 3, 4, 5]), observers=rng.choice([0, 1, 2]), is_dynamic=is_dynamic
    )
    # With one batch per fetch, records of earlier leaders arrive long before those of their successor.
    world.settings = replace(world.settings, fetch_bytes_max=rng.choice([1, 1, 700]))
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
        _inject_fault(world, rng)
    _calm(world)
    return world


def _inject_fault(world: QuorumWorld, rng: Random) -> None:
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
        node.paused_until_ms = world.timers.clock.monotonic_ms() + rng.randint(100, 3_000)
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
    elif chance < 0.54:
        _disconnect_or_crash_leader(world, rng)


def _disconnect_or_crash_leader(world: QuorumWorld, rng: Random) -> None:
    """Disconnect or crash the leader, with records in its log that not all nodes have."""
    for leader in world.leaders():
        others = [each for each in world.nodes if each != leader.id]
        disconnected = rng.sample(others, rng.randint(0, len(others)))
        world.cut |= {pair for other in disconnected for pair in ((leader.id, other), (other, leader.id))}
        world.append()
        world.run(rng.choice([1, 10, 50]))
        if rng.random() < 0.5 and leader.is_up:
            leader.crash()
        world.happened.append("leader fault")


def run_hunt(seed: int) -> QuorumWorld:
    """Crash each leader as soon as it has written something, and let other majorities elect the next: the logs then end
    in many different epochs, as in figure 8 of the Raft paper."""
    rng = Random(seed)
    world = QuorumWorld(seed, voters=rng.choice([3, 5, 5]), observers=0)
    world.settings = replace(world.settings, fetch_bytes_max=1)
    for node in world.nodes.values():
        node.start()
    for _ in range(ROUNDS):
        _connect_only(
            world, rng.sample(world.voter_ids, rng.randint(len(world.voter_ids) // 2 + 1, len(world.voter_ids)))
        )
        world.delay_max_ms = rng.choice([3, 10, 30])
        for _ in range(150):
            world.run(10)
            if len(world.leaders()) == 1:
                break
        for leader in world.leaders():
            if rng.random() < 0.5:
                _connect_only(world, [leader.id, *rng.sample(world.voter_ids, 1)])
            world.append()
            world.run(rng.randint(0, 120))
            if leader.is_up:
                leader.crash()
        for node in world.nodes.values():
            if not node.is_up and rng.random() < 0.8:
                node.start()
    _calm(world)
    return world


def _connect_only(world: QuorumWorld, ids: list[int]) -> None:
    every = list(world.nodes)
    world.cut = {(one, other) for one in every for other in every if one not in ids or other not in ids}


def change_voters(world: QuorumWorld, rng: Random) -> None:
    for leader in world.leaders():
        voters = leader.driver.quorum.voters
        other = rng.choice(list(world.nodes))
        if voters.get(other) is not None:
            request = RemoveRaftVoterRequest(None, other, directory_of(other))
        else:
            request = AddRaftVoterRequest(
                None, 5_000, other, directory_of(other), [Listener(LISTENER, host_of(other), 9093)]
            )
        world.happened.append(type(request).__name__)
        leader.driver.answer(request, 0)


def _calm(world: QuorumWorld) -> None:
    """End the faults: within a short time there must be one leader, and all nodes must have all records."""
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
        raise Broken(f"without faults, there must be one leader, not {[node.id for node in leaders]}")
    world.append()
    world.run(2_000)
    leader = world.leaders()[0]
    for node in world.nodes.values():
        if node.high_watermark != leader.log.end_offset or node.log.end_offset != leader.log.end_offset:
            raise Broken(f"node {node.id} is at {node.high_watermark} of {leader.log.end_offset}, without faults")
        if node.applied != leader.applied:
            raise Broken(f"node {node.id} does not have the leader's records")
