"""One shard of the group coordinator as a state machine: requests of classic members, records and deadlines.

Requests of consumer groups go to `consumer`, those of share groups to `share`, commits to `offsets`, those of
administrators to `listing`.

It has no log, socket or clock of its own: `runtime/coordinators/shard` appends its records and runs its deadlines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random
from typing import Any

from moldau.base.buffers import Buffer
from moldau.base.clock import Clock
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems
from moldau.base.turns import LISTED_A_TURN
from moldau.coordinator.group import offset_removal, serde
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.groups import ClassicGroups
from moldau.coordinator.group.configs import GroupConfigs
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.heartbeat import ConsumerGroups
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.migration.conversions import Conversions
from moldau.coordinator.group.migration.members import ClassicMembers
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.share.heartbeat import Initialize, ShareGroups, ignore_initialization
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, CoordinatorRecord, Deadlines, MayUseTopic, Outcome, any_topic
from moldau.metadata.current import CurrentImage
from moldau.wire.log_records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Groups:
    def __init__(
        self,
        settings: GroupSettings,
        current: CurrentImage,
        clock: Clock,
        rng: Random,
        configs: GroupConfigs | None = None,
        initialize: Initialize = ignore_initialization,
    ) -> None:
        """`initialize` has the states of share partitions made."""
        self.state = GroupState(settings, current, clock, rng, configs or GroupConfigs(current))
        self.classic = ClassicGroups(self.state)
        conversions = Conversions(self.state)
        self.consumer = ConsumerGroups(self.state, conversions)
        self.share = ShareGroups(self.state, initialize)
        self._mixed = ClassicMembers(self.state, self.consumer, conversions)
        self.offsets = Offsets(self.state, self.classic.extend_session)

    # --- requests of members ------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, client: Client, may_describe: MayUseTopic = any_topic
    ) -> Outcome[JoinGroupResponse]:
        """`may_describe` matters only in a consumer group, whose patterns may have to be resolved."""
        group = self._consumer_group(request.group_id)
        # A classic group replaces an empty consumer group.
        if group is not None and not group.is_empty:
            return self._mixed.join(group, request, client, may_describe)
        return self.classic.join(request, client)

    def sync(self, request: SyncGroupRequest, client: Client) -> Outcome[SyncGroupResponse]:
        group = self._consumer_group(request.group_id)
        return self.classic.sync(request, client) if group is None else self._mixed.sync(group, request, client)

    def heartbeat(self, request: HeartbeatRequest, client: Client) -> Outcome[HeartbeatResponse]:
        group = self.state.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.heartbeat(group, request)
        return self.classic.heartbeat(request, client)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client, may_describe: MayUseTopic
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        return self.consumer.heartbeat(request, client, may_describe)

    def share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> Outcome[ShareGroupHeartbeatResponse]:
        return self.share.heartbeat(request, client)

    def leave(self, request: LeaveGroupRequest, client: Client) -> Outcome[LeaveGroupResponse]:
        group = self._consumer_group(request.group_id)
        return self.classic.leave(request, client) if group is None else self._mixed.leave(group, request)

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        group = self.state.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # --- deadlines and changes of topics ------------------------------------------------------------------------

    @property
    def deadlines(self) -> Deadlines:
        return self.state.deadlines

    def expire(self, now_ms: int) -> Iterator[Outcome[None] | None]:
        """Yield the removal of expired offsets, and of empty groups without offsets, and None where a turn of the loop
        ends. Each outcome must be submitted before the next one is asked for."""
        turn = TurnItems(LISTED_A_TURN)
        for group in list(self.state.groups.values()):
            yield from offset_removal.of_expired(self.state, group, now_ms, turn)
            if self._is_unused(group):
                yield Outcome(None, group.tombstones(), is_divisible=True)
            if turn.ends_after(1):
                yield None

    def _is_unused(self, group: Group) -> bool:
        """Whether the group, which is not deleted yet, has neither members nor offsets."""
        state, group_id = self.state, group.group_id
        has_offsets = group_id in state.offsets or bool(state.transactional_offsets.open_of(group_id))
        has_pending = isinstance(group, ClassicGroup) and bool(group.pending_members)
        is_gone = group.is_empty and not group.stays_when_empty
        return state.groups.get(group_id) is group and is_gone and not (has_offsets or has_pending)

    def topics_changed(self, changes: TopicChanges, turn: TurnItems) -> Iterator[Outcome[None] | None]:
        """Mark the groups that must look at their topics again, and yield the removal of the offsets and share states
        of deleted topics, as `expire` does."""
        self.consumer.topics_changed(changes)
        self.share.topics_changed(changes)
        removals = offset_removal.of_deleted_topics(self.state, changes, turn)
        deleted_ids = frozenset().union(*changes.removed_ids.values())
        return chain(removals, self.share.forget_topics(deleted_ids.__contains__, turn)) if deleted_ids else removals

    def remove_offsets_of_unknown_topics(self, turn: TurnItems) -> Iterator[Outcome[None] | None]:
        """Yield the removal of offsets and share states whose topic does not exist, as `expire` does."""
        topics = self.state.current.image.topic_names
        states = self.share.forget_topics(lambda topic_id: topic_id not in topics, turn)
        return chain(offset_removal.of_unknown_topics(self.state, turn), states)

    def waiting(self) -> Iterator[Promise[Any]]:
        """Yield the promises of all requests that still wait, to fail them when this machine is dropped."""
        for group in self.state.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    yield from (each for each in (member.joining, member.syncing) if each is not None)

    # --- the log ------------------------------------------------------------------------------------------------

    encode = staticmethod(serde.encode_record)

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        record = serde.decode_record(key, value)
        if record is not None:
            self.apply(record)

    def apply_all(self, records: Sequence[CoordinatorRecord]) -> None:
        for key, value in records:
            if key.__class__ is not OffsetCommitKey or value is None:
                break
        else:
            self.offsets.apply_commit(records)  # type: ignore[arg-type]
            return
        for record in records:
            self.apply(record)

    def apply(self, record: CoordinatorRecord) -> None:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.apply(key, value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self.classic.apply(key, value)
        elif self.share.applies(key):
            self.share.apply(key, value)
        else:
            self.consumer.apply(key, value)

    def replay_transactional(self, producer_id: int, key: Buffer, value: Buffer | None) -> None:
        record = serde.decode_record(key, value)
        if record is not None:
            self.apply_transactional(producer_id, record)

    def apply_transactional(self, producer_id: int, record: CoordinatorRecord) -> None:
        """Hold back offset commits until the transaction ends. Other records are not expected in a transaction."""
        key, value = record
        if isinstance(key, OffsetCommitKey) and isinstance(value, OffsetCommitValue):
            self.offsets.apply_transactional(producer_id, key, value)
        else:
            self.apply(record)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply the marker of the producer's transaction, which is in the log."""
        self.offsets.end_transaction(producer_id, committed)
        if self.state.postponed_removals:
            self._remove_postponed_soon()

    def _remove_postponed_soon(self) -> None:
        self.deadlines.schedule("postponed removals", self.state.clock.monotonic_ms(), self._remove_postponed)

    def _remove_postponed(self) -> Outcome[None]:
        outcome = offset_removal.of_postponed(self.state)
        if outcome.records:
            self._remove_postponed_soon()  # there may be more
        return outcome

    def loaded(self) -> None:
        """Start the deadlines. Called when the whole log was replayed."""
        self.offsets.loaded()
        self.classic.loaded()
        self.consumer.loaded()
        self.share.loaded()
