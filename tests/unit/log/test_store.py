"""`LogStore`, the logs of one directory: the lock, the clean shutdown file, checkpoints, deletion, file formats."""

from __future__ import annotations

import copy
import errno
import random
import subprocess
import sys
from pathlib import Path

import pytest
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store, read_values

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.steps import finish
from moldau.base.turns import ITEMS_A_TURN
from moldau.log import layout
from moldau.log.checkpoints import (
    decode_entries,
    decode_offsets,
    decode_partition_metadata,
    encode_offsets,
    encode_partition_metadata,
    replace_file,
)
from moldau.log.config import LogConfig
from moldau.log.files import DiskFiles
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles

LONG_NAME = TopicPartition("x" * 249, 12)


def purge(store: LogStore, now_ms: int) -> None:
    remove = store.take_deletable(now_ms)
    if remove is not None:
        remove()


def fill(log: Log, count: int = 3) -> None:
    for number in range(count):
        log.append(batch_of([b"%d" % number]), leader_epoch=2, now_ms=NOW_MS)


def test_logs_survive_a_restart_on_a_real_disk(tmp_path: Path) -> None:
    directory = str(tmp_path / "new" / "data")
    partitions = [TopicPartition("a.b_c-d", 0), TopicPartition("a.b_c-d", 11), LONG_NAME]
    store = LogStore(DiskFiles(), directory)
    assert store.load(lambda _: LogConfig(), NOW_MS).logs == 0
    for partition in partitions:
        fill(store.create(partition, TOPIC_ID, LogConfig(), NOW_MS))
    store.close(dict.fromkeys(partitions, 2))
    assert (Path(directory) / ".kafka_cleanshutdown").exists()
    assert (Path(directory) / "replication-offset-checkpoint").read_text().splitlines()[:2] == ["0", "3"]
    assert (Path(directory) / "a.b_c-d-11" / "partition.metadata").read_text() == (
        "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    )
    assert (Path(directory) / "a.b_c-d-11" / "leader-epoch-checkpoint").read_text() == "0\n1\n2 0\n"

    store = LogStore(DiskFiles(), directory)
    report = store.load(lambda _: LogConfig(), NOW_MS)
    assert report.was_clean
    assert report.recovered == []
    assert not (Path(directory) / ".kafka_cleanshutdown").exists()
    assert sorted(log.partition for log in store) == sorted(partitions)
    assert store.high_watermarks == dict.fromkeys(partitions, 2)
    for partition in partitions:
        log = store.get(partition)
        assert log is not None
        assert store.topic_id(partition) == TOPIC_ID
        assert read_values(log) == {0: b"0", 1: b"1", 2: b"2"}
        fill(log)
        assert log.end_offset == 6
    store.close()


def test_a_log_directory_is_locked_by_one_process(tmp_path: Path) -> None:
    store = LogStore(DiskFiles(), str(tmp_path))
    code = (
        "import sys; from moldau.log.files import DiskFiles; from moldau.log.store import LogStore;"
        f"LogStore(DiskFiles(), {str(tmp_path)!r})"
    )
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert second.stderr.strip().splitlines()[-1].endswith(".lock: another process is using this log directory")
    store.close()
    LogStore(DiskFiles(), str(tmp_path)).close()


def test_a_failed_close_leaves_no_clean_shutdown_file() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(log)
    files.sync_fails = True
    with pytest.raises(StorageFault):
        store.close()
    assert not files.exists(f"data/{layout.CLEAN_SHUTDOWN}")
    files.sync_fails = False
    assert not load_store(files)[1].was_clean


def test_closing_unchanged_logs_takes_few_file_operations() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    for number in range(10):
        fill(store.create(TopicPartition("t", number), TOPIC_ID, LogConfig(), NOW_MS))
    store.close()
    store, _ = load_store(files)
    before = files.operations
    store.close()
    assert files.operations - before < 20


def test_a_deleted_log_is_closed_at_once_and_removed_from_disk_later() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(LONG_NAME, TOPIC_ID, LogConfig(file_delete_delay_ms=1000), NOW_MS)
    fill(log)
    store.delete(LONG_NAME, b"\xab" * 16, NOW_MS)
    assert store.get(LONG_NAME) is None
    with pytest.raises(KafkaError) as caught:
        fill(log)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (renamed,) = [name for name in files.names("data") if name.endswith("-delete")]
    assert len(renamed) <= 255
    assert renamed.endswith("-12." + "ab" * 16 + "-delete")
    fill(store.create(LONG_NAME, TOPIC_ID, LogConfig(), NOW_MS), 1)
    purge(store, NOW_MS + 999)
    assert files.exists(f"data/{renamed}")
    purge(store, NOW_MS + 1000)
    assert not files.exists(f"data/{renamed}")


def test_a_clock_set_back_delays_a_deletion_by_at_most_its_delay() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    store.create(PARTITION, TOPIC_ID, LogConfig(file_delete_delay_ms=1000), NOW_MS)
    store.delete(PARTITION, bytes(16), NOW_MS)
    put_back_ms = NOW_MS - 86_400_000
    purge(store, put_back_ms)
    purge(store, put_back_ms + 999)
    assert any(name.endswith("-delete") for name in files.names("data"))
    purge(store, put_back_ms + 1000)
    assert not any(name.endswith("-delete") for name in files.names("data"))


def test_an_interrupted_deletion_continues_after_a_restart() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    store.delete(PARTITION, bytes(16), NOW_MS)
    files = files.restart()
    store, report = load_store(files)
    assert report.logs == 0
    purge(store, NOW_MS)
    assert not any(name.endswith("-delete") for name in files.names("data"))


def test_a_new_log_start_offset_survives_a_crash() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(log)
    log.delete_records(2)
    store.write_checkpoints()
    before = load_store(files.restart())[0].get(PARTITION)
    assert before is not None
    assert before.start_offset == 0, "the start offset is written only when the records below it are flushed"
    log.flush()
    store.write_checkpoints()
    reopened = load_store(files.restart())[0].get(PARTITION)
    assert reopened is not None
    assert (reopened.start_offset, reopened.end_offset) == (2, 3)


def test_a_truncation_lowers_the_recovery_point_on_disk() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(log, 5)
    log.flush()
    store.write_checkpoints()
    store.truncate(PARTITION, 2)
    content = files.read(f"data/{layout.RECOVERY_POINTS}")
    assert content is not None
    assert decode_offsets(content) == {PARTITION: 2}
    assert log.end_offset == 2


def test_directories_that_are_not_partitions_are_left_alone() -> None:
    files = MemoryFiles()
    files.mkdir("data/lost+found")
    files.mkdir("data/no-partition")
    files.mkdir("data/" + "y" * 250 + "-0")
    files.open("data/meta.properties", create=True)
    before = sorted(files.names("data"))
    _, report = load_store(files)
    assert (report.logs, report.unreadable) == (0, [])
    assert sorted(files.names("data")) == before


def test_a_log_that_starts_at_a_later_offset() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    store.truncate_fully(PARTITION, 500)
    fill(log, 1)
    assert (log.start_offset, log.end_offset) == (500, 501)
    store.close()
    reopened = load_store(files)[0].get(PARTITION)
    assert reopened is not None
    assert (reopened.start_offset, reopened.end_offset) == (500, 501)


# --- formats ----------------------------------------------------------------------------------------------------


def test_checkpoints_have_kafkas_format() -> None:
    offsets = {TopicPartition("b", 1): 5, TopicPartition("a", 0): 2**62}
    content = encode_offsets(offsets)
    assert content == b"0\n2\na 0 4611686018427387904\nb 1 5\n"
    assert decode_offsets(content) == offsets
    assert decode_entries(b"0\n0\n", fields=3) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"0\n",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 x\n",
        b"\xff\xfe",
        b"0\n-1\n",
        b"0\n1\na b 1",
    ],
)
def test_malformed_checkpoints_are_refused(content: bytes) -> None:
    with pytest.raises(MalformedData, match="checkpoint"):
        decode_offsets(content)


def test_partition_metadata() -> None:
    assert decode_partition_metadata(encode_partition_metadata(TOPIC_ID)) == TOPIC_ID
    for content in (b"", b"version: 0", b"version: 0\ntopic_id: short", b"\xff"):
        with pytest.raises(MalformedData, match="topic id"):
            decode_partition_metadata(content)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b-12", ("a-b", 12)),
        ("__cluster_metadata-0", ("__cluster_metadata", 0)),
        ("orders-0." + "0" * 32 + "-delete", None),
        ("orders", None),
        ("-0", None),
        ("orders-x", None),
        ("orders-2147483647", ("orders", 2**31 - 1)),
        ("orders-2147483648", None),
        ("backup-2024-01", None),
        ("orders-\u0661", None),
        ("a b-0", None),
    ],
)
def test_directory_names(name: str, partition: tuple[str, int] | None) -> None:
    assert layout.partition_of(name) == partition


def test_other_files_and_directories_are_left_alone(tmp_path: Path) -> None:
    store = LogStore(DiskFiles(), str(tmp_path))
    store.load(lambda _: LogConfig(), NOW_MS)
    fill(store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS))
    store.close()
    deleted_name = "orders-0." + "0" * 32 + "-delete"
    for file_name in ("gc.log-20240101", deleted_name):
        (tmp_path / file_name).write_text("an operator's")
    (tmp_path / "backup-2024-01").mkdir()

    store = LogStore(DiskFiles(), str(tmp_path))
    assert store.load(lambda _: LogConfig(), NOW_MS).logs == 1
    purge(store, NOW_MS)
    store.close()
    assert {"gc.log-20240101", deleted_name, "backup-2024-01"} <= {each.name for each in tmp_path.iterdir()}
    assert not (tmp_path / "backup-2024-1").exists()


def test_file_names() -> None:
    assert layout.offset_name(42) == "00000000000000000042"
    assert layout.offset_of("00000000000000000042.log", ".log") == 42
    assert layout.offset_of("09223372036854775807.log", ".log") == 2**63 - 1
    for name in (
        "42.log",
        "00000000000000000042.index",
        "0000000000000000004x.log",
        "00000000000000000042.log.deleted",
        "09223372036854775808.log",
    ):
        assert layout.offset_of(name, ".log") is None


def test_config_from_kafkas_properties() -> None:
    config = LogConfig.from_properties(
        {
            "segment.bytes": "1000",
            "retention.ms": "-1",
            "cleanup.policy": "compact, delete",
            "message.timestamp.type": "LogAppendTime",
            "message.timestamp.before.max.ms": "77",
            "compression.type": "zstd",
            "compression.zstd.level": "9",
            "preallocate": "true",
            "min.insync.replicas": "2",
        }
    )
    assert config == LogConfig(
        segment_bytes=1000,
        retention_ms=-1,
        cleanup_policy=frozenset({"compact", "delete"}),
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=77,
        compression_type="zstd",
        compression_zstd_level=9,
        preallocate=True,
    )
    assert LogConfig.from_properties({}) == LogConfig()


def test_an_unreadable_log_is_never_overwritten() -> None:
    """Its partition stays closed, and its files stay for an operator to inspect."""
    files = MemoryFiles()
    store, _ = load_store(files)
    fill(store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS))
    path = f"data/{PARTITION}/00000000000000000000.log"
    before = files.read(path)
    files = files.restart()
    store = LogStore(files, "data")
    with pytest.raises(StorageFault, match="contains records that could not be loaded"):
        store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    assert files.read(path) == before
    assert PARTITION not in store


@pytest.mark.parametrize("seed", range(5))
def test_a_log_that_was_never_written_to_before_a_clean_stop_keeps_its_topic_id(seed: int) -> None:
    """The stop does not sync the topic id, so the first flush after the next start must."""
    files = MemoryFiles()
    store, _ = load_store(files)
    store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    store.close()
    store, _ = load_store(files)
    log = store.get(PARTITION)
    assert log is not None
    fill(log)
    log.flush()
    store.write_checkpoints()
    after_power_loss, _ = load_store(files.crash(random.Random(seed)))
    assert after_power_loss.topic_id(PARTITION) == TOPIC_ID


def test_a_failed_creation_can_be_repeated() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    files.bytes_left = 20
    with pytest.raises(StorageFault):
        store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    files.bytes_left = None
    fill(store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS))


class FailingRenames(MemoryFiles):
    """Fails every rename while `renames_fail` is set."""

    renames_fail = False

    def rename(self, source: str, target: str) -> None:
        if self.renames_fail:
            raise StorageFault(source, OSError(errno.EROFS, "Read-only file system"))
        super().rename(source, target)


def test_a_failed_deletion_keeps_the_log() -> None:
    files = FailingRenames()
    store, _ = load_store(files)
    fill(store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS))
    files.renames_fail = True
    with pytest.raises(StorageFault):
        store.delete(PARTITION, bytes(16), NOW_MS)
    assert store.topic_id(PARTITION) == TOPIC_ID
    files.renames_fail = False
    store.delete(PARTITION, bytes(16), NOW_MS)
    assert PARTITION not in store
    store.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_recreated_log_does_not_inherit_checkpoints(is_restarted: bool) -> None:
    """With the old log's start offset, a crash would hide the first records of the new log; with its high watermark, a
    replica would return uncommitted records as committed."""
    files = MemoryFiles()
    store, _ = load_store(files)
    old = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(old, 5)
    old.delete_records(4)
    store.write_checkpoints({PARTITION: 5})
    if is_restarted:
        files = files.restart()
        store, _ = load_store(files)
    store.delete(PARTITION, bytes(16), NOW_MS)
    fill(store.create(PARTITION, bytes(16), LogConfig(), NOW_MS), 10)
    store, _ = load_store(files.restart())
    found = store.get(PARTITION)
    assert found is not None
    assert (found.start_offset, found.recovery_point) == (0, 0)
    assert store.high_watermarks.get(PARTITION, 0) == 0


@pytest.mark.parametrize("is_voided", [False, True])
def test_a_recreated_log_does_not_inherit_checkpoints_that_are_not_rewritten_yet(is_voided: bool) -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    old = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    other = store.create(TopicPartition("other", 0), TOPIC_ID, LogConfig(), NOW_MS)
    fill(old, 5)
    fill(other, 5)
    old.delete_records(4)
    store.write_checkpoints({PARTITION: 5})
    store.delete(PARTITION, bytes(16), NOW_MS)
    store.checkpoints({})  # collected, and never written
    if is_voided:
        store.truncate(other.partition, 3)
        store.checkpoints({})
    fill(store.create(PARTITION, bytes(16), LogConfig(), NOW_MS), 10)
    store, _ = load_store(files.restart())
    found = store.get(PARTITION)
    assert found is not None
    assert (found.start_offset, found.recovery_point) == (0, 0)
    assert store.high_watermarks.get(PARTITION, 0) == 0


def test_the_first_flush_of_a_log_syncs_the_data_directory() -> None:
    """The entry of the log's directory is in the data directory."""
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(log)
    synced: list[str] = []
    sync_directory = files.sync_directory
    files.sync_directory = lambda directory: (synced.append(directory), sync_directory(directory))[1]  # type: ignore[method-assign]
    log.flush()
    assert synced[-1] == "data", "the data directory is synced after the files of the log"
    fill(log)
    log.flush()
    assert synced.count("data") == 1, "only the first flush syncs it"


def test_a_deleted_directory_may_be_missing_when_it_is_purged() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    store.create(PARTITION, TOPIC_ID, LogConfig(file_delete_delay_ms=0), NOW_MS)
    store.delete(PARTITION, bytes(16), NOW_MS)
    (doomed,) = [name for name in files.names("data") if name.endswith("-delete")]
    for name in files.names(f"data/{doomed}"):
        files.unlink(f"data/{doomed}/{name}")
    files.rmdir(f"data/{doomed}")
    purge(store, NOW_MS)


def test_a_missing_topic_id_can_be_assigned() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(log)
    log.flush()
    files.unlink(f"{log.directory}/{layout.PARTITION_METADATA}")
    store, _ = load_store(files.restart())
    assert store.topic_id(PARTITION) is None
    store.assign_topic_id(PARTITION, TOPIC_ID)
    again, _ = load_store(files.crash(random.Random(1)))
    assert again.topic_id(PARTITION) == TOPIC_ID
    found = again.get(PARTITION)
    assert found is not None
    assert list(read_values(found).values()) == [b"0", b"1", b"2"]


def test_the_topic_id_of_a_log_created_before_a_kill_is_synced_with_its_first_records() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    files = files.restart()
    store, _ = load_store(files)
    log = store.get(PARTITION)
    assert log is not None
    fill(log)
    log.flush()
    for seed in range(20):
        crashed = copy.deepcopy(files).crash(random.Random(seed))
        assert load_store(crashed)[0].topic_id(PARTITION) == TOPIC_ID


def test_truncated_records_do_not_reappear_after_a_crash() -> None:
    files = MemoryFiles()
    store, _ = load_store(files)
    log = store.create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)
    fill(log, 5)
    log.flush()
    store.truncate(PARTITION, 3)
    log.append(batch_of([b"another"]), leader_epoch=4, now_ms=NOW_MS)
    for seed in range(20):
        found = load_store(copy.deepcopy(files).crash(random.Random(seed)))[0].get(PARTITION)
        assert found is not None
        assert read_values(found).get(3) in (None, b"another")
        assert found.end_offset in (3, 4)


def test_many_deleted_partitions_are_purged_in_steps() -> None:
    files = MemoryFiles()
    store = LogStore(files, "data")
    store.load(lambda _: LogConfig(), NOW_MS)
    partitions = [TopicPartition("t", index) for index in range(2 * ITEMS_A_TURN + 1)]
    for number, partition in enumerate(partitions):
        store.create(partition, TOPIC_ID, LogConfig(file_delete_delay_ms=1_000), NOW_MS)
        if number:
            store.delete(partition, number.to_bytes(16, "big"), NOW_MS)
    steps = store.collect_deletable(NOW_MS + 500)
    assert sum(1 for _ in steps) == 2, "of the deleted ones; one log is left"
    steps = store.collect_deletable(NOW_MS + 1_000)
    next(steps)
    store.delete(partitions[0], bytes(16), NOW_MS)  # between two steps
    remove = finish(steps)
    assert remove is not None
    remove()
    assert [name[:4] for name in files.names("data") if name.endswith("-delete")] == ["t-0."]
    purge(store, NOW_MS + 1_000)
    assert not [name for name in files.names("data") if name.endswith("-delete")]


FORMATTED = {
    "data/meta.properties": b"version=1\n",
    "data/bootstrap.checkpoint": b"users",
    f"data/__cluster_metadata-0/{layout.FIRST_SNAPSHOT}": b"voters",
}


def formatted_directory(**more: bytes) -> MemoryFiles:
    files = MemoryFiles()
    for directory in ("data", "data/__cluster_metadata-0"):
        files.mkdir(directory)
    for path, content in {**FORMATTED, **more}.items():
        files.mkdir(path.rpartition("/")[0])
        replace_file(files, *path.rsplit("/", 1), content)
    return files


def test_a_directory_that_was_only_formatted_has_no_log_to_recover() -> None:
    files = formatted_directory()
    store = LogStore(files, "data")
    report = store.load(lambda _: LogConfig(), NOW_MS)
    assert (report.logs, report.recovered) == (0, [])
    metadata = TopicPartition("__cluster_metadata", 0)
    store.create(metadata, TOPIC_ID, LogConfig(), NOW_MS)
    store.close()
    reopened = LogStore(files, "data")
    assert reopened.load(lambda _: LogConfig(), NOW_MS).recovered == []
    assert reopened.topic_id(metadata) == TOPIC_ID
    assert files.read(f"data/__cluster_metadata-0/{layout.FIRST_SNAPSHOT}") == b"voters"


@pytest.mark.parametrize(
    "path",
    [
        "data/recovery-point-offset-checkpoint",
        "data/.moldau_last_life",
        "data/orders-0/partition.metadata",
        "data/__cluster_metadata-0/quorum-state",
        "data/__cluster_metadata-0/partition.metadata",
        "data/__cluster_metadata-0/00000000000000000007-0000000001.checkpoint",
    ],
)
def test_a_metadata_log_without_segments_is_damaged_if_a_node_has_run(path: str) -> None:
    store = LogStore(formatted_directory(**{path: b"0\n0\n"}), "data")
    damaged = store.load(lambda _: LogConfig(), NOW_MS).recovered
    assert "all its segments are missing" in str(
        next(each for each in damaged if each.partition.topic == "__cluster_metadata")
    )
