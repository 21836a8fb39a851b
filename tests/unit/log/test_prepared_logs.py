"""`LogStore.prepare` creates the files of new logs before the logs themselves are created."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from pathlib import Path

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, read_values

from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.files import DiskFiles, Files
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles, PowerLoss

OTHER_ID = bytes(reversed(TOPIC_ID))


def prepare(store: LogStore, topic_id: bytes = TOPIC_ID) -> None:
    preparation = store.prepare({PARTITION: topic_id}, NOW_MS)
    preparation.run()
    store.adopt(preparation)


def append(store: LogStore, topic_id: bytes = TOPIC_ID) -> None:
    store.create(PARTITION, topic_id, LogConfig(), NOW_MS).append(batch_of([b"value"]), leader_epoch=2, now_ms=NOW_MS)


def values(store: LogStore) -> list[bytes]:
    log = store.get(PARTITION)
    assert log is not None
    return list(read_values(log).values())


def test_a_prepared_log_has_the_same_files_as_any_other(tmp_path: Path) -> None:
    found = []
    for name in ("prepared", "not prepared"):
        directory = tmp_path / name
        store = LogStore(DiskFiles(), str(directory))
        store.load(lambda _: LogConfig(), NOW_MS)
        if name == "prepared":
            prepare(store)
            store.discard_prepared(lambda: bytes(16), NOW_MS)
            prepare(store)
        append(store)
        store.close()
        found.append({each.name: each.read_bytes() for each in sorted((directory / str(PARTITION)).iterdir())})
    assert found[0] == found[1]


def test_creating_a_prepared_log_does_not_touch_the_disk() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    prepare(store)
    files.power_lost_at = files.operations
    assert store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS).end_offset == 0


def test_files_of_another_topic_of_the_same_name_are_not_used() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    prepare(store, OTHER_ID)
    append(store)
    store.close()
    store, _ = load_store(files)
    assert store.topic_id(PARTITION) == TOPIC_ID
    assert values(store) == [b"value"]


def test_an_existing_directory_is_not_changed() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    append(store)
    store.close()
    before = contents(files)
    store, _ = load_store(files)
    preparation = store.prepare({PARTITION: OTHER_ID}, NOW_MS)
    preparation.run()
    store.adopt(preparation)
    assert not preparation.prepared
    assert contents(files) == before


def contents(files: Files) -> dict[str, bytes | None]:
    directory = f"data/{PARTITION}"
    return {name: files.read(f"{directory}/{name}") for name in files.names(directory)}


def test_a_log_cannot_be_created_while_a_thread_creates_its_files() -> None:
    store, _ = load_store(MemoryFiles())
    preparation = store.prepare({PARTITION: TOPIC_ID}, NOW_MS)
    with pytest.raises(StorageFault) as refused:
        store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    assert refused.value.cause.errno == errno.EBUSY
    store.create(TopicPartition("other", 0), TOPIC_ID, LogConfig(), NOW_MS)
    preparation.run()
    store.adopt(preparation)
    append(store)
    assert values(store) == [b"value"]


def test_a_failed_preparation_is_reported_when_the_log_is_created() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    files.bytes_left = 20
    prepare(store)
    with pytest.raises(StorageFault):
        store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    files.bytes_left = None
    append(store)
    assert values(store) == [b"value"]


def test_unused_files_are_deleted() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    prepare(store)
    store.discard_prepared(lambda: bytes(16), NOW_MS)
    assert str(PARTITION) not in files.names("data")
    remove = store.take_deletable(NOW_MS)
    assert remove is not None
    remove()
    assert not [name for name in files.names("data") if layout.is_deleted_directory(name)]
    append(store)
    assert values(store) == [b"value"]


@pytest.mark.parametrize("operations", range(8))
def test_a_crash_at_any_step_leaves_a_directory_that_can_be_used(operations: int) -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    files.power_lost_at = files.operations + operations
    with suppress(PowerLoss):
        prepare(store)
        append(store)
    store, _ = load_store(files.crash(random.Random(operations)))
    if PARTITION in store:
        store.delete(PARTITION, bytes(16), NOW_MS)
    append(store)
    assert values(store) == [b"value"]


def test_checkpoints_of_a_deleted_log_are_removed_before_new_files_are_created() -> None:
    """Otherwise, after a crash, the new log would begin where the old one did."""
    files = MemoryFiles()
    store, _ = load_store(files)
    append(store)
    store.write_checkpoints({PARTITION: 1})
    store.delete(PARTITION, bytes(16), NOW_MS)
    preparation = store.prepare({PARTITION: OTHER_ID}, NOW_MS)
    preparation.run()
    assert not [name for name in files.names("data") if name.endswith("-checkpoint")]


def test_preparing_an_unreadable_log_does_not_remove_checkpoints() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    append(store)
    store.write_checkpoints({PARTITION: 1})
    before = [name for name in files.names("data") if name.endswith("-checkpoint")]
    del store._logs[PARTITION]  # as if its files were unreadable
    preparation = store.prepare({PARTITION: TOPIC_ID}, NOW_MS)
    preparation.run()
    store.adopt(preparation)
    with pytest.raises(StorageFault, match="could not be loaded"):
        store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    assert [name for name in files.names("data") if name.endswith("-checkpoint")] == before
