"""Power is lost at every operation of a round of cleaning and of the swap: after a restart
each segment is the old or the cleaned one, and no last value, epoch or producer is lost."""

from __future__ import annotations

import random
from functools import cache

import pytest
from harness.cleaning_histories import CONFIG, RETENTION_MS, History
from harness.depth import sample
from harness.making_logs import PARTITION, load_store

from moldau.log import compaction, layout
from moldau.log.cleaning.clean import CleaningJob, CleaningResult, clean
from moldau.log.cleaning.swap import SwapWork
from moldau.testing.files import MemoryFiles, PowerLoss


def reopened_history(seed: int) -> History:
    return stopped_history(seed).reopened_copy()


@cache
def stopped_history(seed: int) -> History:
    """A closed log with a cleaned part, expired tombstones and records to clean."""
    history = History(f"crash {seed}")
    history.write(16)
    history.clean()
    history.now_ms += RETENTION_MS
    history.write(12)
    for producer_id in sorted(history.open):
        history.end_transaction(producer_id, is_commit=producer_id == 11)
    history.write(4)
    return history.stopped()


def recover(history: History, files: MemoryFiles, may_end_earlier: bool = False) -> None:
    history.files = files
    history.store, report = load_store(files, CONFIG)
    assert report.unreadable == []
    assert not any(each.set_aside or each.bytes_cut for each in report.recovered)
    assert may_end_earlier or not any(each.lost_durable for each in report.recovered)
    history.adopt(history.store.get(PARTITION))
    left = files.names(history.log.directory)
    assert not [name for name in left if name.endswith((layout.CLEANED, layout.SWAP))]


def clean_and_purge(history: History) -> None:
    assert history.clean() is not None
    history.log.flush()
    history.log.purge(history.now_ms)


def check_cleaning_continues(history: History) -> None:
    history.now_ms += RETENTION_MS
    assert history.clean() is not None
    history.write(3)
    history.check()


def operations_of_a_round(seed: int) -> tuple[int, int]:
    history = reopened_history(seed)
    begun = history.files.operations
    clean_and_purge(history)
    return begun, history.files.operations


@pytest.mark.parametrize(("seed", "is_power_lost"), [(0, True), (1, True), (2, False)])
def test_a_crash_at_any_operation_loses_nothing(seed: int, is_power_lost: bool) -> None:
    begun, total = operations_of_a_round(seed)
    assert total - begun > 25, "the cleaning has too few operations for this test"
    for lost_at in sample(range(begun, total), 6, first=seed):
        history = reopened_history(seed)
        end_offset, producers, epochs = history.log.end_offset, history.producers(), history.log.epochs.entries
        history.files.power_lost_at = lost_at
        with pytest.raises(PowerLoss):
            clean_and_purge(history)
        files = history.files
        try:
            recover(history, files.crash(random.Random(lost_at)) if is_power_lost else files.restart())
            assert history.log.end_offset == end_offset
            assert history.producers() == producers
            assert history.log.epochs.entries == epochs
            history.check()
            if lost_at % 4 == 0:
                check_cleaning_continues(history)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, lost at operation {lost_at} of {total}: {error}") from error


def test_crashes_while_recovery_finishes_a_swap_lose_nothing() -> None:
    history = reopened_history(7)
    job, cleaned = start_cleaning(history)
    rename_all(compaction.begin_swap(history.log, job, cleaned))
    files = history.files.restart()
    for lost_at in range(40):
        files.power_lost_at = files.operations + lost_at
        try:
            load_store(files, CONFIG)
        except PowerLoss:
            files = files.restart()
        else:
            files = files.restart()
            break
    files.power_lost_at = None
    recover(history, files)
    history.check()
    assert [(each.base_offset, each.size) for each in history.log.segments][: len(cleaned.groups)] == [
        (group.base_offset, group.size) for group in cleaned.groups
    ]


def start_cleaning(history: History) -> tuple[CleaningJob, CleaningResult]:
    log, up_to = history.log, history.cleanable_up_to()
    job = compaction.cleaning_job(
        log, log.cleaned_up_to, up_to, history.now_ms, map_bytes_max=1 << 20, io_buffer_bytes=1 << 16
    )
    history.touched_up_to = up_to
    for offset, put in history.puts.items():
        if offset < up_to and put.value is None:
            history.first_cleaned_ms.setdefault(offset, history.now_ms)
    return job, clean(history.files, job, lambda _: None)


def rename_all(work: SwapWork | None) -> SwapWork:
    assert work is not None
    while not work.is_renamed:
        work.rename_next()
    return work


def test_a_log_that_was_truncated_meanwhile_is_not_swapped() -> None:
    history = reopened_history(1)
    log = history.log
    job, cleaned = start_cleaning(history)
    log.truncate_to(log.segments.first.base_offset + 1)
    before = [(each.base_offset, each.size) for each in log.segments]
    assert compaction.begin_swap(log, job, cleaned) is None
    assert [(each.base_offset, each.size) for each in log.segments] == before
    assert not [name for name in history.files.names(log.directory) if name.endswith((".cleaned", ".swap"))]


@pytest.mark.parametrize("is_power_lost", [True, False])
@pytest.mark.parametrize("stage", ["half renamed", "renamed", "half replaced"])
def test_a_truncation_cancels_an_unfinished_swap(stage: str, is_power_lost: bool) -> None:
    history = reopened_history(2)
    log = history.log
    job, cleaned = start_cleaning(history)
    assert len(cleaned.groups) > 1
    work = compaction.begin_swap(log, job, cleaned)
    if stage == "half renamed":
        assert work is not None
        work.rename_next()
    else:
        rename_all(work).sync()
    assert work is not None
    if stage == "half replaced":
        compaction.replace_next(log, work, history.now_ms)
    history.store.truncate(PARTITION, 5)
    assert not compaction.is_swapping(log, work)
    assert not [name for name in history.files.names(log.directory) if name.endswith((".cleaned", ".swap"))]
    end_offset = log.end_offset
    files = history.files.crash(random.Random(1)) if is_power_lost else history.files.restart()
    # The log may end earlier if its last batches were cleaned away.
    may_end_earlier = stage == "half replaced"
    recover(history, files, may_end_earlier)
    is_as_it_was = history.log.end_offset == end_offset
    assert is_as_it_was or (may_end_earlier and history.log.end_offset < end_offset), "truncated records are back"


def test_a_slice_of_a_replaced_segment_can_still_be_read() -> None:
    history = reopened_history(3)
    piece = history.log.read(history.log.start_offset, 1 << 20, history.log.end_offset)
    assert piece is not None
    before = piece.read()
    assert history.clean() is not None
    history.log.purge(history.now_ms)
    assert piece.read() == before
    again = history.log.read(history.log.start_offset, 1 << 20, history.log.end_offset)
    assert again is not None
    assert again.read() != before
