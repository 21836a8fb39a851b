"""Topics whose names differ only in case, on a disk that ignores case."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_insensitive_disk import CaseInsensitiveDisk
from harness.making_logs import NOW_MS, TOPIC_ID, batch_of, read_values

from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.log.config import LogConfig
from moldau.log.files import DiskFiles
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles

UPPER, LOWER = TopicPartition("Orders", 0), TopicPartition("orders", 0)
OTHER_ID = bytes(reversed(TOPIC_ID))


def opened(directory: Path) -> LogStore:
    store = LogStore(CaseInsensitiveDisk(), str(directory))
    store.load(lambda _: LogConfig(), NOW_MS)
    return store


def test_a_store_knows_whether_its_disk_ignores_case(tmp_path: Path) -> None:
    assert LogStore(CaseInsensitiveDisk(), str(tmp_path / "a")).is_case_insensitive
    assert not LogStore(MemoryFiles(), "data").is_case_insensitive
    ignores_case = (tmp_path / "A").exists()  # of the disk that this test runs on
    assert LogStore(DiskFiles(), str(tmp_path / "b")).is_case_insensitive == ignores_case


@pytest.mark.parametrize("values", [[], [b"one"]], ids=["empty", "not empty"])
def test_creating_a_log_in_the_directory_of_another_is_refused(tmp_path: Path, values: list[bytes]) -> None:
    store = opened(tmp_path)
    log = store.create(UPPER, TOPIC_ID, LogConfig(), NOW_MS)
    for value in values:
        log.append(batch_of([value]), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(StorageFault, match="ignores case, and Orders-0 uses the same directory; delete one"):
        store.create(LOWER, OTHER_ID, LogConfig(), NOW_MS)
    assert LOWER not in store
    store.close()
    again = opened(tmp_path)
    assert [log.partition for log in again] == [UPPER]
    assert again.topic_id(UPPER) == TOPIC_ID
    assert list(read_values(next(iter(again))).values()) == values


def test_a_log_can_be_created_after_the_other_is_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.create(UPPER, TOPIC_ID, LogConfig(), NOW_MS)
    store.create(TopicPartition("Orders", 1), TOPIC_ID, LogConfig(), NOW_MS)
    store.delete(UPPER, bytes(16), NOW_MS)
    assert store.create(LOWER, OTHER_ID, LogConfig(), NOW_MS).partition == LOWER


def test_a_case_sensitive_disk_holds_both_logs() -> None:
    store = LogStore(MemoryFiles(), "data")
    store.load(lambda _: LogConfig(), NOW_MS)
    for partition in (UPPER, LOWER):
        store.create(partition, TOPIC_ID, LogConfig(), NOW_MS)
    assert UPPER in store
    assert LOWER in store
