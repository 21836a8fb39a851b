"""The part of a produce request that belongs to a transaction: its producer and its partitions."""

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
"""Older producers would give up on these errors: they get one that is retriable for all, and request no metadata."""


@dataclass(slots=True)
class Written:
    transaction: InTransaction
    sequences: dict[Partition, int]
    """The first sequence to be written, by partition."""
    knows_abortable: bool
    is_mixed: bool
    """Whether the request has batches of more than one producer."""
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
            # The partition came to this node, or was replaced by one of the same name, while the coordinator was asked.
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            gate.check(partition, self.transaction, sequence, self.verified)
        except KafkaError as error:
            is_early = error.code is ErrorCode.CONCURRENT_TRANSACTIONS and not self.transaction.adds
            if error.code in NOT_REACHED or is_early:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"It could not be verified that the partition is part of the transaction: {error.code.name}.",
                ) from error
            raise


def written_in(
    request: ProduceRequest,
    version: int,
    name_of: Callable[[TopicProduceData, int], str | None],
    partitions: Partitions,
) -> Written | None:
    """Return None if nothing in the request belongs to a transaction. Partitions that are not on this node and batches
    that cannot be read are skipped: the append refuses them."""
    assert request.transactional_id is not None
    batches = list(_batches(request, version, name_of, partitions))
    if not batches:
        return None
    producers = {(producer_id, epoch) for _, producer_id, epoch, _ in batches}
    _, producer_id, epoch, _ = batches[0]
    return Written(
        InTransaction(request.transactional_id, producer_id, epoch, version >= ADDS_FROM_VERSION),
        {partition: sequence for partition, _, _, sequence in batches},
        version >= KNOWS_ABORTABLE_FROM_VERSION,
        len(producers) > 1,
    )


def _batches(
    request: ProduceRequest,
    version: int,
    name_of: Callable[[TopicProduceData, int], str | None],
    partitions: Partitions,
) -> Iterator[tuple[Partition, int, int, int]]:
    """Yield (partition, producer id, epoch, first sequence) of each batch that is part of a transaction."""
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
