"""Metadata snapshots: written when the log has grown, sufficient for a start, and the log is shortened by them."""

from __future__ import annotations

import errno

import pytest
from in_memory_node import InMemoryNode

from moldau.assembly.assembly import METADATA
from moldau.base.errors import StorageFault
from moldau.metadata.apply import RECORDS_A_TURN
from moldau.raft.snapshots import SnapshotId
from moldau.runtime.quorum.metadata_log import SnapshotWork

LIMIT = {"metadata.log.max.record.bytes.between.snapshots": "5000"}


def names(node: InMemoryNode, suffix: str) -> list[str]:
    return sorted(name for name in node.files.names(f"data/{METADATA}") if name.endswith(suffix))


def grown(node: InMemoryNode, topics: int, first: int = 0) -> InMemoryNode:
    for number in range(first, first + topics):
        node.create_topic(f"topic-{number}", 5)
    return node


def test_no_snapshot_is_written_while_the_log_is_short() -> None:
    node = grown(InMemoryNode(static=LIMIT).start(), 3)
    assert names(node, ".checkpoint") == []


@pytest.mark.parametrize("topics", [60, 2 * RECORDS_A_TURN // 6])
def test_a_start_from_a_snapshot_has_the_whole_image(topics: int) -> None:
    """Six records each. The larger snapshot is not loaded in one turn, but the node leads in its first one."""
    node = grown(InMemoryNode(static=LIMIT).start(), topics)
    assert 1 <= len(names(node, ".checkpoint")) <= 2
    assert node.metadata_log.start_offset > 0
    before = node.current.image
    again = node.restart()
    after = again.current.image
    assert after.topic_names == before.topic_names
    assert {name: len(topic.partitions) for name, topic in after.topics.items()} == dict.fromkeys(before.topics, 5)
    assert after.features == before.features
    assert again.partition("topic-0").log.partition.topic == "topic-0"


def test_records_after_a_snapshot_are_read_from_the_log() -> None:
    node = grown(InMemoryNode(static=LIMIT).start(), 40)
    node.delete_topic("topic-7")
    node.create_topic("late")
    after = node.restart().current.image
    assert "topic-7" not in after.topics
    assert "late" in after.topics


def test_a_full_disk_prevents_only_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    node = InMemoryNode(static=LIMIT).start()
    refused: list[SnapshotId] = []

    def full(work: SnapshotWork) -> None:
        refused.append(work.snapshot)
        raise StorageFault("data", OSError(errno.ENOSPC, "as asked"))

    with monkeypatch.context() as patched:
        patched.setattr(SnapshotWork, "run", full)
        grown(node, 30)
    assert refused
    assert len(node.current.image.topics) == 30
    grown(node, 30, first=30)
    assert names(node, ".checkpoint")
