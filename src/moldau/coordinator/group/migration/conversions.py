"""Decides whether a group with members may change its protocol, and converts it (KIP-848, online migration)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.rebalance import Effects, Rebalance
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, PartitionsByTopicId
from moldau.coordinator.group.consumer.migration import Conversion
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.migration.downgrade import classic_group_of
from moldau.coordinator.group.migration.upgrade import consumer_group_of, records_of
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Answer
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

UPGRADE_POLICIES: Final = ("upgrade", "bidirectional")
DOWNGRADE_POLICIES: Final = ("downgrade", "bidirectional")


class Conversions:
    """Implements `consumer.migration.Migration` for the groups of a shard."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._rebalance = Rebalance(state)

    # --- to a consumer group ------------------------------------------------------------------------------------

    def upgrade(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        assert isinstance(group, ClassicGroup)
        self._check_upgrade(group)
        try:
            converted = consumer_group_of(group, self._state.current.image)
        except MalformedData as error:
            raise _upgrade_error(group, str(error)) from error
        answers: list[Answer] = []

        def end_classic_rebalance() -> None:
            self._cancel_deadlines(group)
            answers.extend(_rejoin_answers(group))

        return converted, Conversion([*group.tombstones(), *records_of(converted)], answers, end_classic_rebalance)

    def _check_upgrade(self, group: ClassicGroup) -> None:
        settings = self._state.settings
        if settings.consumer_migration_policy not in UPGRADE_POLICIES:
            raise _upgrade_error(group, "group.consumer.migration.policy forbids upgrades")
        if not group.is_of_consumers:
            raise _upgrade_error(group, f"its protocol type is {group.protocol_type!r}")
        if len(group.members) > settings.consumer_max_size:
            raise _upgrade_error(group, f"it has more than {settings.consumer_max_size} members")

    def _cancel_deadlines(self, group: ClassicGroup) -> None:
        for key in (("join", group.group_id), ("sync", group.group_id)):
            self._state.deadlines.cancel(key)
        for member_id in group.pending_members:
            self._rebalance.cancel_session_timeout(group, member_id)

    # --- to a classic group -------------------------------------------------------------------------------------

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        """See `Migration`. The classic group must rebalance, because members that leave release their partitions."""
        leaving_ids = {member.member_id for member in leaving}
        still_classic = group.classic_member_count - sum(member.is_classic for member in leaving)
        if still_classic != len(group.members) - len(leaving_ids) or not self._may_downgrade(still_classic):
            return None
        staying = [
            (member, _owned_partitions(member))
            for member in group.members.values()
            if member.member_id not in leaving_ids
        ]
        return self._downgrade(group, staying, must_rebalance=True)[1]

    def downgrade_on_replace(
        self, group: ConsumerGroup, replaced: ConsumerMember, joining: ConsumerMember, is_target_due: bool
    ) -> tuple[ClassicGroup, Conversion] | None:
        """Return the classic group, for reading only, and the conversion to it if the static member `replaced`, the
        last one with the consumer protocol, comes back as the classic member `joining`; else None. It gets the target
        of `replaced`, unless others may still own a part of it."""
        is_last = not replaced.is_classic and group.classic_member_count == len(group.members) - 1
        if not is_last or not self._may_downgrade(len(group.members)):
            return None
        others = [each for each in group.members.values() if each.member_id != replaced.member_id]
        must_rebalance = is_target_due or not all(self._is_settled(group, other) for other in others)
        inherited = _owned_partitions(replaced) if must_rebalance else group.target_of(replaced.member_id)
        staying = [*((other, _owned_partitions(other)) for other in others), (joining, inherited)]
        return self._downgrade(group, staying, must_rebalance)

    def _is_settled(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Whether the member has what it should have, and knows. If its SyncGroup has not come yet, it was told a
        protocol that need not be the one of the classic group."""
        is_syncing = ("sync", group.group_id, member.member_id) in self._state.deadlines
        return member.is_reconciled_to(group.assignment_epoch) and not is_syncing

    def _may_downgrade(self, members: int) -> bool:
        settings = self._state.settings
        return settings.consumer_migration_policy in DOWNGRADE_POLICIES and 0 < members <= settings.max_size

    def _downgrade(
        self, group: ConsumerGroup, staying: Sequence[tuple[ConsumerMember, PartitionsByTopicId]], must_rebalance: bool
    ) -> tuple[ClassicGroup, Conversion]:
        now_ms = self._state.clock.now_ms()
        converted = classic_group_of(group.group_id, group.epoch, staying, self._state.current.image, now_ms)
        if must_rebalance:
            # Without a leader in the log, the next coordinator also knows that the group must rebalance.
            converted.leader = None
        record = converted.record({member.member_id: member.assignment for member in converted.members.values()})
        return converted, Conversion(
            [*group.tombstones(), record], on_applied=lambda: self._start_classic_group(converted, must_rebalance)
        )

    def _start_classic_group(self, group: ClassicGroup, must_rebalance: bool) -> None:
        """Replace the group that the record created by `group`, which has all protocols of its members, not only one.
        Start the session timeouts."""
        self._state.groups[group.group_id] = group
        for member in group.members.values():
            self._rebalance.expect_heartbeat(group, member.member_id, member.session_timeout_ms)
        if must_rebalance:
            effects = Effects()
            self._rebalance.prepare(group, effects)
            assert effects == Effects(), "no request can wait in a new group"


def _owned_partitions(member: ConsumerMember) -> PartitionsByTopicId:
    """Return what the member reads now, including partitions that it still has to revoke."""
    owned: dict[Uuid, frozenset[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, epochs in partitions.items():
            owned[topic_id] = owned.get(topic_id, frozenset()).union(epochs)
    return owned


def _rejoin_answers(group: ClassicGroup) -> list[Answer]:
    """Return answers that make the members join again whose requests wait for the classic rebalance."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    answers = []
    for member in group.members.values():
        if member.joining is not None:
            answers.append(Answer(member.joining, JoinGroupResponse(error_code=code, member_id=member.member_id)))
        if member.syncing is not None:
            answers.append(Answer(member.syncing, SyncGroupResponse(error_code=code)))
    return answers


def _upgrade_error(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} stays a classic group: {reason}")
