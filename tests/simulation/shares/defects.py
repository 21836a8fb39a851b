"""Defects that are injected into the code of share groups, to check that their simulation notices them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise, resolved
from moldau.coordinator.share import partition_states
from moldau.coordinator.share.partition_states import PartitionStates
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


def former_leaders_may_write(patch: Patch) -> None:
    original = PartitionStates._checked
    patch.setattr(
        PartitionStates,
        "_checked",
        lambda self, key, leader_epoch, state_epoch: original(self, key, -1, state_epoch),
    )


def anybody_may_acknowledge(patch: Patch) -> None:
    def replacement(run: Run, member_id: str, *, is_whole: bool) -> None:
        if run.state is not RecordState.ACQUIRED or run.change is not None:
            raise window_module._wrong_state("not acquired")

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


def what_could_not_be_written_is_done(patch: Patch) -> None:
    original = Window.complete
    patch.setattr(
        Window,
        "complete",
        lambda self, change, *, is_written, now_ms: original(self, change, is_written=True, now_ms=now_ms),
    )


def the_start_passes_what_is_being_written(patch: Patch) -> None:
    patch.setattr(Run, "is_done", property(lambda self: self.will_be_done))


def old_session_epochs_are_accepted(patch: Patch) -> None:
    def replacement(self: ShareSessions, group_id: str, member_id: str, epoch: int) -> ShareSession:
        return self.get(group_id, member_id)

    patch.setattr(ShareSessions, "resume", replacement)


def snapshots_have_no_batches(patch: Patch) -> None:
    original = partition_states.merge
    patch.setattr(
        partition_states, "merge", lambda current, changes, start: original((), changes, start)
    )


DEFECTS: dict[Defect, int] = dict.fromkeys(
    [
        acknowledgements_are_answered_before_they_are_written,
        former_leaders_may_write,
        anybody_may_acknowledge,
        records_may_be_delivered_without_limit,
        released_records_count_as_done,
        locks_end_at_once,
        locks_never_end,
        a_new_leader_knows_only_the_start_offset,
        what_could_not_be_written_is_done,
        the_start_passes_what_is_being_written,
        old_session_epochs_are_accepted,
        snapshots_have_no_batches,
    ],
    0,
)
"""Each defect with a seed that is known to show it soon."""
