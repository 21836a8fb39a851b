"""Offsets committed in open transactions: which producer committed which value for which partition.

Of several commits for one partition, the last one in the log wins, in whatever order their transactions end. Records
are applied in log order, so their log offsets need not be stored: the producers of a partition are ordered by their
last commits, and when a later one takes effect (its transaction commits, or it has none), earlier ones become None.
Such an entry stays until its transaction ends, because the partition's offset is unstable until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from moldau.wire.log_records.offsets import OffsetCommitKey, OffsetCommitValue

TopicAndPartition = tuple[str, int]
ValuesByProducer = dict[int, OffsetCommitValue | None]
"""The value of each producer id, the latest commit last; None if a later commit replaced it."""
_NONE_OPEN: Final[Mapping[TopicAndPartition, ValuesByProducer]] = {}


class TransactionalOffsets:
    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicAndPartition, ValuesByProducer]] = {}
        """The open commits of each group that has any."""
        self._producers: dict[int, dict[tuple[str, TopicAndPartition], None]] = {}
        """The groups and partitions with an open commit of each producer id, in the order of its first commits."""

    def open_of(self, group_id: str) -> Collection[TopicAndPartition]:
        """Return the partitions whose offset an open transaction may still change."""
        return self.groups.get(group_id, _NONE_OPEN).keys()

    def __iter__(self) -> Iterator[tuple[str, TopicAndPartition, OffsetCommitValue | None]]:
        """Yield group, partition and value of every open commit; the value is None if a later commit replaced it."""
        for group_id, partitions in self.groups.items():
            for partition, values in partitions.items():
                yield from ((group_id, partition, value) for value in values.values())

    # --- the log ------------------------------------------------------------------------------------------------

    def add(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        partition = (key.topic, key.partition)
        values = self.groups.setdefault(key.group, {}).setdefault(partition, {})
        values.pop(producer_id, None)  # a dict keeps the old position; this commit must be last
        values[producer_id] = value
        self._producers.setdefault(producer_id, {})[key.group, partition] = None

    def overtake(self, key: OffsetCommitKey) -> None:
        """Replace all open commits of the partition: a commit without a transaction came after them."""
        values = self.groups.get(key.group, _NONE_OPEN).get((key.topic, key.partition))
        if values:
            values.update(dict.fromkeys(values))

    def forget(self, key: OffsetCommitKey) -> None:
        """Drop all open commits of the partition: its offset was removed."""
        partition = (key.topic, key.partition)
        for producer_id in self.groups.get(key.group, _NONE_OPEN).get(partition, ()):
            open_commits = self._producers[producer_id]
            del open_commits[key.group, partition]
            if not open_commits:
                del self._producers[producer_id]
        self._close(key.group, partition)

    def end(self, producer_id: int, committed: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """End the producer's transaction and return the offsets that it commits."""
        commits = []
        for group_id, partition in self._producers.pop(producer_id, ()):
            values = self.groups[group_id][partition]
            value = values[producer_id]
            if committed and value is not None:
                _strike_older(values, producer_id)
                commits.append((OffsetCommitKey(group_id, *partition), value))
            del values[producer_id]
            if not values:
                self._close(group_id, partition)
        return commits

    def _close(self, group_id: str, partition: TopicAndPartition) -> None:
        partitions = self.groups.get(group_id, {})
        partitions.pop(partition, None)
        if not partitions:
            self.groups.pop(group_id, None)


def _strike_older(values: ValuesByProducer, newest: int) -> None:
    for producer_id in values:
        if producer_id == newest:
            return
        values[producer_id] = None
