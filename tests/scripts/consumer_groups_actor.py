"""Consumer groups as a script can drive them: members by name, each with the client's own idea of its epoch.

    topic a partitions=2, grow a count=4, drop a        what the cluster has
    join A topics=a,b regex=x.* instance=i assignor=range rack=r timeout=ms group=g
                                                        the first heartbeat; a group is `g` unless told otherwise
    beat A own=a-0,a-1 topics=… epoch=n version=n       another; `own=told` is what A was told last, `own=none` nothing
    leave A, away A                                     for good, or as a static member that will be back
    advance ms=500                                      lets time pass
    replay compacted=1                                  another coordinator takes over, from the log
    commit A a-0 epoch=n                                whether A may commit that
    fetch A epoch=n                                     whether A may fetch its offsets
    delete g                                            the group's tombstones
    group g                                             what is known of it, members and all
    owners g                                            who has what

Whatever is said, what it wrote to the log is told in the last line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from conversation import Said

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "coordinator" / "consumer"))

from consumer_rooms import ConsumerRooms, Named

from moldau.base.errors import KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer.describe import describe_group
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.wire.messages.consumer_group_describe import Assignment, Member
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

STATES = {0: "", 1: " unrevoked", 2: " unreleased"}


class ConsumerGroupsActor:
    def __init__(self) -> None:
        self._rooms = ConsumerRooms(GroupSettings(consumer_max_size=4))
        self._epochs: dict[str, int] = {}
        self._told: dict[str, Named] = {}
        self._instances: dict[str, str | None] = {}
        self._names: dict[Uuid, str] = {}
        self._written: list[CoordinatorRecord] = []

    def answer(self, said: Said) -> str:
        self._written = []
        try:
            told = getattr(self, "_" + said.name)(said) or "ok"
        except KafkaError as refused:
            told = refused.code.name
        for name, topic in self._rooms.current.image.topics.items():
            self._names[topic.id] = name
        return "\n".join([told, *(["wrote " + ", ".join(map(self._record, self._written))] if self._written else [])])

    # --- the cluster --------------------------------------------------------------------------------------------

    def _topic(self, said: Said) -> None:
        for name in said.words:
            self._rooms.create_topic(name, said.number("partitions", 1))

    def _grow(self, said: Said) -> None:
        self._rooms.grow_topic(said.words[0], said.number("count", 1))

    def _drop(self, said: Said) -> None:
        self._rooms.delete_topic(said.words[0])

    def _advance(self, said: Said) -> None:
        self._written = self._rooms.advance(said.number("ms", 0))

    def _replay(self, said: Said) -> None:
        self._rooms.replay(compacted=bool(said.number("compacted", 0)))

    # --- members ------------------------------------------------------------------------------------------------

    def _join(self, said: Said) -> str:
        name = said.words[0]
        self._instances[name] = said.values.get("instance")
        request = self._ask(said, 0)
        request.topic_partitions = []
        request.rebalance_timeout_ms = said.number("timeout", 60_000)
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            request.subscribed_topic_names = []
        return self._say(said, request)

    def _beat(self, said: Said) -> str:
        return self._say(said, self._ask(said, said.number("epoch", self._epochs.get(said.words[0], 1))))

    def _leave(self, said: Said) -> str:
        return self._say(said, self._ask(said, -1))

    def _away(self, said: Said) -> str:
        return self._say(said, self._ask(said, -2))

    def _ask(self, said: Said, epoch: int) -> ConsumerGroupHeartbeatRequest:
        name = said.words[0]
        names = said.values.get("topics")
        return ConsumerGroupHeartbeatRequest(
            group_id=said.values.get("group", "g"),
            member_id=said.values.get("id", name),
            member_epoch=epoch,
            instance_id=self._instances.get(name),
            rack_id=said.values.get("rack"),
            rebalance_timeout_ms=said.number("timeout", -1),
            subscribed_topic_names=None if names is None else [each for each in names.split(",") if each],
            subscribed_topic_regex=said.values.get("regex"),
            server_assignor=said.values.get("assignor"),
            topic_partitions=self._rooms.ids(self._owned(said)) if "own" in said.values else None,
        )

    def _owned(self, said: Said) -> Named:
        if said.values["own"] == "told":
            known = self._rooms.current.image.topics
            return {name: found for name, found in self._told.get(said.words[0], {}).items() if name in known}
        owned: Named = {}
        for word in said.values["own"].split(","):
            if word != "none":
                topic, _, index = word.rpartition("-")
                owned.setdefault(topic, set()).add(int(index))
        return owned

    def _say(self, said: Said, request: ConsumerGroupHeartbeatRequest) -> str:
        name = said.words[0]
        response, records = self._rooms.beat(request, said.number("version", 1))
        self._written = list(records)
        self._epochs[name] = response.member_epoch
        if response.assignment is None:
            return f"epoch={response.member_epoch}"
        given = {self._name(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions}
        self._told[name] = given
        return f"epoch={response.member_epoch} told {_shown(given)}"

    # --- what is known ------------------------------------------------------------------------------------------

    def _commit(self, said: Said) -> None:
        name, partition = said.words
        group = self._rooms.group(said.values.get("group", "g"))
        epoch = said.number("epoch", self._epochs.get(name, 0))
        check = group.check_commit(name, self._instances.get(name), epoch, said.number("version", 9))
        if check is not None:
            topic, _, index = partition.rpartition("-")
            check(self._rooms.current.image.topics[topic].id, int(index))

    def _fetch(self, said: Said) -> None:
        name = said.words[0]
        self._rooms.group().check_fetch(name, said.number("epoch", self._epochs.get(name, 0)))

    def _delete(self, said: Said) -> None:
        self._written = list(self._rooms.group(said.words[0]).tombstones())
        self._rooms.take(Outcome(None, self._written))

    def _owners(self, said: Said) -> str:
        owners = self._rooms.group(said.words[0]).owners
        return " ".join(sorted(f"{self._name(topic)}-{index}:{member}" for (topic, index), member in owners.items()))

    def _group(self, said: Said) -> str:
        if said.words[0] not in self._rooms.state.groups:
            return "no such group"
        rooms = self._rooms
        shown = describe_group(rooms.group(said.words[0]), rooms.current.image, rooms.state.settings.consumer_assignors)
        head = f"{shown.group_state} epoch={shown.group_epoch} target={shown.assignment_epoch} {shown.assignor_name}"
        states = {member.member_id: STATES[member.state] for member in rooms.group(said.words[0]).members.values()}
        return "\n".join([head, *(_member(each, states[each.member_id]) for each in shown.members)])

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        kind = key.__class__.__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        about = getattr(key, "member_id", None) or getattr(key, "regular_expression", None)
        name = f"{kind}({about})" if about else kind
        if value is None:
            return f"no {name}"
        epoch = next((getattr(value, each) for each in EPOCHS if hasattr(value, each)), None)
        told = "" if epoch is None else f"={epoch}"
        return name + told + self._partitions(value)

    def _partitions(self, value: object) -> str:
        if hasattr(value, "topics"):
            return f"[{' '.join(value.topics)}]"
        text = ""
        for field, sign in (
            ("topic_partitions", ""),
            ("assigned_partitions", ""),
            ("partitions_pending_revocation", "-"),
        ):
            found = {self._name(each.topic_id): set(each.partitions) for each in getattr(value, field, ())}
            if hasattr(value, field) and (found or not sign):
                text += f"{sign}[{_shown(found)}]"
        return text

    def _name(self, topic_id: Uuid) -> str:
        return self._rooms.current.image.topic_names.get(topic_id) or self._names[topic_id]


PARTITIONS = {"topic_partitions": "", "assigned_partitions": "", "partitions_pending_revocation": "-"}
EPOCHS = ("epoch", "assignment_epoch", "member_epoch")


def _shown(partitions: Named) -> str:
    return " ".join(f"{name}-{index}" for name in sorted(partitions) for index in sorted(partitions[name])) or "nothing"


def _assigned(assignment: Assignment | None) -> str:
    assert assignment is not None
    return _shown({each.topic_name: set(each.partitions) for each in assignment.topic_partitions})


def _member(shown: Member, state: str) -> str:
    said = "".join(
        f" {key}={value}"
        for key, value in (
            ("instance", shown.instance_id),
            ("topics", ",".join(shown.subscribed_topic_names)),
            ("regex", shown.subscribed_topic_regex),
            ("rack", shown.rack_id),
        )
        if value
    )
    has, should = _assigned(shown.assignment), _assigned(shown.target_assignment)
    return f"{shown.member_id} epoch={shown.member_epoch}{state}{said} has {has} should have {should}"
