"""The order of steps by which a micro-batch gets into topics whole and once. Pure: the cluster is behind `Wire`.

    take over    a new epoch for the sink's transactional id: whoever else writes for this sink is fenced, and what it
                 left open is aborted
    recognise    the batch id that the last transaction of this sink noted; a batch that is there is not written again
    open         the partitions that will be written, and the group that the note goes to, become the transaction's
    write        the staged record batches, in the order of tasks
    note         the batch id, as an offset of the group
    commit       records and note become visible together

The order of the first two carries the guarantee. A note read before taking over could be outdated by a zombie that
commits a moment later; read afterwards, it cannot change any more but by our own commit.
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
    """What is asked of a cluster for one sink. Each call happens, or raises and may have happened."""

    def take_over(self) -> Producer: ...

    def last_batch(self) -> int | None: ...

    def add_partitions(self, producer: Producer, partitions: Sequence[TopicPartition]) -> None: ...

    def add_group(self, producer: Producer) -> None: ...

    def write(self, batches: Iterator[Batch]) -> None: ...

    def note_batch(self, producer: Producer, batch_id: int, topics: Sequence[str]) -> None: ...

    def end(self, producer: Producer, commit: bool) -> None: ...


def commit(wire: Wire, staged: Sequence[Staged], batch_id: int | None) -> bool:
    """Whether it was written now; False if the topics hold this batch already. Without an id nothing is recognised."""
    partitions = sorted({where for one in staged for where, _ in one.index})
    if not partitions:
        return True
    producer = wire.take_over()
    if batch_id is not None and _is_there(wire, batch_id):
        return False
    try:
        _transact(wire, producer, partitions, staged, batch_id)
    except BaseException:
        # A commit whose answer was lost is not undone by this: the coordinator refuses to abort what it has decided.
        with suppress(OSError, MalformedData, KafkaError):
            wire.end(producer, commit=False)
        raise
    return True


def _is_there(wire: Wire, batch_id: int) -> bool:
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
    """The batches of all tasks as one producer's: each partition's sequence goes through them, from 0."""
    sequences: dict[TopicPartition, int] = {}
    for one in staged:
        for batch in batches_of(one):
            sequence = sequences.get(batch.where, 0)
            sequences[batch.where] = (sequence + read_header(batch.data).record_count) % SEQUENCES
            stamp_producer(memoryview(batch.data), *producer, sequence)
            yield batch
