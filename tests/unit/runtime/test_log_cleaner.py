"""The log cleaner: which log it chooses, what it does not clean, and changes of a log that is being cleaned."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import NoReturn

import pytest
from cleaning_desk import BACKOFF_MS, Desk
from in_memory_node import InMemoryNode

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.log import checkpoints, compaction, layout
from moldau.log.log import Log
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.runtime.cleaning import cleaner
from moldau.runtime.cleaning.cleaner import SEGMENTS_READ_A_TURN
from moldau.runtime.cleaning.ports import CleaningFailed
from moldau.runtime.cleaning.settings import CleanerSettings, cleaner_settings
from moldau.runtime.housekeeping import DELETED_A_TURN
from moldau.wire.batch import split_batches
from moldau.wire.records import decode_records

HOUR_MS = 3600 * 1000


@pytest.fixture
def desk() -> Desk:
    return Desk()


def two_dirty_segments(desk: Desk, topic: str = "t") -> None:
    desk.write(topic, {"a": "1", "b": "1"})
    desk.write(topic, {"a": "2"})


def written_offsets(desk: Desk) -> dict[str, int]:
    found = checkpoints.read_offsets(desk.node.files, f"data/{layout.CLEANER_OFFSETS}") or {}
    return {str(partition): offset for partition, offset in found.items()}


# --- which log, and how much of it ------------------------------------------------------------------------------


def test_the_last_record_of_each_key_stays_where_it_was(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.write("t", {"a": "3", "c": "1"}, roll=False)
    before = desk.log("t").size_bytes
    desk.settle()
    # The active segment is never read: its key `a` does not replace the older one yet.
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2"), (3, "a", "3"), (4, "c", "1")]
    assert desk.log("t").size_bytes < before
    assert (desk.log("t").cleaned_up_to, desk.log("t").end_offset) == (3, 5)
    assert written_offsets(desk) == {"t-0": 3}


def test_the_dirtiest_log_goes_first_and_the_others_follow(desk: Desk) -> None:
    for name in ("half", "all", "little"):
        desk.create_topic(name, min_cleanable_dirty_ratio="0.4")
    for name in ("half", "little"):
        desk.write(name, {f"key {number}": "x" * 50 for number in range(10)})
    desk.settle()
    desk.write("half", {f"key {number}": "y" * 50 for number in range(10)})
    desk.write("little", {"key 1": "y"})
    desk.write("all", {"a": "1"})
    desk.cleans.jobs.clear()
    desk.settle()
    assert desk.cleans.cleaned == ["all-0", "half-0"]


def test_a_log_is_cleaned_again_only_when_it_is_dirty_again(desk: Desk) -> None:
    desk.create_topic("t", min_cleanable_dirty_ratio="0.3")
    two_dirty_segments(desk)
    desk.settle()
    assert len(desk.cleans.jobs) == 1
    desk.write("t", {"a": "3", "b": "2"})
    desk.settle()
    assert [job.first_dirty_offset for job in desk.cleans.jobs] == [0, 3]
    assert desk.read("t") == [(3, "a", "3"), (4, "b", "2")]


def test_a_topic_with_the_policy_delete_is_not_cleaned(desk: Desk) -> None:
    desk.create_topic("t", cleanup_policy="delete")
    two_dirty_segments(desk)
    desk.settle()
    assert not desk.cleans.jobs


def test_records_younger_than_min_compaction_lag_are_not_cleaned(desk: Desk) -> None:
    desk.create_topic("t", min_compaction_lag_ms=str(HOUR_MS))
    two_dirty_segments(desk)
    desk.node.clock.move(HOUR_MS // 2)
    two_dirty_segments(desk)
    desk.settle(2)
    assert not desk.cleans.jobs
    desk.node.clock.move(HOUR_MS // 2)
    desk.settle(2)
    assert [(job.first_dirty_offset, job.up_to) for job in desk.cleans.jobs] == [(0, 3)]


def test_a_hardly_dirty_log_is_cleaned_after_max_compaction_lag(desk: Desk) -> None:
    desk.create_topic("t", max_compaction_lag_ms=str(HOUR_MS), min_cleanable_dirty_ratio="0.9")
    desk.write("t", {f"key {number}": "x" * 50 for number in range(10)})
    desk.settle()
    assert len(desk.cleans.jobs) == 1
    desk.write("t", {"key 1": "y"})
    desk.settle(2)
    assert len(desk.cleans.jobs) == 1
    desk.node.clock.move(HOUR_MS)
    desk.settle(2)
    assert len(desk.cleans.jobs) == 2


@pytest.mark.parametrize("lag", [{"min_compaction_lag_ms": "1"}, {"max_compaction_lag_ms": str(HOUR_MS)}])
def test_few_segments_are_read_in_a_turn_after_a_restart(
    desk: Desk, lag: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    per_topic = 2 * SEGMENTS_READ_A_TURN + 3
    for name in ("a", "b", "c"):
        desk.create_topic(name, min_cleanable_dirty_ratio="1.0", **lag)
        for number in range(per_topic):
            desk.write(name, {f"{number}": "x"})
    segments = [each for name in ("a", "b", "c") for each in list(desk.log(name).segments)[:-1]]
    for each in segments:
        each._largest_timestamp = each._first_timestamp = None
        each.release()
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(desk.cleaner, "_soon", turns.append)
    known: list[int] = [0]
    desk.node.clock.move(2)
    turns.append(desk.cleaner._look)
    while turns:
        turns.pop()()
        known.append(sum(each._largest_timestamp is not None or each._first_timestamp is not None for each in segments))
    assert max(after - before for before, after in pairwise(known)) == SEGMENTS_READ_A_TURN
    assert known[-1] == len(segments) == 3 * per_topic


def test_new_epochs_are_flushed_in_a_thread_while_the_log_is_cleaned(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    log = desk.log("t")
    log.epochs.assign(log.last_epoch + 1, log.end_offset)
    desk.wait()
    assert len(desk.cleans.jobs) == 1
    desk.node.flush()
    assert not log.epochs.is_dirty
    monkeypatch.setattr(Log, "flush", lambda _: pytest.fail("the loop must not wait for the disk"))
    desk.settle()
    assert (log.cleaned_up_to, desk.node.faults) == (3, [])


def load_snapshot(log: Log) -> None:
    """Forget of the producers what a restart forgets."""
    log.producers.load(decode_snapshot(encode_snapshot(log.producers.active())), log.end_offset)


def test_the_batches_of_one_producer_are_searched_in_a_turn_after_a_restart(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.create_topic("t")
    for producer_id in range(5):
        for sequence in (0, 1):
            desk.write("t", {"a": "x"}, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    load_snapshot(desk.log("t"))
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(desk.cleaner, "_soon", turns.append)
    searched: list[int] = [0]
    turns.append(desk.cleaner._look)
    while turns:
        turns.pop()()
        searched.append(sum(not each.is_from_snapshot for each in desk.log("t").producers.active()))
    assert max(after - before for before, after in pairwise(searched)) == 1
    (job,) = desk.cleans.jobs
    kept = {number: (*last.earlier_offsets, last.last_data_offset) for number, last in job.producers.items()}
    assert kept == {number: (2 * number, 2 * number + 1) for number in range(5)}


def test_a_topic_deleted_while_batches_of_its_producers_are_searched(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.create_topic("t")
    for producer_id in range(3):
        desk.write("t", {"a": "x"}, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    load_snapshot(desk.log("t"))
    turns: list[Callable[[], None]] = []
    monkeypatch.setattr(desk.cleaner, "_soon", turns.append)
    desk.cleaner._look()
    desk.node.delete_topic("t")
    while turns:
        turns.pop()()
    assert (desk.cleans.jobs, desk.cleaner.uncleanable, desk.node.faults) == ([], [], [])
    assert not [each for each in caplog.records if each.name == "moldau.cleaner"]
    assert desk.cleaner._timer is not None, "other logs are looked at later"


def test_an_open_transaction_stops_the_cleaner(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    desk.write("t", {"a": "3"}, **producer)
    desk.write("t", {"a": "4"})
    desk.settle()
    assert [job.up_to for job in desk.cleans.jobs] == [3]
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2"), (3, "a", "3"), (4, "a", "4")]


def test_uncommitted_records_are_not_cleaned(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.node.partition("t").high_watermark = 2
    desk.settle()
    assert [job.up_to for job in desk.cleans.jobs] == [2]


def test_a_follower_cleans_its_own_log(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.node.partition("t").is_leader = False
    desk.settle()
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]


def test_while_a_replica_is_not_in_sync_expired_tombstones_stay(desk: Desk) -> None:
    """It may have the value, and would keep it forever if it never got the tombstone."""
    desk.create_topic("t", delete_retention_ms="1000", min_cleanable_dirty_ratio="0.01")
    desk.write("t", {"a": "1"})
    desk.write("t", {"a": None})
    partition = desk.node.partition("t")
    partition.state = replace(partition.state, replicas=(*partition.state.replicas, 7))
    for value in ("1", "2"):
        desk.write("t", {"b": value})
        desk.settle()
    assert desk.read("t") == [(1, "a", None), (3, "b", "2")]
    partition.state = replace(partition.state, isr=partition.state.replicas)
    desk.write("t", {"b": "3"})
    desk.settle()
    assert desk.read("t") == [(4, "b", "3")]


# --- changes of a log that is being cleaned ---------------------------------------------------------------------


def begun(desk: Desk, topic: str = "t") -> None:
    """A log is being cleaned."""
    two_dirty_segments(desk, topic)
    desk.wait()
    assert desk.cleaner.is_cleaning(desk.node.partition(topic))


def test_a_topic_deleted_while_it_is_cleaned(desk: Desk) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.node.delete_topic("t")
    desk.wait(1_000)
    assert desk.cleans.abandoned == 1
    desk.settle()
    assert not desk.node.faults
    assert not desk.cleaner.uncleanable


def test_a_topic_deleted_while_the_names_of_its_new_segments_are_synced(desk: Desk) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.run_in_thread.do()  # what is new is written, and named
    desk.wait(0)
    desk.node.delete_topic("t")
    desk.run_in_thread.do()  # the directory has another name now
    desk.settle()
    assert not desk.node.faults


def test_a_topic_recreated_while_it_is_cleaned_gets_nothing_of_the_old_one(desk: Desk) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.node.delete_topic("t")
    desk.create_topic("t")
    desk.write("t", {"new": "1"}, roll=False)
    desk.settle()
    assert desk.read("t") == [(0, "new", "1")]
    assert not desk.files_of("t", layout.CLEANED)
    assert not desk.files_of("t", layout.SWAP)
    assert desk.log("t").cleaned_up_to == 0


def test_a_deleted_topic_leaves_no_checkpoint_to_a_new_topic_of_its_name(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.settle()
    desk.node.delete_topic("t")
    desk.create_topic("t")
    desk.write("t", {"a": "1"})
    again = desk.restart()
    assert again.log("t").cleaned_up_to == 0


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_log_truncated_during_its_swap_keeps_its_records(desk: Desk, is_replaced: bool) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.run_in_thread.do()  # what is new is written, and named
    if is_replaced:
        desk.wait(0)
        desk.run_in_thread.do()  # the names are on disk, and it is in its place
        assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert desk.cleaner.is_cleaning(desk.node.partition("t"))
    desk.node.store.truncate(desk.log("t").partition, 2)
    desk.node.partition("t").on_truncated()
    desk.write("t", {"a": "other"})
    desk.settle()
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "other")]
    assert not desk.cleaner.uncleanable


@pytest.mark.parametrize("steps", [0, 1])
def test_a_policy_changed_to_delete_and_back(desk: Desk, steps: int) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.set_topic("t", cleanup_policy="delete")
    if steps:
        desk.wait(1_000)
        assert desk.cleans.abandoned == 1
    desk.run_in_thread.do()
    assert desk.read("t") == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2")]
    assert not desk.files_of("t", layout.CLEANED)
    desk.settle()
    assert len(desk.cleans.jobs) == 1
    desk.set_topic("t", cleanup_policy="compact")
    desk.settle()
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]


def test_records_deleted_while_a_log_is_cleaned_stay_deleted(desk: Desk) -> None:
    desk.create_topic("t", cleanup_policy="compact,delete", retention_ms="-1")
    begun(desk)
    desk.node.partition("t").delete_records(2)
    desk.settle()
    assert len(desk.cleans.jobs) == 1
    assert desk.read("t") == [(2, "a", "2")]
    assert (desk.log("t").start_offset, desk.log("t").cleaned_up_to) == (2, 3)


def test_segments_below_the_start_of_a_compacted_log_are_deleted(desk: Desk) -> None:
    """For example if the leader of a follower moved the start, or the policy was another one at that time."""
    desk.create_topic("t", min_cleanable_dirty_ratio="1.0")
    two_dirty_segments(desk)
    desk.log("t").delete_records(2)
    desk.settle(1)
    assert [each.base_offset for each in desk.log("t").segments] == [2, 3]


def test_a_tombstone_below_the_start_is_not_removed_before_its_records(desk: Desk) -> None:
    """A crash may undo their deletion, because the log start offset is written only periodically."""
    desk.create_topic(
        "t",
        cleanup_policy="compact,delete",
        retention_ms="-1",
        delete_retention_ms="1",
        min_cleanable_dirty_ratio="0.01",
    )
    desk.write("t", {"a": "1"}, roll=False)
    desk.write("t", {"a": None}, roll=False)
    desk.write("t", {"b": "1"})
    desk.node.partition("t").delete_records(2)
    for value in ("1", "2"):
        desk.write("t", {"c": value})
        desk.settle()
    first = desk.log("t").segments.first
    found = desk.node.files.open(first.log_path).pread(first.size, 0)
    assert [each.offset for _, batch in split_batches(memoryview(found)) for each in decode_records(batch)] == [2, 4]


def test_replaced_files_are_removed_after_their_delay(desk: Desk) -> None:
    desk.create_topic("t", file_delete_delay_ms="60000")
    two_dirty_segments(desk)
    desk.settle(1)
    assert desk.files_of("t", layout.DELETED)
    desk.settle(4)
    assert not desk.files_of("t", layout.DELETED)


def test_records_of_a_compacted_topic_cannot_be_deleted_by_hand(desk: Desk) -> None:
    desk.create_topic("t")
    with pytest.raises(KafkaError) as refused:
        desk.node.partition("t").delete_records(0)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_retention_skips_a_log_only_while_it_is_cleaned(desk: Desk) -> None:
    desk.create_topic("t", cleanup_policy="compact,delete", retention_ms="1000")
    desk.write("t", {"a": "1", "b": "1"})
    desk.wait(900)
    desk.write("t", {"a": "2"})
    partition = desk.node.partition("t")
    desk.cleaner.reconfigure(CleanerSettings(backoff_ms=50))
    desk.wait(50)
    assert desk.cleaner.is_cleaning(partition)
    desk.node.clock.move(100)
    desk.housekeeping.retain(desk.run_in_thread, desk.node.faults.append)
    assert desk.log("t").start_offset == 0
    desk.settle(2)
    assert desk.read("t") == []


def test_a_log_with_both_policies_is_compacted_and_expires(desk: Desk) -> None:
    desk.create_topic("t", cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
    two_dirty_segments(desk)
    desk.settle(1)
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]
    desk.node.clock.move(HOUR_MS)
    desk.write("t", {"c": "1"}, roll=False)
    desk.settle(1)
    assert desk.read("t") == [(3, "c", "1")]


# --- what goes wrong --------------------------------------------------------------------------------------------


def test_a_corrupt_log_is_given_up_and_logged_and_others_are_cleaned(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("broken", "well"):
        desk.create_topic(name)
        two_dirty_segments(desk, name)
    file = desk.node.files.open(f"{desk.log('broken').directory}/{layout.offset_name(0)}.log")
    file.pwrite(b"\xff" * 8, 70)
    with caplog.at_level(logging.ERROR, "moldau.cleaner"):
        desk.settle()
    assert [str(each) for each in desk.cleaner.uncleanable] == ["broken-0"]
    assert sorted(desk.cleans.cleaned) == ["broken-0", "well-0"]
    assert len(caplog.records) == 1
    assert "broken-0: cannot be cleaned" in caplog.text
    assert desk.read("well") == [(1, "b", "1"), (2, "a", "2")]
    assert not desk.files_of("broken", layout.CLEANED)
    assert not desk.node.faults
    desk.node.delete_topic("broken")
    desk.settle(1)
    assert not desk.cleaner.uncleanable


def test_a_log_whose_last_stable_offset_is_unknown_is_given_up(
    desk: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart a damaged batch may hide which transactions have ended."""
    desk.create_topic("broken")
    two_dirty_segments(desk, "broken")

    def fail(log: Log, high_watermark: int) -> int:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch at 7")

    monkeypatch.setattr(Log, "last_stable_offset", fail)
    with caplog.at_level(logging.ERROR, "moldau.cleaner"):
        desk.settle()
    assert not desk.cleans.jobs
    assert "broken-0: cannot be cleaned, not retried until the next start: no batch at 7" in caplog.text


@pytest.mark.parametrize("room", range(0, 400, 5))
def test_a_full_disk_stops_the_cleaning_and_not_the_broker(desk: Desk, room: int) -> None:
    """Whenever it fills up: while segments are written, or when the log is flushed before the swap."""
    desk.create_topic("t")
    begun(desk)
    desk.log("t").epochs.is_dirty = True
    desk.node.files.bytes_left = room
    desk.settle(3)
    assert not desk.node.faults
    assert not desk.cleaner.uncleanable
    desk.node.files.bytes_left = None
    desk.settle(1)
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]


def shortage(*_: object, **__: object) -> NoReturn:
    raise StorageFault("data/t-0", OSError(errno.EMFILE, "too many open files"))


@pytest.mark.parametrize("step", [(cleaner, "dirty_log"), (compaction, "cleaning_job")], ids=lambda step: step[1])
def test_too_many_open_files_when_a_log_is_chosen_delay_its_cleaning(
    desk: Desk, step: tuple[ModuleType, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "moldau.cleaner"):
        patch.setattr(*step, shortage)
        desk.settle(4)
    assert [each.getMessage() for each in caplog.records] == [
        "t-0: not cleaned for lack of disk space, open files or processes, retried later: data/t-0: "
        "too many open files; raise the limit of open files (`ulimit -n`)"
    ] * 4
    assert not desk.cleaner.uncleanable
    desk.settle(1)
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert not desk.node.faults


def test_too_many_open_files_delay_the_deletion_of_expired_segments(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        desk.create_topic(name, cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
        two_dirty_segments(desk, name)
    desk.node.clock.move(HOUR_MS + 1)
    with monkeypatch.context() as patch:
        patch.setattr(desk.log("t"), "delete_expired", shortage)
        desk.settle(1)
        assert (desk.log("t").start_offset, desk.log("u").start_offset) == (0, 3)
    desk.settle(1)
    assert desk.log("t").start_offset == 3
    assert not desk.node.faults


def test_few_segments_are_deleted_in_a_turn_of_the_loop(desk: Desk) -> None:
    desk.node.create_topic("t", 4 * DELETED_A_TURN, retention_ms="1000")
    logs = [desk.node.partition("t", index).log for index in range(4 * DELETED_A_TURN)]
    for index, log in enumerate(logs):
        desk.node.append("t", index)
        log.roll(desk.node.clock.now_ms())
    desk.set_topic("t", cleanup_policy="compact,delete")
    desk.node.clock.move(2_000)
    deleted = [0]
    while deleted[-1] < len(logs):
        desk.node.timers.run_one_timer()
        deleted.append(sum(log.start_offset for log in logs))
    assert max(after - before for before, after in pairwise(deleted)) == DELETED_A_TURN


def test_a_log_is_tried_three_times(desk: Desk) -> None:
    for name in ("t", "u"):
        desk.create_topic(name)
    two_dirty_segments(desk)
    desk.cleans.failures = [CleaningFailed("its process died")] * 3
    desk.settle(1)
    assert desk.cleans.cleaned == ["t-0"]
    assert not desk.cleaner.uncleanable
    desk.settle()
    assert desk.cleans.cleaned == ["t-0"] * 3
    assert [str(each) for each in desk.cleaner.uncleanable] == ["t-0"]
    two_dirty_segments(desk, "u")
    desk.settle()
    assert desk.cleans.cleaned[3:] == ["u-0"]


def test_a_success_resets_the_count_of_failures(desk: Desk) -> None:
    desk.create_topic("t")
    for _ in range(2):
        two_dirty_segments(desk)
        desk.cleans.failures = [CleaningFailed("its process died")] * 2
        desk.settle()
    assert desk.read("t") == [(4, "b", "1"), (5, "a", "2")]
    assert not desk.cleaner.uncleanable


def test_a_disk_that_fails_in_the_middle_of_a_swap_stops_the_node(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.run_in_thread.do()
    desk.wait(0)

    def fail(directory: str) -> None:
        raise StorageFault(directory, OSError(5, "as asked"))

    monkeypatch.setattr(desk.node.files, "sync_directory", fail)
    desk.run_in_thread.do()
    assert [str(fault) for fault in desk.node.faults] == ["data/t-0: as asked"]


def test_an_unexpected_exception_of_the_cleaner_is_reported(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    monkeypatch.setattr(compaction, "cleaning_job", None)
    desk.wait()
    assert len(desk.node.faults) == 1


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("steps", range(5))
def test_a_crash_in_any_step_loses_nothing_and_the_restart_continues(desk: Desk, steps: int, seed: int) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.write("t", {"c": "1"}, roll=False)
    desk.housekeeping.write_checkpoints(desk.run_in_thread, desk.node.faults.append)
    desk.run_in_thread.do()
    desk.wait()
    for _ in range(steps):
        desk.wait(1_000)
        if desk.run_in_thread.waiting:
            desk.run_in_thread.do()
    again = desk.crash(seed)
    found = again.read("t")
    assert found[-3:] == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
    assert len(found) == 3 or found[0] == (0, "a", "1")
    again.settle()
    assert again.read("t") == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
    assert again.log("t").cleaned_up_to == 3
    assert not again.files_of("t", layout.CLEANED)
    assert not again.files_of("t", layout.SWAP)


def test_what_was_cleaned_is_known_after_a_restart(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.settle()
    again = desk.restart()
    assert again.log("t").cleaned_up_to == 3
    again.settle()
    assert not again.cleans.jobs


# --- settings ---------------------------------------------------------------------------------------------------


def test_the_cleaner_waits_for_its_backoff(desk: Desk) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.wait(BACKOFF_MS - 1)
    assert not desk.cleans.jobs
    desk.cleaner.reconfigure(CleanerSettings(backoff_ms=100))
    desk.wait(100)
    assert len(desk.cleans.jobs) == 1


def test_a_new_rate_takes_effect_at_once(desk: Desk) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.cleaner.reconfigure(CleanerSettings(bytes_per_second=5e6))
    assert desk.cleans.rates[1:] == [5e6]


def test_a_disabled_cleaner_still_deletes_segments_below_the_start(desk: Desk) -> None:
    desk.cleaner.reconfigure(CleanerSettings(is_enabled=False))
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.log("t").delete_records(2)
    desk.settle()
    assert not desk.cleans.jobs
    assert desk.log("t").segments.first.base_offset == 2


def test_settings_of_the_broker_reach_its_cleaner() -> None:
    layers = {"log.cleaner.backoff.ms": "7", "log.cleaner.io.max.bytes.per.second": "5e6"}
    read = cleaner_settings(BrokerLayers(dynamic={"log.cleaner.dedupe.buffer.size": "3000000"}, static=layers))
    assert read == CleanerSettings(backoff_ms=7, bytes_per_second=5e6, map_bytes_max=3_000_000)
    assert cleaner_settings(BrokerLayers()) == CleanerSettings()
    assert not cleaner_settings(BrokerLayers(static={"log.cleaner.enable": "false"})).is_enabled
    assert not cleaner_settings(BrokerLayers(static={"log.cleaner.threads": "0"})).is_enabled
    small = {"log.cleaner.dedupe.buffer.size": "1", "log.cleaner.io.buffer.size": "0"}
    assert cleaner_settings(BrokerLayers(dynamic=small))[3:] == (1 << 20, 64 << 10)


def test_settings_changed_at_run_time_reach_the_cleaner() -> None:
    node = InMemoryNode().start()
    desk = Desk(node)
    desk.set_broker(log_cleaner_backoff_ms="50")
    desk.create_topic("t")
    two_dirty_segments(desk)
    desk.wait(60)
    assert desk.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert not desk.cleans.jobs


def test_a_stopped_cleaner_starts_and_swaps_nothing(desk: Desk) -> None:
    desk.create_topic("t")
    begun(desk)
    desk.cleaner.stop()
    while desk.run_in_thread.waiting:
        desk.run_in_thread.do()
    desk.settle()
    assert desk.read("t") == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2")]
    again = desk.restart()
    assert not again.files_of("t", layout.CLEANED)


def test_a_cleaning_is_logged_with_figures(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    desk.create_topic("t")
    two_dirty_segments(desk)
    with caplog.at_level(logging.INFO, "moldau.cleaner"):
        desk.settle()
    assert "t-0: cleaned from offset 0 to 3" in caplog.text
    assert "2 of 3 records kept" in caplog.text
