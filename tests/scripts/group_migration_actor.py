"""Runs scripts about groups that change their protocol. Members have names; the actor keeps their ids, generations or
epochs, and assignments, as clients do.

    topic a partitions=4, grow a count=6    change the cluster's topics
    set policy=upgrade size=2 consumer-size=2                the coordinator's settings
    Classic members:
    join A topics=a own=a-0,a-1 protocols=range,sticky session=ms rebalance=ms instance=i version=n type=t id=… bytes=x
                                            JoinGroup; `own=assigned`: A's last assignment; `bytes`: not a subscription
    sync A assign=A:a-0+a-1,B:a-2 generation=n protocol=p type=t user=x
                                            SyncGroup; a leader sends assignments, `user` is their user data
    beat A generation=n                     Heartbeat
    leave A B, leave instance=i             LeaveGroup
    commit A a-0 epoch=n version=n          whether A, of either kind, may commit that
    Consumer members:
    consumer-join M topics=a regex=x instance=i              the first ConsumerGroupHeartbeat
    consumer-beat M own=a-0                 another; `own=assigned` as above
    consumer-leave M                        the last, with epoch -1
    advance ms=500                          lets time pass
    replay                                  another coordinator takes over and replays the log
    too-large                               the log refuses the next records as too large
    group                                   the group's state

The group is `g`. A late answer has a line of its own; the last line has the records written to the log, of which only
those about the group's kind are shown in full. After every command the actor checks that another coordinator gets the
same state from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.in_memory_group_shard import InMemoryGroupShard
from script import Command, error_name

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome
from moldau.wire.consumer_protocol import read, write
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions
from moldau.wire.log_records.offsets import ConsumerGroupMetadataKey, GroupMetadataKey
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PartitionsByTopicName = dict[str, set[int]]
SETTINGS = {
    "policy": "consumer_migration_policy",
    "size": "max_size",
    "consumer-size": "consumer_max_size",
}
STATES = {0: "", 1: " unrevoked", 2: " unreleased"}


class GroupMigrationActor:
    def __init__(self) -> None:
        self._shard = InMemoryGroupShard(GroupSettings(initial_rebalance_delay_ms=0))
        self._ids: dict[str, str] = {}
        self._epochs: dict[str, int] = {}
        self._assigned: dict[str, PartitionsByTopicName] = {}
        self._instances: dict[str, str | None] = {}
        self._happened: list[str] = []

    def answer(self, command: Command) -> str:
        self._happened = []
        written = len(self._shard.written)
        answer = getattr(self, "_" + command.name.replace("-", "_"))(command)
        self._shard.check_replay()
        wrote = [each for each in map(self._record, self._shard.written[written:]) if each]
        last = ["wrote " + ", ".join(wrote)] if wrote else []
        return "\n".join([*([answer] if answer else []), *self._happened, *last]) or "ok"

    # --- the cluster --------------------------------------------------------------------------------------------

    def _topic(self, command: Command) -> None:
        self._shard.create_topic(command.words[0], command.number("partitions", 1))

    def _grow(self, command: Command) -> None:
        self._shard.grow_topic(command.words[0], command.number("count", 1))

    def _set(self, command: Command) -> None:
        found = {SETTINGS[name]: value for name, value in command.values.items()}
        self._shard.set(**{name: int(value) if value.isdigit() else value for name, value in found.items()})

    def _advance(self, command: Command) -> None:
        self._shard.advance(command.number("ms", 0))

    def _replay(self, command: Command) -> None:
        self._shard.replay()

    def _too_large(self, command: Command) -> None:
        self._shard.refuses_next_records = True

    # --- classic members ----------------------------------------------------------------------------------------

    def _join(self, command: Command) -> None:
        name = command.words[0]
        self._instances[name] = command.values.get("instance")
        metadata = command.values.get("bytes", "").encode() or self._subscription(command)
        protocols = [each for each in command.values.get("protocols", "range").split(",") if each]
        request = JoinGroupRequest(
            "g",
            command.number("session", 10_000),
            command.number("rebalance", 30_000),
            command.values.get("id", self._ids.get(name, "")).replace("none", ""),
            self._instances[name],
            command.values.get("type", "consumer"),
            [JoinGroupRequestProtocol(each, metadata) for each in protocols],
        )
        client = Client(name, "/here", command.number("version", 9))
        self._ask(name, lambda groups: groups.join(request, client), self._joined)

    def _subscription(self, command: Command) -> bytes:
        owned = [TopicPartitions(topic, sorted(found)) for topic, found in self._owned(command).items()]
        topics = command.values.get("topics", "a").split(",")
        return write(Subscription(topics, None, owned), command.number("format", 1))

    def _joined(self, name: str, response: JoinGroupResponse) -> str:
        if response.member_id:
            self._ids[name] = response.member_id
        if response.error_code:
            return ErrorCode(response.error_code).name
        self._epochs[name] = response.generation_id
        leader = f", leader {self._name(response.leader)}" if response.leader else ""
        return f"generation {response.generation_id}, protocol {response.protocol_name}{leader}"

    def _sync(self, command: Command) -> None:
        name = command.words[0]
        assigned = [each.split(":") for each in command.values.get("assign", "").split(",") if each]
        user = command.values.get("user", "").encode() or None
        request = SyncGroupRequest(
            "g",
            command.number("generation", self._epochs.get(name, -1)),
            self._ids.get(name, name),
            self._instances.get(name),
            command.values.get("type", "consumer") or None,
            command.values.get("protocol", "range") or None,
            [
                SyncGroupRequestAssignment(self._ids[member], _assignment(_parsed(has), user))
                for member, has in assigned
            ],
        )
        client = Client(name, "/here", command.number("version", 5))
        self._ask(name, lambda groups: groups.sync(request, client), self._synced)

    def _synced(self, name: str, response: SyncGroupResponse) -> str:
        if response.error_code:
            return ErrorCode(response.error_code).name
        if not response.assignment:
            return "empty assignment"
        assignment, version = read(Assignment, response.assignment)
        self._assigned[name] = {each.topic: set(each.partitions) for each in assignment.assigned_partitions}
        return f"assigned {_shown(self._assigned[name])}" + (f" in format {version}" if version != 1 else "")

    def _beat(self, command: Command) -> None:
        name = command.words[0]
        generation = command.number("generation", self._epochs.get(name, -1))
        instance_id = command.values.get("instance", self._instances.get(name))
        request = HeartbeatRequest("g", generation, self._ids.get(name, name), instance_id)
        client = Client(name, "/here", 4)
        self._ask(
            name, lambda groups: groups.heartbeat(request, client), lambda _, answer: error_name(answer.error_code)
        )

    def _leave(self, command: Command) -> None:
        identities = [MemberIdentity(self._ids.get(name, name), self._instances.get(name)) for name in command.words]
        if "instance" in command.values:
            identities = [MemberIdentity(command.values.get("id", ""), command.values["instance"])]
        request = LeaveGroupRequest("g", identities)
        self._ask(
            "leave",
            lambda groups: groups.leave(request, Client("x", "/here", 5)),
            lambda _, answer: ", ".join(error_name(each.error_code) for each in answer.members),
        )

    def _commit(self, command: Command) -> None:
        name, partition = command.words
        epoch, version = command.number("epoch", self._epochs.get(name, -1)), command.number("version", 9)

        def decide(groups: Groups) -> Outcome[None]:
            check = groups.state.groups["g"].check_commit(self._ids.get(name, name), None, epoch, version)
            if check is not None:
                topic, _, index = partition.rpartition("-")
                check(self._shard.current.image.topics[topic].id, int(index))
            return Outcome(None)

        self._ask("commit", decide, lambda *_: "ok")

    # --- consumer members ---------------------------------------------------------------------------------------

    def _consumer_join(self, command: Command) -> None:
        self._instances[command.words[0]] = command.values.get("instance")
        request = self._heartbeat(command, 0)
        request.topic_partitions, request.rebalance_timeout_ms = [], 30_000
        regex = command.values.get("regex")
        request.subscribed_topic_regex = regex
        request.subscribed_topic_names = [] if regex else command.values.get("topics", "a").split(",")
        self._send(command, request)

    def _consumer_beat(self, command: Command) -> None:
        request = self._heartbeat(command, self._epochs.get(command.words[0], 1))
        if "own" in command.values:
            topics = self._shard.current.image.topics
            owned = self._owned(command)
            request.topic_partitions = [RequestTopicPartitions(topics[name].id, sorted(owned[name])) for name in owned]
        self._send(command, request)

    def _consumer_leave(self, command: Command) -> None:
        self._send(command, self._heartbeat(command, -1))

    def _heartbeat(self, command: Command, epoch: int) -> ConsumerGroupHeartbeatRequest:
        name = command.words[0]
        member_id = self._ids.setdefault(name, name)
        return ConsumerGroupHeartbeatRequest("g", member_id, epoch, self._instances.get(name))

    def _send(self, command: Command, request: ConsumerGroupHeartbeatRequest) -> None:
        name = command.words[0]
        self._ask(name, lambda groups: groups.consumer.heartbeat(request, Client(name, "/here", 1)), self._on_heartbeat)

    def _on_heartbeat(self, name: str, response: ConsumerGroupHeartbeatResponse) -> str:
        self._epochs[name] = response.member_epoch
        if response.assignment is None:
            return f"epoch {response.member_epoch}"
        assigned = {
            self._topic_name(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions
        }
        self._assigned[name] = assigned
        return f"epoch {response.member_epoch}, assigned {_shown(assigned)}"

    # --- answers ------------------------------------------------------------------------------------------------

    def _ask(self, name: str, decide: Callable[[Groups], Outcome[Any]], describe: Callable[[str, Any], str]) -> None:
        answer = self._shard.submit(decide)

        def on_response(value: Any) -> None:
            line = value.code.name if isinstance(value, KafkaError) else describe(name, value)
            self._happened.append(f"{name}: {line}")

        if not answer.done:
            self._happened.append(f"{name} waits")
        answer.then(on_response)

    def _group(self, command: Command) -> str:
        group = self._shard.groups.state.groups.get("g")
        if isinstance(group, ClassicGroup):
            members = [self._classic(group, member_id) for member_id in group.members]
            head = f"classic {group.state} generation {group.generation}, protocol {group.protocol_name}"
            leader = f", leader {self._name(group.leader)}" if group.leader else ""
            return "\n".join([head + leader, *members])
        assert isinstance(group, ConsumerGroup)
        members = [self._member(group, member_id) for member_id in group.members]
        return "\n".join([f"consumer {group.state_name} epoch {group.epoch}", *members])

    def _classic(self, group: ClassicGroup, member_id: str) -> str:
        member = group.members[member_id]
        has = read(Assignment, member.assignment)[0].assigned_partitions if member.assignment else ()
        shown = _shown({each.topic: set(each.partitions) for each in has})
        supported = ",".join(protocol.name for protocol in member.protocols)
        return f"{self._name(member_id)} has {shown}, supports {supported}" + (" joining" if member.joining else "")

    def _member(self, group: ConsumerGroup, member_id: str) -> str:
        member = group.members[member_id]
        has = {self._topic_name(topic_id): set(found) for topic_id, found in member.assigned.items()}
        revoking = {self._topic_name(topic_id): set(found) for topic_id, found in member.pending_revocation.items()}
        classic = member.classic_member_metadata
        kind = "" if classic is None else " classic " + ",".join(each.name for each in classic.supported_protocols)
        pending = f", revoking {_shown(revoking)}" if revoking else ""
        state = STATES[member.state]
        return f"{self._name(member_id)}{kind} epoch {member.member_epoch}{state} has {_shown(has)}{pending}"

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        if isinstance(key, GroupMetadataKey):
            return "no classic group" if value is None else "classic group"
        if isinstance(key, ConsumerGroupMetadataKey):
            return "no consumer group" if value is None else f"epoch {getattr(value, 'epoch', '')}"
        return ""

    def _owned(self, command: Command) -> PartitionsByTopicName:
        if command.values.get("own") == "assigned":
            return self._assigned.get(command.words[0], {})
        return _parsed(command.values.get("own", "").replace(",", "+"))

    def _name(self, member_id: str) -> str:
        return next((name for name, each in self._ids.items() if each == member_id), "unknown")

    def _topic_name(self, topic_id: Uuid) -> str:
        return self._shard.current.image.topic_names[topic_id]


def _parsed(text: str) -> PartitionsByTopicName:
    found: PartitionsByTopicName = {}
    for word in text.split("+"):
        if word and word != "none":
            topic, _, index = word.rpartition("-")
            found.setdefault(topic, set()).add(int(index))
    return found


def _assignment(partitions: PartitionsByTopicName, user_data: bytes | None) -> bytes:
    topics = [TopicPartitions(topic, sorted(found)) for topic, found in partitions.items()]
    return write(Assignment(topics, user_data), 1)


def _shown(partitions: PartitionsByTopicName) -> str:
    return " ".join(f"{name}-{index}" for name in sorted(partitions) for index in sorted(partitions[name])) or "nothing"
