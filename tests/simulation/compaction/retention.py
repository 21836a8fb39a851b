"""Checks retention of compacted logs: the audit sees records before they are removed, and only what is too old, too
much, or deleted by a request may be removed.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from compaction.ledger import CompactedLedger
from compaction.watch import CleaningWatch
from moldau.base.ids import Uuid
from moldau.log import compaction, layout
from moldau.log.log import Log
from moldau.log.retention import expired_count
from moldau.wire.batch import split_batches

if TYPE_CHECKING:
    from cluster.ledger import Ledger
    from machines.machine import Machine

    from compaction.world import CompactionWorld

NAMES_EVERY = 8
"""Number of checks between two checks of the file names."""
Delete = Callable[[Any, int, int, int], list[Any]]


@dataclass(slots=True)
class RemovedSegment:
    """A segment that retention is about to remove."""

    base_offset: int
    next_offset: int
    size: int
    youngest_ms: int
    """Newest timestamp of its records; -1 if it has none."""


class RetentionWatch(CleaningWatch):
    def __init__(self, world: CompactionWorld, ledger: Callable[[Uuid, int], Ledger]) -> None:
        super().__init__(world, ledger)
        self._checks = 0
        self._began_ms: dict[Any, deque[int]] = {}
        """Start times of the last rounds of each log: their swaps may take any time."""
        self.expired = 0
        """Number of segments."""

    # --- after every step -----------------------------------------------------------------------------------------

    def check(self) -> None:
        super().check()
        image = self._world.image
        for machine in self._world.machines.values():
            for partition in machine.partitions():
                topic = image.topics.get(partition.name.topic)
                if topic is not None and topic.id == partition.topic_id:
                    self._judge_start(machine, partition)
        self._checks += 1
        if self._checks % NAMES_EVERY == 0:
            self._judge_names()

    def _judge_start(self, machine: Machine, partition: Any) -> None:
        ledger = self._ledger(partition.topic_id, partition.name.partition)
        if isinstance(ledger, CompactedLedger):
            ledger.begins(machine.host, partition.log.start_offset)

    def _judge_names(self) -> None:
        """Check that only the log that is being cleaned has `.cleaned` or `.swap` files."""
        for machine in self._world.machines.values():
            if machine.assembly is None or machine.assembly.broker_side is None or not machine.is_serving:
                continue
            is_cleaning = machine.assembly.broker_side.cleaner.is_cleaning
            busy = {partition.log.directory for partition in machine.partitions() if is_cleaning(partition)}
            for path in machine.files._inodes:
                directory, _, name = path.rpartition("/")
                is_stray = name.endswith((layout.SWAP, layout.CLEANED)) and directory not in busy
                if is_stray and not layout.is_deleted_directory(directory.rpartition("/")[2]):
                    self._world.violated(f"{machine.host} has {path} although no log is being cleaned there")

    # --- when segments are removed --------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        honest = Log.delete_expired

        def watched(log: Any, now_ms: int, high_watermark: int, at_most: int = sys.maxsize) -> list[Any]:
            return self._delete(honest, log, now_ms, high_watermark, at_most)

        begin_swap = compaction.begin_swap

        def begun(log: Any, job: Any, cleaned: Any) -> Any:
            self._began_ms.setdefault(log, deque(maxlen=2)).append(job.now_ms)
            return begin_swap(log, job, cleaned)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, "delete_expired", watched)
            patch.setattr(compaction, "begin_swap", begun)
            yield

    def began_ms(self, log: Any, otherwise_ms: int) -> int:
        return min(self._began_ms.get(log, [otherwise_ms]))

    def _delete(self, honest: Delete, log: Any, now_ms: int, high_watermark: int, at_most: int) -> list[Any]:
        ledger = self._ledger_of(log)
        count = 0
        if ledger is not None:
            bounds = {"start_offset": log.start_offset, "end_offset": log.end_offset, "high_watermark": high_watermark}
            count = expired_count(log.segments, log.config, now_ms, **bounds)
        if not count or ledger is None:
            return honest(log, now_ms, high_watermark, at_most)
        self._world.audit.check()
        removed = [_segment_to_remove(log, place) for place in range(count)]
        size, start_offset = log.size_bytes, log.start_offset
        dropped = honest(log, now_ms, high_watermark, at_most)
        self.expired += len(dropped)
        self._world.trace(f"{log.partition} starts at {log.start_offset}, before at {start_offset}")
        for each in removed[: len(dropped)]:
            size -= each.size
            if not _may_be_removed(each, log.config, now_ms, start_offset, size):
                self._world.violated(
                    f"retention removes from {log.partition} {_removal_text(each, now_ms, size, log.config)}"
                )
        if log.start_offset > ledger.end:
            self._world.violated(f"{log.partition} starts at {log.start_offset}, only {ledger.end} is committed")
        else:
            ledger.delete_below(log.start_offset)
        return dropped

    def _ledger_of(self, log: Any) -> CompactedLedger | None:
        for machine in self._world.machines.values():
            for partition in machine.partitions():
                if partition.log is log:
                    found = self._ledger(partition.topic_id, partition.name.partition)
                    return found if isinstance(found, CompactedLedger) else None
        return None


def _segment_to_remove(log: Any, place: int) -> RemovedSegment:
    segment = list(log.segments)[place]
    next_base = log.segments.next_base(place)
    batches = split_batches(memoryview(segment.file.pread(segment.size, 0)))
    youngest_ms = max((header.max_timestamp for header, _ in batches if header.record_count), default=-1)
    next_offset = log.end_offset if next_base is None else next_base
    return RemovedSegment(segment.base_offset, next_offset, segment.size, youngest_ms)


def _removal_text(removed: RemovedSegment, now_ms: int, size_left: int, config: Any) -> str:
    policy, age_ms = ",".join(sorted(config.cleanup_policy)), now_ms - removed.youngest_ms
    return (
        f"{removed.base_offset} to {removed.next_offset - 1}, {age_ms} ms old, {size_left} bytes are left: "
        f"cleanup.policy={policy} retention.ms={config.retention_ms} retention.bytes={config.retention_bytes}"
    )


def _may_be_removed(removed: RemovedSegment, config: Any, now_ms: int, start_offset: int, size_left: int) -> bool:
    if removed.next_offset <= start_offset:
        return True
    if "delete" not in config.cleanup_policy:
        return False
    is_old = 0 <= config.retention_ms < now_ms - removed.youngest_ms
    is_much = 0 <= config.retention_bytes <= size_left
    return bool(is_old or is_much)
