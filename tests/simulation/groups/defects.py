"""Defects that are injected into the group coordinator, to check that the simulation notices them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group import offset_removal
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.groups import ClassicGroups
from moldau.coordinator.group.classic.rebalance import Effects, Rebalance
from moldau.coordinator.group.consumer import change, reconcile
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member_removal import MemberRemoval
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.machine import NOTHING
from moldau.metadata.current import CurrentImage
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.shard import Shard

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


def a_partition_is_assigned_before_it_is_revoked(patch: Patch) -> None:
    original = reconcile.reconciled

    @wraps(original)
    def replacement(member: Any, epoch: int, target: Any, owned: Any, subscribed: Any, is_free: Any) -> Any:
        return original(member, epoch, target, owned, subscribed, lambda topic_id, partition: True)

    patch.setattr(change, "reconciled", replacement)


def a_heartbeat_without_owned_partitions_counts_as_owning_none(patch: Patch) -> None:
    original = reconcile._owns_any
    patch.setattr(reconcile, "_owns_any", lambda owned, partitions: original(owned or {}, partitions))


def the_generation_is_not_increased(patch: Patch) -> None:
    original = Rebalance._begin_generation

    def replacement(self: Rebalance, group: ClassicGroup, effects: Effects) -> None:
        if group.generation > 0:
            group.generation -= 1
        original(self, group, effects)

    patch.setattr(Rebalance, "_begin_generation", replacement)


def commits_of_old_generations_are_accepted(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_commit", lambda *_: None)


def commits_of_former_members_are_accepted(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "check_commit", lambda *_: None)


def responses_are_sent_before_the_append(patch: Patch) -> None:
    def replacement(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_respond_when_committed", replacement)


def records_are_committed_before_they_are_on_disk(patch: Patch) -> None:
    original = Partition._advance

    def replacement(self: Partition, size: int) -> None:
        flushing = self.log.flushing
        durable, flushing.recovery_point = flushing.recovery_point, self.log.end_offset
        try:
            original(self, size)
        finally:
            flushing.recovery_point = durable

    patch.setattr(Partition, "_advance", replacement)


def records_are_skipped_on_replay(patch: Patch) -> None:
    _skip_every(patch, Groups, "replay", every=50)


def records_are_not_applied(patch: Patch) -> None:
    _skip_every(patch, Offsets, "apply", every=50)


def _skip_every(patch: Patch, owner: type, name: str, every: int) -> None:
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def replacement(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return None if calls % every == 0 else original(*arguments)

    patch.setattr(owner, name, replacement)


def classic_sessions_never_end(patch: Patch) -> None:
    patch.setattr(Rebalance, "_on_session_timeout", lambda *_: Effects())


def consumer_sessions_never_end(patch: Patch) -> None:
    patch.setattr(MemberRemoval, "_on_timeout", lambda *_: NOTHING)


def heartbeats_do_not_extend_sessions(patch: Patch) -> None:
    original = ClassicGroups.heartbeat

    def replacement(self: ClassicGroups, request: Any, client: Any) -> Any:
        saved = self._rebalance.extend_session
        self._rebalance.extend_session = lambda *_: None  # type: ignore[method-assign]
        try:
            return original(self, request, client)
        finally:
            self._rebalance.extend_session = saved  # type: ignore[method-assign]

    patch.setattr(ClassicGroups, "heartbeat", replacement)


def a_rebalance_does_not_wait_for_members(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "have_all_joined", property(lambda self: True))


def waiting_requests_are_lost_when_the_coordinator_moves(patch: Patch) -> None:
    patch.setattr(Groups, "waiting", lambda self: iter(()))


def offsets_of_subscribed_topics_expire(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "is_subscribed_to", lambda *_: False)
    patch.setattr(ClassicGroup, "is_subscribed_to", lambda *_: False)


def loaded_offsets_count_as_those_of_an_earlier_topic(patch: Patch) -> None:
    original = offset_removal._deleted
    patch.setattr(
        offset_removal,
        "_deleted",
        lambda state, *which: original(replace(state, current=CurrentImage()), *which),
    )


def changes_of_a_member_are_ignored_on_replay(patch: Patch) -> None:
    patch.setattr("moldau.coordinator.group.classic.group.ClassicMember.matches_logged", lambda *_: True)


def changes_of_topics_are_ignored(patch: Patch) -> None:
    patch.setattr(Groups, "topics_changed", lambda *_: ())


def errors_of_members_become_unknown_server_error(patch: Patch) -> None:
    original = ClassicGroup.check_member

    def replacement(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        try:
            return original(self, member_id, instance_id)
        except Exception as error:
            error.code = ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[attr-defined]
            raise

    patch.setattr(ClassicGroup, "check_member", replacement)


DEFECTS: dict[Defect, int] = {
    a_partition_is_assigned_before_it_is_revoked: 0,
    a_heartbeat_without_owned_partitions_counts_as_owning_none: 1,
    the_generation_is_not_increased: 0,
    commits_of_old_generations_are_accepted: 10,
    commits_of_former_members_are_accepted: 4,
    responses_are_sent_before_the_append: 0,
    records_are_committed_before_they_are_on_disk: 0,
    records_are_skipped_on_replay: 0,
    records_are_not_applied: 0,
    classic_sessions_never_end: 0,
    consumer_sessions_never_end: 0,
    heartbeats_do_not_extend_sessions: 25,
    a_rebalance_does_not_wait_for_members: 0,
    waiting_requests_are_lost_when_the_coordinator_moves: 0,
    offsets_of_subscribed_topics_expire: 0,
    loaded_offsets_count_as_those_of_an_earlier_topic: 0,
    changes_of_a_member_are_ignored_on_replay: 0,
    changes_of_topics_are_ignored: 0,
    errors_of_members_become_unknown_server_error: 0,
}
"""Each defect with a seed that is known to show it soon."""
DEFECTS_SHOWN_SOON: list[Defect] = [
    a_partition_is_assigned_before_it_is_revoked,
    a_heartbeat_without_owned_partitions_counts_as_owning_none,
    the_generation_is_not_increased,
    commits_of_old_generations_are_accepted,
    responses_are_sent_before_the_append,
    records_are_committed_before_they_are_on_disk,
    records_are_skipped_on_replay,
    loaded_offsets_count_as_those_of_an_earlier_topic,
    errors_of_members_become_unknown_server_error,
]
"""Those that `make test` tries: their seeds show them in less than a second."""
