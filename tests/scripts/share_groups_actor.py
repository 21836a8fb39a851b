"""Runs scripts about share groups. Members have names; the actor keeps their epochs, as clients do.

    topic a partitions=2, grow a count=4, delete-topic a    change the cluster's topics
    configure g session=ms heartbeat=ms interval=ms         gives a group configs of its own
    join A topics=a,b rack=r group=g id=x                   the first heartbeat; the default group is `g`
    beat A topics=a,b epoch=n                               another heartbeat
    leave A                                                 epoch -1
    advance ms=500                                          lets time pass
    replay                                                  another coordinator takes over and replays the log
    make except=a-1                                         the share coordinators make the states they were asked for
    group g                                                 the group's state, with its members
    states g                                                the partitions whose states are made
    readers g                                               the members that read each partition

The last line of every answer has the records written to the log. After each command another coordinator, which only
reads the log, must have the same state.
"""

from __future__ import annotations

from harness.in_memory_group_shard import InMemoryGroupShard
from script import Command

from moldau.base.errors import KafkaError
from moldau.base.ids import Uuid
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.share.describe import describe_group
from moldau.coordinator.group.share.heartbeat import find_share_group
from moldau.coordinator.group.share.initializing import on_made
from moldau.coordinator.group.share.member import PartitionsByTopicId
from moldau.coordinator.group.share.states import StatesByTopicId
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.log_records.share_groups import ShareGroupStatePartitionMetadataValue, TopicPartitionsInfo
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

USUAL_INTERVAL_MS = 5_000
CONFIGS = {
    "session": "share.session.timeout.ms",
    "heartbeat": "share.heartbeat.interval.ms",
    "interval": "share.assignment.interval.ms",
}
EPOCHS = ("epoch", "assignment_epoch", "member_epoch")
PARTITION_FIELDS = ("topic_partitions", "assigned_partitions")


class ShareGroupsActor:
    def __init__(self) -> None:
        self._shard = InMemoryGroupShard(GroupSettings(share_max_size=3))
        self._epochs: dict[str, int] = {}
        self._names: dict[Uuid, str] = {}

    def answer(self, command: Command) -> str:
        before = len(self._shard.written)
        try:
            answer = getattr(self, "_" + command.name.replace("-", "_"))(command) or "ok"
        except KafkaError as error:
            answer = error.code.name
        for name, topic in self._shard.current.image.topics.items():
            self._names[topic.id] = name
        self._shard.check_replay()
        written = ", ".join(map(self._record, self._shard.written[before:]))
        return f"{answer}\nwrote {written}" if written else answer

    # --- the cluster --------------------------------------------------------------------------------------------

    def _topic(self, command: Command) -> None:
        for name in command.words:
            self._shard.create_topic(name, command.number("partitions", 1))

    def _grow(self, command: Command) -> None:
        self._shard.grow_topic(command.words[0], command.number("count", 1))

    def _delete_topic(self, command: Command) -> None:
        self._shard.delete_topic(command.words[0])

    def _configure(self, command: Command) -> None:
        self._shard.set_group_configs(command.words[0], {CONFIGS[name]: text for name, text in command.values.items()})

    def _advance(self, command: Command) -> None:
        self._shard.advance(command.number("ms", 0))

    def _replay(self, command: Command) -> None:
        self._shard.replay()

    def _make(self, command: Command) -> str:
        """Make the states, except that of one partition."""
        asked = []
        while self._shard.initializations:
            group_id, epoch, start_offsets = self._shard.initializations.pop(0)
            made: dict[Uuid, frozenset[int]] = {}
            not_made: dict[Uuid, frozenset[int]] = {}
            for topic_id, offsets in start_offsets.items():
                name = self._names[topic_id]
                failed = {index for index in offsets if f"{name}-{index}" == command.values.get("except")}
                made[topic_id] = frozenset(offsets.keys() - failed)
                not_made[topic_id] = frozenset(failed)
                asked.append(f"{group_id} in epoch {epoch}: {self._shown({topic_id: frozenset(offsets)})}")
            self._shard.execute(on_made(self._shard.groups.state, group_id, made, not_made))
        return "\n".join(asked) or "nothing to make"

    # --- members ------------------------------------------------------------------------------------------------

    def _join(self, command: Command) -> str:
        return self._heartbeat(command, 0)

    def _beat(self, command: Command) -> str:
        return self._heartbeat(command, command.number("epoch", self._epochs.get(command.words[0], 1)))

    def _leave(self, command: Command) -> str:
        return self._heartbeat(command, -1)

    def _heartbeat(self, command: Command, epoch: int) -> str:
        name = command.words[0]
        names = command.values.get("topics")
        request = ShareGroupHeartbeatRequest(
            command.values.get("group", "g"),
            command.values.get("id", name),
            epoch,
            command.values.get("rack"),
            None if names is None else [each for each in names.split(",") if each],
        )
        response = self._shard.share_heartbeat(request)
        self._epochs[name] = response.member_epoch
        interval_ms = response.heartbeat_interval_ms
        every = "" if interval_ms in (0, USUAL_INTERVAL_MS) else f" every={interval_ms}"
        if response.assignment is None:
            return f"epoch={response.member_epoch}{every}"
        assigned = {each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions}
        return f"epoch={response.member_epoch}{every} assigned {self._shown(assigned)}"

    # --- the state ----------------------------------------------------------------------------------------------

    def _group(self, command: Command) -> str:
        shard = self._shard
        shown = describe_group(find_share_group(shard.groups.state, command.words[0]), shard.current.image)
        lines = [f"{shown.group_state} epoch={shown.group_epoch} target={shown.assignment_epoch} {shown.assignor_name}"]
        for each in shown.members:
            assert each.assignment is not None
            has = {topic.topic_id: frozenset(topic.partitions) for topic in each.assignment.topic_partitions}
            rack = f" rack={each.rack_id}" if each.rack_id else ""
            topics = ",".join(each.subscribed_topic_names)
            lines.append(f"{each.member_id} epoch={each.member_epoch} topics={topics}{rack} has {self._shown(has)}")
        return "\n".join(lines)

    def _states(self, command: Command) -> str:
        states = find_share_group(self._shard.groups.state, command.words[0]).states
        return (
            f"initializing {self._shown(_partitions(states.initializing))}\n"
            f"initialized {self._shown(_partitions(states.initialized))}\n"
            f"deleting {' '.join(sorted(states.deleting.values())) or 'nothing'}"
        )

    def _readers(self, command: Command) -> str:
        readers: dict[str, list[str]] = {}
        group = find_share_group(self._shard.groups.state, command.words[0])
        for member in group.members.values():
            for topic_id, indexes in member.assigned.items():
                for index in indexes:
                    readers.setdefault(f"{self._name(topic_id)}-{index}", []).append(member.member_id)
        return " ".join(f"{place}:{'+'.join(sorted(found))}" for place, found in sorted(readers.items())) or "nobody"

    def _record(self, record: CoordinatorRecord) -> str:
        key, value = record
        kind = key.__class__.__name__.removeprefix("ShareGroup").removesuffix("Key")
        about = getattr(key, "member_id", None)
        name = f"{kind}({about})" if about else kind
        if value is None:
            return f"no {name}"
        if isinstance(value, ShareGroupStatePartitionMetadataValue):
            deleting = " ".join(each.topic_name for each in value.deleting_topics) or "nothing"
            parts = (self._infos(value.initializing_topics), self._infos(value.initialized_topics), deleting)
            return f"{name}[{' / '.join(parts)}]"
        epoch = next((getattr(value, each) for each in EPOCHS if hasattr(value, each)), None)
        text = "" if epoch is None else f"={epoch}"
        for field in PARTITION_FIELDS:
            if hasattr(value, field):
                found = {each.topic_id: frozenset(each.partitions) for each in getattr(value, field)}
                text += f"[{self._shown(found)}]"
        return name + text

    def _infos(self, topics: list[TopicPartitionsInfo]) -> str:
        return self._shown({each.topic_id: frozenset(each.partitions) for each in topics})

    def _shown(self, partitions: PartitionsByTopicId) -> str:
        named = sorted((self._name(topic_id), sorted(indexes)) for topic_id, indexes in partitions.items())
        return " ".join(f"{name}-{index}" for name, indexes in named for index in indexes) or "nothing"

    def _name(self, topic_id: Uuid) -> str:
        return self._shard.current.image.topic_names.get(topic_id) or self._names[topic_id]


def _partitions(topics: StatesByTopicId) -> PartitionsByTopicId:
    return {topic_id: topic.partitions for topic_id, topic in topics.items()}
