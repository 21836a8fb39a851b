"""The log cleaner: which log it chooses, what it does not clean, and changes of a log that is being cleaned."""

from __future__ import annotations

import errno
import logging
from dataclasses import replace
from itertools import pairwise
from types import ModuleType
from typing import NoReturn

import pytest
from harness.cleaner_harness import BACKOFF_MS, CleanerHarness
from harness.depth import deep, sample
from harness.in_memory_node import InMemoryNode

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.turns import DELETED_A_TURN, SEGMENTS_READ_A_TURN
from moldau.log import checkpoints, compaction, layout
from moldau.log.log import Log
from moldau.log.producer_snapshot import decode_snapshot, encode_snapshot
from moldau.runtime.cleaning import cleaner
from moldau.runtime.cleaning.ports import CleaningFailed
from moldau.runtime.cleaning.settings import CleanerSettings, cleaner_settings
from moldau.wire.batch import split_batches
from moldau.wire.records import decode_records

HOUR_MS = 3600 * 1000


@pytest.fixture
def harness() -> CleanerHarness:
    return CleanerHarness()


def two_dirty_segments(harness: CleanerHarness, topic: str = "t") -> None:
    harness.write(topic, {"a": "1", "b": "1"})
    harness.write(topic, {"a": "2"})


def written_offsets(harness: CleanerHarness) -> dict[str, int]:
    found = checkpoints.read_offsets(harness.node.files, f"data/{layout.CLEANER_OFFSETS}") or {}
    return {str(partition): offset for partition, offset in found.items()}


# --- which log, and how much of it ------------------------------------------------------------------------------


def test_the_last_record_of_each_key_keeps_its_offset(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.write("t", {"a": "3", "c": "1"}, roll=False)
    before = harness.log("t").size_bytes
    harness.settle()
    # The active segment is never read: its key `a` does not replace the older one yet.
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2"), (3, "a", "3"), (4, "c", "1")]
    assert harness.log("t").size_bytes < before
    assert (harness.log("t").cleaned_up_to, harness.log("t").end_offset) == (3, 5)
    assert written_offsets(harness) == {"t-0": 3}


def test_the_dirtiest_log_is_cleaned_first(harness: CleanerHarness) -> None:
    for name in ("half", "all", "little"):
        harness.create_topic(name, min_cleanable_dirty_ratio="0.4")
    for name in ("half", "little"):
        harness.write(name, {f"key {number}": "x" * 50 for number in range(10)})
    harness.settle()
    harness.write("half", {f"key {number}": "y" * 50 for number in range(10)})
    harness.write("little", {"key 1": "y"})
    harness.write("all", {"a": "1"})
    harness.cleans.jobs.clear()
    harness.settle()
    assert harness.cleans.cleaned == ["all-0", "half-0"]


def test_a_log_is_cleaned_again_only_when_it_is_dirty_again(harness: CleanerHarness) -> None:
    harness.create_topic("t", min_cleanable_dirty_ratio="0.3")
    two_dirty_segments(harness)
    harness.settle()
    assert len(harness.cleans.jobs) == 1
    harness.write("t", {"a": "3", "b": "2"})
    harness.settle()
    assert [job.first_dirty_offset for job in harness.cleans.jobs] == [0, 3]
    assert harness.read("t") == [(3, "a", "3"), (4, "b", "2")]


def test_a_topic_with_the_policy_delete_is_not_cleaned(harness: CleanerHarness) -> None:
    harness.create_topic("t", cleanup_policy="delete")
    two_dirty_segments(harness)
    harness.settle()
    assert not harness.cleans.jobs


def test_records_younger_than_min_compaction_lag_are_not_cleaned(harness: CleanerHarness) -> None:
    harness.create_topic("t", min_compaction_lag_ms=str(HOUR_MS))
    two_dirty_segments(harness)
    harness.node.clock.move(HOUR_MS // 2)
    two_dirty_segments(harness)
    harness.settle(2)
    assert not harness.cleans.jobs
    harness.node.clock.move(HOUR_MS // 2)
    harness.settle(2)
    assert [(job.first_dirty_offset, job.up_to) for job in harness.cleans.jobs] == [(0, 3)]


def test_a_slightly_dirty_log_is_cleaned_after_max_compaction_lag(harness: CleanerHarness) -> None:
    harness.create_topic("t", max_compaction_lag_ms=str(HOUR_MS), min_cleanable_dirty_ratio="0.9")
    harness.write("t", {f"key {number}": "x" * 50 for number in range(10)})
    harness.settle()
    assert len(harness.cleans.jobs) == 1
    harness.write("t", {"key 1": "y"})
    harness.settle(2)
    assert len(harness.cleans.jobs) == 1
    harness.node.clock.move(HOUR_MS)
    harness.settle(2)
    assert len(harness.cleans.jobs) == 2


@pytest.mark.parametrize("lag", [{"min_compaction_lag_ms": "1"}, {"max_compaction_lag_ms": str(HOUR_MS)}])
def test_few_segments_are_read_in_a_turn_after_a_restart(harness: CleanerHarness, lag: dict[str, str]) -> None:
    per_topic = 2 * SEGMENTS_READ_A_TURN + 3
    for name in ("a", "b", "c"):
        harness.create_topic(name, min_cleanable_dirty_ratio="1.0", **lag)
        for number in range(per_topic):
            harness.write(name, {f"{number}": "x"})
    segments = [each for name in ("a", "b", "c") for each in list(harness.log(name).segments)[:-1]]
    for each in segments:
        each._largest_timestamp = each._first_timestamp = None
        each.release()
    known: list[int] = [0]
    harness.node.clock.move(2)
    harness.node.timers.run_soon()
    harness.cleaner._look()
    is_left = True
    while is_left:
        known.append(sum(each._largest_timestamp is not None or each._first_timestamp is not None for each in segments))
        is_left = harness.node.timers.run_one_soon()
    assert max(after - before for before, after in pairwise(known)) == SEGMENTS_READ_A_TURN
    assert known[-1] == len(segments) == 3 * per_topic


def test_new_epochs_are_flushed_in_a_thread_while_the_log_is_cleaned(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    log = harness.log("t")
    log.epochs.assign(log.last_epoch + 1, log.end_offset)
    harness.wait()
    assert len(harness.cleans.jobs) == 1
    harness.node.flush()
    assert not log.epochs.is_dirty
    monkeypatch.setattr(Log, "flush", lambda _: pytest.fail("the loop must not wait for the disk"))
    harness.settle()
    assert (log.cleaned_up_to, harness.node.faults) == (3, [])


def load_snapshot(log: Log) -> None:
    """Replace the producer state by its snapshot, as a restart does."""
    log.producers.load(decode_snapshot(encode_snapshot(log.producers.active())), log.end_offset)


def test_the_batches_of_one_producer_are_searched_in_a_turn_after_a_restart(
    harness: CleanerHarness,
) -> None:
    harness.create_topic("t")
    for producer_id in range(5):
        for sequence in (0, 1):
            harness.write("t", {"a": "x"}, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    load_snapshot(harness.log("t"))
    searched: list[int] = [0]
    harness.node.timers.run_soon()
    harness.cleaner._look()
    is_left = True
    while is_left:
        searched.append(sum(not each.is_from_snapshot for each in harness.log("t").producers.active()))
        is_left = harness.node.timers.run_one_soon()
    assert max(after - before for before, after in pairwise(searched)) == 1
    (job,) = harness.cleans.jobs
    kept = {number: (*last.earlier_offsets, last.last_data_offset) for number, last in job.producers.items()}
    assert kept == {number: (2 * number, 2 * number + 1) for number in range(5)}


def test_a_topic_deleted_while_batches_of_its_producers_are_searched_is_skipped(
    harness: CleanerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t")
    for producer_id in range(3):
        harness.write("t", {"a": "x"}, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    load_snapshot(harness.log("t"))
    harness.node.timers.run_soon()
    harness.cleaner._look()
    harness.node.delete_topic("t")
    harness.node.timers.run_soon()
    assert (harness.cleans.jobs, harness.cleaner.uncleanable, harness.node.faults) == ([], [], [])
    assert not [each for each in caplog.records if each.name == "moldau.cleaner"]
    assert harness.cleaner._timer is not None, "other logs are looked at later"


def test_an_open_transaction_stops_the_cleaner(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    harness.write("t", {"a": "3"}, **producer)
    harness.write("t", {"a": "4"})
    harness.settle()
    assert [job.up_to for job in harness.cleans.jobs] == [3]
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2"), (3, "a", "3"), (4, "a", "4")]


def test_uncommitted_records_are_not_cleaned(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.node.partition("t").high_watermark = 2
    harness.settle()
    assert [job.up_to for job in harness.cleans.jobs] == [2]


def test_a_follower_cleans_its_own_log(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.node.partition("t").is_leader = False
    harness.settle()
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]


def test_expired_tombstones_are_kept_while_a_replica_is_not_in_sync(harness: CleanerHarness) -> None:
    """The replica may have the value, and would keep it forever without the tombstone."""
    harness.create_topic("t", delete_retention_ms="1000", min_cleanable_dirty_ratio="0.01")
    harness.write("t", {"a": "1"})
    harness.write("t", {"a": None})
    partition = harness.node.partition("t")
    partition.state = replace(partition.state, replicas=(*partition.state.replicas, 7))
    for value in ("1", "2"):
        harness.write("t", {"b": value})
        harness.settle()
    assert harness.read("t") == [(1, "a", None), (3, "b", "2")]
    partition.state = replace(partition.state, isr=partition.state.replicas)
    harness.write("t", {"b": "3"})
    harness.settle()
    assert harness.read("t") == [(4, "b", "3")]


# --- changes of a log that is being cleaned ---------------------------------------------------------------------


def begin_cleaning(harness: CleanerHarness, topic: str = "t") -> None:
    """Write to a log and let the cleaner begin with it."""
    two_dirty_segments(harness, topic)
    harness.wait()
    assert harness.cleaner.is_cleaning(harness.node.partition(topic))


def test_a_topic_deleted_while_it_is_cleaned_causes_no_fault(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.node.delete_topic("t")
    harness.wait(1_000)
    assert harness.cleans.abandoned == 1
    harness.settle()
    assert not harness.node.faults
    assert not harness.cleaner.uncleanable


def test_a_topic_deleted_while_its_new_segments_are_synced_causes_no_fault(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.run_in_thread.do()  # the new segments are written and renamed
    harness.wait(0)
    harness.node.delete_topic("t")
    harness.run_in_thread.do()  # the directory is renamed by now
    harness.settle()
    assert not harness.node.faults


def test_a_topic_recreated_while_it_is_cleaned_gets_nothing_of_the_old_one(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.node.delete_topic("t")
    harness.create_topic("t")
    harness.write("t", {"new": "1"}, roll=False)
    harness.settle()
    assert harness.read("t") == [(0, "new", "1")]
    assert not harness.files_of("t", layout.CLEANED)
    assert not harness.files_of("t", layout.SWAP)
    assert harness.log("t").cleaned_up_to == 0


def test_a_deleted_topic_leaves_no_checkpoint_to_a_new_topic_of_its_name(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.settle()
    harness.node.delete_topic("t")
    harness.create_topic("t")
    harness.write("t", {"a": "1"})
    again = harness.restart()
    assert again.log("t").cleaned_up_to == 0


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_log_truncated_during_its_swap_keeps_its_records(harness: CleanerHarness, is_replaced: bool) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.run_in_thread.do()  # the new segments are written and renamed
    if is_replaced:
        harness.wait(0)
        harness.run_in_thread.do()  # the names are synced, and the new segments replace the old ones
        assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert harness.cleaner.is_cleaning(harness.node.partition("t"))
    harness.node.store.truncate(harness.log("t").partition, 2)
    harness.node.partition("t").on_truncated()
    harness.write("t", {"a": "other"})
    harness.settle()
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "other")]
    assert not harness.cleaner.uncleanable


@pytest.mark.parametrize("steps", [0, 1])
def test_cleaning_stops_and_resumes_with_the_cleanup_policy(harness: CleanerHarness, steps: int) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.set_topic_configs("t", cleanup_policy="delete")
    if steps:
        harness.wait(1_000)
        assert harness.cleans.abandoned == 1
    harness.run_in_thread.do()
    assert harness.read("t") == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2")]
    assert not harness.files_of("t", layout.CLEANED)
    harness.settle()
    assert len(harness.cleans.jobs) == 1
    harness.set_topic_configs("t", cleanup_policy="compact")
    harness.settle()
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]


def test_records_deleted_while_a_log_is_cleaned_stay_deleted(harness: CleanerHarness) -> None:
    harness.create_topic("t", cleanup_policy="compact,delete", retention_ms="-1")
    begin_cleaning(harness)
    harness.node.partition("t").delete_records(2)
    harness.settle()
    assert len(harness.cleans.jobs) == 1
    assert harness.read("t") == [(2, "a", "2")]
    assert (harness.log("t").start_offset, harness.log("t").cleaned_up_to) == (2, 3)


def test_segments_below_the_start_of_a_compacted_log_are_deleted(harness: CleanerHarness) -> None:
    """For example if the leader of a follower moved the start, or the policy was another one at that time."""
    harness.create_topic("t", min_cleanable_dirty_ratio="1.0")
    two_dirty_segments(harness)
    harness.log("t").delete_records(2)
    harness.settle(1)
    assert [each.base_offset for each in harness.log("t").segments] == [2, 3]


def test_a_tombstone_below_the_start_is_not_removed_before_its_records(harness: CleanerHarness) -> None:
    """A crash may undo their deletion, because the log start offset is written only periodically."""
    harness.create_topic(
        "t",
        cleanup_policy="compact,delete",
        retention_ms="-1",
        delete_retention_ms="1",
        min_cleanable_dirty_ratio="0.01",
    )
    harness.write("t", {"a": "1"}, roll=False)
    harness.write("t", {"a": None}, roll=False)
    harness.write("t", {"b": "1"})
    harness.node.partition("t").delete_records(2)
    for value in ("1", "2"):
        harness.write("t", {"c": value})
        harness.settle()
    first = harness.log("t").segments.first
    found = harness.node.files.open(first.log_path).pread(first.size, 0)
    assert [each.offset for _, batch in split_batches(memoryview(found)) for each in decode_records(batch)] == [2, 4]


def test_replaced_files_are_removed_after_their_delay(harness: CleanerHarness) -> None:
    harness.create_topic("t", file_delete_delay_ms="60000")
    two_dirty_segments(harness)
    harness.settle(1)
    assert harness.files_of("t", layout.DELETED)
    harness.settle(4)
    assert not harness.files_of("t", layout.DELETED)


def test_delete_records_is_refused_for_a_compacted_topic(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    with pytest.raises(KafkaError) as refused:
        harness.node.partition("t").delete_records(0)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_retention_skips_a_log_only_while_it_is_cleaned(harness: CleanerHarness) -> None:
    harness.create_topic("t", cleanup_policy="compact,delete", retention_ms="1000")
    harness.write("t", {"a": "1", "b": "1"})
    harness.wait(900)
    harness.write("t", {"a": "2"})
    partition = harness.node.partition("t")
    harness.cleaner.reconfigure(CleanerSettings(backoff_ms=50))
    harness.wait(50)
    assert harness.cleaner.is_cleaning(partition)
    harness.node.clock.move(100)
    harness.housekeeping.retain(harness.run_in_thread, harness.node.faults.append)
    assert harness.log("t").start_offset == 0
    harness.settle(2)
    assert harness.read("t") == []


def test_a_log_with_both_policies_is_compacted_and_expires(harness: CleanerHarness) -> None:
    harness.create_topic("t", cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
    two_dirty_segments(harness)
    harness.settle(1)
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]
    harness.node.clock.move(HOUR_MS)
    harness.write("t", {"c": "1"}, roll=False)
    harness.settle(1)
    assert harness.read("t") == [(3, "c", "1")]


# --- failures ----------------------------------------------------------------------------------------------------


def test_a_corrupt_log_is_given_up_and_logged_and_others_are_cleaned(
    harness: CleanerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("broken", "well"):
        harness.create_topic(name)
        two_dirty_segments(harness, name)
    file = harness.node.files.open(f"{harness.log('broken').directory}/{layout.offset_name(0)}.log")
    file.pwrite(b"\xff" * 8, 70)
    with caplog.at_level(logging.ERROR, "moldau.cleaner"):
        harness.settle()
    assert [str(each) for each in harness.cleaner.uncleanable] == ["broken-0"]
    assert sorted(harness.cleans.cleaned) == ["broken-0", "well-0"]
    assert len(caplog.records) == 1
    assert "broken-0: cannot be cleaned" in caplog.text
    assert harness.read("well") == [(1, "b", "1"), (2, "a", "2")]
    assert not harness.files_of("broken", layout.CLEANED)
    assert not harness.node.faults
    harness.node.delete_topic("broken")
    harness.settle(1)
    assert not harness.cleaner.uncleanable


def test_a_log_whose_last_stable_offset_is_unknown_is_given_up(
    harness: CleanerHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart a damaged batch may hide which transactions have ended."""
    harness.create_topic("broken")
    two_dirty_segments(harness, "broken")

    def fail(log: Log, high_watermark: int) -> int:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "no batch at 7")

    monkeypatch.setattr(Log, "last_stable_offset", fail)
    with caplog.at_level(logging.ERROR, "moldau.cleaner"):
        harness.settle()
    assert not harness.cleans.jobs
    assert "broken-0: cannot be cleaned, not retried until the next start: no batch at 7" in caplog.text


@pytest.mark.parametrize("room", sample(range(0, 400, 5), 3))
def test_a_full_disk_stops_the_cleaning_and_not_the_broker(harness: CleanerHarness, room: int) -> None:
    """The disk fills up while segments are written, or when the log is flushed before the swap."""
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.log("t").epochs.is_dirty = True
    harness.node.files.bytes_left = room
    harness.settle(3)
    assert not harness.node.faults
    assert not harness.cleaner.uncleanable
    harness.node.files.bytes_left = None
    harness.settle(1)
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]


def shortage(*_: object, **__: object) -> NoReturn:
    raise StorageFault("data/t-0", OSError(errno.EMFILE, "too many open files"))


@pytest.mark.parametrize("step", [(cleaner, "dirty_log"), (compaction, "cleaning_job")], ids=lambda step: step[1])
def test_too_many_open_files_when_a_log_is_chosen_delay_its_cleaning(
    harness: CleanerHarness,
    step: tuple[ModuleType, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "moldau.cleaner"):
        patch.setattr(*step, shortage)
        harness.settle(4)
    assert [each.getMessage() for each in caplog.records] == [
        "t-0: not cleaned for lack of disk space, open files or processes, retried later: data/t-0: "
        "too many open files; raise the limit of open files (`ulimit -n`)"
    ] * 4
    assert not harness.cleaner.uncleanable
    harness.settle(1)
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert not harness.node.faults


def test_too_many_open_files_delay_the_deletion_of_expired_segments(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t", "u"):
        harness.create_topic(name, cleanup_policy="compact,delete", retention_ms=str(HOUR_MS))
        two_dirty_segments(harness, name)
    harness.node.clock.move(HOUR_MS + 1)
    with monkeypatch.context() as patch:
        patch.setattr(harness.log("t"), "delete_expired", shortage)
        harness.settle(1)
        assert (harness.log("t").start_offset, harness.log("u").start_offset) == (0, 3)
    harness.settle(1)
    assert harness.log("t").start_offset == 3
    assert not harness.node.faults


def test_few_segments_are_deleted_in_a_turn_of_the_loop(harness: CleanerHarness) -> None:
    harness.node.create_topic("t", 4 * DELETED_A_TURN, retention_ms="1000")
    logs = [harness.node.partition("t", index).log for index in range(4 * DELETED_A_TURN)]
    for index, log in enumerate(logs):
        harness.node.append("t", index)
        log.roll(harness.node.clock.now_ms())
    harness.set_topic_configs("t", cleanup_policy="compact,delete")
    harness.node.clock.move(2_000)
    deleted = [0]
    while deleted[-1] < len(logs):
        if not harness.node.timers.run_one_soon():
            harness.node.timers.run_one_timer()
        deleted.append(sum(log.start_offset for log in logs))
    assert max(after - before for before, after in pairwise(deleted)) == DELETED_A_TURN


def test_a_log_is_given_up_after_three_failures(harness: CleanerHarness) -> None:
    for name in ("t", "u"):
        harness.create_topic(name)
    two_dirty_segments(harness)
    harness.cleans.failures = [CleaningFailed("its process died")] * 3
    harness.settle(1)
    assert harness.cleans.cleaned == ["t-0"]
    assert not harness.cleaner.uncleanable
    harness.settle()
    assert harness.cleans.cleaned == ["t-0"] * 3
    assert [str(each) for each in harness.cleaner.uncleanable] == ["t-0"]
    two_dirty_segments(harness, "u")
    harness.settle()
    assert harness.cleans.cleaned[3:] == ["u-0"]


def test_a_success_resets_the_count_of_failures(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    for _ in range(2):
        two_dirty_segments(harness)
        harness.cleans.failures = [CleaningFailed("its process died")] * 2
        harness.settle()
    assert harness.read("t") == [(4, "b", "1"), (5, "a", "2")]
    assert not harness.cleaner.uncleanable


def test_a_disk_that_fails_in_the_middle_of_a_swap_stops_the_node(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.run_in_thread.do()
    harness.wait(0)

    def fail(directory: str) -> None:
        raise StorageFault(directory, OSError(5, "planned fault"))

    monkeypatch.setattr(harness.node.files, "sync_directory", fail)
    harness.run_in_thread.do()
    assert [str(fault) for fault in harness.node.faults] == ["data/t-0: planned fault"]


def test_too_many_open_files_when_the_new_names_are_synced_delay_the_cleaning(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.run_in_thread.do()
    harness.wait(0)
    with monkeypatch.context() as patch:
        patch.setattr(harness.node.files, "sync_directory", shortage)
        harness.run_in_thread.do()
    check_cleaned_later(harness)


@pytest.mark.parametrize("refused", range(10))
def test_a_full_disk_while_segments_are_replaced_delays_the_cleaning(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """A directory takes no longer name. The log stays readable, and what is not replaced stays as it was."""
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.run_in_thread.do()
    harness.wait(0)
    files, rename, count = harness.node.files, harness.node.files.rename, 0

    def rename_unless_full(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == refused + 1:
            raise StorageFault(source, OSError(errno.ENOSPC, "no space left on device"))
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", rename_unless_full)
        harness.run_in_thread.do()
        harness.wait(0)
        assert harness.read("t")[-2:] == [(1, "b", "1"), (2, "a", "2")]
    check_cleaned_later(harness)


def check_cleaned_later(harness: CleanerHarness) -> None:
    harness.settle()
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert harness.log("t").cleaned_up_to == 3
    assert not harness.node.faults
    assert not harness.cleaner.uncleanable
    assert not harness.files_of("t", layout.CLEANED)
    assert not harness.files_of("t", layout.SWAP)
    again = harness.restart()
    assert again.read("t") == [(1, "b", "1"), (2, "a", "2")]


def test_an_unexpected_exception_of_the_cleaner_is_reported(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    monkeypatch.setattr(compaction, "cleaning_job", None)
    harness.wait()
    assert len(harness.node.faults) == 1


@pytest.mark.parametrize("seed", range(deep(1, quick=2)))
@pytest.mark.parametrize("steps", range(5))
def test_a_crash_in_any_step_loses_nothing_and_the_restart_continues(
    harness: CleanerHarness, steps: int, seed: int
) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.write("t", {"c": "1"}, roll=False)
    harness.housekeeping.write_checkpoints(harness.run_in_thread, harness.node.faults.append)
    harness.run_in_thread.do()
    harness.wait()
    for _ in range(steps):
        harness.wait(1_000)
        if harness.run_in_thread.waiting:
            harness.run_in_thread.do()
    again = harness.crash(seed)
    found = again.read("t")
    assert found[-3:] == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
    assert len(found) == 3 or found[0] == (0, "a", "1")
    again.settle()
    assert again.read("t") == [(1, "b", "1"), (2, "a", "2"), (3, "c", "1")]
    assert again.log("t").cleaned_up_to == 3
    assert not again.files_of("t", layout.CLEANED)
    assert not again.files_of("t", layout.SWAP)


def test_the_cleaned_offset_survives_a_restart(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.settle()
    again = harness.restart()
    assert again.log("t").cleaned_up_to == 3
    again.settle()
    assert not again.cleans.jobs


# --- settings ---------------------------------------------------------------------------------------------------


def test_the_cleaner_waits_for_its_backoff(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.wait(BACKOFF_MS - 1)
    assert not harness.cleans.jobs
    harness.cleaner.reconfigure(CleanerSettings(backoff_ms=100))
    harness.wait(100)
    assert len(harness.cleans.jobs) == 1


def test_a_new_rate_takes_effect_at_once(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.cleaner.reconfigure(CleanerSettings(bytes_per_second=5e6))
    assert harness.cleans.rates[1:] == [5e6]


def test_a_disabled_cleaner_still_deletes_segments_below_the_start(harness: CleanerHarness) -> None:
    harness.cleaner.reconfigure(CleanerSettings(is_enabled=False))
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.log("t").delete_records(2)
    harness.settle()
    assert not harness.cleans.jobs
    assert harness.log("t").segments.first.base_offset == 2


def test_settings_of_the_broker_reach_its_cleaner() -> None:
    layers = {"log.cleaner.backoff.ms": "7", "log.cleaner.io.max.bytes.per.second": "5e6"}
    read = cleaner_settings(BrokerLayers(dynamic={"log.cleaner.dedupe.buffer.size": "3000000"}, static=layers))
    assert read == CleanerSettings(backoff_ms=7, bytes_per_second=5e6, map_bytes_max=3_000_000)
    assert cleaner_settings(BrokerLayers()) == CleanerSettings()
    assert not cleaner_settings(BrokerLayers(static={"log.cleaner.enable": "false"})).is_enabled
    assert not cleaner_settings(BrokerLayers(static={"log.cleaner.threads": "0"})).is_enabled
    small = {"log.cleaner.dedupe.buffer.size": "1", "log.cleaner.io.buffer.size": "0"}
    assert cleaner_settings(BrokerLayers(dynamic=small)) == CleanerSettings(
        map_bytes_max=1 << 20, io_buffer_bytes=64 << 10
    )


def test_settings_changed_at_run_time_reach_the_cleaner() -> None:
    node = InMemoryNode().start()
    harness = CleanerHarness(node)
    harness.set_broker_configs(log_cleaner_backoff_ms="50")
    harness.create_topic("t")
    two_dirty_segments(harness)
    harness.wait(60)
    assert harness.read("t") == [(1, "b", "1"), (2, "a", "2")]
    assert not harness.cleans.jobs


def test_a_stopped_cleaner_starts_and_swaps_nothing(harness: CleanerHarness) -> None:
    harness.create_topic("t")
    begin_cleaning(harness)
    harness.cleaner.stop()
    while harness.run_in_thread.waiting:
        harness.run_in_thread.do()
    harness.settle()
    assert harness.read("t") == [(0, "a", "1"), (1, "b", "1"), (2, "a", "2")]
    again = harness.restart()
    assert not again.files_of("t", layout.CLEANED)


def test_a_cleaning_is_logged_with_its_counts(harness: CleanerHarness, caplog: pytest.LogCaptureFixture) -> None:
    harness.create_topic("t")
    two_dirty_segments(harness)
    with caplog.at_level(logging.INFO, "moldau.cleaner"):
        harness.settle()
    assert "t-0: cleaned from offset 0 to 3" in caplog.text
    assert "2 of 3 records kept" in caplog.text


@pytest.mark.parametrize(
    "step",
    [
        "moldau.log.compaction.cleaning_job",
        "moldau.runtime.cleaning.cleaner.Round.is_wanted",
        "moldau.log.compaction.begin_swap",
        "moldau.log.cleaning.swap.SwapWork.rename_next",
        "moldau.runtime.cleaning.cleaner.LogCleaner._replace",
        "moldau.log.compaction.replace_next",
        "moldau.log.compaction.finish_swap",
    ],
)
def test_a_fault_in_any_step_of_a_cleaning_stops_the_node(
    harness: CleanerHarness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Without that, no log would be cleaned any more."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("a fault of ours")

    harness.create_topic("t")
    two_dirty_segments(harness)
    monkeypatch.setattr(step, property(fail) if step.endswith("is_wanted") else fail)
    harness.settle(1)
    assert {str(fault) for fault in harness.node.faults} == {"a fault of ours"}
