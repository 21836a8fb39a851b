"""Members that go: by themselves, because they were not heard of, or because they would not give up a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, MemberState
from moldau.coordinator.group.consumer.migration import Conversion, Migration
from moldau.coordinator.group.consumer.target import metadata_hash
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import NOTHING, Outcome

R = TypeVar("R")


class Fencing:
    def __init__(self, state: GroupState, migration: Migration) -> None:
        self._state = state
        self._migration = migration

    def removal(self, group: ConsumerGroup, members: Sequence[ConsumerMember], response: R) -> Outcome[R]:
        """What takes members out of their group. Its epoch moves; the next heartbeat of anybody makes a new target."""
        for member in members:
            self.forget(group.group_id, member.member_id)
        downgraded = self._migration.downgraded(group, members)
        if downgraded is not None:
            return self.downgrade(group, downgraded, response)
        group_id = group.group_id
        gone = [record for member in members for record in records.member_gone(group_id, member.member_id)]
        subscriptions = group.subscriptions.copy()
        for member in members:
            subscriptions.remove(member)
        for pattern in subscriptions.drop_unread():
            gone.append(records.pattern_gone(group_id, pattern))
        found = metadata_hash(subscriptions.topics, self._state.current.image)
        return Outcome(response, [*gone, records.group_epoch(group_id, group.epoch + 1, found)])

    def downgrade(self, group: ConsumerGroup, conversion: Conversion, response: R) -> Outcome[R]:
        """The group becomes a classic one: by the rules of this kind nothing is expected of its members any more."""
        group_id, member_ids = group.group_id, list(group.members)

        def applied() -> None:
            for member_id in member_ids:
                self.forget(group_id, member_id)
            if conversion.applied is not None:
                conversion.applied()

        return Outcome(response, conversion.records, conversion.answers, applied=applied)

    # --- deadlines ----------------------------------------------------------------------------------------------

    def extend_session(self, group_id: str, member: ConsumerMember) -> None:
        """Members that speak the classic protocol have said how long a session of theirs is."""
        classic = member.classic_member_metadata
        session_ms = self._state.settings.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self.expel_after(session_ms, "session", group_id, member.member_id)

    def expel_after(self, delay_ms: int, unless: str, group_id: str, member_id: str) -> None:
        self._state.deadlines.schedule(
            (unless, group_id, member_id),
            self._state.clock.elapsed_ms() + delay_ms,
            lambda: self._on_timeout(group_id, member_id, None),
        )

    def expect_revocation(self, group_id: str, member: ConsumerMember) -> None:
        """A member that has to give up partitions is given its rebalance timeout to get beyond its epoch."""
        if member.state is MemberState.UNREVOKED:
            self._state.deadlines.schedule(
                ("rebalance", group_id, member.member_id),
                self._state.clock.elapsed_ms() + member.rebalance_timeout_ms,
                lambda: self._on_timeout(group_id, member.member_id, member.member_epoch),
            )

    def forget(self, group_id: str, member_id: str) -> None:
        for what in ("session", "rebalance", "join", "sync"):
            self._state.deadlines.cancel((what, group_id, member_id))

    def forget_classic(self, group_id: str, member_id: str) -> None:
        """The member does no longer what is expected of classic ones only."""
        for what in ("join", "sync"):
            self._state.deadlines.cancel((what, group_id, member_id))

    def _on_timeout(self, group_id: str, member_id: str, in_epoch: int | None) -> Outcome[None]:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return NOTHING
        member = group.members.get(member_id)
        if member is None or in_epoch not in (None, member.member_epoch):
            return NOTHING
        return self.removal(group, [member], None)
