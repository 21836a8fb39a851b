"""The rebalance of a classic group, from one generation to the next: whom it waits for, how long, and the responses.

It changes only soft state: the group in memory and deadlines. It collects answers and records in `Effects`.
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
"""A new member has no id to send heartbeats with while its JoinGroup waits. After this time it counts as gone: if its
client is still there, it will have joined again as another member."""

WAIT_AGAIN_MIN_MS: Final = 1_000
"""If only static members are left and none has joined, the rebalance waits for them again and again. Their rebalance
timeout may be 0, which would keep the loop busy."""


@dataclass(slots=True)
class Effects:
    """The records and the answers to other requests that one step produces."""

    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def outcome(self) -> Outcome[None]:
        return Outcome(None, self.records, self.answers)


class Rebalance:
    def __init__(self, state: GroupState) -> None:
        self._state = state

    # --- deadlines ----------------------------------------------------------------------------------------------

    def expect_heartbeat(self, group: ClassicGroup, member_id: str, within_ms: int) -> None:
        self._schedule(
            within_ms,
            ("session", group.group_id, member_id),
            group,
            lambda current: self._on_session_timeout(current, member_id),
        )

    def extend_session(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Restart the session timeout. An existing deadline is only moved: its action looks the group up again."""
        state, member_id, within_ms = self._state, member.member_id, member.session_timeout_ms
        if not state.deadlines.postpone(("session", group.group_id, member_id), state.clock.monotonic_ms() + within_ms):
            self.expect_heartbeat(group, member_id, within_ms)

    def cancel_session_timeout(self, group: ClassicGroup, member_id: str) -> None:
        self._state.deadlines.cancel(("session", group.group_id, member_id))

    def _schedule(
        self, delay_ms: int, key: tuple[str, ...], group: ClassicGroup, action: Callable[[ClassicGroup], Effects]
    ) -> None:
        def act() -> Outcome[None]:
            current = self._state.groups.get(group.group_id)
            # By now the group may be deleted, or be a consumer group.
            return (action(current) if isinstance(current, ClassicGroup) else Effects()).outcome()

        self._state.deadlines.schedule(key, self._state.clock.monotonic_ms() + max(delay_ms, 0), act)

    def _on_session_timeout(self, group: ClassicGroup, member_id: str) -> Effects:
        effects = Effects()
        if member_id in group.pending_members:
            group.remove(member_id)
            self.complete_join_if_all(group, effects)
            return effects
        member = group.members.get(member_id)
        is_waiting = member is not None and (member.joining is not None or member.syncing is not None)
        if member is None or (is_waiting and not member.is_new):
            # A member sends no heartbeats while its request waits. The response restarts its session timeout.
            return effects
        self.expel(group, member, effects)
        self.after_loss(group, effects)
        return effects

    # --- members join and leave ---------------------------------------------------------------------------------

    def expel(self, group: ClassicGroup, member: ClassicMember, effects: Effects) -> None:
        self.cancel_session_timeout(group, member.member_id)
        answer_join(group, member, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), effects)
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), effects)
        group.remove(member.member_id)

    def after_loss(self, group: ClassicGroup, effects: Effects) -> None:
        """Continue after members left: start a rebalance, or complete the join if it waited only for them."""
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare(group, effects)
        elif group.state is State.PREPARING_REBALANCE:
            self.complete_join_if_all(group, effects)

    def after_join(self, group: ClassicGroup, effects: Effects) -> None:
        """Continue after a member joined, for the first time or again."""
        if group.state is State.PREPARING_REBALANCE:
            self.complete_join_if_all(group, effects)
        else:
            self.prepare(group, effects)

    # --- the join phase -----------------------------------------------------------------------------------------

    def prepare(self, group: ClassicGroup, effects: Effects) -> None:
        """Start a rebalance: all members must join again."""
        if group.state is State.COMPLETING_REBALANCE:
            self.fail_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, effects)
        self.cancel_sync_timeout(group)
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
        """Complete the join if all members have joined. The first rebalance always waits for its delay, so that more
        members can join."""
        is_first = group.previous_state is State.EMPTY and bool(group.members)
        if group.state is State.PREPARING_REBALANCE and not is_first and group.have_all_joined:
            self._complete_join(group, effects)

    def _wait_for_all(self, group: ClassicGroup, at_least_ms: int = 0) -> None:
        delay_ms = max(group.rebalance_timeout_ms, at_least_ms)
        self._schedule(delay_ms, ("join", group.group_id), group, self._on_join_timeout)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self._schedule(
            delay_ms, ("join", group.group_id), group, partial(self._on_initial_delay, delay_ms, remaining_ms)
        )

    def _on_initial_delay(self, delay_ms: int, remaining_ms: int, group: ClassicGroup) -> Effects:
        effects = Effects()
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_ms = min(self._state.settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_ms, max(remaining_ms - delay_ms, 0))
        else:
            self._complete_join(group, effects)
        return effects

    def _on_join_timeout(self, group: ClassicGroup) -> Effects:
        effects = Effects()
        if group.state is State.PREPARING_REBALANCE:
            self._complete_join(group, effects)
        return effects

    def cancel_join_timeout(self, group_id: str) -> None:
        self._state.deadlines.cancel(("join", group_id))

    def _complete_join(self, group: ClassicGroup, effects: Effects) -> None:
        """Begin a generation with the members that joined. Static members stay until their session or the
        sync phase times out."""
        self.cancel_join_timeout(group.group_id)
        group.new_member_added = False
        late = [member for member in group.members.values() if member.joining is None and member.instance_id is None]
        for member in late:
            self.expel(group, member, effects)
        if not group.elect_joined_leader() and group.members:
            self._wait_for_all(group, WAIT_AGAIN_MIN_MS)
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
            answer_join(group, member, join_response(group, member), effects)
            self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        generation = group.generation
        self._schedule(
            group.rebalance_timeout_ms,
            ("sync", group.group_id),
            group,
            lambda current: self._on_sync_timeout(current, generation),
        )

    # --- the sync phase -----------------------------------------------------------------------------------------

    def on_sync(self, group: ClassicGroup, member_id: str) -> None:
        """Note that the member has sent its SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self.cancel_sync_timeout(group)

    def cancel_sync_timeout(self, group: ClassicGroup) -> None:
        """Wait for no further SyncGroup of this generation."""
        group.pending_sync.clear()
        self._state.deadlines.cancel(("sync", group.group_id))

    def fail_sync(self, group: ClassicGroup, code: ErrorCode, effects: Effects) -> None:
        for member in group.members.values():
            member.assignment = b""
            if answer_sync(member, SyncGroupResponse(error_code=code), effects):
                self.expect_heartbeat(group, member.member_id, member.session_timeout_ms)

    def _on_sync_timeout(self, group: ClassicGroup, generation: int) -> Effects:
        effects = Effects()
        is_current = generation == group.generation and group.state in (State.COMPLETING_REBALANCE, State.STABLE)
        if not is_current or not group.pending_sync:
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


def join_response(group: ClassicGroup, member: ClassicMember, skip_assignment: bool = False) -> JoinGroupResponse:
    """Return the response for one member of the generation. Only the leader gets the list of members."""
    members: list[JoinGroupResponseMember] = []
    if group.leader == member.member_id:
        protocol = group.protocol_name or ""
        members = [
            JoinGroupResponseMember(other.member_id, other.instance_id, other.metadata_of(protocol))
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type_or_none,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )
