"""Defects in the retention of compacted logs and in segment swaps, to check that the simulation notices them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from moldau.log import retention
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.replica.leadership import Leadership
from moldau.replica.partition import Partition
from moldau.runtime.cleaning.cleaner import LogCleaner, Swap

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


# --- swaps --------------------------------------------------------------------------------------------------------


def a_swap_continues_after_the_log_was_truncated(patch: Patch) -> None:
    patch.setattr(Swap, "is_wanted", True)


def a_swap_is_not_rolled_back(patch: Patch) -> None:
    def replacement(self: Log) -> None:
        self.swapping = None

    patch.setattr(Log, "roll_back_swap", replacement)


def retention_does_not_wait_for_the_cleaner(patch: Patch) -> None:
    original = Log.delete_expired

    def replacement(self: Log, now_ms: int, high_watermark: int, at_most: int = sys.maxsize) -> Any:
        swapping, self.swapping = self.swapping, None
        try:
            return original(self, now_ms, high_watermark, at_most)
        finally:
            self.swapping = swapping

    patch.setattr(LogCleaner, "is_cleaning", lambda *_: False)
    patch.setattr(Log, "delete_expired", replacement)


# --- retention ----------------------------------------------------------------------------------------------------


def the_age_of_a_segment_is_that_of_its_first_record(patch: Patch) -> None:
    patch.setattr(retention, "age_timestamp", lambda segment: segment.first_timestamp)


def retention_by_size_removes_one_segment_too_many(patch: Patch) -> None:
    class Greedy(retention._Shrink):
        def __call__(self, segment: Any, next_base: int) -> bool:
            was_too_much = self._excess > 0
            self._excess -= segment.size
            return was_too_much

    patch.setattr(retention, "_Shrink", Greedy)


def topics_that_are_only_compacted_expire_too(patch: Patch) -> None:
    patch.setattr(LogConfig, "deletes_by_retention", True)


# --- the log start offset -----------------------------------------------------------------------------------------


def delete_records_is_answered_before_all_replicas_have_done_it(patch: Patch) -> None:
    patch.setattr(Leadership, "deleted_below", lambda *_: None)


def followers_ignore_the_log_start_offset_of_the_leader(patch: Patch) -> None:
    original = Partition.update_from_leader
    patch.setattr(Partition, "update_from_leader", lambda self, high_watermark, _: original(self, high_watermark, 0))


RETENTION_DEFECTS: dict[Defect, int] = {
    a_swap_continues_after_the_log_was_truncated: 18,
    a_swap_is_not_rolled_back: 2,
    retention_does_not_wait_for_the_cleaner: 2,
    the_age_of_a_segment_is_that_of_its_first_record: 2,
    retention_by_size_removes_one_segment_too_many: 2,
    topics_that_are_only_compacted_expire_too: 10,
    delete_records_is_answered_before_all_replicas_have_done_it: 2,
    followers_ignore_the_log_start_offset_of_the_leader: 3,
}
"""Each defect with a seed that is known to show it soon."""
RETENTION_DEFECTS_SHOWN_SOON: list[Defect] = [
    a_swap_continues_after_the_log_was_truncated,
    retention_does_not_wait_for_the_cleaner,
    retention_by_size_removes_one_segment_too_many,
    topics_that_are_only_compacted_expire_too,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
