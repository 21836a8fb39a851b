"""Defects that are injected into the group coordinator, to check that the simulation notices them."""

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
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member_removal import MemberRemoval
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.machine import NOTHING
from moldau.replica.partition import Partition
from moldau.runtime.coordinators.shard import Shard

Patch = pytest.MonkeyPatch
Defect = Callable[[Patch], None]


def a_partition_is_given_before_it_is_released(patch: Patch) -> None:
    original = reconcile.reconciled

    @wraps(original)
    def replacement(member: Any, epoch: int, target: Any, owned: Any, subscribed: Any, is_free: Any) -> Any:
        return original(member, epoch, target, owned, subscribed, lambda topic_id, partition: True)

    patch.setattr(change, "reconciled", replacement)


def a_member_that_does_not_say_what_it_owns_is_taken_to_own_nothing(patch: Patch) -> None:
    original = reconcile._owns_any
    patch.setattr(reconcile, "_owns_any", lambda owned, partitions: original(owned or {}, partitions))


def the_generation_is_not_counted_on(patch: Patch) -> None:
    original = Rebalance._begin_generation

    def replacement(self: Rebalance, group: ClassicGroup, effects: Effects) -> None:
        if group.generation > 0:
            group.generation -= 1
        original(self, group, effects)

    patch.setattr(Rebalance, "_begin_generation", replacement)


def commits_of_old_generations_are_taken(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "check_commit", lambda *_: None)


def commits_of_former_members_are_taken(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "check_commit", lambda *_: None)


def answers_leave_before_the_append(patch: Patch) -> None:
    def replacement(self: Shard, outcome: Any) -> Any:
        for waiting, response in outcome.answers:
            waiting.complete(response)
        return outcome.response

    patch.setattr(Shard, "_respond_when_committed", replacement)


def what_is_not_on_disk_counts_as_committed(patch: Patch) -> None:
    original = Partition._advance

    def replacement(self: Partition, size: int) -> None:
        flushing = self.log.flushing
        durable, flushing.recovery_point = flushing.recovery_point, self.log.end_offset
        try:
            original(self, size)
        finally:
            flushing.recovery_point = durable

    patch.setattr(Partition, "_advance", replacement)


def a_record_is_dropped_on_replay(patch: Patch) -> None:
    _skip_every(patch, Groups, "replay", every=50)


def a_record_is_not_applied(patch: Patch) -> None:
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


def heartbeats_do_not_count(patch: Patch) -> None:
    original = ClassicGroups.heartbeat

    def replacement(self: ClassicGroups, request: Any, client: Any) -> Any:
        saved = self._rebalance.extend_session
        self._rebalance.extend_session = lambda *_: None  # type: ignore[method-assign]
        try:
            return original(self, request, client)
        finally:
            self._rebalance.extend_session = saved  # type: ignore[method-assign]

    patch.setattr(ClassicGroups, "heartbeat", replacement)


def nobody_is_waited_for_in_a_rebalance(patch: Patch) -> None:
    patch.setattr(ClassicGroup, "have_all_joined", property(lambda self: True))


def those_who_wait_are_forgotten_with_the_machine(patch: Patch) -> None:
    patch.setattr(Groups, "waiting", lambda self: iter(()))


def offsets_expire_while_they_are_read(patch: Patch) -> None:
    patch.setattr(ConsumerGroup, "is_subscribed_to", lambda *_: False)
    patch.setattr(ClassicGroup, "is_subscribed_to", lambda *_: False)


def offsets_of_a_new_topic_go_with_its_namesake(patch: Patch) -> None:
    original = offset_removal.of_deleted_topics
    patch.setattr(
        offset_removal,
        "of_deleted_topics",
        lambda state, removed, image, turn: original(state, removed, type(image)(topics={}), turn),
    )


def a_member_is_replayed_as_it_first_was(patch: Patch) -> None:
    patch.setattr("moldau.coordinator.group.classic.group.ClassicMember.matches_logged", lambda *_: True)


def topics_that_change_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(Groups, "topics_changed", lambda *_: ())


def anything_goes_wrong_as_unknown(patch: Patch) -> None:
    original = ClassicGroup.check_member

    def replacement(self: ClassicGroup, member_id: str, instance_id: str | None) -> Any:
        try:
            return original(self, member_id, instance_id)
        except Exception as error:
            error.code = ErrorCode.UNKNOWN_SERVER_ERROR  # type: ignore[attr-defined]
            raise

    patch.setattr(ClassicGroup, "check_member", replacement)


DEFECTS: dict[Defect, int] = {
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
"""Each defect with a seed that is known to show it soon."""
