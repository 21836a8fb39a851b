"""The part of a produce request that belongs to a transaction: its producer and its partitions. `Produce` lets the gate
verify it before it appends anything, and calls `check_append` for each partition just before it appends to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.transaction_gate import TransactionalWrite, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import InTransaction
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader
from moldau.wire.messages.produce import ProduceRequest, TopicProduceData

ADDS_PARTITIONS_MIN_VERSION: Final = 12
KNOWS_ABORTABLE_MIN_VERSION: Final = 11
COORDINATOR_UNREACHABLE: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""A producer gets NOT_ENOUGH_REPLICAS instead of these errors: every version of the producer retries it, without a
Metadata request."""


def transactional_write(
    request: ProduceRequest,
    version: int,
    writable_name_of: Callable[[TopicProduceData, int], str | None],
    partitions: Partitions,
) -> TransactionalWrite | None:
    """Return what the request writes in a transaction; None if there is nothing. `writable_name_of` returns the name of
    a topic, None if it is unknown or the client may not write to it. Such topics, partitions that are not on this node
    and batches that cannot be read are skipped: the append refuses them."""
    assert request.transactional_id is not None
    batches = list(_batches(request, version, writable_name_of, partitions))
    if not batches:
        return None
    producers = {(producer_id, epoch) for _, producer_id, epoch, _ in batches}
    _, producer_id, epoch, _ = batches[0]
    transaction = InTransaction(request.transactional_id, producer_id, epoch, version >= ADDS_PARTITIONS_MIN_VERSION)
    sequences = {partition: sequence for partition, _, _, sequence in batches}
    knows_abortable = version >= KNOWS_ABORTABLE_MIN_VERSION
    if len(producers) == 1:
        return TransactionalWrite(transaction, sequences, knows_abortable)
    refused = TransactionalWrite(transaction, {}, knows_abortable)
    refused.refuse(
        sequences,
        KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the records are of more than one producer's transaction"),
    )
    return refused


def check_append(gate: TransactionGate, write: TransactionalWrite, partition: Partition) -> None:
    """Raise KafkaError, with a code that the producer knows, if the partition's records must not be appended. Only
    newer producers, which add partitions by writing to them, know CONCURRENT_TRANSACTIONS."""
    try:
        gate.check(write, partition)
    except KafkaError as error:
        is_unknown_to_producer = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and not write.transaction.adds
        if error.code in COORDINATOR_UNREACHABLE or is_unknown_to_producer:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"It could not be verified that the partition is part of the transaction: {error.code.name}.",
            ) from error
        raise


def _batches(
    request: ProduceRequest,
    version: int,
    writable_name_of: Callable[[TopicProduceData, int], str | None],
    partitions: Partitions,
) -> Iterator[tuple[Partition, int, int, int]]:
    """Yield (partition, producer id, epoch, first sequence) of each batch that is part of a transaction."""
    for topic in request.topic_data:
        name = writable_name_of(topic, version)
        for data in topic.partition_data:
            partition = None if name is None else partitions.find(name, data.index)
            records = data.records
            if partition is None or not isinstance(records, memoryview) or len(records) < BATCH_HEADER_BYTES:
                continue
            header = BatchHeader._make(BATCH_HEADER.unpack_from(records))
            if header.attributes & TRANSACTIONAL_BIT:
                yield partition, header.producer_id, header.producer_epoch, header.base_sequence
