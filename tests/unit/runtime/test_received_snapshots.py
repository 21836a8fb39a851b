"""A snapshot from the leader is checked and synced in a thread: what may happen to the replica meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from harness.quorum_nodes import Cluster, QuorumNode

from moldau.raft.roles import Follower


def voter_with_received_snapshot(values: int = 40) -> tuple[Cluster, QuorumNode, list[Callable[[], None]]]:
    """Return a quorum, the voter that has received a snapshot of its leader, and the work of its threads."""
    cluster = Cluster(3).start()
    leader = cluster.elect()
    late = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.until(cluster.is_caught_up)
    late.crash()
    late.files = type(late.files)()
    assert leader.driver is not None
    for part in range(3):
        for number in range(values):
            leader.driver.append([b"%d-%d" % (part, number) * 20])
            cluster.run(3)
        cluster.until(cluster.is_caught_up)
        for node in cluster.nodes.values():
            if node.driver is not None:
                assert node.snapshot()
    held_work: list[Callable[[], None]] = []
    late.held_work = held_work
    late.start()
    cluster.until(lambda: bool(held_work))
    return cluster, late, held_work


def snapshot_files_of(node: QuorumNode) -> list[str]:
    return [name for name in node.files.names(node.metadata_log.log.directory) if "checkpoint" in name]


def role_of(node: QuorumNode) -> Follower:
    assert node.driver is not None
    role = node.driver.quorum.role
    assert isinstance(role, Follower)
    return role


def test_a_received_snapshot_is_checked_in_a_thread_and_then_loaded() -> None:
    cluster, late, held_work = voter_with_received_snapshot()
    assert late.metadata_log.latest_snapshot() is None
    assert late.events[-1].startswith("leader"), "nothing is committed here yet"
    held_work.pop()()
    cluster.until(cluster.is_caught_up)
    assert late.values() == cluster.elect().values()


def test_a_voter_that_checks_a_snapshot_neither_fetches_nor_stands_for_election() -> None:
    cluster, late, held_work = voter_with_received_snapshot()
    epoch, asked = role_of(late).epoch, len(cluster.asked)
    cluster.run(20_000)
    assert role_of(late).epoch == epoch
    assert [api for who, _, api in cluster.asked[asked:] if who == late.id] == []
    held_work.pop()()
    cluster.until(cluster.is_caught_up)


def test_a_snapshot_that_is_corrupt_is_fetched_again() -> None:
    cluster, late, held_work = voter_with_received_snapshot()
    [name] = snapshot_files_of(late)
    file = late.files.open(f"{late.metadata_log.log.directory}/{name}")
    middle = file.size() // 2
    file.pwrite(bytes([file.pread(1, middle)[0] ^ 1]), middle)
    held_work.pop()()
    assert snapshot_files_of(late) == []
    cluster.until(lambda: bool(held_work))
    held_work.pop()()
    cluster.until(cluster.is_caught_up)
    assert late.values() == cluster.elect().values()


def test_a_snapshot_of_an_earlier_leader_is_dropped_when_its_check_ends() -> None:
    cluster, late, held_work = voter_with_received_snapshot()
    old = cluster.elect()
    assert old.driver is not None
    old.driver.resign()
    cluster.until(lambda: cluster.leader is not None and cluster.leader is not old)
    cluster.until(lambda: late.driver is not None and late.driver.leader_id == cluster.elect().id)
    assert len(snapshot_files_of(late)) == 1, "the thread still reads it"
    asked = len(cluster.asked)
    cluster.run(5_000)
    assert [api for who, _, api in cluster.asked[asked:] if who == late.id and "FETCH" in api] == []
    held_work.pop()()
    assert late.metadata_log.latest_snapshot() is None
    assert snapshot_files_of(late) == []
    cluster.until(lambda: bool(held_work))
    held_work.pop()()
    cluster.until(cluster.is_caught_up)
    assert late.values() == cluster.elect().values()


def test_a_check_that_ends_after_stop_changes_nothing() -> None:
    cluster, late, held_work = voter_with_received_snapshot()
    assert late.driver is not None
    late.driver.stop()
    events = list(late.events)
    held_work.pop()()
    cluster.run(100)
    assert late.metadata_log.latest_snapshot() is None
    assert late.events == events
