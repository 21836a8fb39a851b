"""Runs scripts about consumer groups. Members have names; the actor keeps their epochs and assignments, as clients do.

    topic a partitions=2, grow a count=4, delete-topic a        change the cluster's topics
    configure g session=ms heartbeat=ms interval=ms     gives a group configs of its own
    join A topics=a,b regex=x.* instance=i assignor=range rack=r timeout=ms group=g
                                                        the first heartbeat; the default group is `g`
    beat A own=a-0,a-1 topics=… epoch=n version=n       another; `own=assigned`: its last assignment; `own=none`
    leave A, leave-temporarily A                        epoch -1; epoch -2, as a static member that will be back
    advance ms=500                                      lets time pass
    replay compacted=1                                  another coordinator takes over and replays the log
    commit A a-0 epoch=n                                whether A may commit that
    fetch A epoch=n                                     whether A may fetch its offsets
    delete-group g                                      writes the group's tombstones
    group g                                             the group's state, with its members
    owners g                                            the owners of the partitions

The last line of every answer has the records written to the log.
"""

from __future__ import annotations

from harness.in_memory_consumer_shard import InMemoryConsumerShard, PartitionsByTopicName
from script import Command

from moldau.base.errors import KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.consumer.describe import describe_group
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.wire.messages.consumer_group_describe import Assignment, Member
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

STATES = {0: "", 1: " unrevoked", 2: " unreleased"}

USUAL_INTERVAL_MS = 5_000


class ConsumerGroupsActor:
    def __init__(self) -> None:
        self._shard = InMemoryConsumerShard(GroupSettings(consumer_max_size=4))
        self._epochs: dict[str, int] = {}
        self._assigned: dict[str, PartitionsByTopicName] = {}
        self._instances: dict[str, str | None] = {}
        self._names: dict[Uuid, str] = {}
        self._written: list[CoordinatorRecord] = []

    def answer(self, command: Command) -> str:
        self._written = []
        try:
            answer = getattr(self, "_" + command.name.replace("-", "_"))(command) or "ok"
        except KafkaError as error:
            answer = error.code.name
        for name, topic in self._shard.current.image.topics.items():
            self._names[topic.id] = name
        return "\n".join([answer, *(["wrote " + ", ".join(map(self._record, self._written))] if self._written else [])])

    # --- the cluster --------------------------------------------------------------------------------------------

    def _topic(self, command: Command) -> None:
        for name in command.words:
            self._shard.create_topic(name, command.number("partitions", 1))

    def _grow(self, command: Command) -> None:
        self._shard.grow_topic(command.words[0], command.number("count", 1))

    def _delete_topic(self, command: Command) -> None:
        self._shard.delete_topic(command.words[0])

    def _configure(self, command: Command) -> None:
        names = {
            "session": "consumer.session.timeout.ms",
            "heartbeat": "consumer.heartbeat.interval.ms",
            "interval": "consumer.assignment.interval.ms",
        }
        configs = {names[name]: value for name, value in command.values.items()}
        self._shard.set_group_configs(command.words[0], configs)

    def _advance(self, command: Command) -> None:
        self._written = self._shard.advance(command.number("ms", 0))

    def _replay(self, command: Command) -> None:
        self._shard.replay(compacted=bool(command.number("compacted", 0)))

    # --- members ------------------------------------------------------------------------------------------------

    def _join(self, command: Command) -> str:
        name = command.words[0]
        self._instances[name] = command.values.get("instance")
        request = self._request(command, 0)
        request.topic_partitions = []
        request.rebalance_timeout_ms = command.number("timeout", 60_000)
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            request.subscribed_topic_names = []
        return self._heartbeat(command, request)

    def _beat(self, command: Command) -> str:
        return self._heartbeat(
            command, self._request(command, command.number("epoch", self._epochs.get(command.words[0], 1)))
        )

    def _leave(self, command: Command) -> str:
        return self._heartbeat(command, self._request(command, -1))

    def _leave_temporarily(self, command: Command) -> str:
        return self._heartbeat(command, self._request(command, -2))

    def _request(self, command: Command, epoch: int) -> ConsumerGroupHeartbeatRequest:
        name = command.words[0]
        names = command.values.get("topics")
        return ConsumerGroupHeartbeatRequest(
            group_id=command.values.get("group", "g"),
            member_id=command.values.get("id", name),
            member_epoch=epoch,
            instance_id=self._instances.get(name),
            rack_id=command.values.get("rack"),
            rebalance_timeout_ms=command.number("timeout", -1),
            subscribed_topic_names=None if names is None else [each for each in names.split(",") if each],
            subscribed_topic_regex=command.values.get("regex"),
            server_assignor=command.values.get("assignor"),
            topic_partitions=self._shard.ids(self._owned(command)) if "own" in command.values else None,
        )

    def _owned(self, command: Command) -> PartitionsByTopicName:
        if command.values["own"] == "assigned":
            known = self._shard.current.image.topics
            return {name: found for name, found in self._assigned.get(command.words[0], {}).items() if name in known}
        owned: PartitionsByTopicName = {}
        for word in command.values["own"].split(","):
            if word != "none":
                topic, _, index = word.rpartition("-")
                owned.setdefault(topic, set()).add(int(index))
        return owned

    def _heartbeat(self, command: Command, request: ConsumerGroupHeartbeatRequest) -> str:
        name = command.words[0]
        response, records = self._shard.heartbeat(request, command.number("version", 1))
        self._written = list(records)
        self._epochs[name] = response.member_epoch
        interval_ms = response.heartbeat_interval_ms
        every = "" if interval_ms in (0, USUAL_INTERVAL_MS) else f" every={interval_ms}"
        if response.assignment is None:
            return f"epoch={response.member_epoch}{every}"
        assigned = {self._name(each.topic_id): set(each.partitions) for each in response.assignment.topic_partitions}
        self._assigned[name] = assigned
        return f"epoch={response.member_epoch}{every} assigned {_shown(assigned)}"

    # --- the state ----------------------------------------------------------------------------------------------

    def _commit(self, command: Command) -> None:
        name, partition = command.words
        group = self._shard.group(command.values.get("group", "g"))
        epoch = command.number("epoch", self._epochs.get(name, 0))
        check = group.check_commit(name, self._instances.get(name), epoch, command.number("version", 9))
        if check is not None:
            topic, _, index = partition.rpartition("-")
            check(self._shard.current.image.topics[topic].id, int(index))

    def _fetch(self, command: Command) -> None:
        name = command.words[0]
        self._shard.group().check_fetch(name, command.number("epoch", self._epochs.get(name, 0)))

    def _delete_group(self, command: Command) -> None:
        self._written = list(self._shard.group(command.words[0]).tombstones())
        self._shard.execute(Outcome(None, self._written))

    def _owners(self, command: Command) -> str:
        owners = self._shard.group(command.words[0]).owners
        return " ".join(sorted(f"{self._name(topic)}-{index}:{member}" for (topic, index), member in owners.items()))

    def _group(self, command: Command) -> str:
        if command.words[0] not in self._shard.state.groups:
            return "no such group"
        shard = self._shard
        shown = describe_group(
            shard.group(command.words[0]), shard.current.image, shard.state.settings.consumer_assignors
        )
        head = f"{shown.group_state} epoch={shown.group_epoch} target={shown.assignment_epoch} {shown.assignor_name}"
        states = {member.member_id: STATES[member.state] for member in shard.group(command.words[0]).members.values()}
        return "\n".join([head, *(_member(each, states[each.member_id]) for each in shown.members)])

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        kind = key.__class__.__name__.removeprefix("ConsumerGroup").removesuffix("Key")
        about = getattr(key, "member_id", None) or getattr(key, "regular_expression", None)
        name = f"{kind}({about})" if about else kind
        if value is None:
            return f"no {name}"
        epoch = next((getattr(value, each) for each in EPOCHS if hasattr(value, each)), None)
        suffix = "" if epoch is None else f"={epoch}"
        return name + suffix + self._partitions(value)

    def _partitions(self, value: object) -> str:
        if hasattr(value, "topics"):
            return f"[{' '.join(value.topics)}]"
        text = ""
        for field, sign in PARTITION_FIELDS.items():
            found = {self._name(each.topic_id): set(each.partitions) for each in getattr(value, field, ())}
            if hasattr(value, field) and (found or not sign):
                text += f"{sign}[{_shown(found)}]"
        return text

    def _name(self, topic_id: Uuid) -> str:
        return self._shard.current.image.topic_names.get(topic_id) or self._names[topic_id]


PARTITION_FIELDS = {"topic_partitions": "", "assigned_partitions": "", "partitions_pending_revocation": "-"}
EPOCHS = ("epoch", "assignment_epoch", "member_epoch")


def _shown(partitions: PartitionsByTopicName) -> str:
    return " ".join(f"{name}-{index}" for name in sorted(partitions) for index in sorted(partitions[name])) or "nothing"


def _assigned(assignment: Assignment | None) -> str:
    assert assignment is not None
    return _shown({each.topic_name: set(each.partitions) for each in assignment.topic_partitions})


def _member(shown: Member, state: str) -> str:
    text = "".join(
        f" {key}={value}"
        for key, value in (
            ("instance", shown.instance_id),
            ("topics", ",".join(shown.subscribed_topic_names)),
            ("regex", shown.subscribed_topic_regex),
            ("rack", shown.rack_id),
        )
        if value
    )
    has, target = _assigned(shown.assignment), _assigned(shown.target_assignment)
    return f"{shown.member_id} epoch={shown.member_epoch}{state}{text} has {has} target {target}"
