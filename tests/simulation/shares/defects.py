"""Defects that are injected into the code of share groups, to check that their simulation notices them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise, resolved
from moldau.coordinator.share import partition_states
from moldau.share import window as window_module
from moldau.share.partition import SharePartition
from moldau.share.runs import Change, RecordState, Run
from moldau.share.sessions import ShareSession, ShareSessions
from moldau.share.window import Window, Written

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


def acknowledgements_are_answered_before_they_are_written(patch: Patch) -> None:
    def replacement(self: SharePartition, change: Change, written: Sequence[Written]) -> Promise[Any]:
        self._states.write(self.key, self._data(written)).then(self._end_if_lost)
        self._on_written(change, ErrorCode.NONE)
        return resolved(None)

    patch.setattr(SharePartition, "_write", replacement)


def anybody_may_acknowledge(patch: Patch) -> None:
    def replacement(run: Run, member_id: str, *, is_whole: bool) -> None:
        if run.state is not RecordState.ACQUIRED or run.change is not None:
            raise window_module._wrong_state("The batch cannot be acknowledged.")

    patch.setattr(window_module, "_check_owner", replacement)


def records_may_be_delivered_without_limit(patch: Patch) -> None:
    patch.setattr(Window, "_state_after", lambda self, run, state: state)


def released_records_count_as_done(patch: Patch) -> None:
    patch.setattr(
        window_module, "_STATE_AFTER", {**window_module._STATE_AFTER, window_module.RELEASE: RecordState.ACKNOWLEDGED}
    )


def locks_end_at_once(patch: Patch) -> None:
    original = Window._lock

    def replacement(self: Window, run: Run, now_ms: int) -> None:
        original(self, run, now_ms - self.limits.record_lock_duration_ms // 2)

    patch.setattr(Window, "_lock", replacement)


def locks_never_end(patch: Patch) -> None:
    patch.setattr(Window, "end_locks", lambda self, now_ms: self._locks.clear() or [])


def a_new_leader_knows_only_the_start_offset(patch: Patch) -> None:
    patch.setattr(Window, "restore", lambda self, written: None)


def old_session_epochs_are_accepted(patch: Patch) -> None:
    def replacement(self: ShareSessions, group_id: str, member_id: str, epoch: int) -> ShareSession:
        return self.get(group_id, member_id)

    patch.setattr(ShareSessions, "resume", replacement)


def snapshots_have_no_batches(patch: Patch) -> None:
    original = partition_states.merge
    patch.setattr(partition_states, "merge", lambda current, changes, start: original((), changes, start))


DEFECTS: dict[Defect, int] = {
    acknowledgements_are_answered_before_they_are_written: 0,
    anybody_may_acknowledge: 0,
    records_may_be_delivered_without_limit: 0,
    released_records_count_as_done: 0,
    locks_end_at_once: 0,
    locks_never_end: 0,
    a_new_leader_knows_only_the_start_offset: 0,
    old_session_epochs_are_accepted: 0,
    snapshots_have_no_batches: 0,
}
"""Each defect with a seed that is known to show it soon."""
DEFECTS_SHOWN_SOON: list[Defect] = [
    released_records_count_as_done,
    locks_end_at_once,
    a_new_leader_knows_only_the_start_offset,
    old_session_epochs_are_accepted,
    snapshots_have_no_batches,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
