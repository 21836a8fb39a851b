"""`MissingLogs`: which logs a broker lacks by its own metadata, and when it knows enough of that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.base.ids import TopicPartition
from moldau.log.config import LogConfig
from moldau.log.store import LogStore
from moldau.metadata.apply import Changes, apply
from moldau.metadata.image import MetadataImage
from moldau.runtime.broker.missing_logs import MissingLogs
from moldau.testing.clock import START_MS, FakeTimers
from moldau.testing.files import MemoryFiles
from moldau.wire.log_records.metadata import PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.schema import MetadataRecord

NODE_ID = 1
TOPIC_ID = bytes(range(16))
NAME = TopicPartition("orders", 0)


class ShrinkingLog:
    """A metadata log: only its end counts here."""

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset


class Check:
    def __init__(self, metadata_end: int = 2) -> None:
        self.store = LogStore(MemoryFiles(), "data")
        self.metadata_log = ShrinkingLog(metadata_end)
        self.timers = FakeTimers()
        self.missing_logs = MissingLogs(NODE_ID, self.store, self.metadata_log, self.timers)  # type: ignore[arg-type]
        self.image = MetadataImage()

    def publish(self, *records: MetadataRecord) -> None:
        image, changes = apply(self.image, records, self.image.offset + len(records), 1)
        self.image = image
        self.missing_logs.on_image(image, changes)
        self.timers.run_soon()

    def create_log(self, topic_id: bytes = TOPIC_ID) -> None:
        self.store.create(NAME, topic_id, LogConfig(), START_MS)

    @property
    def missing(self) -> list[TopicPartition] | None:
        """None as long as it is not known."""
        return self.missing_logs.known.value() if self.missing_logs.known.done else None


def orders(replicas: list[int], isr: list[int]) -> list[MetadataRecord]:
    return [
        TopicRecord("orders", TOPIC_ID),
        PartitionRecord(0, TOPIC_ID, replicas, isr, leader=isr[0], leader_epoch=0, partition_epoch=0),
    ]


def test_a_replica_in_sync_without_a_log_is_missing() -> None:
    check = Check()
    check.publish(*orders([1, 2], [1, 2]))
    assert check.missing == [NAME]


def test_a_log_of_another_topic_of_the_same_name_does_not_count() -> None:
    check = Check()
    check.create_log(bytes(16))
    check.publish(*orders([1, 2], [1, 2]))
    assert check.missing == [NAME]


@pytest.mark.parametrize(("replicas", "isr"), [([1, 2], [2]), ([2, 3], [2, 3])])
def test_a_replica_that_is_not_in_sync_or_elsewhere_is_not_missing(replicas: list[int], isr: list[int]) -> None:
    check = Check()
    check.publish(*orders(replicas, isr))
    assert check.missing == []


def test_a_replica_with_its_log_is_not_missing() -> None:
    check = Check()
    check.create_log()
    check.publish(*orders([1, 2], [1, 2]))
    assert check.missing == []


def test_a_deleted_topic_is_not_missing() -> None:
    check = Check(metadata_end=3)
    check.publish(*orders([1, 2], [1, 2]))
    assert check.missing is None, "an old image may have topics that were deleted later"
    check.publish(RemoveTopicRecord(TOPIC_ID))
    assert check.missing == []


def test_what_was_never_committed_is_not_waited_for() -> None:
    check = Check(metadata_end=9)
    check.create_log()
    check.publish(*orders([1, 2], [1, 2]))
    assert check.missing is None
    check.metadata_log.end_offset = 3  # the new leader of the quorum has truncated it
    check.image = replace(check.image, offset=2)
    check.missing_logs.on_image(check.image, Changes())
    check.timers.run_soon()
    assert check.missing == []


def test_later_images_do_not_matter() -> None:
    check = Check(metadata_end=0)
    check.publish()
    check.publish(*orders([1, 2], [1, 2]))
    assert check.missing == []
