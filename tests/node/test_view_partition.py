"""What readers of a view's partition get while its source changes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from harness.in_memory_node import InMemoryNode
from harness.transactional_writes import append_as_producer, append_marker
from harness.view_world import BATCH_BYTES, ViewWorld

pytest.importorskip("duckdb")

from moldau.base.errors import ErrorCode, StorageFault
from moldau.base.view_configs import VIEW_FORMAT, VIEW_FROM, VIEW_WHERE
from moldau.log import compaction
from moldau.log.cleaning.clean import clean
from moldau.metadata.apply import Changes, apply
from moldau.metadata.image import MetadataImage
from moldau.replica.partition import Partition
from moldau.replica.view_partition import SKIPS_A_READ, ViewPartition
from moldau.server.handler import Caller
from moldau.server.handlers.describe_producers import DescribeProducers
from moldau.views.definition import view_definition
from moldau.views.field_ranges import RUN_BYTES_MIN, FieldKey, IndexedRun, RunIndex
from moldau.views.jobs import Evaluated
from moldau.views.shown_runs import ShownRecords
from moldau.wire.batch import split_batches
from moldau.wire.log_records.metadata import PartitionChangeRecord
from moldau.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)


def node_with_view(**configs: str) -> tuple[InMemoryNode, Partition, ViewPartition]:
    node = InMemoryNode().start()
    node.create_topic("orders")
    node.create_topic("v", -1, **{VIEW_FROM: "orders", **configs})
    view = node.partitions.get_readable("v", 0)
    assert isinstance(view, ViewPartition)
    return node, node.partition("orders"), view


def read_committed(view: ViewPartition) -> tuple[list[int], list[tuple[int, int]]]:
    """The base offsets of the returned data batches, and the aborted transactions."""
    up_to = view.last_stable_offset
    while (shown := view.read(0, 1 << 20, up_to, True)) is None or shown.end_offset < up_to:
        pass  # the worker has done its work at once
    aborted = [(txn.producer_id, txn.first_offset) for txn in view.log.aborted_between(0, shown.end_offset)]
    return [header.base_offset for header, _ in split_batches(memoryview(shown)) if not header.is_control], aborted


def compact(node: InMemoryNode, source: Partition) -> None:
    log, now_ms = source.log, node.clock.now_ms()
    log.roll(now_ms)
    job = compaction.cleaning_job(
        log, log.cleaned_up_to, log.segments.active.base_offset, now_ms, map_bytes_max=1 << 20, io_buffer_bytes=1 << 16
    )
    work = compaction.begin_swap(log, job, clean(node.files, job, lambda _: None))
    assert work is not None
    while not work.is_renamed:
        work.rename_next()
    work.sync()
    while not work.is_done:
        compaction.replace_next(log, work, now_ms)
    compaction.finish_swap(log, work)


def test_results_from_before_a_compaction_are_not_returned_after_it() -> None:
    """The cleaner forgets the aborted transactions whose records it has removed: old results would show them."""
    node, source, view = node_with_view()
    append_as_producer(source, 7, 0)
    append_marker(source, 7, commit=False)
    for sequence in range(1, 7):  # the last batches of a producer stay, without records
        append_as_producer(source, 7, sequence)
        append_marker(source, 7, commit=True)
    node.flush()
    assert read_committed(view) == ([0, *range(2, 14, 2)], [(7, 0)])
    for sequence in range(3):  # the marker stays until its time is over
        compact(node, source)
        node.clock.jump(2 * source.log.config.delete_retention_ms)
        append_as_producer(source, 8, sequence, idempotent_only=True)
    shown, aborted = read_committed(view)
    assert 0 not in shown or (7, 0) in aborted


def test_a_read_committed_reader_advances_to_an_open_transaction() -> None:
    """Also inside a run that was evaluated beyond it for other readers."""
    node, source, view = node_with_view(**{VIEW_WHERE: "header('h') = 'shown' or offset > 1"})
    append_as_producer(source, 8, 0, idempotent_only=True)
    append_as_producer(source, 8, 1, idempotent_only=True)
    append_as_producer(source, 7, 0)
    append_as_producer(source, 8, 2, idempotent_only=True)
    node.flush()
    while (shown := view.read(0, 1 << 20, 4, True)) is None:
        pass
    assert shown.end_offset == 4
    assert view.last_stable_offset == 2
    committed = view.read(0, 1 << 20, 2, True)
    assert committed is not None
    assert (committed.end_offset, committed.length) == (2, 0)


def moved_away(image: MetadataImage) -> tuple[MetadataImage, Changes]:
    record = PartitionChangeRecord(0, image.topics["orders"].id, leader=9, replicas=(9,), isr=(9,))
    return apply(image, [record], image.offset + 1, image.epoch)


def test_the_log_of_a_source_that_moved_away_is_released() -> None:
    node, source, view = node_with_view()
    node.append("orders")
    node.flush()
    view.read(0, 1 << 20, 1, True)
    views = node.partitions.views
    assert views is not None
    assert {"orders", "v"} <= node.partitions.traffic.topics.keys()
    image, changes = moved_away(node.current.image)
    node.partitions.on_image(image, changes, node.clock.now_ms())
    assert view.is_closed
    assert not {"orders", "v"} & node.partitions.traffic.topics.keys()
    del view
    held = weakref.ref(source.log)
    del source
    gc.collect()
    assert held() is None


def test_the_index_of_a_format_is_dropped_with_its_last_view() -> None:
    node, _, view = node_with_view()

    def index_of_csv_view() -> RunIndex:
        node.create_topic("other", -1, **{VIEW_FROM: "orders", VIEW_FORMAT: "csv(a)"})
        other = node.partitions.get_readable("other", 0)
        assert isinstance(other, ViewPartition)
        return other.index

    before = index_of_csv_view()
    node.delete_topic("other")
    assert index_of_csv_view() is not before
    assert node.partitions.get_readable("v", 0).index is view.index  # type: ignore[union-attr]


def test_a_view_whose_source_cannot_be_opened_has_the_error_of_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    node = InMemoryNode().start()

    def fail(*_: object) -> None:
        raise StorageFault("data/orders-0", OSError("no space"))

    monkeypatch.setattr(node.store, "create", fail)
    node.create_topic("orders")
    node.create_topic("v", -1, **{VIEW_FROM: "orders"})
    assert node.partitions.absence("orders", 0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.partitions.absence("v", 0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert node.partitions.absence("v", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_producers_of_a_view_are_those_of_its_source() -> None:
    node, source, _ = node_with_view()
    append_as_producer(source, 7, 0)
    request = DescribeProducersRequest([TopicRequest("v", [0])])
    answer = DescribeProducers(node.partitions, node.timers).answer(request, Caller("PLAINTEXT", "test:1", "test", 0))
    assert isinstance(answer, DescribeProducersResponse)
    (described,) = answer.topics[0].partitions
    assert (described.error_code, [each.producer_id for each in described.active_producers]) == (0, [7])


@pytest.mark.parametrize("batches", [10, RUN_BYTES_MIN // BATCH_BYTES, RUN_BYTES_MIN // BATCH_BYTES + 1])
def test_short_runs_are_not_indexed(batches: int) -> None:
    world = ViewWorld(batches, view_definition({VIEW_WHERE: "a > 1"}))
    world.read()
    ranges = ((FieldKey(("a",), False), (0.0, 1.0)),)
    world.answer(Evaluated(0, batches, b"batch", (0,), (batches - 1,), batches, 1, 0, True, ranges=ranges))
    assert (world.view.index.find(0) is not None) == (batches * BATCH_BYTES >= RUN_BYTES_MIN)


def test_a_limited_number_of_runs_is_skipped_in_a_turn() -> None:
    runs = 2 * SKIPS_A_READ + 5
    world = ViewWorld(runs, view_definition({VIEW_WHERE: "a > 1"}))
    world.view.index.check_version((1, 0, 0))
    for offset in range(runs):
        world.view.index.add(IndexedRun(offset, offset + 1, {FieldKey(("a",), False): (0.0, 1.0)}, 0, False))
    skipped = []
    while not skipped or world.timers:
        if skipped:
            world.run_timer()
        shown = world.read()
        skipped.append(world.counts.skipped_runs)
    assert skipped == [SKIPS_A_READ, 2 * SKIPS_A_READ, runs]
    assert world.wakes == 2, "a waiting fetch continues to skip runs"
    assert isinstance(shown, ShownRecords)
    assert (shown.end_offset, shown.length, world.asked) == (runs, 0, [])


@pytest.mark.parametrize(("kept_bytes", "asked"), [(64 << 20, [0, 5]), (0, [0])])
def test_a_run_is_evaluated_ahead_only_if_its_result_can_be_kept(kept_bytes: int, asked: list[int]) -> None:
    world = ViewWorld(kept_bytes=kept_bytes)
    world.read()
    world.answer(Evaluated(0, 5, b"batch", (0,), (4,), 5, 1, 0, True))
    assert world.read() == b"batch"
    assert [piece.position // BATCH_BYTES for piece in world.pieces] == asked


def truncate(world: ViewWorld) -> None:
    world.log.generation += 1


def elect_another_leader(world: ViewWorld) -> None:
    world.view.source.state.leader_epoch += 1  # type: ignore[misc]


@pytest.mark.parametrize("change", [truncate, elect_another_leader])
def test_results_from_before_a_truncation_are_not_returned_after_it(change: Callable[[ViewWorld], None]) -> None:
    """Only an unclean election truncates what readers were shown."""
    world = ViewWorld()
    world.read()
    world.answer(Evaluated(0, 10, b"before", (0,), (9,), 10, 10, 0, True))
    assert world.read() == b"before"
    change(world)
    assert world.read() is None
    world.answer(Evaluated(0, 10, b"after", (0,), (9,), 10, 10, 0, True))
    assert world.read() == b"after"
