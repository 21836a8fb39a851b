"""Failing runs of a view: which are retried, and which error readers get otherwise."""

from __future__ import annotations

from contextlib import suppress

import pytest
from harness.view_world import BATCH_BYTES, ViewWorld

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.view_configs import VIEW_STATISTICS
from moldau.replica.view_counts import REPORT_INTERVAL_MS, ViewCounts
from moldau.replica.view_failures import BACKOFFS_MS, FAILURES_MAX, REMEMBERED_MAX_MS, REMEMBERED_MS, RunFailures
from moldau.views.jobs import Evaluated, ViewFailed

NOT_RETRIABLE = ViewFailed("no DuckDB")
TOO_SLOW = ViewFailed("it took too long", is_divisible=True)
KILLED = ViewFailed("its worker was killed", is_retriable=True)


def evaluated(begin: int, end: int) -> Evaluated:
    """The result of a run of batches (one record each): one of them is shown."""
    return Evaluated(
        begin,
        end,
        b"batch",
        positions=(0,),
        last_offsets=(end - 1,),
        seen=end - begin,
        shown=1,
        unreadable=0,
        holds_batches=True,
    )


SHOWN = evaluated(0, 10)


def read_error(world: ViewWorld) -> ErrorCode:
    with pytest.raises(KafkaError) as failed:
        world.read()
    return failed.value.code


def test_each_statistic_that_brokers_describe_is_counted() -> None:
    counts = ViewCounts(print)
    assert [name for name in VIEW_STATISTICS if not hasattr(counts, name)] == []


def test_a_failure_that_is_not_retriable_is_reported_to_readers_at_once() -> None:
    world = ViewWorld()
    assert world.read() is None
    world.answer(NOT_RETRIABLE)
    assert world.wakes == 1
    assert read_error(world) == ErrorCode.CORRUPT_MESSAGE
    assert len(world.asked) == 1
    world.now_ms += REMEMBERED_MS
    assert world.read() is None
    assert len(world.asked) == 2


def test_a_temporary_failure_is_not_reported_to_readers() -> None:
    world = ViewWorld()
    for tries in range(1, len(BACKOFFS_MS) + 1):
        assert world.read() is None
        assert len(world.asked) == tries
        world.answer(KILLED)
        assert world.wakes == tries - 1  # readers are not woken before the next try
        assert world.read() is None
        assert len(world.asked) == tries
        world.run_timer()
        assert world.wakes == tries
    assert world.read() is None
    world.answer(SHOWN)
    assert world.read() == b"batch"
    assert not world.reports
    assert world.counts.failures == 0


def test_a_lasting_failure_is_reported_as_a_retriable_error() -> None:
    world = ViewWorld()
    for _ in BACKOFFS_MS:
        world.read()
        world.answer(KILLED)
        world.run_timer()
    world.read()
    world.answer(KILLED)
    assert read_error(world) == ErrorCode.KAFKA_STORAGE_ERROR
    assert world.reports == ["view v-0 at offset 0: its worker was killed"]


def test_a_failure_is_ignored_if_the_log_was_truncated() -> None:
    world = ViewWorld()
    world.read()
    world.log.generation += 1
    world.answer(NOT_RETRIABLE)
    assert world.wakes == 1
    assert world.read() is None
    assert len(world.asked) == 2
    assert not world.reports


def test_a_limited_number_of_failures_is_remembered() -> None:
    failures = RunFailures()
    for offset in range(FAILURES_MAX + 1):
        assert failures.add(offset, NOT_RETRIABLE, 0) is None
    assert [failures.must_wait(offset, 1) for offset in (0, 1, FAILURES_MAX)] == [False, True, True]


def test_failures_are_logged_once_a_minute() -> None:
    reports: list[str] = []
    counts = ViewCounts(reports.append)
    for now_ms in range(0, REPORT_INTERVAL_MS + 1, REMEMBERED_MS):
        counts.failed(TopicPartition("v", 0), 7, 7, "too long", now_ms)
    assert reports == ["view v-0 at offset 7: too long", "view v-0 at offset 7: too long (11 more failures before)"]
    assert counts.failures == 13


def test_a_run_that_fails_again_is_remembered_for_longer() -> None:
    world = ViewWorld()
    waits = []
    world.read()
    for _ in range(8):
        world.answer(NOT_RETRIABLE)
        begin_ms = world.now_ms
        tries = len(world.asked)
        while len(world.asked) == tries:
            world.now_ms += REMEMBERED_MS
            with suppress(KafkaError):
                world.read()
        waits.append((world.now_ms - begin_ms) // REMEMBERED_MS)
    assert waits == [1, 2, 4, 8, 16, 32, 32, 32]
    assert REMEMBERED_MAX_MS == 32 * REMEMBERED_MS


def test_a_run_that_takes_too_long_is_divided_down_to_one_batch() -> None:
    world = ViewWorld()
    lengths = []
    for tries in range(1, 5):
        assert world.read() is None
        assert len(world.asked) == tries
        lengths.append(world.pieces[-1].length)
        world.answer(TOO_SLOW)
        assert world.wakes == tries
        if len(lengths) > 1 and lengths[-1] == BATCH_BYTES:
            break
    assert lengths == [10 * BATCH_BYTES, 10 * BATCH_BYTES // 4, BATCH_BYTES]
    assert read_error(world) == ErrorCode.CORRUPT_MESSAGE
    assert world.reports == ["view v-0 at offset 0: it took too long"]
    world.now_ms += REMEMBERED_MS
    assert world.read() is None
    assert world.pieces[-1].length == BATCH_BYTES, "more would fail too"


def test_only_the_failing_batch_is_not_returned() -> None:
    world, position, bad, answered = ViewWorld(), 0, 6, 0
    failed_at: set[int] = set()
    while position < 10 and not failed_at:
        try:
            shown = world.view.read(position, 1000, 10, True)
        except KafkaError:
            failed_at.add(position)
            continue
        position = position if shown is None else shown.end_offset
        while answered < len(world.asked):
            piece, work = world.pieces[answered], world.asked[answered]
            begin, end = piece.position // BATCH_BYTES, (piece.position + piece.length) // BATCH_BYTES
            answered += 1
            work.complete(TOO_SLOW if begin <= bad < end else evaluated(begin, end))
    assert failed_at == {bad}
    assert world.reports == ["view v-0 at offset 6: it took too long"]


def test_runs_grow_again_after_one_that_took_too_long() -> None:
    world = ViewWorld()
    world.read()
    world.answer(TOO_SLOW)
    world.read()
    world.answer(evaluated(0, 2))
    assert world.read() == b"batch"
    assert world.pieces[-1].length == 5 * BATCH_BYTES


def test_the_last_offset_of_a_failing_batch_is_logged() -> None:
    reports: list[str] = []
    ViewCounts(reports.append).failed(TopicPartition("v", 0), 7, 9, "too long", 0)
    assert reports == ["view v-0 at offsets 7 to 9: too long"]


def test_a_closed_view_cancels_its_work() -> None:
    world = ViewWorld()
    world.read()
    assert len(world.asked) == 1
    world.view.close()
    assert not world.asked
