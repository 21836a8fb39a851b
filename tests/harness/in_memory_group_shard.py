"""The groups of one shard, of all kinds, with a log, a clock and topics in memory. Records are committed at once.

Records are encoded and decoded before they are applied, as in a log. `check_replay` checks whether another coordinator,
with nothing but the log, has the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, State
from moldau.coordinator.group.configs import GroupConfigs
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.serde import encode_record
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.share.initializing import Initialization
from moldau.coordinator.group.share.states import NO_STATES, StatePartitions
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome
from moldau.metadata.apply import Changes, apply
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import ConfigResource
from moldau.testing.clock import FakeClock
from moldau.wire.log_records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from moldau.wire.schema import MetadataRecord

Decide = Callable[[Groups], Outcome[Any]]


class InMemoryGroupShard:
    def __init__(self, settings: GroupSettings) -> None:
        self.clock = FakeClock()
        self.current = CurrentImage()
        self.settings = settings
        self.broker_configs: dict[str, str] = {}
        """Read when a group is asked for the first time."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.written: list[CoordinatorRecord] = []
        self.refuses_next_records = False
        """Whether the log refuses the next records as too large."""
        self._topics_created = 0
        self._rng = Random(1)
        self.current.add_listener(self._on_image)
        self.initializations: list[Initialization] = []
        """States of share partitions that are to be made."""
        self.groups = self._open()
        self._reader = self._open()
        """Another coordinator, which reads only the log."""

    def _open(self) -> Groups:
        configs = GroupConfigs(self.current, 0, self.broker_configs)
        return Groups(self.settings, self.current, self.clock, self._rng, configs, self.initializations.append)

    def set(self, **settings: Any) -> None:
        self.settings = replace(self.settings, **settings)
        self.groups.state.settings = self.settings

    # --- requests, time and the log -----------------------------------------------------------------------------

    def submit(self, decide: Decide) -> Promise[Any]:
        """Return a promise of the response or a KafkaError; it may stay open for long."""
        promise: Promise[Any] = Promise()
        try:
            outcome = decide(self.groups)
            if isinstance(outcome.response, Promise):
                promise = outcome.response
            self.execute(outcome)
            if not isinstance(outcome.response, Promise):
                promise.complete(outcome.response)
        except KafkaError as error:
            promise.complete(error)
        return promise

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1
    ) -> tuple[ConsumerGroupHeartbeatResponse, Sequence[CoordinatorRecord]]:
        before = len(self.written)
        answer = self.submit(
            lambda groups: groups.consumer.heartbeat(request, Client(request.member_id, "/here", version))
        )
        response = answer.value()
        if isinstance(response, KafkaError):
            raise response
        return response, self.written[before:]

    def share_heartbeat(self, request: ShareGroupHeartbeatRequest, client_id: str = "") -> ShareGroupHeartbeatResponse:
        client = Client(client_id or request.member_id, "/here", 1)
        response = self.submit(lambda groups: groups.share_heartbeat(request, client)).value()
        if isinstance(response, KafkaError):
            raise response
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def execute(self, outcome: Outcome[Any]) -> None:
        if outcome.records and self.refuses_next_records:
            self.refuses_next_records = False
            too_large = KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
            try:
                if outcome.on_refused is None:
                    raise too_large
                self.execute(outcome.on_refused(too_large))
            except KafkaError:
                for waiting, _ in outcome.answers:
                    waiting.complete(too_large)
                raise
            return
        for record in outcome.records:
            written = encode_record(record)
            self.log.append(written)
            self.written.append(record)
            self.groups.replay(*written)
            self._reader.replay(*written)
        if outcome.records and outcome.on_applied is not None:
            outcome.on_applied()
        for waiting, response in outcome.answers:
            waiting.complete(response)

    def advance(self, ms: int) -> None:
        """Advance the time, stopping at every deadline, as a timer would."""
        end_ms = self.clock.monotonic_ms() + ms
        while True:
            due_ms = self.groups.deadlines.next_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.clock.move(max(due_ms - self.clock.monotonic_ms(), 0))
            for action in self.groups.deadlines.due(self.clock.monotonic_ms()):
                self.execute(action())
        self.clock.move(end_ms - self.clock.monotonic_ms())

    def replay(self) -> None:
        """Move the coordinator: a new one loads its state from the log."""
        for waiting in self.groups.waiting():
            waiting.complete(KafkaError(ErrorCode.NOT_COORDINATOR))
        self.groups = self._open()
        for written in self.log:
            self.groups.replay(*written)
        self.groups.loaded()

    def check_replay(self) -> None:
        other = self._reader.state.groups
        for group_id, group in self.groups.state.groups.items():
            found = other.get(group_id)
            if isinstance(group, ConsumerGroup):
                assert isinstance(found, ConsumerGroup)
                assert _modern_group_state(found) == _modern_group_state(group)
            elif isinstance(group, ShareGroup):
                assert isinstance(found, ShareGroup)
                assert _modern_group_state(found) == _modern_group_state(group)
            elif isinstance(group, ClassicGroup) and group.state is State.STABLE:
                assert isinstance(found, ClassicGroup)
                assert _classic_group_state(found) == _classic_group_state(group)
            else:
                assert not isinstance(found, ConsumerGroup)
        assert not other.keys() - self.groups.state.groups.keys()

    # --- topics -------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int) -> None:
        self._topics_created += 1
        topic_id = self._topics_created.to_bytes(16)
        self._publish([TopicRecord(name, topic_id), *(_partition(topic_id, index) for index in range(partitions))])

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = self.current.image.topics[name]
        self._publish([_partition(topic.id, index) for index in range(len(topic.partitions), partitions)])

    def delete_topic(self, name: str) -> None:
        self._publish([RemoveTopicRecord(self.current.image.topics[name].id)])

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        self._publish([ConfigRecord(ConfigResource.GROUP, group_id, name, value) for name, value in configs.items()])

    def _publish(self, records: list[MetadataRecord]) -> None:
        image = self.current.image
        self.current.publish(*apply(image, records, image.offset + len(records), 1))

    def _on_image(self, image: MetadataImage, changes: Changes) -> None:
        for outcome in self.groups.topics_changed(TopicChanges.of(image, changes), TurnItems(1)):
            if outcome is not None:
                self.execute(outcome)


def _partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1)


def _modern_group_state(group: Group) -> dict[str, Any]:
    """Return the state of a consumer or share group, including counts, without soft state."""
    subscriptions = {
        name: value for name, value in vars(group)["subscriptions"].__dict__.items() if name != "_subscribed_groups"
    }
    return {
        name: value
        for name, value in vars(group).items()
        if name not in ("must_resolve_topics", "is_settled", "unconfirmed", "subscriptions", "states")
    } | {**subscriptions, "states": _logged_states(vars(group).get("states", NO_STATES))}


def _logged_states(states: StatePartitions) -> tuple[Any, ...]:
    """Return the states of share partitions, without the times at which the coordinator got to know them."""
    by_topic = [
        {topic_id: (topic.name, topic.partitions) for topic_id, topic in topics.items()}
        for topics in (states.initializing, states.initialized)
    ]
    return (*by_topic, states.deleting)


def _classic_group_state(group: ClassicGroup) -> dict[str, Any]:
    """Return the state of a stable classic group that comes from the log."""
    names = ("generation", "protocol_type_or_none", "protocol_name", "leader", "static_members", "subscribed_topics")
    state = {name: getattr(group, name) for name in (*names, "state_timestamp_ms")}
    return state | {member.member_id: _member_state(member, group.protocol_name) for member in group.members.values()}


def _member_state(member: ClassicMember, protocol: str | None) -> tuple[Any, ...]:
    timeouts = (member.rebalance_timeout_ms, member.session_timeout_ms)
    metadata = (member.instance_id, member.client_id, member.client_host, member.metadata_of(protocol or ""))
    return (*metadata, *timeouts, member.assignment)
