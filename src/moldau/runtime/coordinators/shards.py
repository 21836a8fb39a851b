"""The shards of a coordinator on this node: one for each partition of its topic that this node leads.

A group or transactional id belongs to the partition that its hash selects, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, Generic, TypeVar

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.machine import Outcome, ProducerIdAndEpoch
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.shard import Shard
from moldau.runtime.coordinators.shard_replay import Machine
from moldau.runtime.coordinators.topic import CoordinatorTopic
from moldau.wire.records import EndTxnMarker

log = logging.getLogger("moldau.coordinator")
M = TypeVar("M", bound=Machine)
R = TypeVar("R")
RELOAD_MS: Final = 1_000
"""The delay before a failed shard is loaded again: a disk problem is rarely over at once."""


class Shards(Generic[M]):
    """`make` returns a new, empty machine for a partition; the shard loads it from the log."""

    def __init__(
        self,
        topic: CoordinatorTopic,
        node_id: int,
        partitions: Partitions,
        make: Callable[[Partition], M],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._topic = topic
        self._node_id = node_id
        self._partitions = partitions
        self._make = make
        self._clock = clock
        self._timers = timers
        self._shards: dict[int, tuple[Shard, M]] = {}

    def __iter__(self) -> Iterator[M]:
        """Yield all machines of this node, also those that are still loading."""
        for _, machine in self._shards.values():
            yield machine

    def partition_of(self, key: str) -> int:
        return self._topic.partition_of(key).partition

    def submit(self, key: str, decide: Callable[[M], Outcome[R]]) -> R | Promise[R]:
        """Submit a request to the machine of `key`. Raise KafkaError if it is not on this node, or not loaded."""
        entry = self._shards.get(self.partition_of(key))
        if entry is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard, machine = entry
        return shard.submit(partial(decide, machine))

    def end_transaction(
        self, index: int, producer: ProducerIdAndEpoch, marker: EndTxnMarker, transaction_version: int
    ) -> Promise[ErrorCode]:
        """Append a transaction's marker to partition `index` of the topic, which for groups commits or aborts its
        offsets. Raise KafkaError if this node does not lead it, or its log refuses the marker; the promise may also be
        completed with one."""
        entry = self._shards.get(index)
        if entry is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return entry[0].end_transaction(producer, marker, transaction_version)

    def submit_all(self, decide: Callable[[M], Outcome[R]]) -> list[R | Promise[R]]:
        """Submit the same request to every machine. Raise KafkaError if one is not loaded."""
        return [shard.submit(partial(decide, machine)) for shard, machine in self._shards.values()]

    def notify(self, decide: Callable[[M], Outcome[None]]) -> None:
        """Submit a decision to every loaded machine. One that is still loading finds out from the log, or when offsets
        expire."""
        self.submit_outcomes(lambda machine: [decide(machine)])

    def submit_outcomes(self, decide: Callable[[M], Iterable[Outcome[None]]]) -> None:
        """Submit many decisions to every loaded machine, each outcome separately."""
        for shard, machine in list(self._shards.values()):
            for outcome in decide(machine) if shard.is_ready else ():
                if not shard.is_ready:
                    break
                try:
                    shard.submit(partial(_identity, outcome))
                except KafkaError as refused:
                    log.warning("%s: coordinator shard refused its own records: %s", shard.partition.name, refused)

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Open and close shards according to the leaders of the topic's partitions."""
        name = self._topic.name
        if any(removed.name == name for removed in changes.removed):
            self.close(ErrorCode.NOT_COORDINATOR)
        if name in changes.topics:
            for index, _ in enumerate(image.topics[name].partitions):
                self._update_shard(index, image)

    def _update_shard(self, index: int, image: MetadataImage) -> None:
        partition = self._partitions.find(self._topic.name, index)
        is_ours = partition is not None and image.topics[self._topic.name].partitions[index].leader == self._node_id
        entry = self._shards.get(index)
        if entry is not None and not (is_ours and entry[0].partition is partition):
            self._shards.pop(index)[0].close(ErrorCode.NOT_COORDINATOR)
            entry = None
        if entry is None and is_ours:
            assert partition is not None
            self._open(index, partition)

    def _open(self, index: int, partition: Partition) -> None:
        machine = self._make(partition)
        shard = Shard(partition, machine, self._clock, self._timers, lambda failed: self._on_failed(index, failed))
        self._shards[index] = (shard, machine)
        shard.load()

    def _on_failed(self, index: int, failed: Shard) -> None:
        self._timers.after_ms(RELOAD_MS, lambda: self._reopen(index, failed))

    def _reopen(self, index: int, failed: Shard) -> None:
        entry = self._shards.get(index)
        if entry is not None and entry[0] is failed and failed.partition.is_leader:
            self._open(index, failed.partition)

    def close(self, code: ErrorCode) -> None:
        shards, self._shards = self._shards, {}
        for shard, _ in shards.values():
            shard.close(code)


def _identity(outcome: Outcome[None]) -> Outcome[None]:
    return outcome
