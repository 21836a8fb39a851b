"""The steps that write a micro-batch to topics exactly once. Pure: the cluster is behind `TransactionRequests`.

    init_producer         get a new epoch for the sink's transactional id: other writers of this sink are fenced, and
                          their open transactions are aborted (InitProducerId)
    last_micro_batch_id   read the id that the sink's last transaction committed; a micro-batch up to this id is already
                          written and is not written again (OffsetFetch)
    add_partitions        add the partitions to write to the transaction (AddPartitionsToTxn)
    write                 write the staged record batches, in the order of tasks (Produce)
    add_group             add the group that has the micro-batch id to the transaction (AddOffsetsToTxn)
    commit_micro_batch_id commit the micro-batch id as an offset of that group (TxnOffsetCommit)
    end                   records and micro-batch id become visible together (EndTxn)

The order of the first two steps gives the guarantee. If the micro-batch id were read before the new epoch, a zombie
could commit right after that; after the new epoch only our own commit can change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from moldau.base.errors import KafkaError, MalformedData
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.spark.exactly_once.staging import Staged, read_record_batches
from moldau.spark.sending import RecordBatch
from moldau.wire.batch import next_sequence, read_header, stamp_producer


class TransactionRequests(Protocol):
    """The requests to a cluster for one sink. A call that raises may still have taken effect."""

    def init_producer(self) -> ProducerIdAndEpoch: ...

    def last_micro_batch_id(self) -> int | None: ...

    def add_partitions(self, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition]) -> None: ...

    def write(self, record_batches: Iterator[RecordBatch]) -> None: ...

    def add_group(self, producer: ProducerIdAndEpoch) -> None: ...

    def commit_micro_batch_id(
        self, producer: ProducerIdAndEpoch, micro_batch_id: int, topics: Sequence[str]
    ) -> None: ...

    def end(self, producer: ProducerIdAndEpoch, commit: bool) -> None: ...


def commit(requests: TransactionRequests, staged_by_task: Sequence[Staged], micro_batch_id: int | None) -> bool:
    """Write the micro-batch and return True, or return False if the topics already have it.

    A batch query has no micro-batch id: its records are always written.
    """
    partitions = sorted({partition for staged in staged_by_task for partition, _ in staged.index})
    if not partitions:
        # Without records there is nothing that a second attempt could write twice, so the id need not be committed.
        return True
    producer = requests.init_producer()
    if micro_batch_id is not None and _is_written(requests, micro_batch_id):
        return False
    try:
        _write_in_transaction(requests, producer, partitions, staged_by_task, micro_batch_id)
    except BaseException:
        # A commit whose response was lost is not undone: the coordinator rejects the abort of a decided transaction.
        with suppress(OSError, MalformedData, KafkaError):
            requests.end(producer, commit=False)
        raise
    return True


def _is_written(requests: TransactionRequests, micro_batch_id: int) -> bool:
    # >= because Spark runs micro-batches in the order of their ids, and one without records commits no id: all up to
    # the committed id are done.
    committed_id = requests.last_micro_batch_id()
    return committed_id is not None and committed_id >= micro_batch_id


def _write_in_transaction(
    requests: TransactionRequests,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    staged_by_task: Sequence[Staged],
    micro_batch_id: int | None,
) -> None:
    requests.add_partitions(producer, partitions)
    requests.write(stamp_record_batches(producer, staged_by_task))
    if micro_batch_id is not None:
        requests.add_group(producer)
        topics = sorted({partition.topic for partition in partitions})
        requests.commit_micro_batch_id(producer, micro_batch_id, topics)
    requests.end(producer, commit=True)


def stamp_record_batches(producer: ProducerIdAndEpoch, staged_by_task: Sequence[Staged]) -> Iterator[RecordBatch]:
    """Yield the record batches of all tasks, with producer id, epoch and sequence written into them.

    They become those of one producer: the sequences of each partition count from 0, over all tasks.
    """
    next_sequences: dict[TopicPartition, int] = {}
    for staged in staged_by_task:
        for record_batch in read_record_batches(staged):
            sequence = next_sequences.get(record_batch.partition, 0)
            record_count = read_header(record_batch.data).record_count
            next_sequences[record_batch.partition] = next_sequence(sequence, record_count)
            stamp_producer(memoryview(record_batch.data), *producer, sequence)
            yield record_batch
