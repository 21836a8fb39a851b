"""Whether a group may change its kind while it has members, and what makes it so (KIP-848, online migration)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.rebalance import Effects, Rebalance
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, Target
from moldau.coordinator.group.consumer.migration import Conversion
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.migration.downgrade import classic_group_of
from moldau.coordinator.group.migration.upgrade import consumer_group_of, records_of
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Answer
from moldau.wire.messages.join_group import JoinGroupResponse
from moldau.wire.messages.sync_group import SyncGroupResponse

UPGRADES: Final = ("upgrade", "bidirectional")
DOWNGRADES: Final = ("downgrade", "bidirectional")


class Conversions:
    """The Migration of a shard."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._rebalance = Rebalance(state)

    # --- to a consumer group ------------------------------------------------------------------------------------

    def upgraded(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        assert isinstance(group, ClassicGroup)
        self._check_upgrade(group)
        try:
            made = consumer_group_of(group, self._state.current.image)
        except MalformedData as wrong:
            raise _stays(group, str(wrong)) from wrong
        records = [*group.tombstones(), *records_of(made)]
        return made, Conversion(records, _told_to_rejoin(group), lambda: self._forget(group))

    def _check_upgrade(self, group: ClassicGroup) -> None:
        settings = self._state.settings
        if settings.consumer_migration_policy not in UPGRADES:
            raise _stays(group, "its broker lets no group change to the consumer protocol")
        if not group.is_of_consumers:
            raise _stays(group, f"its members are of type {group.protocol_type!r}")
        if len(group.members) > settings.consumer_max_size:
            raise _stays(group, f"it has more than {settings.consumer_max_size} members")

    def _forget(self, group: ClassicGroup) -> None:
        for key in (("join", group.group_id), ("sync", group.group_id)):
            self._state.deadlines.cancel(key)
        for member_id in group.pending_members:
            self._rebalance.expect_no_heartbeat(group, member_id)

    # --- to a classic group -------------------------------------------------------------------------------------

    def downgraded(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        """Whoever leaves takes its partitions along, so that the others have to share anew."""
        gone = {member.member_id for member in leaving}
        still_classic = group.classic_members - sum(member.is_classic for member in leaving)
        if still_classic != len(group.members) - len(gone) or not self._may_downgrade(still_classic):
            return None
        staying = [(each, _has(each)) for each in group.members.values() if each.member_id not in gone]
        return self._downgrade(group, staying, must_share=True)

    def replaced(
        self, group: ConsumerGroup, left: ConsumerMember, joining: ConsumerMember, is_target_due: bool
    ) -> Conversion | None:
        """A static member comes back as a classic one; None unless it was the last of the others. It takes over what
        its predecessor should have, unless some of that may still be somebody else's."""
        is_last = not left.is_classic and group.classic_members == len(group.members) - 1
        if not is_last or not self._may_downgrade(len(group.members)):
            return None
        others = [each for each in group.members.values() if each.member_id != left.member_id]
        must_share = is_target_due or not all(each.is_reconciled_to(group.assignment_epoch) for each in others)
        takes_over = _has(left) if must_share else group.target_of(left.member_id)
        return self._downgrade(group, [*((each, _has(each)) for each in others), (joining, takes_over)], must_share)

    def _may_downgrade(self, members: int) -> bool:
        settings = self._state.settings
        return settings.consumer_migration_policy in DOWNGRADES and 0 < members <= settings.max_size

    def _downgrade(
        self, group: ConsumerGroup, staying: Sequence[tuple[ConsumerMember, Target]], must_share: bool
    ) -> Conversion:
        now_ms = self._state.clock.now_ms()
        made = classic_group_of(group.group_id, group.epoch, staying, self._state.current.image, now_ms)
        if must_share:
            # Told to the log, so that whoever takes over now knows too that not all partitions are somebody's.
            made.leader = None
        record = made.record({member.member_id: member.assignment for member in made.members.values()})
        return Conversion([*group.tombstones(), record], applied=lambda: self._begin(made, must_share))

    def _begin(self, group: ClassicGroup, must_share: bool) -> None:
        """The log tells of one protocol for each member; those who are here know of all."""
        self._state.groups[group.group_id] = group
        for member in group.members.values():
            self._rebalance.expect_heartbeat(group, member.member_id, member.session_timeout_ms)
        if must_share:
            nobody_waits = Effects()
            self._rebalance.prepare(group, nobody_waits)
            assert nobody_waits == Effects()


def _has(member: ConsumerMember) -> Target:
    """Also what it has yet to give up: it reads that until it hears of it."""
    has: dict[Uuid, frozenset[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, found in partitions.items():
            has[topic_id] = has.get(topic_id, frozenset()).union(found)
    return has


def _told_to_rejoin(group: ClassicGroup) -> list[Answer]:
    """Members that wait for a rebalance of the classic kind are told to begin again."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    answers = []
    for member in group.members.values():
        if member.joining is not None:
            answers.append(Answer(member.joining, JoinGroupResponse(error_code=code, member_id=member.member_id)))
        if member.syncing is not None:
            answers.append(Answer(member.syncing, SyncGroupResponse(error_code=code)))
    return answers


def _stays(group: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group.group_id} stays a classic group: {why}")
