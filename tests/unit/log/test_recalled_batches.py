"""After a restart only the last batch of each producer is known: a part of the log is searched for earlier ones."""

from __future__ import annotations

import pytest
from harness.making_logs import PARTITION, TOPIC_ID, load_store
from harness.operations import operations_of
from writing_producers import NOW_MS, refused, send

from moldau.base.errors import ErrorCode
from moldau.base.limits import PRODUCER_BATCHES_KEPT
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.rebuild import RECALL_BATCHES, RECALL_OFFSETS, RECALL_OFFSETS_A_STEP, batches_before
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles

BATCHES = 6
OTHER = 8


def reopened(between: int, count: int = 1) -> Log:
    """A log with some batches of producer 7, and `between` two of them as many of another one with `count` records."""
    files = MemoryFiles()
    store = LogStore(files, "data")
    log = store.create(PARTITION, TOPIC_ID, LogConfig(segment_bytes=50_000), NOW_MS)
    for sequence in range(BATCHES):
        for number in range(between):
            send(log, (sequence * between + number) * count, count, producer_id=OTHER)
        send(log, sequence)
    store.close()
    loaded = load_store(files)[0].get(PARTITION)
    assert loaded is not None
    return loaded


@pytest.mark.parametrize(("between", "count"), [(0, 1), (1, 1), (300, 1), (1, 1_500), (7, 300)])
def test_the_last_batches_are_found_among_those_of_other_producers(between: int, count: int) -> None:
    for sequence in range(BATCHES - PRODUCER_BATCHES_KEPT, BATCHES):
        log = reopened(between, count)
        end = log.end_offset
        repeated = send(log, sequence)
        assert (repeated.duplicate, log.end_offset) == (True, end)
        assert repeated.first_offset == sequence + (sequence + 1) * between * count


def test_a_batch_far_back_is_out_of_order() -> None:
    log = reopened(RECALL_BATCHES)
    assert refused(log, BATCHES - 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_search_does_not_read_many_batches() -> None:
    log = reopened(RECALL_BATCHES)
    log.segments.active.locate(0)
    assert log.end_offset > RECALL_OFFSETS
    one = operations_of(lambda: batches_before(log.segments, 9, 0, 100)) / 100
    cost = operations_of(lambda: batches_before(log.segments, 9, 0, log.end_offset))
    assert cost < 2 * one * (RECALL_BATCHES + RECALL_OFFSETS_A_STEP)
