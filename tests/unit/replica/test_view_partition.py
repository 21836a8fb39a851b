"""What readers of a view's partition get while its source changes."""

from __future__ import annotations

import pytest
from in_memory_node import InMemoryNode
from transactional_writes import append_as_producer, append_marker

pytest.importorskip("duckdb")

from moldau.base.view_configs import VIEW_FROM
from moldau.log import compaction
from moldau.log.cleaning.clean import clean
from moldau.replica.partition import Partition
from moldau.replica.view_partition import ViewPartition
from moldau.wire.batch import split_batches


def node_with_view(**configs: str) -> tuple[InMemoryNode, Partition, ViewPartition]:
    node = InMemoryNode().start()
    node.create_topic("orders")
    node.create_topic("v", -1, **{VIEW_FROM: "orders", **configs})
    view = node.partitions.get_readable("v", 0)
    assert isinstance(view, ViewPartition)
    return node, node.partition("orders"), view


def read_committed(view: ViewPartition) -> tuple[list[int], list[tuple[int, int]]]:
    """The base offsets of the data batches that are shown, and which transactions are said to be aborted."""
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
    assert compaction.swap_cleaned(log, job, clean(node.files, job, lambda _: None), now_ms)


def test_results_of_before_a_compaction_are_not_shown_after_it() -> None:
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
