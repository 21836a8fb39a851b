"""How a classic group gets from one generation to the next: who is waited for, for how long, and what all are told.

Everything here is soft: it changes the group in memory, sets deadlines, and gathers answers and records in `Effects`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, State
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Answer, CoordinatorRecord, Outcome
from moldau.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from moldau.wire.messages.sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member has no id to send heartbeats with, and its connection is silent while it waits. If it went away it will
have come again as another: after this time it is taken for gone."""


@dataclass(slots=True)
class Effects:
    """What a step comes to besides its own answer."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def outcome(self) -> Outcome[None]:
        return Outcome(None, self.records, self.answers)


class Rebalance:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    # --- deadlines ----------------------------------------------------------------------------------------------

    def expect_heartbeat(self, group: ClassicGroup, member_id: str, within_ms: int) -> None:
        self._after(
            within_ms, ("session", group.group_id, member_id), group, lambda found: self._session_over(found, member_id)
        )

    def expect_no_heartbeat(self, group: ClassicGroup, member_id: str) -> None:
        self._state.deadlines.cancel(("session", group.group_id, member_id))

    def _after(
        self, delay_ms: int, key: tuple[str, ...], group: ClassicGroup, action: Callable[[ClassicGroup], Effects]
    ) -> None:
        def act() -> Outcome[None]:
            found = self._state.groups.get(group.group_id)
            # By now the group may be gone, or be of another kind.
            return (action(found) if isinstance(found, ClassicGroup) else Effects()).outcome()

        self._state.deadlines.schedule(key, self._state.clock.elapsed_ms() + max(delay_ms, 0), act)

    def _session_over(self, group: ClassicGroup, member_id: str) -> Effects:
        effects = Effects()
        if member_id in group.pending_members:
            group.remove(member_id)
            self.complete_join_if_all(group, effects)
            return effects
        member = group.members.get(member_id)
        is_waiting = member is not None and (member.joining is not None or member.syncing is not None)
        if member is None or (is_waiting and not member.is_new):
            return effects
        self.expel(group, member, effects)
        self.after_loss(group, effects)
        return effects

    # --- members come and go ------------------------------------------------------------------------------------

    def expel(self, group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
        self.expect_no_heartbeat(group, member.member_id)
        answer_join(group, member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), effects)
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), effects)
        group.remove(member.member_id)

    def after_loss(self, group: ClassicGroup, effects: Effects) -> None:
        """Members are gone: the others share anew, or need wait no longer for those."""
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare(group, effects)
        elif group.state is State.PREPARING_REBALANCE:
            self.complete_join_if_all(group, effects)

    def after_join(self, group: ClassicGroup, effects: Effects) -> None:
        """Somebody joined, for the first time or again."""
        if group.state is State.PREPARING_REBALANCE:
            self.complete_join_if_all(group, effects)
        else:
            self.prepare(group, effects)

    # --- the join phase -----------------------------------------------------------------------------------------

    def prepare(self, group: ClassicGroup, effects: Effects) -> None:
        """All must join again."""
        if group.state is State.COMPLETING_REBALANCE:
            self.fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        self.expect_no_sync(group)
        is_first = group.state is State.EMPTY
        group.become(State.PREPARING_REBALANCE, self._state.clock.now_ms())
        if is_first:
            delay_ms = self._state.settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._wait_for_more(group, delay_ms, remaining_ms)
        elif group.have_all_joined:
            self._complete_join(group, effects)
        else:
            self._wait_for_all(group)

    def complete_join_if_all(self, group: ClassicGroup, effects: Effects) -> None:
        """Unless it is the first rebalance, which lets its time pass so that others may come."""
        is_first = group.previous_state is State.EMPTY and bool(group.members)
        if group.state is State.PREPARING_REBALANCE and not is_first and group.have_all_joined:
            self._complete_join(group, effects)

    def _wait_for_all(self, group: ClassicGroup) -> None:
        self._after(group.rebalance_timeout_ms, ("join", group.group_id), group, self._join_time_is_up)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self._after(delay_ms, ("join", group.group_id), group, partial(self._first_wait_over, delay_ms, remaining_ms))

    def _first_wait_over(self, delay_ms: int, remaining_ms: int, group: ClassicGroup) -> Effects:
        effects = Effects()
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_ms = min(self._state.settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self._complete_join(group, effects)
        return effects

    def _join_time_is_up(self, group: ClassicGroup) -> Effects:
        effects = Effects()
        if group.state is State.PREPARING_REBALANCE:
            self._complete_join(group, effects)
        return effects

    def _complete_join(self, group: ClassicGroup, effects: Effects) -> None:
        """Goes on with those who are there. Static members are waited for until their session is over."""
        self._state.deadlines.cancel(("join", group.group_id))
        group.new_member_added = False
        late = [member for member in group.members.values() if member.joining is None and member.instance_id is None]
        for member in late:
            self.expel(group, member, effects)
        if not group.elect_joined_leader() and group.members:
            self._wait_for_all(group)
            return
        self._begin_generation(group, effects)

    def _begin_generation(self, group: ClassicGroup, effects: Effects) -> None:
        now_ms = self._state.clock.now_ms()
        group.generation += 1
        if not group.members:
            group.protocol_name = None
            group.subscribed_topics = group.find_subscribed_topics()
            group.become(State.EMPTY, now_ms)
            effects.records.append(group.record({}))
            return
        group.protocol_name = group.select_protocol()
        group.subscribed_topics = group.find_subscribed_topics()
        group.become(State.COMPLETING_REBALANCE, now_ms)
        for member in group.members.values():
            answer_join(group, member, joined(group, member), effects)
            self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        generation = group.generation
        self._after(
            group.rebalance_timeout_ms,
            ("sync", group.group_id),
            group,
            lambda found: self._sync_time_is_up(found, generation),
        )

    # --- the sync phase -----------------------------------------------------------------------------------------

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """The member has asked for its share."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.expect_no_sync(group)

    def expect_no_sync(self, group: ClassicGroup) -> None:
        group.pending_sync.clear()
        self._state.deadlines.cancel(("sync", group.group_id))

    def fail_sync(self, group: ClassicGroup, code: ErrorCode, effects: Effects) -> None:
        for member in group.members.values():
            member.assignment = b""
            if answer_sync(member, SyncGroupResponse(error_code=code), effects):
                self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)

    def _sync_time_is_up(self, group: ClassicGroup, generation: int) -> Effects:
        effects = Effects()
        is_that = generation == group.generation and group.state in (State.COMPLETING_REBALANCE, State.STABLE)
        if not is_that or not group.pending_sync:
            return effects
        for member_id in sorted(group.pending_sync):
            self.expel(group, group.members[member_id], effects)
        self.prepare(group, effects)
        return effects


def answer_join(group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse, effects: Effects) -> None:
    if member.joining is not None:
        effects.answers.append(Answer(member.joining, response))
        member.joining = None
        group.joining_count -= 1


def answer_sync(member: ClassicMember, response: SyncGroupResponse, effects: Effects) -> bool:
    if member.syncing is None:
        return False
    effects.answers.append(Answer(member.syncing, response))
    member.syncing = None
    return True


def joined(group: ClassicGroup, member: ClassicMember, skip_assignment: bool = False) -> JoinGroupResponse:
    """The generation as one member is told of it: only the leader is told of the others."""
    members: list[JoinGroupResponseMember] = []
    if group.leader == member.member_id:
        protocol = group.protocol_name or ""
        members = [
            JoinGroupResponseMember(each.member_id, each.instance_id, each.metadata_of(protocol))
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type_said,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )
