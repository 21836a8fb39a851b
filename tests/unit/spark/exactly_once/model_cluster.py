"""A model of a cluster for the transactions of one sink: records, open transaction, outcomes, micro-batch ids.

Every request calls a gate before and after its effect. There a test kills the driver, loses the response, or lets
another driver go first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.spark.exactly_once.staging import Stage, Staged
from moldau.spark.records.encode import EncodeColumns, ProducerStamp, encode
from moldau.spark.sending import RecordBatch
from moldau.wire.batch import read_header

Gate = Callable[[str], None]
PARTITIONS = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
TASKS = 2


@dataclass
class ModelCluster:
    epoch: int = -1
    open: set[TopicPartition] | None = None
    """The partitions of the open transaction, which belongs to the current epoch."""
    pending: list[tuple[TopicPartition, int]] = field(default_factory=list)
    has_group: bool = False
    pending_micro_batch_ids: dict[str, int] = field(default_factory=dict)
    committed: list[tuple[TopicPartition, int]] = field(default_factory=list)
    micro_batch_ids: dict[str, int] = field(default_factory=dict)
    decided: tuple[int, bool] | None = None
    """The epoch of the last transaction that ended, and whether it was committed."""
    sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def finish(self, commit: bool) -> None:
        if commit:
            self.committed += self.pending
            self.micro_batch_ids |= self.pending_micro_batch_ids
        self.pending, self.pending_micro_batch_ids, self.open, self.has_group = [], {}, None, False
        self.decided = self.epoch, commit

    def seen(self) -> list[tuple[TopicPartition, int]]:
        """The record batches that a read_committed reader sees, by their numbers."""
        return sorted(self.committed)


class ModelRequests:
    """One driver's way to the cluster."""

    def __init__(self, cluster: ModelCluster, gate: Gate) -> None:
        self._cluster = cluster
        self._gate = gate

    def init_producer(self) -> ProducerIdAndEpoch:
        self._gate("before init_producer")
        if self._cluster.open is not None:
            self._cluster.finish(commit=False)
        self._cluster.epoch += 1
        self._cluster.sequences.clear()
        taken = ProducerIdAndEpoch(7, self._cluster.epoch)
        self._gate("after init_producer")
        return taken

    def last_micro_batch_id(self) -> int | None:
        self._gate("before last_micro_batch_id")
        found = max(self._cluster.micro_batch_ids.values(), default=None)
        self._gate("after last_micro_batch_id")
        return found

    def add_partitions(self, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> None:
        self._gate("before add_partitions")
        self._refuse_fenced(producer)
        self._cluster.open = (self._cluster.open or set()) | set(partitions)
        self._gate("after add_partitions")

    def add_group(self, producer: ProducerIdAndEpoch) -> None:
        self._gate("before add_group")
        self._refuse_fenced(producer)
        self._cluster.has_group = True
        self._gate("after add_group")

    def write(self, batches: Iterator[RecordBatch]) -> None:
        for number, batch in enumerate(batches):
            self._gate(f"before write {number}")
            header = read_header(batch.data)
            self._refuse_fenced(ProducerIdAndEpoch(header.producer_id, header.producer_epoch))
            assert header.is_transactional
            if batch.partition not in (self._cluster.open or ()):
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)
            expected = self._cluster.sequences.get(batch.partition, 0)
            assert header.base_sequence == expected, "sequences are consecutive within a partition"
            self._cluster.sequences[batch.partition] = expected + header.record_count
            self._cluster.pending.append((batch.partition, header.base_timestamp))
            self._gate(f"after write {number}")

    def commit_micro_batch_id(self, producer: ProducerIdAndEpoch, batch_id: int, topics: Sequence[str]) -> None:
        self._gate("before commit_micro_batch_id")
        self._refuse_fenced(producer)
        assert self._cluster.has_group
        self._cluster.pending_micro_batch_ids = dict.fromkeys(topics, batch_id)
        self._gate("after commit_micro_batch_id")

    def end(self, producer: ProducerIdAndEpoch, commit: bool) -> None:
        step = "commit" if commit else "abort"
        self._gate(f"before {step}")
        self._refuse_fenced(producer)
        if self._cluster.open is not None:
            self._cluster.finish(commit)
        elif self._cluster.decided != (producer.epoch, commit):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        self._gate(f"after {step}")

    def _refuse_fenced(self, producer: ProducerIdAndEpoch) -> None:
        if producer.epoch != self._cluster.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)


_attempts = count(1)


def batch_number(attempt_number: int) -> int:
    """Which micro-batch a record batch belongs to, whichever attempt wrote it."""
    return attempt_number // 1_000_000


def staged(batch_id: int) -> list[Staged]:
    """What one attempt at a micro-batch stages: a batch of each task for each partition, each with its own number."""
    attempt = next(_attempts) % 1000
    found = []
    for task in range(TASKS):
        stage = Stage("unused", 1 << 20)
        for index, where in enumerate(PARTITIONS):
            number = batch_id * 1_000_000 + attempt * 1000 + task * 100 + index
            columns = EncodeColumns(None, pa.array([b"x", b"y"], pa.binary()), number, None)
            stage.add([RecordBatch(where, encode(columns, ProducerStamp(0, 0, 0, is_transactional=True)))], 2)
        found.append(stage.done())
    return found


def check_whole_and_once(cluster: ModelCluster, batch_ids: Sequence[int]) -> None:
    """Check that readers see exactly these micro-batches, each of one attempt and complete."""
    attempts = {number // 1000 for _, number in cluster.seen()}
    assert sorted(map(batch_number, (each * 1000 for each in attempts))) == sorted(batch_ids), "not each batch once"
    for attempt in attempts:
        parts = [(where, number % 1000) for where, number in cluster.seen() if number // 1000 == attempt]
        assert sorted(parts) == sorted(
            (where, task * 100 + index) for task in range(TASKS) for index, where in enumerate(PARTITIONS)
        ), "a batch is incomplete"
