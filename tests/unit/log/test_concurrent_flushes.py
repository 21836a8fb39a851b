"""A log that is flushed by a thread and, at the same time, by a truncation, a cleaning or a close."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of

from moldau.log import layout
from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import DiskFiles, Files
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles


def new_log(files: Files, directory: str) -> Log:
    return LogStore(files, directory).create(PARTITION, TOPIC_ID, LogConfig(), NOW_MS)


def epochs_of(files: Files, log: Log) -> list[tuple[int, int]]:
    content = files.read(f"{log.directory}/{layout.LEADER_EPOCH_CHECKPOINT}")
    assert content is not None
    return list(LeaderEpochs.decode(content).entries)


def test_a_late_flush_does_not_restore_old_epochs() -> None:
    files = MemoryFiles()
    log = new_log(files, "data")
    log.append(batch_of(), leader_epoch=1, now_ms=NOW_MS)
    late = log.begin_flush()
    assert late is not None
    log.append(batch_of(), leader_epoch=2, now_ms=NOW_MS)
    log.flush()
    late.sync()
    log.finish_flush(late)
    assert epochs_of(files, log) == [(1, 0), (2, 1)]
    assert log.recovery_point == 2


def test_concurrent_flushes_do_not_interfere(tmp_path: Path) -> None:
    files = DiskFiles()
    log = new_log(files, str(tmp_path))
    with ThreadPoolExecutor(1) as thread:
        for epoch in range(60):
            log.append(batch_of(), leader_epoch=epoch, now_ms=NOW_MS)
            work = log.begin_flush()
            assert work is not None
            synced = thread.submit(work.sync)
            log.flush()
            synced.result()
            log.finish_flush(work)
    assert epochs_of(files, log) == [(epoch, epoch) for epoch in range(60)]
    assert log.fault is None
