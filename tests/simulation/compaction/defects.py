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


def a_swap_goes_on_after_the_log_was_cut(patch: Patch) -> None:
    patch.setattr(Swap, "is_wanted", True)


def a_swap_is_not_taken_back(patch: Patch) -> None:
    def forgotten(self: Log) -> None:
        self.swapping = None

    patch.setattr(Log, "roll_back_swap", forgotten)


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


def a_segment_is_as_old_as_its_first_record(patch: Patch) -> None:
    patch.setattr(retention, "age_timestamp", lambda segment: segment.first_timestamp)


def one_segment_too_many_goes_for_its_size(patch: Patch) -> None:
    class Greedy(retention._Shrink):
        def __call__(self, segment: Any, next_base: int) -> bool:
            was_too_much = self._excess > 0
            self._excess -= segment.size
            return was_too_much

    patch.setattr(retention, "_Shrink", Greedy)


def what_is_only_compacted_expires_too(patch: Patch) -> None:
    patch.setattr(LogConfig, "deletes_by_retention", True)


# --- the log start offset -----------------------------------------------------------------------------------------


def deleted_records_are_told_before_all_have_deleted_them(patch: Patch) -> None:
    patch.setattr(Leadership, "deleted_below", lambda *_: None)


def followers_do_not_heed_where_the_leader_begins(patch: Patch) -> None:
    original = Partition.update_from_leader
    patch.setattr(Partition, "update_from_leader", lambda self, high_watermark, _: original(self, high_watermark, 0))


RETENTION_DEFECTS: dict[Defect, int] = {
    a_swap_goes_on_after_the_log_was_cut: 18,
    a_swap_is_not_taken_back: 0,
    retention_does_not_wait_for_the_cleaner: 2,
    a_segment_is_as_old_as_its_first_record: 2,
    one_segment_too_many_goes_for_its_size: 2,
    what_is_only_compacted_expires_too: 10,
    deleted_records_are_told_before_all_have_deleted_them: 2,
    followers_do_not_heed_where_the_leader_begins: 3,
}
"""Each defect with a seed that is known to show it soon."""
