"""Defects that are injected into the broker's code, to check that the cluster simulation notices them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.log import log as log_module
from moldau.metadata.controller import broker_registration, partition_change
from moldau.raft.roles import Role
from moldau.replica import reading
from moldau.replica.leadership import Leadership
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.shard import Shard
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.runtime.quorum.state_file import QuorumStateFile
from moldau.server.handlers import list_offsets

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


# --- replication --------------------------------------------------------------------------------------------------


def nothing_is_truncated_by_epoch(patch: Patch) -> None:
    patch.setattr(reading, "divergence", lambda *_: None)


def it_is_acknowledged_before_the_in_sync_replicas_have_it(patch: Patch) -> None:
    patch.setattr(Partition, "acknowledged", lambda *_: None)


def the_high_watermark_does_not_wait_for_the_in_sync_replicas(patch: Patch) -> None:
    patch.setattr(Leadership, "limit", lambda self, own_offset, _: own_offset)


def followers_forget_the_producers(patch: Patch) -> None:
    patch.setattr(log_module, "replay_batch", lambda *_: None)


def a_new_leader_tells_the_end_before_it_knows_it(patch: Patch) -> None:
    patch.setattr(list_offsets, "_check_high_watermark_is_current", lambda *_: None)


def a_leader_that_was_deposed_goes_on(patch: Patch) -> None:
    def replacement(self: Partition, code: ErrorCode) -> None:
        waiting, self._leadership = list(self._waiting), None
        self._waiting.clear()
        for _, promise in waiting:
            promise.complete(ErrorCode.NONE)

    patch.setattr(Partition, "_fail_waiting", replacement)


# --- the controller -----------------------------------------------------------------------------------------------


def who_comes_back_counts_as_in_sync(patch: Patch) -> None:
    patch.setattr(broker_registration, "leave_changes", lambda *_: [])


def anybody_may_be_elected(patch: Patch) -> None:
    original = partition_change._elect

    def lax(image: Any, old: Any, replicas: Any, isr: Any, election: Any, active: Any) -> tuple[int, bool]:
        leader, unclean = original(image, old, replicas, isr, election, active)
        alive = [replica for replica in replicas if active(replica)]
        return (alive[0], False) if leader < 0 and alive else (leader, unclean)

    patch.setattr(partition_change, "_elect", lax)


def offsets_are_acknowledged_before_they_are_committed(patch: Patch) -> None:
    def replacement(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_respond_when_committed", replacement)


# --- the quorum ---------------------------------------------------------------------------------------------------


def metadata_that_is_not_on_disk_counts(patch: Patch) -> None:
    patch.setattr(MetadataLog, "flushed_offset", property(lambda self: self.end_offset))


def votes_are_forgotten(patch: Patch) -> None:
    patch.setattr(QuorumStateFile, "read", lambda self: None)


def a_vote_is_given_to_everybody_who_asks(patch: Patch) -> None:
    patch.setattr(Role, "_may_grant_without_leader", lambda self, candidate, is_up_to_date, is_pre_vote: is_up_to_date)


def logs_that_are_behind_are_voted_for(patch: Patch) -> None:
    honest = Role._may_grant_without_leader
    patch.setattr(
        Role,
        "_may_grant_without_leader",
        lambda self, candidate, is_up_to_date, is_pre_vote: honest(self, candidate, True, is_pre_vote),
    )


def metadata_is_not_truncated(patch: Patch) -> None:
    patch.setattr(MetadataLog, "truncate", lambda *_: None)


DEFECTS: dict[Defect, int] = {
    nothing_is_truncated_by_epoch: 0,
    it_is_acknowledged_before_the_in_sync_replicas_have_it: 0,
    the_high_watermark_does_not_wait_for_the_in_sync_replicas: 0,
    followers_forget_the_producers: 0,
    a_new_leader_tells_the_end_before_it_knows_it: 4,
    a_leader_that_was_deposed_goes_on: 0,
    who_comes_back_counts_as_in_sync: 8,
    anybody_may_be_elected: 0,
    offsets_are_acknowledged_before_they_are_committed: 0,
    metadata_that_is_not_on_disk_counts: 2,
    votes_are_forgotten: 13,
    a_vote_is_given_to_everybody_who_asks: 25,
    logs_that_are_behind_are_voted_for: 41,
    metadata_is_not_truncated: 3,
}
"""Each defect with a seed that is known to show it soon."""
