"""Removes members: those that leave, that miss their heartbeats, or that do not revoke a partition in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.consumer.migration import Conversion, Migration
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.subscriptions import metadata_hash
from moldau.coordinator.machine import NOTHING, Outcome

R = TypeVar("R")


class MemberRemoval:
    def __init__(self, state: GroupState, migration: Migration) -> None:
        self._state = state
        self._migration = migration

    def remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R) -> Outcome[R]:
        """Return the records that remove members and bump the group epoch. The next heartbeat of any member computes
        the new target assignment. The deadlines of members that leave stay until the records are applied: if the log
        refuses them, the members must still time out."""
        conversion = self._migration.downgrade(group, members)
        if conversion is None:
            return self._remove(group, members, response)
        outcome = self.outcome_of_downgrade(group, conversion, response)
        # One record has all members of a classic group. If it is too large, the group stays a consumer group: a member
        # whose deadline has passed would otherwise keep its partitions.
        outcome.on_refused = lambda _: self._remove(group, members, None)
        return outcome

    def _remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R) -> Outcome[R]:
        group_id = group.group_id
        tombstones = [record for member in members for record in records.member_tombstones(group_id, member.member_id)]
        subscriptions = group.subscriptions.copy()
        for member in members:
            subscriptions.remove(member)
        for pattern in subscriptions.drop_unused_patterns():
            tombstones.append(records.pattern_tombstone(group_id, pattern))
        new_hash = metadata_hash(subscriptions.topics, self._state.current.image)

        def cancel_all() -> None:
            for member in members:
                self.cancel_deadlines(group_id, member.member_id)

        epoch = records.group_epoch(group_id, group.epoch + 1, new_hash)
        return Outcome(response, [*tombstones, epoch], on_applied=cancel_all)

    def outcome_of_downgrade(self, group: ConsumerGroup, conversion: Conversion, response: R) -> Outcome[R]:
        """Return the records that make the group a classic one. Its members' deadlines as consumer members end."""
        group_id, member_ids = group.group_id, list(group.members)

        def cancel_all() -> None:
            for member_id in member_ids:
                self.cancel_deadlines(group_id, member_id)
            if conversion.on_applied is not None:
                conversion.on_applied()

        return Outcome(response, conversion.records, conversion.answers, on_applied=cancel_all)

    # --- deadlines ----------------------------------------------------------------------------------------------

    def extend_session(self, group_id: str, member: ConsumerMember) -> None:
        """Restart the session timeout. A member that uses the classic protocol has chosen its own timeout."""
        classic = member.classic_member_metadata
        times = self._state.configs.times_of(group_id) if classic is None else classic
        session_ms = times.session_timeout_ms
        self.remove_after(session_ms, "session", group_id, member.member_id)

    def remove_after(self, delay_ms: int, kind: str, group_id: str, member_id: str) -> None:
        """Remove the member after the delay, unless the deadline of this kind is cancelled or postponed."""
        key, at_ms = (kind, group_id, member_id), self._state.clock.monotonic_ms() + delay_ms
        self._state.deadlines.schedule(key, at_ms, lambda: self._on_timeout(group_id, member_id, None))

    def expect_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """Remove a member that must revoke partitions if it is still in this epoch after its rebalance timeout."""
        if member.state is MemberState.UNREVOKED:
            self._state.deadlines.schedule(
                ("rebalance", group_id, member.member_id),
                self._state.clock.monotonic_ms() + member.rebalance_timeout_ms,
                lambda: self._on_timeout(group_id, member.member_id, member.member_epoch),
            )

    def cancel_deadlines(self, group_id: str, member_id: str) -> None:
        for kind in ("session", "rebalance", "join", "sync"):
            self._state.deadlines.cancel((kind, group_id, member_id))

    def cancel_classic_deadlines(self, group_id: str, member_id: str) -> None:
        """Cancel the deadlines that only members with the classic protocol have."""
        for kind in ("join", "sync"):
            self._state.deadlines.cancel((kind, group_id, member_id))

    def _on_timeout(self, group_id: str, member_id: str, in_epoch: int | None) -> Outcome[None]:
        """Remove the member if it is still in `in_epoch`; None means any epoch."""
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return NOTHING
        member = group.members.get(member_id)
        if member is None or in_epoch not in (None, member.member_epoch):
            return NOTHING
        return self.remove(group, [member], None)
