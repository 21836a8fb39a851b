"""The shards of a coordinator that this node has: one for each partition of its topic that this node leads.

A group belongs to the partition that its id hashes to, as everywhere in Kafka.
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
"""How long a shard whose log refused stays away: what was wrong with the disk is seldom over at once."""


class Shards(Generic[M]):
    """`make` gives a machine for a partition that knows nothing yet; it is filled from the log."""

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
        """All machines here, also those that are still being loaded."""
        for _, machine in self._shards.values():
            yield machine

    def partition_of(self, key: str) -> int:
        return self._topic.partition_of(key).partition

    def submit(self, key: str, decide: Callable[[M], Outcome[R]]) -> R | Promise[R]:
        """Puts a request to the machine that `key` belongs to. KafkaError if that is not here, or not ready."""
        found = self._shards.get(self.partition_of(key))
        if found is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        shard, machine = found
        return shard.submit(partial(decide, machine))

    def end_transaction(
        self, index: int, producer: ProducerIdAndEpoch, marker: EndTxnMarker, transaction_version: int
    ) -> Promise[ErrorCode]:
        """Writes a marker into one of the topic's partitions. KafkaError if that is not here, or will not have it."""
        found = self._shards.get(index)
        if found is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return found[0].end_transaction(producer, marker, transaction_version)

    def submit_all(self, decide: Callable[[M], Outcome[R]]) -> list[R | Promise[R]]:
        """The same to every machine. KafkaError if one is not ready."""
        return [shard.submit(partial(decide, machine)) for shard, machine in self._shards.values()]

    def tell(self, decide: Callable[[M], Outcome[None]]) -> None:
        """News for every machine that is ready; one that is not learns of it from the log, or when offsets expire."""
        self.tell_each(lambda machine: [decide(machine)])

    def tell_each(self, decide: Callable[[M], Iterable[Outcome[None]]]) -> None:
        """The same where there may be much to do: each outcome is a decision of its own."""
        for shard, machine in list(self._shards.values()):
            for outcome in decide(machine) if shard.is_ready else ():
                if not shard.is_ready:
                    break
                try:
                    shard.submit(partial(_given, outcome))
                except KafkaError as refused:
                    log.warning("%s: %s", shard.partition.name, refused)

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Brings what is here in line with who leads what."""
        name = self._topic.name
        if any(removed.name == name for removed in changes.removed):
            self.close(ErrorCode.NOT_COORDINATOR)
        if name in changes.topics:
            for index, _ in enumerate(image.topics[name].partitions):
                self._follow(index, image)

    def _follow(self, index: int, image: MetadataImage) -> None:
        partition = self._partitions.find(self._topic.name, index)
        is_ours = partition is not None and image.topics[self._topic.name].partitions[index].leader == self._node_id
        known = self._shards.get(index)
        if known is not None and not (is_ours and known[0].partition is partition):
            self._shards.pop(index)[0].close(ErrorCode.NOT_COORDINATOR)
            known = None
        if known is None and is_ours:
            assert partition is not None
            self._open(index, partition)

    def _open(self, index: int, partition: Partition) -> None:
        machine = self._make(partition)
        shard = Shard(partition, machine, self._clock, self._timers, lambda failed: self._failed(index, failed))
        self._shards[index] = (shard, machine)
        shard.load()

    def _failed(self, index: int, failed: Shard) -> None:
        self._timers.after_ms(RELOAD_MS, lambda: self._reopen(index, failed))

    def _reopen(self, index: int, failed: Shard) -> None:
        known = self._shards.get(index)
        if known is not None and known[0] is failed and failed.partition.is_leader:
            self._open(index, failed.partition)

    def close(self, code: ErrorCode) -> None:
        shards, self._shards = self._shards, {}
        for shard, _ in shards.values():
            shard.close(code)


def _given(outcome: Outcome[None]) -> Outcome[None]:
    return outcome
