"""Coordinators that are broken on purpose, to see whether the simulation notices."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group import offset_removal
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.groups import ClassicGroups
from moldau.coordinator.group.classic.rebalance import Effects, Rebalance
from moldau.coordinator.group.consumer import change, reconcile
from moldau.coordinator.group.consumer.fencing import Fencing
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.machine import NOTHING
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.shard import Shard

Patch = pytest.MonkeyPatch
Way = Callable[[Patch], None]


def a_partition_is_given_before_it_is_released(patch: Patch) -> None:
    honest = reconcile.reconciled

    @wraps(honest)
    def hasty(member: Any, epoch: int, target: Any, owned: Any, subscribed: Any, is_free: Any) -> Any:
        return honest(member, epoch, target, owned, subscribed, lambda topic_id, partition: True)

    patch.setattr(change, "reconciled", hasty)


def a_member_that_does_not_say_what_it_owns_is_taken_to_own_nothing(patch: Patch) -> None:
    honest = reconcile._owns_any
    patch.setattr(reconcile, "_owns_any", lambda owned, partitions: honest(owned or {}, partitions))


def the_generation_is_not_counted_on(patch: Patch) -> None:
    honest = Rebalance._begin_generation

    def forgetful(self: Rebalance, group: ClassicGroup, effects: Effects) -> None:
        if group.generation > 0:
            group.generation -= 1
        honest(self, group, effects)

    patch.setattr(Rebalance, "_begin_generation", forgetful)


def commits_of_old_generations_are_taken(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_commit", lambda *_: None)


def commits_of_former_members_are_taken(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "check_commit", lambda *_: None)


def answers_leave_before_the_append(patch: Patch) -> None:
    def hasty(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_park", hasty)


def what_is_not_on_disk_counts_as_committed(patch: Patch) -> None:
    honest = Partition._advance

    def hasty(self: Partition, size: int) -> None:
        flushing = self.log.flushing
        durable, flushing.recovery_point = flushing.recovery_point, self.log.end_offset
        try:
            honest(self, size)
        finally:
            flushing.recovery_point = durable

    patch.setattr(Partition, "_advance", hasty)


def a_record_is_dropped_on_replay(patch: Patch) -> None:
    _now_and_then(patch, Groups, "replay", every=50)


def a_record_is_not_applied(patch: Patch) -> None:
    _now_and_then(patch, Offsets, "apply", every=50)


def _now_and_then(patch: Patch, owner: type, name: str, every: int) -> None:
    honest: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def careless(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return None if calls % every == 0 else honest(*arguments)

    patch.setattr(owner, name, careless)


def classic_sessions_never_end(patch: Patch) -> None:
    patch.setattr(Rebalance, "_on_session_timeout", lambda *_: Effects())


def consumer_sessions_never_end(patch: Patch) -> None:
    patch.setattr(Fencing, "_on_timeout", lambda *_: NOTHING)


def heartbeats_do_not_count(patch: Patch) -> None:
    honest = ClassicGroups.heartbeat

    def deaf(self: ClassicGroups, request: Any, client: Any) -> Any:
        kept = self._rebalance.expect_heartbeat
        self._rebalance.expect_heartbeat = lambda *_: None  # type: ignore[method-assign]
        try:
            return honest(self, request, client)
        finally:
            self._rebalance.expect_heartbeat = kept  # type: ignore[method-assign]

    patch.setattr(ClassicGroups, "heartbeat", deaf)


def nobody_is_waited_for_in_a_rebalance(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "have_all_joined", property(lambda self: True))


def those_who_wait_are_forgotten_with_the_machine(patch: Patch) -> None:
    patch.setattr(Groups, "waiting", lambda self: iter(()))


def offsets_expire_while_they_are_read(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "is_subscribed_to", lambda *_: False)
    patch.setattr(ClassicGroup, "is_subscribed_to", lambda *_: False)


def offsets_of_a_new_topic_go_with_its_namesake(patch: Patch) -> None:
    honest = offset_removal.of_deleted_topics
    patch.setattr(
        offset_removal,
        "of_deleted_topics",
        lambda state, removed, image: [
            record for topic in removed for record in honest(state, [topic], type(image)(topics={}))
        ],
    )


def a_member_is_replayed_as_it_first_was(patch: Patch) -> None:
    patch.setattr("moldau.coordinator.group.classic.group.ClassicMember.matches_logged", lambda *_: True)


def topics_that_change_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(Groups, "topics_changed", lambda *_: NOTHING)


def anything_goes_wrong_as_unknown(patch: Patch) -> None:
    honest = ClassicGroup.check_member

    def vague(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        try:
            return honest(self, member_id, instance_id)
        except Exception as refused:
            refused.code = ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[attr-defined]
            raise

    patch.setattr(ClassicGroup, "check_member", vague)


WAYS: dict[Way, int] = {
    a_partition_is_given_before_it_is_released: 0,
    a_member_that_does_not_say_what_it_owns_is_taken_to_own_nothing: 1,
    the_generation_is_not_counted_on: 0,
    commits_of_old_generations_are_taken: 6,
    commits_of_former_members_are_taken: 5,
    answers_leave_before_the_append: 0,
    what_is_not_on_disk_counts_as_committed: 10,
    a_record_is_dropped_on_replay: 0,
    a_record_is_not_applied: 0,
    classic_sessions_never_end: 91,
    consumer_sessions_never_end: 0,
    heartbeats_do_not_count: 24,
    nobody_is_waited_for_in_a_rebalance: 0,
    those_who_wait_are_forgotten_with_the_machine: 42,
    offsets_expire_while_they_are_read: 0,
    offsets_of_a_new_topic_go_with_its_namesake: 4,
    a_member_is_replayed_as_it_first_was: 0,
    topics_that_change_are_not_looked_at: 0,
    anything_goes_wrong_as_unknown: 0,
}
"""Each with a seed that is known to show it soon."""
