"""Offsets committed in transactions that have not ended: who sent what for which partition, and what still counts.

Of several commits for one partition the one that stands last in the log is the group's, in whatever order their
transactions end. All of this is applied in the log's order, so no record's offset need be kept: the producers of a
partition stand in the order of their last commits, and what a later one overtook is struck out. It stays open without
its value: until the transaction ends, nobody may take the partition's offset for settled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from moldau.coordinator.group.records import OffsetCommitKey, OffsetCommitValue

TopicAndPartition = tuple[str, int]
Senders = dict[int, OffsetCommitValue | None]
"""What each producer committed, the latest last; None was overtaken."""
_NONE_OPEN: Final[Mapping[TopicAndPartition, Senders]] = {}


class TransactionalOffsets:
    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicAndPartition, Senders]] = {}
        self._producers: dict[int, dict[tuple[str, TopicAndPartition], None]] = {}
        """Where each has something open, in the order in which it began there."""

    def open_of(self, group_id: str) -> Collection[TopicAndPartition]:
        """The partitions of which a transaction may yet change the group's offset."""
        return self._groups.get(group_id, _NONE_OPEN).keys()

    def __iter__(self) -> Iterator[tuple[str, TopicAndPartition, OffsetCommitValue | None]]:
        """Everything that is open, by group and partition; what was overtaken is without its value."""
        for group_id, partitions in self._groups.items():
            for partition, senders in partitions.items():
                yield from ((group_id, partition, value) for value in senders.values())

    # --- the log ------------------------------------------------------------------------------------------------

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        partition = (key.topic, key.partition)
        senders = self._groups.setdefault(key.group, {}).setdefault(partition, {})
        senders.pop(producer_id, None)  # it stands last now, not where it stood
        senders[producer_id] = value
        self._producers.setdefault(producer_id, {})[key.group, partition] = None

    def overtake(self, key: OffsetCommitKey) -> None:
        """Somebody committed outside of transactions: later than all that are open."""
        senders = self._groups.get(key.group, _NONE_OPEN).get((key.topic, key.partition))
        if senders:
            senders.update(dict.fromkeys(senders))

    def forget(self, key: OffsetCommitKey) -> None:
        """The offset was removed, and all that was to take its place."""
        partition = (key.topic, key.partition)
        for producer_id in self._groups.get(key.group, _NONE_OPEN).get(partition, ()):
            places = self._producers[producer_id]
            del places[key.group, partition]
            if not places:
                del self._producers[producer_id]
        self._close(key.group, partition)

    def end(self, producer_id: int, committed: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Closes the producer's transaction; what the groups' offsets are by that."""
        settled = []
        for group_id, partition in self._producers.pop(producer_id, ()):
            senders = self._groups[group_id][partition]
            value = senders[producer_id]
            if committed and value is not None:
                _strike_older(senders, producer_id)
                settled.append((OffsetCommitKey(group_id, *partition), value))
            del senders[producer_id]
            if not senders:
                self._close(group_id, partition)
        return settled

    def _close(self, group_id: str, partition: TopicAndPartition) -> None:
        partitions = self._groups.get(group_id, {})
        partitions.pop(partition, None)
        if not partitions:
            self._groups.pop(group_id, None)


def _strike_older(senders: Senders, than: int) -> None:
    for producer_id in senders:
        if producer_id == than:
            return
        senders[producer_id] = None
