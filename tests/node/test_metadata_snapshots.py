"""Metadata snapshots: written when the log has grown, and sufficient for a start; the log before them is deleted."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import NoReturn, cast

import pytest
from harness.in_memory_node import InMemoryNode
from harness.raised_faults import own_work

from moldau.assembly.assembly import METADATA
from moldau.base.errors import StorageFault
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.raft.snapshots import SnapshotId
from moldau.runtime.quorum.committed_metadata import SHORTAGE_RETRY_MS
from moldau.runtime.quorum.driver import QuorumDriver
from moldau.runtime.quorum.metadata_log import MetadataLog, SnapshotWork
from moldau.runtime.quorum.snapshots import MetadataSnapshots
from moldau.testing.clock import FakeTimers
from moldau.testing.ports import at_once

LIMIT = {"metadata.log.max.record.bytes.between.snapshots": "5000"}


def names(node: InMemoryNode, suffix: str) -> list[str]:
    return sorted(name for name in node.files.names(f"data/{METADATA}") if name.endswith(suffix))


def create_topics(node: InMemoryNode, topics: int, first: int = 0) -> InMemoryNode:
    for number in range(first, first + topics):
        node.create_topic(f"topic-{number}", 5)
    return node


def test_no_snapshot_is_written_while_the_log_is_short() -> None:
    node = create_topics(InMemoryNode(static=LIMIT).start(), 3)
    assert names(node, ".checkpoint") == []


@pytest.mark.parametrize("topics", [60, 2 * ITEMS_A_TURN // 6])
def test_a_start_from_a_snapshot_has_the_whole_image(topics: int) -> None:
    """Six records each. The larger snapshot is not loaded in one turn, but the node leads in its first one."""
    node = create_topics(InMemoryNode(static=LIMIT).start(), topics)
    assert 1 <= len(names(node, ".checkpoint")) <= 2
    assert node.metadata_log.start_offset > 0
    before = node.current.image
    again = node.restart()
    after = again.current.image
    assert after.topic_names == before.topic_names
    assert {name: len(topic.partitions) for name, topic in after.topics.items()} == dict.fromkeys(before.topics, 5)
    assert after.features == before.features
    assert again.partition("topic-0").log.partition.topic == "topic-0"


def test_a_leader_without_descriptors_for_the_snapshot_takes_over_later(monkeypatch: pytest.MonkeyPatch) -> None:
    node = create_topics(InMemoryNode(static=LIMIT).start(), 60)
    before = node.current.image

    def refuse(*_: object) -> NoReturn:
        raise StorageFault("0.checkpoint", OSError(errno.EMFILE, "too many open files"))

    with monkeypatch.context() as patch:
        patch.setattr(MetadataLog, "read_snapshot", refuse)
        again = InMemoryNode(node.files.restart(), static=LIMIT)
        serving = again.assembly.start(again.assembly.settings.advertised_listeners)
        again.settle()
        assert not again.controller.is_active
        again.timers.advance(3 * SHORTAGE_RETRY_MS)
        assert not again.controller.is_active
    again.timers.advance(SHORTAGE_RETRY_MS)
    again.settle()
    assert again.controller.is_active
    assert serving.done
    assert again.current.image.topic_names == before.topic_names
    assert again.faults == []


def test_records_after_a_snapshot_are_read_from_the_log() -> None:
    node = create_topics(InMemoryNode(static=LIMIT).start(), 40)
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
        raise StorageFault("data", OSError(errno.ENOSPC, "planned fault"))

    with monkeypatch.context() as patched:
        patched.setattr(SnapshotWork, "run", full)
        create_topics(node, 30)
    assert refused
    assert len(node.current.image.topics) == 30
    create_topics(node, 30, first=30)
    assert names(node, ".checkpoint")


class ShrinkingLog:
    """A quorum driver whose log size is set by the test; it declines every snapshot, and records the log size then."""

    def __init__(self) -> None:
        self.log = self
        self.size_bytes = 0
        self.attempts: list[int] = []

    def begin_snapshot(self, snapshot: SnapshotId, values: Iterable[bytes]) -> None:
        self.attempts.append(self.size_bytes)


def test_growth_counts_from_zero_after_a_received_snapshot_has_replaced_the_log() -> None:
    quorum = ShrinkingLog()
    snapshots = MetadataSnapshots(cast(QuorumDriver, quorum), 100, at_once, own_work(FakeTimers()))
    for quorum.size_bytes in (90, 180, 270, 10, 90, 110):
        snapshots.on_image(MetadataImage(), Changes())
    assert quorum.attempts == [180, 110]
