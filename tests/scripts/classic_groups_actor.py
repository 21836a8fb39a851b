"""Runs scripts about classic groups. Members have names; the actor keeps their ids and generations, as clients do.

    join A protocols=range,sticky session=10000 rebalance=30000 instance=i type=consumer topics=t version=9 id=…
                                            JoinGroup; with A's member id, if it has one
    sync A assign=A:x,B:y generation=n protocol=p type=t     SyncGroup; the leader sends the assignments
    beat A generation=n                     Heartbeat
    leave A B, leave instance=i             LeaveGroup
    commit A t-0=5 generation=n             OffsetCommit; `commit` alone is not by a member
    offsets                                 the committed offsets
    advance ms=500                          lets time pass
    expire                                  removes expired offsets
    delete-topic t, delete-offsets t-0, delete-group         delete a topic, offsets, the group
    replay                                  another coordinator takes over and replays the log
    too-large                               the log refuses the next records as too large
    group                                   the group's state

The default group is `g`. A late answer has a line of its own, and the last line has the records written to the log.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from script import Command, error_name

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems, finish
from moldau.coordinator.group import listing, serde
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome, ProducerIdAndEpoch
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.testing.clock import FakeClock
from moldau.wire.consumer_protocol import write
from moldau.wire.log_records.consumer_protocol import Subscription
from moldau.wire.log_records.offsets import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

SETTINGS = GroupSettings(initial_rebalance_delay_ms=3_000, max_size=4, offsets_retention_ms=60_000)
ONE = PartitionState((1,), (1,), 1, 0, 0)


class ClassicGroupsActor:
    def __init__(self) -> None:
        self._clock = FakeClock()
        self._current = CurrentImage()
        topics = {name: TopicImage(name, name.encode().ljust(16), (ONE, ONE)) for name in ("t", "u")}
        self._current.image = MetadataImage(topics=topics)
        self._groups = self._new()
        self._log: list[Callable[[Groups], None]] = []
        """For each record of the log, the function that applies it to a machine."""
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._happened: list[str] = []
        self._written: list[str] = []
        self._is_refusing = False

    def _new(self) -> Groups:
        return Groups(SETTINGS, self._current, self._clock, Random(0))

    def answer(self, command: Command) -> str:
        self._happened, self._written = [], []
        answer = getattr(self, "_" + command.name.replace("-", "_"))(command)
        wrote = ["wrote " + ", ".join(self._written)] if self._written else []
        return "\n".join([*([answer] if answer else []), *self._happened, *wrote]) or "ok"

    # --- requests -----------------------------------------------------------------------------------------------

    def _join(self, command: Command) -> None:
        name = command.words[0]
        version = command.number("version", 9)
        subscription = write(Subscription(command.values.get("topics", "t").split(",")), 0)
        protocols = [each for each in command.values.get("protocols", "range").split(",") if each]
        request = JoinGroupRequest(
            command.values.get("group", "g"),
            command.number("session", 10_000),
            command.number("rebalance", 30_000),
            command.values.get("id", self._ids.get(name, "")).replace("none", ""),
            command.values.get("instance"),
            command.values.get("type", "consumer"),
            [JoinGroupRequestProtocol(each, subscription) for each in protocols],
        )
        self._ask(name, lambda: self._groups.join(request, Client(name, "/here", version)), self._joined)

    def _joined(self, name: str, response: JoinGroupResponse) -> str:
        if response.error_code:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._ids[name] = response.member_id
            return ErrorCode(response.error_code).name
        self._ids[name] = response.member_id
        self._generations[name] = response.generation_id
        members = (
            f", members {', '.join(self._name(each.member_id) for each in response.members)}"
            if response.members
            else ""
        )
        skip = ", skip assignment" if response.skip_assignment else ""
        leader = self._name(response.leader)
        return f"generation {response.generation_id}, protocol {response.protocol_name}, leader {leader}{members}{skip}"

    def _sync(self, command: Command) -> None:
        name = command.words[0]
        assigned = [each.split(":") for each in command.values.get("assign", "").split(",") if each]
        request = SyncGroupRequest(
            "g",
            command.number("generation", self._generations.get(name, -1)),
            self._ids.get(name, name),
            command.values.get("instance"),
            command.values.get("type", "consumer"),
            command.values.get("protocol", "range"),
            [
                SyncGroupRequestAssignment(self._ids.get(member, member), assignment.encode())
                for member, assignment in assigned
            ],
        )
        self._ask(name, lambda: self._groups.sync(request, Client(name, "/here", 5)), self._synced)

    def _synced(self, name: str, response: SyncGroupResponse) -> str:
        return (
            error_name(response.error_code)
            if response.error_code
            else f"assigned {response.assignment.decode() or 'nothing'}"
        )

    def _beat(self, command: Command) -> None:
        name = command.words[0]
        generation = command.number("generation", self._generations.get(name, -1))
        request = HeartbeatRequest("g", generation, self._ids.get(name, name), command.values.get("instance"))
        client = Client(name, "/here", 4)
        self._ask(
            name, lambda: self._groups.heartbeat(request, client), lambda _, answer: error_name(answer.error_code)
        )

    def _leave(self, command: Command) -> None:
        identities = [MemberIdentity(self._ids.get(name, name)) for name in command.words]
        if "instance" in command.values:
            identities = [MemberIdentity("", command.values["instance"])]
        request = LeaveGroupRequest("g", identities)
        self._ask(
            "leave",
            lambda: self._groups.leave(request, Client("x", "/here", 5)),
            lambda _, answer: ", ".join(error_name(each.error_code) for each in answer.members),
        )

    def _commit(self, command: Command) -> None:
        name = command.words[0] if command.words else ""
        epoch = command.number("generation", self._generations.get(name, -1))
        topics = [
            OffsetCommitRequestTopic(
                name=where.partition("-")[0],
                partitions=[OffsetCommitRequestPartition(int(where.partition("-")[2]), int(offset), -1, "")],
            )
            for where, offset in command.values.items()
            if "-" in where
        ]
        request = OffsetCommitRequest("g", epoch, self._ids.get(name, name), command.values.get("instance"), -1, topics)
        self._ask(
            "commit",
            lambda: self._groups.offsets.commit(request, Client(name, "/here", 8)),
            lambda _, answer: ", ".join(
                error_name(each.error_code) for topic in answer.topics for each in topic.partitions
            ),
        )

    def _delete_offsets(self, command: Command) -> None:
        topic, _, index = command.words[0].partition("-")
        request = OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(int(index))])]
        )
        offsets = self._groups.offsets
        self._ask(
            "delete-offsets",
            lambda: offsets.delete(finish(offsets.draft_deletion(request, TurnItems(1)))),
            lambda _, answer: error_name(answer.topics[0].partitions[0].error_code),
        )

    def _delete_group(self, command: Command) -> None:
        self._ask(
            "delete-group",
            lambda: listing.delete(self._groups.state, "g"),
            lambda _, answer: error_name(answer.error_code),
        )

    def _delete_topic(self, command: Command) -> None:
        topics = dict(self._current.image.topics)
        removed = [topics.pop(name) for name in command.words]
        image = MetadataImage(topics=topics)
        changes = TopicChanges.of(image, Changes(removed=removed))
        for outcome in self._groups.topics_changed(changes, TurnItems(1)):
            if outcome is not None:
                self._take(outcome)

    # --- time and the log ---------------------------------------------------------------------------------------

    def _advance(self, command: Command) -> None:
        """Advance the clock and stop at every deadline, as a timer would."""
        end_ms = self._clock.monotonic_ms() + command.number("ms", 0)
        while True:
            due_ms = self._groups.deadlines.next_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self._clock.move(max(due_ms - self._clock.monotonic_ms(), 0))
            for action in self._groups.deadlines.due(self._clock.monotonic_ms()):
                self._take(action())
        self._clock.move(end_ms - self._clock.monotonic_ms())

    def _expire(self, command: Command) -> None:
        for outcome in self._groups.expire(self._clock.now_ms()):
            self._take(outcome)

    def _replay(self, command: Command) -> None:
        for waiting in self._groups.waiting():
            waiting.complete(KafkaError(ErrorCode.NOT_COORDINATOR))
        self._groups = self._new()
        for apply in self._log:
            apply(self._groups)
        self._groups.loaded()

    def _too_large(self, command: Command) -> None:
        self._is_refusing = True

    def _ask(self, name: str, decide: Callable[[], Outcome[Any]], describe: Callable[[str, Any], str]) -> None:
        try:
            outcome = decide()
        except KafkaError as error:
            self._happened.append(f"{name}: {error.code.name}")
            return

        def on_response(value: Any) -> None:
            line = value.code.name if isinstance(value, KafkaError) else describe(name, value)
            self._happened.append(f"{name}: {line}")

        response = outcome.response
        if isinstance(response, Promise):
            response.then(on_response)
        self._take(outcome)
        if not isinstance(response, Promise):
            on_response(response)
        elif not response.done:
            self._happened.append(f"{name} waits")

    def _take(self, outcome: Outcome[Any]) -> None:
        if outcome.records and self._is_refusing:
            self._is_refusing = False
            assert outcome.on_refused is not None, "the outcome does not handle refused records"
            self._take(outcome.on_refused(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)))
            return
        for record in outcome.records:
            self._write(record, outcome.producer)
            self._written.append(self._record(record))
        for waiting, response in outcome.answers:
            waiting.complete(response)

    def _write(self, record: CoordinatorRecord, producer: ProducerIdAndEpoch | None) -> None:
        key, value = serde.encode_record(record)
        if producer is None:
            self._log.append(lambda groups: groups.replay(key, value))
            self._groups.apply(record)
        else:
            self._log.append(lambda groups: groups.replay_transactional(producer.producer_id, key, value))
            self._groups.apply_transactional(producer.producer_id, record)

    # --- the state ----------------------------------------------------------------------------------------------

    def _offsets(self, command: Command) -> str:
        committed = self._groups.state.offsets.get("g", {})
        offsets = [f"{topic}-{index}={each.offset}" for topic, of in committed.items() for index, each in of.items()]
        return " ".join(offsets) or "none"

    def _group(self, command: Command) -> str:
        group = self._groups.state.groups.get("g")
        if group is None:
            return "no group"
        assert isinstance(group, ClassicGroup)
        members = [
            f"{self._name(member.member_id)}"
            + (" joining" if member.joining else "")
            + (" syncing" if member.syncing else "")
            + (f" assigned {member.assignment.decode()}" if member.assignment else "")
            for member in group.members.values()
        ]
        pending = [f"{self._name(each)} pending" for each in sorted(group.pending_members)]
        leader = f", leader {self._name(group.leader)}" if group.leader else ""
        return f"{group.state} generation {group.generation}{leader}: {', '.join([*members, *pending]) or 'no members'}"

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            return f"{key.topic}-{key.partition}" + (" tombstone" if value is None else "")
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            return "group tombstone"
        assert isinstance(value, GroupMetadataValue)
        members = [
            f"{self._name(each.member_id)} assigned {each.assignment.decode() or 'nothing'}" for each in value.members
        ]
        return f"generation {value.generation} ({'; '.join(members) or 'empty'})"

    def _name(self, member_id: str) -> str:
        """Return the name at the start of a member id: the client's, or the instance's."""
        known = [name for name, each in self._ids.items() if each == member_id]
        return known[0] if known else member_id[:-37]
