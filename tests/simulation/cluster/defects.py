"""Defects that are injected into the broker's code, to check that the cluster simulation notices them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moldau.assembly import Assembly
from moldau.base.errors import ErrorCode
from moldau.log import log as log_module
from moldau.log.producers import Producers
from moldau.log.reports import StoreReport
from moldau.log.reserve import Reserve
from moldau.metadata.controller import broker_registration, heartbeats, partition_change
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.raft.roles import Role
from moldau.replica import reading
from moldau.replica.leadership import Leadership
from moldau.replica.partition import Partition
from moldau.runtime.broker.boot_marker import BootMarker
from moldau.runtime.coordinators.shard import Shard
from moldau.runtime.quorum.metadata_log import MetadataLog
from moldau.runtime.quorum.state_file import QuorumStateFile
from moldau.server.handlers import list_offsets
from moldau.server.handlers.current_leaders import AskedLately

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


# --- replication --------------------------------------------------------------------------------------------------


def followers_do_not_truncate_by_epoch(patch: Patch) -> None:
    patch.setattr(reading, "divergence", lambda *_: None)


def a_record_is_acknowledged_before_the_in_sync_replicas_have_it(patch: Patch) -> None:
    patch.setattr(Partition, "acknowledged", lambda *_: None)


def the_high_watermark_does_not_wait_for_the_in_sync_replicas(patch: Patch) -> None:
    patch.setattr(Leadership, "limit", lambda self, own_offset, _: own_offset)


def followers_do_not_remember_producers(patch: Patch) -> None:
    patch.setattr(log_module, "replay_batch", lambda *_: None)


def a_new_leader_returns_the_log_end_before_it_knows_it(patch: Patch) -> None:
    patch.setattr(list_offsets, "_check_high_watermark_is_current", lambda *_: None)


def a_former_leader_acknowledges_waiting_requests(patch: Patch) -> None:
    def replacement(self: Partition, code: ErrorCode) -> None:
        waiting = [promise for _, promise in (*self._waiting, *(self._waiting_for_disk or ()))]
        self._waiting.clear()
        self._waiting_for_disk = None
        for promise in waiting:
            promise.complete(ErrorCode.NONE)

    patch.setattr(Partition, "_fail_produces", replacement)


# --- disks --------------------------------------------------------------------------------------------------------


def batches_behind_a_refused_one_are_out_of_order(patch: Patch) -> None:
    patch.setattr(Producers, "refuse", lambda *_: None)


def a_broker_that_cannot_write_keeps_its_leaderships(patch: Patch) -> None:
    patch.setattr(heartbeats, "_writability_records", lambda *_: ())


def a_new_controller_believes_that_all_are_alive(patch: Patch) -> None:
    patch.setattr(BrokerSessions, "is_confirmed", lambda *_: True)


def a_node_with_damaged_logs_counts_as_complete(patch: Patch) -> None:
    original = Assembly._start_broker
    patch.setattr(StoreReport, "damage", property(lambda self: []))
    patch.setattr(BootMarker, "forget", lambda self: None)
    patch.setattr(Assembly, "_start_broker", lambda self, side, advertised, _: original(self, side, advertised, []))


def a_full_disk_has_no_reserve(patch: Patch) -> None:
    patch.setattr(Reserve, "with_room", lambda self, write, *_: write())


# --- leaders that others have replaced ----------------------------------------------------------------------------


def a_leader_answers_although_its_session_is_over(patch: Patch) -> None:
    """Also with what it does not have: the end of an epoch that it does not know, or an offset beyond its log."""
    patch.setattr(Partition, "withhold", lambda self: None)
    patch.setattr(Partition, "check_certain", lambda self: None)


def a_broker_without_leaders_keeps_its_clients(patch: Patch) -> None:
    patch.setattr(AskedLately, "check", lambda *_: None)


# --- the controller -----------------------------------------------------------------------------------------------


def a_restarted_broker_stays_in_the_in_sync_replicas(patch: Patch) -> None:
    patch.setattr(broker_registration, "leave_changes", lambda *_: [])


def any_live_replica_may_be_elected(patch: Patch) -> None:
    original = partition_change._elect

    def replacement(image: Any, old: Any, replicas: Any, isr: Any, election: Any, active: Any) -> tuple[int, bool]:
        leader, unclean = original(image, old, replicas, isr, election, active)
        alive = [replica for replica in replicas if active(replica)]
        return (alive[0], False) if leader < 0 and alive else (leader, unclean)

    patch.setattr(partition_change, "_elect", replacement)


def offsets_are_acknowledged_before_they_are_committed(patch: Patch) -> None:
    def replacement(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_respond_when_committed", replacement)


# --- the quorum ---------------------------------------------------------------------------------------------------


def metadata_is_committed_before_it_is_on_disk(patch: Patch) -> None:
    patch.setattr(MetadataLog, "flushed_offset", property(lambda self: self.end_offset))


def votes_are_lost_in_a_restart(patch: Patch) -> None:
    patch.setattr(QuorumStateFile, "read", lambda self: None)


def every_vote_is_granted(patch: Patch) -> None:
    patch.setattr(Role, "_may_grant_without_leader", lambda self, candidate, is_up_to_date, is_pre_vote: is_up_to_date)


def candidates_whose_log_is_behind_get_votes(patch: Patch) -> None:
    original = Role._may_grant_without_leader
    patch.setattr(
        Role,
        "_may_grant_without_leader",
        lambda self, candidate, is_up_to_date, is_pre_vote: original(self, candidate, True, is_pre_vote),
    )


def the_metadata_log_is_not_truncated(patch: Patch) -> None:
    patch.setattr(MetadataLog, "truncate", lambda *_: None)


DEFECTS: dict[Defect, int] = {
    followers_do_not_truncate_by_epoch: 0,
    a_record_is_acknowledged_before_the_in_sync_replicas_have_it: 0,
    the_high_watermark_does_not_wait_for_the_in_sync_replicas: 0,
    followers_do_not_remember_producers: 0,
    a_new_leader_returns_the_log_end_before_it_knows_it: 4,
    a_former_leader_acknowledges_waiting_requests: 0,
    a_restarted_broker_stays_in_the_in_sync_replicas: 13,
    any_live_replica_may_be_elected: 1,
    offsets_are_acknowledged_before_they_are_committed: 3,
    metadata_is_committed_before_it_is_on_disk: 2,
    votes_are_lost_in_a_restart: 14,
    every_vote_is_granted: 25,
    candidates_whose_log_is_behind_get_votes: 54,
    the_metadata_log_is_not_truncated: 8,
}
"""Each defect with a seed that is known to show it soon."""
DEFECTS_SHOWN_SOON: list[Defect] = [
    followers_do_not_remember_producers,
    a_new_leader_returns_the_log_end_before_it_knows_it,
    a_record_is_acknowledged_before_the_in_sync_replicas_have_it,
    a_restarted_broker_stays_in_the_in_sync_replicas,
    offsets_are_acknowledged_before_they_are_committed,
    metadata_is_committed_before_it_is_on_disk,
    votes_are_lost_in_a_restart,
    every_vote_is_granted,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
OUTAGE_DEFECTS: dict[Defect, int] = {
    batches_behind_a_refused_one_are_out_of_order: 5,
    a_broker_that_cannot_write_keeps_its_leaderships: 11,
    a_node_with_damaged_logs_counts_as_complete: 4,
    a_new_controller_believes_that_all_are_alive: 700_437,
    a_full_disk_has_no_reserve: 17,
    a_leader_answers_although_its_session_is_over: 8,
    a_broker_without_leaders_keeps_its_clients: 0,
}
"""The same for runs with outages. The seeds after it with the same outages show it too."""
OUTAGE_DEFECTS_SHOWN_SOON: list[Defect] = [
    a_node_with_damaged_logs_counts_as_complete,
    a_leader_answers_although_its_session_is_over,
]
"""Those that `make test` tries: their seeds show them in about a second."""
