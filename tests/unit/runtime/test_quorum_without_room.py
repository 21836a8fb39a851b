"""Nodes of a quorum whose disk is full, and that have no reserve or have used it up: none of them stops."""

from __future__ import annotations

import errno
import os

import pytest
from harness.quorum_nodes import Cluster, QuorumNode

from moldau.base.buffers import Buffer
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.runtime.quorum.metadata_log import PARTIAL
from moldau.testing.files import MemoryFile


def commit(cluster: Cluster, *values: bytes) -> None:
    """Append each value, and wait until the leader has committed it."""
    for value in values:
        driver = cluster.elect().driver
        assert driver is not None
        driver.append([value])
        while driver.high_watermark < driver.end_offset:
            cluster.run(1)


def followers(cluster: Cluster) -> list[QuorumNode]:
    leader = cluster.elect()
    return [node for node in cluster.nodes.values() if node is not leader]


def started(seed: int = 1) -> Cluster:
    cluster = Cluster(3, seed=seed).start()
    commit(cluster, b"first")
    cluster.until(cluster.is_caught_up)
    return cluster


@pytest.mark.parametrize("room", [0, 70, 150, 300])
def test_a_follower_without_room_goes_on_when_there_is_some(room: int) -> None:
    cluster = started()
    full = followers(cluster)[0]
    full.files.bytes_left = room
    epoch = cluster.elect().driver.leader_epoch  # type: ignore[union-attr]
    commit(cluster, *(b"%d" % number for number in range(20)))
    cluster.run(5_000)
    leader = cluster.elect()
    assert leader.driver is not None
    assert leader.driver.leader_epoch == epoch, "it starts no elections: the leader is there"
    full.files.bytes_left = None
    cluster.until(cluster.is_caught_up)
    assert full.values() == leader.values()


def test_it_is_tried_again_every_second_and_not_all_the_time() -> None:
    cluster = started()
    full = followers(cluster)[0]
    full.files.bytes_left = 0
    commit(cluster, b"second")
    cluster.asked.clear()
    cluster.run(10_000)
    fetches = [api for source, _, api in cluster.asked if source == full.id and api == "FETCH"]
    assert 5 <= len(fetches) <= 20


def test_a_voter_that_cannot_write_its_vote_gives_none_and_votes_later() -> None:
    cluster = started()
    full = followers(cluster)[0]
    full.files.bytes_left = 0
    cluster.elect().crash()
    cluster.run(10_000)
    assert cluster.leader is None, "two votes of three are needed"
    full.files.bytes_left = None
    cluster.elect()
    commit(cluster, b"second")


def test_a_leader_without_room_steps_down_and_another_one_leads() -> None:
    cluster = started()
    full = cluster.elect()
    full.files.bytes_left = 0
    assert full.driver is not None
    with pytest.raises(KafkaError) as refused:
        full.driver.append([b"second"])
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    cluster.until(lambda: cluster.leader not in (None, full))
    commit(cluster, b"second")
    full.files.bytes_left = None
    cluster.until(cluster.is_caught_up)
    assert full.values() == [b"first", b"second"]


def test_a_leader_whose_flush_finds_no_room_steps_down() -> None:
    cluster = started()
    full = cluster.elect()
    full.metadata_log.log.epochs.is_dirty = True  # the flush writes their checkpoint first
    assert full.driver is not None
    full.driver.append([b"second"])
    full.files.bytes_left = 0
    cluster.until(lambda: "resigned" in full.events)
    cluster.until(lambda: cluster.leader not in (None, full))
    full.files.bytes_left = None
    cluster.until(cluster.is_caught_up)


def test_a_node_that_is_elected_without_room_for_its_first_record_lets_another_one_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has room for its epoch and its vote, as after the log has used its half of the reserve."""
    elected = [elects_the_full_one(seed, monkeypatch) for seed in range(10)]
    assert any(elected), "no seed has elected it"


def elects_the_full_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    cluster = started(seed)
    full, other = followers(cluster)
    refuse_writes(full, ".log", monkeypatch)
    events_before = len(full.events)
    cluster.elect().crash()
    cluster.until(lambda: cluster.leader is other)
    events = full.events[events_before:]
    assert not any(each.startswith("leads") for each in events)
    monkeypatch.undo()
    cluster.until(cluster.is_caught_up)
    return "resigned" in events


def refuse_writes(node: QuorumNode, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no room for some files of a node."""
    write = MemoryFile.pwrite

    def refuse(file: MemoryFile, data: Buffer, position: int) -> int:
        if file._files is node.files and file.path.endswith(suffix):
            raise StorageFault(file.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return write(file, data, position)

    monkeypatch.setattr(MemoryFile, "pwrite", refuse)


def test_a_snapshot_without_room_is_fetched_when_there_is_some(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = started()
    late = followers(cluster)[0]
    late.crash()
    for batch in range(3):
        commit(cluster, *(b"%03d" % batch * 200 for _ in range(10)))
        for node in cluster.nodes.values():
            if node is not late:
                cluster.until(cluster.is_caught_up)
                assert node.snapshot()
    refuse_writes(late, PARTIAL, monkeypatch)
    late.start()
    cluster.run(5_000)
    assert late.metadata_log.latest_snapshot() is None
    monkeypatch.undo()
    cluster.until(cluster.is_caught_up)
    assert late.metadata_log.latest_snapshot() is not None
    assert late.values() == cluster.elect().values()
