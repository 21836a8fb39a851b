"""The steps that write a micro-batch to topics exactly once. Pure: the cluster is behind `Wire`.

    take over    get a new epoch for the sink's transactional id: other writers of this sink are fenced, and their open
                 transactions are aborted
    recognise    read the batch id that the sink's last transaction committed; do not write that batch again
    open         add the partitions to write, and the group for the batch id, to the transaction
    write        the staged record batches, in the order of tasks
    note         commit the batch id as an offset of the group
    commit       records and batch id become visible together

The order of the first two steps gives the guarantee. If the batch id were read before taking over, a zombie could
commit right after that; afterwards only our own commit can change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.spark.exactly_once.staging import Staged, batches_of
from moldau.spark.sending import Batch
from moldau.wire.batch import read_header, stamp_producer

SEQUENCES: Final = 1 << 31


class Producer(NamedTuple):
    producer_id: int
    epoch: int


class Wire(Protocol):
    """The requests to a cluster for one sink. A call that raises may still have taken effect."""

    def take_over(self) -> Producer: ...

    def last_batch(self) -> int | None: ...

    def add_partitions(self, producer: Producer, partitions: Sequence[TopicPartition]) -> None: ...

    def add_group(self, producer: Producer) -> None: ...

    def write(self, batches: Iterator[Batch]) -> None: ...

    def note_batch(self, producer: Producer, batch_id: int, topics: Sequence[str]) -> None: ...

    def end(self, producer: Producer, commit: bool) -> None: ...


def commit(wire: Wire, staged: Sequence[Staged], batch_id: int | None) -> bool:
    """Write the batch; return False if the topics already have it. Without a batch id it is always written."""
    partitions = sorted({where for one in staged for where, _ in one.index})
    if not partitions:
        return True
    producer = wire.take_over()
    if batch_id is not None and _is_written(wire, batch_id):
        return False
    try:
        _transact(wire, producer, partitions, staged, batch_id)
    except BaseException:
        # A commit whose response was lost is not undone: the coordinator rejects the abort of a decided transaction.
        with suppress(OSError, MalformedData, KafkaError):
            wire.end(producer, commit=False)
        raise
    return True


def _is_written(wire: Wire, batch_id: int) -> bool:
    last = wire.last_batch()
    return last is not None and last >= batch_id


def _transact(
    wire: Wire,
    producer: Producer,
    partitions: Sequence[TopicPartition],
    staged: Sequence[Staged],
    batch_id: int | None,
) -> None:
    wire.add_partitions(producer, partitions)
    wire.write(stamped(producer, staged))
    if batch_id is not None:
        wire.add_group(producer)
        wire.note_batch(producer, batch_id, sorted({where.topic for where in partitions}))
    wire.end(producer, commit=True)


def stamped(producer: Producer, staged: Sequence[Staged]) -> Iterator[Batch]:
    """Stamp the batches of all tasks as one producer's: the sequences of each partition count from 0."""
    sequences: dict[TopicPartition, int] = {}
    for one in staged:
        for batch in batches_of(one):
            sequence = sequences.get(batch.where, 0)
            sequences[batch.where] = (sequence + read_header(batch.data).record_count) % SEQUENCES
            stamp_producer(memoryview(batch.data), *producer, sequence)
            yield batch
