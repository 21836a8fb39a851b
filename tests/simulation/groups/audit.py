"""Reads the coordinator's log independently, and replays machines from it.

Every record must be valid after the records before it; committed records must survive any crash; a machine replayed
from the log must have the state of the one that wrote it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from groups.coordinator import Coordinator
from moldau.base.ids import Uuid
from moldau.coordinator.group import serde
from moldau.coordinator.group.classic.group import ClassicGroup, State
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.groups import Groups
from moldau.log.log import Log
from moldau.log.walk import walk_headers
from moldau.wire.log_records import offsets as logged
from moldau.wire.log_records.offsets import GroupMetadataKey, OffsetCommitKey
from moldau.wire.records import Record, decode_records

if TYPE_CHECKING:
    from groups.world import GroupsWorld


@dataclass(slots=True)
class PartitionLog:
    """One partition of the log, as far as it was read."""

    end_offset: int = 0
    segment_base: int = 0
    position: int = 0
    """Position of the next batch, if it is in the same segment."""
    batches: list[tuple[int, int]] = field(default_factory=list)
    """Last offset and checksum of each batch."""


class Audit:
    def __init__(self, world: GroupsWorld) -> None:
        self._world = world
        self.records = 0
        self.forget()

    def forget(self) -> None:
        """Start from scratch: the log may be shorter than it was."""
        self._partition_logs: dict[int, PartitionLog] = {}
        self._deletions: dict[str, int] = {}
        self._values: dict[Any, Any] = {}
        self._owners: dict[tuple[str, Uuid, int], str] = {}
        self._has: dict[tuple[str, str], list[tuple[str, Uuid, int]]] = {}

    def reopen(self) -> None:
        """Read the log of another process. If it is shorter than before, read all of it again."""
        found = {
            partition.name.partition: [
                (header.last_offset, header.crc)
                for segment in partition.log.segments
                for _, header in walk_headers(segment.file, 0, segment.size)
            ]
            for partition in self._world.machine.offsets_partitions()
        }
        if any(
            found[index][: len(partition_log.batches)] != partition_log.batches
            for index, partition_log in self._partition_logs.items()
        ):
            self.forget()
            self.catch_up(is_replay=True)
        else:
            self.catch_up()

    def deletions(self, group_id: str) -> int:
        """Return how often the group was deleted so far: generations start at 1 again after each deletion."""
        return self._deletions.get(group_id, 0)

    # --- reading --------------------------------------------------------------------------------------------------

    def catch_up(self, is_replay: bool = False) -> None:
        if not self._world.machine.is_serving:
            return
        for partition in self._world.machine.offsets_partitions():
            partition_log = self._partition_logs.setdefault(partition.name.partition, PartitionLog())
            if partition.log.end_offset > partition_log.end_offset:
                self._read(partition.log, partition_log, is_replay)

    def _read(self, log: Log, partition_log: PartitionLog, is_replay: bool) -> None:
        for segment in list(log.segments):
            if segment.base_offset < partition_log.segment_base:
                continue
            if segment.base_offset > partition_log.segment_base:
                partition_log.segment_base, partition_log.position = segment.base_offset, 0
            for position, header in walk_headers(segment.file, partition_log.position, segment.size):
                self._judge_batch(decode_records(segment.read_batch(position, header.size_in_bytes), header), is_replay)
                partition_log.end_offset = header.last_offset + 1
                partition_log.position = position + header.size_in_bytes
                partition_log.batches.append((header.last_offset, header.crc))

    def _judge_batch(self, records: list[Record], is_replay: bool) -> None:
        touched: set[tuple[str, str]] = set()
        for record in records:
            self.records += 1
            self._judge(record, is_replay, touched)
        for group_id, member_id in sorted(touched):
            self._free(group_id, member_id)
        for group_id, member_id in sorted(touched):
            self._check_owner(group_id, member_id)

    def _judge(self, record: Record, is_replay: bool, touched: set[tuple[str, str]]) -> None:
        found = serde.decode_record(record.key or b"", record.value)
        if found is None:
            self._world.violated(f"a record that cannot be decoded was written: {record}")
            return
        key, value = found
        name = (key.__class__, *(getattr(key, each) for each in key.__slots__))
        before = self._values.get(name)
        if isinstance(key, OffsetCommitKey):
            self._judge_offset(key, before, value, is_replay)
        elif isinstance(key, GroupMetadataKey):
            self._judge_classic(key.group, before, value)
        elif isinstance(key, logged.ConsumerGroupCurrentMemberAssignmentKey):
            touched.add((key.group_id, key.member_id))
        elif isinstance(key, logged.ConsumerGroupMetadataKey):
            self._judge_consumer(key.group_id, before, value)
        self._values[name] = value

    def _judge_offset(self, key: OffsetCommitKey, before: Any, value: Any, is_replay: bool) -> None:
        world = self._world
        topic = world.image.topics.get(key.topic)
        if value is None and before is not None:
            if not is_replay:
                self._judge_removal(key, before)
            for topic_id in world.ids_of(key.topic):
                world.ledger.forget((key.group, topic_id, key.partition))
        elif value is not None and before is not None and topic is not None and not is_replay:
            place = (key.group, topic.id, key.partition)
            if value.offset < before.offset and (place, value.offset) not in world.ledger.resets:
                world.violated(f"{world.ledger.shown(place)} decreases from {before.offset} to {value.offset}")

    def _judge_removal(self, key: OffsetCommitKey, before: Any) -> None:
        world = self._world
        is_asked_for = world.ledger.unsure.get(key.group, 0) > 0
        is_deleted = key.topic not in world.image.topics
        age_ms = world.machine.clock.now_ms() - before.commit_timestamp
        is_old = age_ms >= world.machine.settings.groups.offsets_retention_ms
        if not (is_asked_for or is_deleted or is_old):
            world.violated(f"the offset of {key.topic}-{key.partition} in {key.group} is removed after {age_ms} ms")
        if world.is_read(key.group, key.topic, key.partition):
            world.violated(
                f"the offset of {key.topic}-{key.partition} in {key.group} is removed while a member reads it"
            )

    def _judge_classic(self, group_id: str, before: Any, value: Any) -> None:
        if value is None:
            if before is not None:
                self._deletions[group_id] = self.deletions(group_id) + 1
            return
        if before is None:
            return
        if value.generation < before.generation:
            self._world.violated(f"{group_id}: generation {before.generation} is followed by {value.generation}")
        if value.generation == before.generation:
            # Only a static member that rejoined with another id is written within a generation.
            then = sorted(each.group_instance_id or each.member_id for each in before.members)
            now = sorted(each.group_instance_id or each.member_id for each in value.members)
            if then != now:
                self._world.violated(f"{group_id}: generation {value.generation} has members {then} and {now}")

    def _judge_consumer(self, group_id: str, before: Any, value: Any) -> None:
        if value is None:
            self._deletions[group_id] = self.deletions(group_id) + 1
        elif before is not None and value.epoch <= before.epoch:
            self._world.violated(f"{group_id}: epoch {before.epoch} is followed by {value.epoch}")

    def _free(self, group_id: str, member_id: str) -> None:
        for place in self._has.pop((group_id, member_id), ()):
            self._owners.pop(place, None)

    def _check_owner(self, group_id: str, member_id: str) -> None:
        """Check that no other member owns this member's partitions, by the log."""
        name = (logged.ConsumerGroupCurrentMemberAssignmentKey, group_id, member_id)
        value = self._values.get(name)
        if value is None:
            return
        has = self._has[group_id, member_id] = []
        for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
            for index in topic.partitions:
                place = (group_id, topic.topic_id, index)
                has.append(place)
                owner = self._owners.setdefault(place, member_id)
                if owner != member_id:
                    self._world.violated(f"{group_id}: in the log, {member_id} is assigned {index}, which {owner} owns")

    # --- crashes --------------------------------------------------------------------------------------------------

    def promised(self) -> dict[int, list[tuple[int, int]]]:
        """Return what is committed now and must therefore survive."""
        return {
            partition.name.partition: [
                batch
                for batch in self._partition_logs.get(partition.name.partition, PartitionLog()).batches
                if batch[0] < partition.high_watermark
            ]
            for partition in self._world.machine.offsets_partitions()
        }

    def check_kept(self, promised: dict[int, list[tuple[int, int]]]) -> None:
        for index, batches_before in promised.items():
            kept = self._partition_logs.get(index, PartitionLog()).batches[: len(batches_before)]
            if kept != batches_before:
                lost = next(a for a, b in zip(batches_before, [*kept, None], strict=False) if a != b)
                self._world.violated(f"partition {index} lost the committed batch that ends at {lost[0]}")


# --- replayed machines --------------------------------------------------------------------------------------------


def all_records(log: Log) -> list[Record]:
    return [
        record
        for segment in log.segments
        for position, header in walk_headers(segment.file, 0, segment.size)
        for record in decode_records(segment.read_batch(position, header.size_in_bytes), header)
    ]


def replayed(machine: Coordinator, log: Log, is_compacted: bool) -> Groups:
    records = all_records(log)
    if is_compacted:
        last = {record.key: place for place, record in enumerate(records)}
        records = [record for place, record in enumerate(records) if last[record.key] == place]
    groups = Groups(machine.settings.groups, machine.current, machine.clock, Random(0))
    for record in records:
        groups.replay(record.key or b"", record.value)
    groups.loaded()
    return groups


def differences(live: Groups, other: Groups) -> list[str]:
    """Return how the other machine differs from the live one, in what the log contains."""
    found = []
    for group_id in sorted(live.state.groups.keys() | other.state.groups.keys()):
        one, two = shown_group(live, group_id), shown_group(other, group_id)
        if one is not None and one != two:
            found.append(f"{group_id} is {one} but replayed it is {two}")
    if live.state.offsets != other.state.offsets:
        for group_id in sorted(live.state.offsets.keys() | other.state.offsets.keys()):
            there = other.state.current.image.topics
            mine, others = shown_offsets(live, group_id, there), shown_offsets(other, group_id, there)
            if mine != others:
                found.append(f"offsets of {group_id} are {mine} but replayed they are {others}")
    return found


def shown_offsets(machine: Groups, group_id: str, there: Collection[str]) -> Any:
    """Return the offsets in existing topics: a machine removes those of deleted topics when it learns of the deletion,
    which the two may not have done alike."""
    committed = machine.state.offsets.get(group_id, {})
    return {topic: partitions for topic, partitions in committed.items() if topic in there}


def shown_group(machine: Groups, group_id: str) -> Any:
    """Return the group's state, or None where the log need not have it: a classic group between two generations."""
    group = machine.state.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        if group.state not in (State.STABLE, State.EMPTY):
            return None
        if not group.generation:
            return "nothing but offsets" if group_id in machine.state.offsets else None
        return (
            group.state,
            group.generation,
            group.protocol_type_or_none,
            group.protocol_name,
            group.leader,
            group.subscribed_topics,
            {each.member_id: _shown_member(each, group.protocol_name) for each in group.members.values()},
            dict(group.static_members),
        )
    if isinstance(group, ConsumerGroup):
        subscriptions = group.subscriptions
        return (
            group.state_name, group.epoch, group.assignment_epoch, group.metadata_hash, group.members, group.targets,
            group.owners, group.static_members, group.assignor_counts, subscriptions.name_sets, subscriptions.patterns,
            subscriptions.resolved, subscriptions.topics,
        )  # fmt: skip
    return "nothing but offsets" if group_id in machine.state.offsets else None


def _shown_member(member: Any, protocol: str | None) -> Any:
    return (
        member.instance_id, member.client_id, member.rebalance_timeout_ms, member.session_timeout_ms,
        bytes(member.metadata_of(protocol or "")), bytes(member.assignment),
    )  # fmt: skip
