"""Reads one partition for a fetch. A consumer sees committed records and may be sent to a nearer replica (KIP-392); a
follower sees all records, and its fetch offset tells the leader how far it is.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.log.reading import Slice
from moldau.log.txn_index import AbortedTxn
from moldau.metadata.image import BrokerImage
from moldau.replica.partition import ANY_EPOCH, Partition
from moldau.replica.sessions import CONSUMER, FetchedPartition
from moldau.replica.throttle import ThrottledReplicas
from moldau.views.shown_runs import ShownRecords
from moldau.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition, PartitionData

if TYPE_CHECKING:
    from moldau.replica.view_partition import ReadablePartition

EMPTY = b""
NO_REPLICA = -1
PartitionFetch = FetchPartition | FetchedPartition


class Reads(Protocol):
    """How a fetch request reads its partitions."""

    @property
    def replica_id(self) -> int: ...

    @property
    def is_committed(self) -> bool:
        """Whether it reads with read_committed: only decided transactions, with a list of the aborted ones."""
        ...

    def read(
        self, partition: ReadablePartition, index: int, fetch: PartitionFetch, bytes_left: int, is_first: bool
    ) -> tuple[PartitionData, int]:
        """Return (a slice of records or an error, the length of the slice). At most
        `bytes_left` bytes fit into the response."""
        ...

    def is_caught_up(self, fetch: PartitionFetch, partition: ReadablePartition, data: PartitionData) -> bool:
        """Whether there is nothing to read from the fetch offset on."""
        ...

    def record_position(self, partition: ReadablePartition, fetch: PartitionFetch) -> None:
        """Record the sender's fetch offset."""
        ...

    def sent(self, partition: ReadablePartition, size: int) -> None:
        """Called when `size` bytes of a partition are sent."""
        ...


class ReplicaSelector(Protocol):
    """Returns the replica that a consumer should read from, -1 for the leader."""

    def __call__(self, partition: ReadablePartition, fetch_offset: int) -> int: ...


class ConsumerReads:
    __slots__ = ("_from_followers", "_nearest", "is_committed")
    replica_id = CONSUMER

    def __init__(self, is_committed: bool, from_followers: bool, nearest: ReplicaSelector | None = None) -> None:
        self.is_committed = is_committed
        self._from_followers = from_followers
        self._nearest = nearest

    def read(
        self, partition: ReadablePartition, index: int, fetch: PartitionFetch, bytes_left: int, is_first: bool
    ) -> tuple[PartitionData, int]:
        preferred = NO_REPLICA
        partition.traffic.fetches += 1
        try:
            epoch = fetch.current_leader_epoch
            if partition.is_closed or not partition.is_leader or epoch not in (ANY_EPOCH, partition.state.leader_epoch):
                partition.check_leader_epoch(epoch, leader_only=not self._from_followers)
            if self._nearest is not None:
                preferred = self._nearest(partition, fetch.fetch_offset)
            diverging = divergence(partition, fetch) if fetch.last_fetched_epoch >= 0 else None
            log, high_watermark = partition.log, partition.high_watermark
            last_stable_offset = high_watermark
            producers = log.producers
            if producers.ongoing or producers.unreplicated or high_watermark < producers.ended_known_from:
                last_stable_offset = log.last_stable_offset(high_watermark)
            records, aborted = None, None
            if diverging is None and preferred == NO_REPLICA:
                limit = min(bytes_left, fetch.partition_max_bytes)
                up_to = last_stable_offset if self.is_committed else high_watermark
                records = log.read(fetch.fetch_offset, limit, up_to, at_least_one=is_first)
                if self.is_committed:
                    aborted = () if records is None else _aborted_in(partition, records, fetch.fetch_offset, up_to)
        except KafkaError as error:
            _report_damage(partition, error)
            code = _certain_code(partition, error)
            return PartitionData(index, code, -1, aborted_transactions=None, records=EMPTY), 0
        except StorageFault as fault:
            partition.traffic.failed_fetches += 1
            partition.report_fault(f"{partition.name}: records cannot be read", fault)
            refused = PartitionData(index, ErrorCode.KAFKA_STORAGE_ERROR, -1, aborted_transactions=None, records=EMPTY)
            return refused, 0
        data = PartitionData(
            index,
            0,
            high_watermark,
            last_stable_offset,
            log.start_offset,
            diverging,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            records=EMPTY if records is None else records,
        )
        return data, 0 if records is None else records.length

    def is_caught_up(self, fetch: PartitionFetch, partition: ReadablePartition, data: PartitionData) -> bool:
        if not self.is_committed:
            return fetch.fetch_offset >= data.high_watermark
        # While the log is searched for transactions that ended before a restart, its last stable offset is not known.
        is_stable_known = data.high_watermark >= partition.log.producers.ended_known_from
        return is_stable_known and fetch.fetch_offset >= data.last_stable_offset

    def record_position(self, partition: ReadablePartition, fetch: PartitionFetch) -> None:
        """Nothing depends on the position of a consumer."""

    def sent(self, partition: ReadablePartition, size: int) -> None:
        """Consumers are not throttled here."""
        partition.traffic.bytes_out += size


class ReplicaReads:
    """Reads for a follower. `throttled` limits only followers that are not in sync: in-sync ones would fall out of the
    ISR."""

    __slots__ = ("_broker_epoch", "_throttled", "replica_id")
    is_committed = False

    def __init__(self, replica_id: int, broker_epoch: int, throttled: ThrottledReplicas | None) -> None:
        self.replica_id = replica_id
        self._broker_epoch = broker_epoch
        self._throttled = throttled

    def record_position(self, partition: ReadablePartition, fetch: PartitionFetch) -> None:
        """Ignore errors here: `read` returns them."""
        try:
            partition.check_replica(self.replica_id, self._broker_epoch, fetch.current_leader_epoch)
            if self._divergence(partition, fetch) or fetch.fetch_offset > partition.log.end_offset:
                return
        except KafkaError:
            return
        partition.replica_fetched(self.replica_id, self._broker_epoch, fetch.fetch_offset, fetch.log_start_offset)

    def read(
        self, partition: ReadablePartition, index: int, fetch: PartitionFetch, bytes_left: int, is_first: bool
    ) -> tuple[PartitionData, int]:
        log = partition.log
        partition.traffic.fetches += 1
        try:
            partition.check_replica(self.replica_id, self._broker_epoch, fetch.current_leader_epoch)
            diverging = self._divergence(partition, fetch)
            records = None
            if diverging is None and not self._is_held_back(partition):
                limit = min(bytes_left, fetch.partition_max_bytes)
                records = log.read(fetch.fetch_offset, limit, log.end_offset, at_least_one=is_first)
        except KafkaError as error:
            _report_damage(partition, error)
            return PartitionData(index, error.code, -1, aborted_transactions=None, records=EMPTY), 0
        except StorageFault as fault:
            partition.traffic.failed_fetches += 1
            partition.report_fault(f"{partition.name}: records cannot be read", fault)
            refused = PartitionData(index, ErrorCode.KAFKA_STORAGE_ERROR, -1, aborted_transactions=None, records=EMPTY)
            return refused, 0
        data = PartitionData(
            index,
            0,
            partition.high_watermark,
            partition.high_watermark,
            log.start_offset,
            diverging,
            aborted_transactions=None,
            records=EMPTY if records is None else records,
        )
        return data, 0 if records is None else records.length

    def _divergence(self, partition: ReadablePartition, fetch: PartitionFetch) -> EpochEndOffset | None:
        if fetch.fetch_offset < partition.log.start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return divergence(partition, fetch) if fetch.last_fetched_epoch >= 0 else None

    def is_caught_up(self, fetch: PartitionFetch, partition: ReadablePartition, data: PartitionData) -> bool:
        return fetch.fetch_offset >= partition.log.end_offset

    def _is_held_back(self, partition: ReadablePartition) -> bool:
        return (
            self._throttled is not None
            and self._throttled.is_throttled(partition.name)
            and self.replica_id not in partition.state.isr
        )

    def sent(self, partition: ReadablePartition, size: int) -> None:
        partition.traffic.replication_bytes_out += size
        if self._throttled is not None and self._throttled.includes(partition.name):
            self._throttled.limit.spend(size)


def _certain_code(partition: ReadablePartition, error: KafkaError) -> ErrorCode:
    """Return the error for a consumer."""
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        try:
            partition.check_certain()
        except KafkaError as uncertain:
            return uncertain.code
    return error.code


def _report_damage(partition: ReadablePartition, error: KafkaError) -> None:
    """Report a damaged batch to the operator: clients only learn that a message is corrupt."""
    if isinstance(error.__cause__, MalformedData):
        partition.traffic.failed_fetches += 1
        damage = StorageFault(str(partition.name), OSError(errno.EIO, str(error)))
        partition.report_fault("records cannot be read", damage)


def _aborted_in(
    partition: ReadablePartition, records: Slice | ShownRecords, offset: int, up_to: int
) -> Sequence[AbortedTransaction]:
    if isinstance(records, ShownRecords):
        return _aborted(partition.log.aborted_between(offset, min(up_to, records.end_offset)))
    assert isinstance(partition, Partition), "only a view shows records that are in no file"
    return _aborted(partition.log.aborted_in(records, offset, up_to))


def _aborted(transactions: Sequence[AbortedTxn]) -> Sequence[AbortedTransaction]:
    return [AbortedTransaction(txn.producer_id, txn.first_offset) for txn in transactions] if transactions else ()


def divergence(partition: ReadablePartition, fetch: PartitionFetch) -> EpochEndOffset | None:
    """Return where the client's log diverges from this log below the fetch offset (KIP-595); None if it does not."""
    log = partition.log
    epoch, end_offset = log.epochs.end_offset_for(fetch.last_fetched_epoch, log.end_offset)
    if end_offset < 0 or fetch.fetch_offset < log.start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < fetch.last_fetched_epoch or end_offset < fetch.fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


class SameRack:
    """Kafka's RackAwareReplicaSelector: the leader if it is in the consumer's rack or no replica is, else the in-sync
    replica of the rack with the largest log end offset, then the one that was caught up last."""

    __slots__ = ("_brokers", "_listener", "_node_id", "_rack")

    def __init__(self, brokers: Mapping[int, BrokerImage], node_id: int, rack: str, listener: str) -> None:
        self._brokers = brokers
        self._node_id = node_id
        self._rack = rack
        self._listener = listener

    def __call__(self, partition: ReadablePartition, fetch_offset: int) -> int:
        leadership = partition.leadership
        if leadership is None or self._is_in_rack(self._node_id):
            return NO_REPLICA
        candidates = [
            (progress.end_offset, progress.caught_up_ms, replica_id)
            for replica_id, progress in leadership.followers.items()
            if replica_id in leadership.state.isr
            and progress.start_offset <= fetch_offset <= progress.end_offset
            and self._is_in_rack(replica_id)
        ]
        return max(candidates)[2] if candidates else NO_REPLICA

    def _is_in_rack(self, broker_id: int) -> bool:
        broker = self._brokers.get(broker_id)
        return (
            broker is not None
            and not broker.fenced
            and broker.rack == self._rack
            and broker.endpoint(self._listener) is not None
        )
