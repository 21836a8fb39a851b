"""The shards of a coordinator on this node: one for each partition of its topic that this node leads.

A group or transactional id belongs to the partition that its hash selects, as in Kafka.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.long_work import LongWork
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.coordinator.machine import Outcome, ProducerIdAndEpoch
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.shard import Shard
from moldau.runtime.coordinators.shard_replay import Machine
from moldau.runtime.coordinators.topic import CACHED_HASHES_MAX, CACHED_LENGTH_MAX, CoordinatorTopic
from moldau.runtime.own_work import OwnWork
from moldau.wire.records import EndTxnMarker

log = logging.getLogger("moldau.coordinator")
M = TypeVar("M", bound=Machine)
R = TypeVar("R")
RELOAD_DELAY_MS: Final = 1_000
"""The delay before a failed shard is loaded again: a disk problem rarely ends at once."""


class LocalShard(NamedTuple, Generic[M]):
    """A shard and its machine. The shard has the machine too, but only as the general `Machine`."""

    shard: Shard
    machine: M


class Shards(Generic[M]):
    """Routes requests to the shards of this node, and opens and closes shards when leaders change.

    A shard is one partition of the coordinator's topic with a state machine: all groups, or all transactions, of that
    partition. `decide` is a function that reads a machine's state and returns an `Outcome`: a response and the records
    to append. The shard appends and applies these records, and responds when they are committed.

    `new_machine` returns an empty machine for a partition; the shard fills it from the log. `decide_when_loaded` yields
    what the machine has to submit then, before any request, and None where a turn of the loop ends.
    """

    def __init__(
        self,
        topic: CoordinatorTopic,
        node_id: int,
        partitions: Partitions,
        new_machine: Callable[[Partition], M],
        clock: Clock,
        own_work: OwnWork,
        decide_when_loaded: Callable[[M], Iterable[Outcome[None] | None]] | None = None,
    ) -> None:
        self._topic = topic
        self._node_id = node_id
        self._partitions = partitions
        self._new_machine = new_machine
        self._clock = clock
        self._own_work = own_work
        self._shards: dict[int, LocalShard[M]] = {}
        """By the index of the partition."""
        self._found: dict[str, LocalShard[M]] = {}
        """The shards of keys that were looked up since the image or the shards changed."""
        self._found_in = topic.current.image
        self._loading: deque[Callable[[], None]] = deque()
        """The next step of each shard that is loading. One is made in each turn of the loop: a node that takes over
        from another loads many shards at once."""
        self._decide_when_loaded = decide_when_loaded
        self._undecided: dict[int, list[Callable[[M], Iterable[Outcome[None] | None]]]] = {}
        """What the machines of shards that are not ready have to decide then, by partition."""
        self._submitting: LongWork[None] | None = None
        """The last work of `submit_in_turns`."""

    def machines(self) -> Iterator[M]:
        """Yield all machines of this node, also those that are still loading."""
        for local in self._shards.values():
            yield local.machine

    def ready_machines(self) -> list[M]:
        """Return the machines of this node that are loaded."""
        return [local.machine for local in self.ready()]

    def ready(self) -> list[LocalShard[M]]:
        """Return the shards of this node that are loaded."""
        return [local for local in self._shards.values() if local.shard.is_ready]

    def partition_of(self, key: str) -> int:
        return self._topic.partition_of(key).partition

    def node_of(self, key: str) -> int:
        """Return the node that coordinates `key`. Raise KafkaError if there is none now, or if it was this node and may
        be another by now."""
        node_id = self._topic.leader_of(key)
        if node_id == self._node_id and self._is_withheld(key):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return node_id

    @property
    def is_cut_off(self) -> bool:
        """Whether this node has not reached the controller for a while."""
        return self._partitions.is_cut_off

    def _is_withheld(self, key: str) -> bool:
        partition = self._partitions.find(*self._topic.partition_of(key))
        return partition is not None and partition.is_withheld

    def submit(self, key: str, decide: Callable[..., Outcome[R]], *arguments: Any) -> R | Promise[R]:
        """Submit a request to the machine of `key`: `decide(machine, *arguments)`. Raise KafkaError if that machine is
        not on this node or not loaded."""
        if self._found_in is not self._topic.current.image:
            self._forget_found()
        local = self._found.get(key)
        if local is None:
            local = self._find(key)
        return local[0].submit(decide, local[1], *arguments)

    def machine_of(self, key: str) -> M:
        """Return the machine of `key`, for what is prepared before `submit`. Raise KafkaError if it is not on this
        node."""
        return self._find(key).machine

    def loaded_machine_of(self, key: str) -> M:
        """Like `machine_of`, for what is read before `submit`. Raise KafkaError also if the machine is not loaded."""
        local = self._find(key)
        local.shard.check_ready()
        return local.machine

    def _find(self, key: str) -> LocalShard[M]:
        local = self._shards.get(self.partition_of(key))
        # A large change closes the shards of lost leaders some turns after its image is current. Until then the machine
        # must not decide by that image: its successor may not know of the new topics in it.
        if local is None or self._leader_of(key) not in (self._node_id, None):
            raise KafkaError(self._absence(key))
        if len(key) <= CACHED_LENGTH_MAX:
            if len(self._found) >= CACHED_HASHES_MAX:
                self._found.clear()
            self._found[key] = local
        return local

    def _absence(self, key: str) -> ErrorCode:
        """Return why there is no shard for `key`. If this node leads the partition, it has not laid it out yet: that is
        loading. librdkafka tries again then, but after NOT_COORDINATOR an assigned consumer never asks for its offsets
        again."""
        leads = self._leader_of(key) == self._node_id and not self._is_withheld(key)
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if leads else ErrorCode.NOT_COORDINATOR

    def _leader_of(self, key: str) -> int | None:
        """Return the leader of the partition of `key` in the current image, None if that has no such topic."""
        topic = self._topic.current.image.topics.get(self._topic.name)
        return None if topic is None else topic.partitions[self.partition_of(key)].leader

    def _forget_found(self) -> None:
        self._found.clear()
        self._found_in = self._topic.current.image

    def end_transaction(
        self, index: int, producer: ProducerIdAndEpoch, marker: EndTxnMarker, transaction_version: int
    ) -> Promise[ErrorCode]:
        """Append a transaction's marker to partition `index` of the topic. In the topic of groups, the marker commits
        or aborts the transaction's offsets. Raise KafkaError if this node does not lead the partition, or the log
        refuses the marker; the promise may also be completed with a KafkaError."""
        local = self._shards.get(index)
        if local is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return local.shard.end_transaction(producer, marker, transaction_version)

    def read_all(self, read: Callable[[M], Steps[R]]) -> Steps[list[R | Promise[R]]]:
        """Read every machine in steps; what was read of it is its reply when all of that is committed. Raise KafkaError
        if a machine is not loaded, or fails meanwhile. One that moves to another node is left out."""
        shards = list(self._shards.values())
        for shard, _ in shards:
            shard.check_ready()
        replies: list[R | Promise[R]] = []
        for shard, machine in shards:
            found = yield from read(machine)
            try:
                replies.append(shard.submit(Outcome, found))
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_COORDINATOR:
                    raise
        return replies

    def submit_to_all(self, decide: Callable[[M], Iterable[Outcome[None] | None]]) -> None:
        """Like `submit_to_loaded`. A machine that is loading decides when it has loaded, before any request."""
        for index, (shard, _) in self._shards.items():
            if not shard.is_ready:
                self._undecided.setdefault(index, []).append(decide)
        self.submit_to_loaded(decide)

    def submit_to_loaded(self, decide: Callable[[M], Iterable[Outcome[None] | None]]) -> None:
        """Let every loaded machine decide now, and submit the outcomes: each None among them ends the turn of the
        loop."""
        self.run(_decide_and_submit([(*local, decide) for local in self._shards.values() if local.shard.is_ready]))

    def _on_ready(self, index: int) -> None:
        local = self._shards[index]
        undecided = self._undecided.pop(index, [])
        if self._decide_when_loaded is not None:
            undecided.append(self._decide_when_loaded)
        self.run(_decide_and_submit([(*local, decide) for decide in undecided]))

    def submit_in_turns(self, decide: Callable[[M], Iterable[Outcome[None] | None]]) -> None:
        """Submit many outcomes to every loaded machine, each of them separately: if one is refused as too large, the
        others are still appended. Each None that `decide` yields ends the turn of the loop. Do nothing while the
        outcomes of an earlier call are still submitted."""
        if self._submitting is None or not self._submitting.is_running:
            self._submitting = self._own_work.long_work(self._submit_each(decide))
            self._submitting()

    def run(self, steps: Steps[None]) -> None:
        """Run the first of these steps now, and each further one in a later turn of the loop."""
        self._own_work.long_work(steps)()

    def _submit_each(self, decide: Callable[[M], Iterable[Outcome[None] | None]]) -> Steps[None]:
        # A copy, because requests that complete during `submit` run callbacks, which may open or close shards.
        for shard, machine in list(self._shards.values()):
            if shard.is_ready:
                yield from _submit_all([(shard, decide(machine))])
            yield

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Open and close shards according to the leaders of the topic's partitions."""
        name = self._topic.name
        if any(removed.name == name for removed in changes.removed):
            self.close(ErrorCode.NOT_COORDINATOR)
        for index in sorted(changes.topics.get(name, ())):
            self._update_shard(index, image)

    def follow_lease(self) -> None:
        """Close the shards of partitions that others may lead by now, and open them when they are released."""
        image = self._topic.current.image
        topic = image.topics.get(self._topic.name)
        for index in range(0 if topic is None else len(topic.partitions)):
            self._update_shard(index, image)

    def _update_shard(self, index: int, image: MetadataImage) -> None:
        partition = self._partitions.find(self._topic.name, index)
        is_ours = (
            partition is not None
            and not partition.is_withheld
            and image.topics[self._topic.name].partitions[index].leader == self._node_id
        )
        local = self._shards.get(index)
        # `is`: after the topic was deleted and created again, an equal name belongs to another partition and log.
        if local is not None and not (is_ours and local.shard.partition is partition):
            self._found.clear()
            self._shards.pop(index).shard.close(ErrorCode.NOT_COORDINATOR)
            self._undecided.pop(index, None)
            local = None
        if local is None and is_ours:
            assert partition is not None
            self._open(index, partition)

    def _open(self, index: int, partition: Partition) -> None:
        machine = self._new_machine(partition)
        shard = Shard(partition, machine, self._clock, self._own_work, lambda failed: self._on_failed(index, failed))
        self._found.clear()
        self._shards[index] = LocalShard(shard, machine)
        shard.load(self._load_soon, partial(self._on_ready, index))

    def _load_soon(self, load_next: Callable[[], None]) -> None:
        self._loading.append(load_next)
        if len(self._loading) == 1:
            self._own_work.soon(self._load_next)

    def _load_next(self) -> None:
        load_next = self._loading.popleft()
        others = len(self._loading)
        if others:
            self._own_work.soon(self._load_next)
        load_next()
        if len(self._loading) > others:
            self._loading.rotate(1)  # the same shard goes on: one after the other is ready, not all at the end

    def _on_failed(self, index: int, failed: Shard) -> None:
        self._own_work.after_ms(RELOAD_DELAY_MS, lambda: self._reopen(index, failed))

    def _reopen(self, index: int, failed: Shard) -> None:
        local = self._shards.get(index)
        if local is not None and local.shard is failed and failed.partition.leads:
            self._open(index, failed.partition)

    def close(self, code: ErrorCode) -> None:
        self._found.clear()
        self._undecided.clear()
        if self._submitting is not None:
            self._submitting.cancel()
        shards, self._shards = self._shards, {}
        for local in shards.values():
            local.shard.close(code)


def _decide_and_submit(
    undecided: Iterable[tuple[Shard, M, Callable[[M], Iterable[Outcome[None] | None]]]],
) -> Steps[None]:
    """Let all machines decide in the first step, before any request, and submit the outcomes."""
    yield from _submit_all([(shard, decide(machine)) for shard, machine, decide in undecided])


def _submit_all(decided: Iterable[tuple[Shard, Iterable[Outcome[None] | None]]]) -> Steps[None]:
    for shard, outcomes in decided:
        for outcome in outcomes:
            if outcome is None:
                yield
            if not shard.is_ready:
                break  # an earlier outcome made the shard fail, or it was closed, so its machine is dropped
            if outcome is not None and not _submit_or_warn(shard, outcome):
                break


def _submit_or_warn(shard: Shard, outcome: Outcome[None]) -> bool:
    """Return whether further outcomes may be accepted: not while the partition has too few in-sync replicas."""
    try:
        shard.submit(_identity, outcome)
    except KafkaError as error:
        log.warning(
            "%s: records that the coordinator wrote without a request were refused: %s", shard.partition.name, error
        )
        return error.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE
    return True


def _identity(outcome: Outcome[None]) -> Outcome[None]:
    return outcome
