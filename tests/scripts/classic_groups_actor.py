"""Classic groups as a script can drive them: members by name, each with the client's own idea of its id and generation.

    join A protocols=range,sticky session=10000 rebalance=30000 instance=i type=consumer topics=t version=9 id=…
                                            JoinGroup; with the id A was given, if it was given one
    sync A shares=A:x,B:y generation=n protocol=p type=t     SyncGroup; the leader says who gets what
    beat A generation=n                     Heartbeat
    leave A B, leave instance=i             LeaveGroup
    commit A t-0=5 generation=n             OffsetCommit; `commit` alone is from nobody in particular
    offsets                                 what is committed
    advance ms=500                          lets time pass
    expire                                  looks for offsets whose time has come
    drop t, delete-offsets t-0, delete      a topic is deleted, offsets are, the group is
    replay                                  another coordinator takes over, from the log
    too-large                               the log will not take what is decided next
    group                                   what is known of it

The group is `g` unless told otherwise. Whoever waited and is answered is told in a line of its own, and what was
written to the log in the last.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from conversation import Said

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.group import listing, serde
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome, ProducerIdAndEpoch
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.testing.clock import FakeClock
from moldau.wire.consumer_protocol import Subscription, write
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
        """What lays each of its records over a machine."""
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._happened: list[str] = []
        self._written: list[str] = []
        self._is_refusing = False

    def _new(self) -> Groups:
        return Groups(SETTINGS, self._current, self._clock, Random(0))

    def answer(self, said: Said) -> str:
        self._happened, self._written = [], []
        told = getattr(self, "_" + said.name.replace("-", "_"))(said)
        wrote = ["wrote " + ", ".join(self._written)] if self._written else []
        return "\n".join([*([told] if told else []), *self._happened, *wrote]) or "ok"

    # --- requests -----------------------------------------------------------------------------------------------

    def _join(self, said: Said) -> None:
        name = said.words[0]
        version = said.number("version", 9)
        subscription = write(Subscription(said.values.get("topics", "t").split(",")), 0)
        protocols = [each for each in said.values.get("protocols", "range").split(",") if each]
        request = JoinGroupRequest(
            said.values.get("group", "g"),
            said.number("session", 10_000),
            said.number("rebalance", 30_000),
            said.values.get("id", self._ids.get(name, "")).replace("none", ""),
            said.values.get("instance"),
            said.values.get("type", "consumer"),
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
            f" of {', '.join(self._name(each.member_id) for each in response.members)}" if response.members else ""
        )
        skip = ", need not share out" if response.skip_assignment else ""
        leader = self._name(response.leader)
        return f"generation {response.generation_id} by {response.protocol_name}, {leader} leads{members}{skip}"

    def _sync(self, said: Said) -> None:
        name = said.words[0]
        shares = [each.split(":") for each in said.values.get("shares", "").split(",") if each]
        request = SyncGroupRequest(
            "g",
            said.number("generation", self._generations.get(name, -1)),
            self._ids.get(name, name),
            said.values.get("instance"),
            said.values.get("type", "consumer"),
            said.values.get("protocol", "range"),
            [SyncGroupRequestAssignment(self._ids.get(member, member), share.encode()) for member, share in shares],
        )
        self._ask(name, lambda: self._groups.sync(request, Client(name, "/here", 5)), self._shared)

    def _shared(self, name: str, response: SyncGroupResponse) -> str:
        return _code(response.error_code) if response.error_code else f"has {response.assignment.decode() or 'nothing'}"

    def _beat(self, said: Said) -> None:
        name = said.words[0]
        generation = said.number("generation", self._generations.get(name, -1))
        request = HeartbeatRequest("g", generation, self._ids.get(name, name), said.values.get("instance"))
        client = Client(name, "/here", 4)
        self._ask(name, lambda: self._groups.heartbeat(request, client), lambda _, answer: _code(answer.error_code))

    def _leave(self, said: Said) -> None:
        identities = [MemberIdentity(self._ids.get(name, name)) for name in said.words]
        if "instance" in said.values:
            identities = [MemberIdentity("", said.values["instance"])]
        request = LeaveGroupRequest("g", identities)
        self._ask(
            "leave",
            lambda: self._groups.leave(request, Client("x", "/here", 5)),
            lambda _, answer: ", ".join(_code(each.error_code) for each in answer.members),
        )

    def _commit(self, said: Said) -> None:
        name = said.words[0] if said.words else ""
        epoch = said.number("generation", self._generations.get(name, -1))
        topics = [
            OffsetCommitRequestTopic(
                name=where.partition("-")[0],
                partitions=[OffsetCommitRequestPartition(int(where.partition("-")[2]), int(offset), -1, "")],
            )
            for where, offset in said.values.items()
            if "-" in where
        ]
        request = OffsetCommitRequest("g", epoch, self._ids.get(name, name), said.values.get("instance"), -1, topics)
        self._ask(
            "commit",
            lambda: self._groups.offsets.commit(request, Client(name, "/here", 8)),
            lambda _, answer: ", ".join(_code(each.error_code) for topic in answer.topics for each in topic.partitions),
        )

    def _delete_offsets(self, said: Said) -> None:
        topic, _, index = said.words[0].partition("-")
        request = OffsetDeleteRequest(
            "g", [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(int(index))])]
        )
        self._ask(
            "delete-offsets",
            lambda: self._groups.offsets.delete(request),
            lambda _, answer: _code(answer.topics[0].partitions[0].error_code),
        )

    def _delete(self, said: Said) -> None:
        self._ask("delete", lambda: listing.delete(self._groups.state, "g"), lambda _, answer: _code(answer.error_code))

    def _drop(self, said: Said) -> None:
        topics = dict(self._current.image.topics)
        removed = [topics.pop(name) for name in said.words]
        self._take(self._groups.topics_changed(MetadataImage(topics=topics), Changes(removed=removed)))

    # --- time and the log ---------------------------------------------------------------------------------------

    def _advance(self, said: Said) -> None:
        """Stops at every deadline on the way, as a timer would."""
        end_ms = self._clock.elapsed_ms() + said.number("ms", 0)
        while True:
            due_ms = self._groups.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self._clock.move(max(due_ms - self._clock.elapsed_ms(), 0))
            for action in self._groups.due(self._clock.elapsed_ms()):
                self._take(action())
        self._clock.move(end_ms - self._clock.elapsed_ms())

    def _expire(self, said: Said) -> None:
        for outcome in self._groups.expire(self._clock.now_ms()):
            self._take(outcome)

    def _replay(self, said: Said) -> None:
        for waiting in self._groups.waiting():
            waiting.complete(KafkaError(ErrorCode.NOT_COORDINATOR))
        self._groups = self._new()
        for lay_over in self._log:
            lay_over(self._groups)
        self._groups.loaded()

    def _too_large(self, said: Said) -> None:
        self._is_refusing = True

    def _ask(self, name: str, decide: Callable[[], Outcome[Any]], told: Callable[[str, Any], str]) -> None:
        try:
            outcome = decide()
        except KafkaError as refused:
            self._happened.append(f"{name}: {refused.code.name}")
            return

        def tell(value: Any) -> None:
            said = value.code.name if isinstance(value, KafkaError) else told(name, value)
            self._happened.append(f"{name}: {said}")

        response = outcome.response
        if isinstance(response, Promise):
            response.then(tell)
        self._take(outcome)
        if not isinstance(response, Promise):
            tell(response)
        elif not response.done:
            self._happened.append(f"{name} waits")

    def _take(self, outcome: Outcome[Any]) -> None:
        if outcome.records and self._is_refusing:
            self._is_refusing = False
            assert outcome.on_refused is not None, "nobody would know what to do"
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

    # --- what is known ------------------------------------------------------------------------------------------

    def _offsets(self, said: Said) -> str:
        committed = self._groups.state.offsets.get("g", {})
        told = [f"{topic}-{index}={each.offset}" for topic, of in committed.items() for index, each in of.items()]
        return " ".join(told) or "none"

    def _group(self, said: Said) -> str:
        group = self._groups.state.groups.get("g")
        if group is None:
            return "no group"
        assert isinstance(group, ClassicGroup)
        members = [
            f"{self._name(member.member_id)}"
            + (" joining" if member.joining else "")
            + (" syncing" if member.syncing else "")
            + (f" has {member.assignment.decode()}" if member.assignment else "")
            for member in group.members.values()
        ]
        pending = [f"{self._name(each)} pending" for each in sorted(group.pending_members)]
        leader = f", {self._name(group.leader)} leads" if group.leader else ""
        return f"{group.state} generation {group.generation}{leader}: {', '.join([*members, *pending]) or 'nobody'}"

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        if isinstance(key, OffsetCommitKey):
            return f"{key.topic}-{key.partition}" + (" gone" if value is None else "")
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            return "group gone"
        assert isinstance(value, GroupMetadataValue)
        members = [
            f"{self._name(each.member_id)} has {each.assignment.decode() or 'nothing'}" for each in value.members
        ]
        return f"generation {value.generation} ({'; '.join(members) or 'empty'})"

    def _name(self, member_id: str) -> str:
        """An id begins with the client's name, or with the instance's."""
        known = [name for name, each in self._ids.items() if each == member_id]
        return known[0] if known else member_id[:-37]


def _code(code: int) -> str:
    return "ok" if code == ErrorCode.NONE else ErrorCode(code).name
