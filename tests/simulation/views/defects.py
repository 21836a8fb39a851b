"""Defects in views, to check that the simulation notices them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.metadata.apply import Changes
from moldau.replica import view_partition
from moldau.replica.view_partition import ViewLog, ViewPartition
from moldau.replica.views import Views
from moldau.views.field_ranges import IndexedRun, RunIndex
from moldau.views.shown_runs import Cut, ShownRun

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


def the_index_knows_only_the_smallest_values(patch: Patch) -> None:
    original = RunIndex.add

    def replacement(self: RunIndex, run: IndexedRun) -> None:
        run.ranges = {key: bounds and (bounds[0], bounds[0]) for key, bounds in run.ranges.items()}
        original(self, run)

    patch.setattr(RunIndex, "add", replacement)


def open_transactions_are_shown_to_all(patch: Patch) -> None:
    original = ShownRun.cut

    def replacement(self: ShownRun, offset: int, up_to: int, bytes_max: int, at_least_one: bool) -> Cut:
        return original(self, offset, max(up_to, self.end), bytes_max, at_least_one)

    patch.setattr(ShownRun, "cut", replacement)


def the_list_of_aborted_transactions_is_empty(patch: Patch) -> None:
    patch.setattr(ViewLog, "aborted_between", lambda *_: ())


def a_deleted_view_keeps_its_definition(patch: Patch) -> None:
    original = Views.on_image

    def replacement(self: Views, changes: Changes) -> None:
        definitions = dict(self._definitions)
        original(self, changes)
        self._definitions = definitions

    patch.setattr(Views, "on_image", replacement)


def a_failed_run_shows_nothing(patch: Patch) -> None:
    def replacement(self: ViewPartition, offset: int, records: Any, failed: Any) -> bool:
        last = offset + 1
        empty = view_partition.Evaluated(
            offset, last, view_partition.marker(offset, 0), (0,), (offset,), 0, 0, 0, holds_batches=False
        )
        self._shown.add(offset, empty)
        return True

    patch.setattr(ViewPartition, "_on_failed", replacement)


VIEW_DEFECTS: dict[Defect, int] = {
    the_index_knows_only_the_smallest_values: 7,
    open_transactions_are_shown_to_all: 6,
    the_list_of_aborted_transactions_is_empty: 0,
    a_deleted_view_keeps_its_definition: 0,
    a_failed_run_shows_nothing: 7,
}
"""Each defect with a seed that is known to show it soon."""
VIEW_DEFECTS_SHOWN_SOON: list[Defect] = [
    the_list_of_aborted_transactions_is_empty,
    a_deleted_view_keeps_its_definition,
    a_failed_run_shows_nothing,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
