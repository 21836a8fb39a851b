"""What a produce request writes within a transaction: whose it is, and into which partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.transaction_gate import NOTHING, Passed, TransactionGate
from moldau.runtime.coordinators.transaction_verifier import InTransaction
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, TRANSACTIONAL_BIT
from moldau.wire.messages.produce import ProduceRequest, TopicProduceData

ADDS_FROM_VERSION: Final = 12
KNOWS_ABORTABLE_FROM_VERSION: Final = 11
NOT_REACHED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Older producers would give up on these: they are told one on which all try again, and ask nobody who leads."""


@dataclass(slots=True)
class Written:
    transaction: InTransaction
    sequences: dict[Partition, int]
    """The first that is to be written, by partition."""
    knows_abortable: bool
    is_mixed: bool
    """Whether more than one producer writes."""
    verified: Passed = NOTHING

    @property
    def partitions(self) -> list[tuple[Partition, int]]:
        return [] if self.is_mixed else list(self.sequences.items())

    @property
    def transaction_version(self) -> int:
        return 2 if self.transaction.adds else 1

    def passed(self, verified: Passed) -> Written:
        self.verified = verified
        return self

    def all_refused(self, code: ErrorCode) -> Passed:
        return Passed({}, {partition.name: KafkaError(code) for partition in self.sequences})

    def check(self, gate: TransactionGate, partition: Partition) -> None:
        """Raises KafkaError if the partition's records must not be written."""
        if self.is_mixed:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the records are of more than one producer's transaction"
            )
        sequence = self.sequences.get(partition)
        if sequence is None:
            # It came to this node, or another of its name took its place, while the coordinator was asked.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            gate.check(partition, self.transaction, sequence, self.verified)
        except KafkaError as refused:
            is_early = refused.code is ErrorCode.CONCURRENT_TRANSACTIONS and not self.transaction.adds
            if refused.code in NOT_REACHED or is_early:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"It could not be verified that the partition is part of the transaction: {refused.code.name}.",
                ) from refused
            raise


def written_in(
    request: ProduceRequest,
    version: int,
    name_of: Callable[[TopicProduceData, int], str | None],
    partitions: Partitions,
) -> Written | None:
    """None if nothing in the request belongs to a transaction. What is not here, or cannot be read, is not looked at:
    it will be refused for what it is."""
    assert request.transactional_id is not None
    found = list(_batches(request, version, name_of, partitions))
    if not found:
        return None
    producers = {(producer_id, epoch) for _, producer_id, epoch, _ in found}
    _, producer_id, epoch, _ = found[0]
    return Written(
        InTransaction(request.transactional_id, producer_id, epoch, version >= ADDS_FROM_VERSION),
        {partition: sequence for partition, _, _, sequence in found},
        version >= KNOWS_ABORTABLE_FROM_VERSION,
        len(producers) > 1,
    )


def _batches(
    request: ProduceRequest,
    version: int,
    name_of: Callable[[TopicProduceData, int], str | None],
    partitions: Partitions,
) -> Iterator[tuple[Partition, int, int, int]]:
    """(partition, producer id, epoch, first sequence) of each batch that is part of a transaction."""
    for topic in request.topic_data:
        name = name_of(topic, version)
        for data in topic.partition_data:
            partition = None if name is None else partitions.find(name, data.index)
            records = data.records
            if partition is None or not isinstance(records, memoryview) or len(records) < BATCH_HEADER_BYTES:
                continue
            fields = BATCH_HEADER.unpack_from(records)
            if fields[5] & TRANSACTIONAL_BIT:
                yield partition, *fields[9:12]
