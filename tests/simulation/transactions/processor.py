"""Consume, transform, produce: each input record becomes one output record, in the transaction that also commits the
input offset. After a crash the next process continues from the committed offsets.
"""

from __future__ import annotations

from typing import Any

from cluster.consumers import whole_batches
from cluster.scripted import Script

from moldau.base.errors import ErrorCode, KafkaError
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from moldau.wire.records import Record, decode_records
from transactions.client import GROUP, Place
from transactions.history import Written
from transactions.producer import Abortable, TransactionalProducer
from transactions.reader import READ_COMMITTED, AbortedFilter

INPUT, OUTPUT = "input", "output"
"""The input topic of all groups, and the prefix of each group's output topic."""
READ_RECORDS_MAX = 8
COMMITS = 0.85
ABORTABLE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)


class Processor(TransactionalProducer):
    """Reads the whole input alone; its transactional id is also the group id."""

    @property
    def group_id(self) -> str:
        return f"group-{self.transactional_id}"

    def resume(self) -> Script[None]:
        self._positions: dict[int, int] = {}
        while not any(topic == INPUT for topic, _ in self.routes) or not self._outputs():
            yield self.pause(100)
        yield from self._return_to_committed()

    def _outputs(self) -> list[Place]:
        return sorted(place for place in self.routes if place[0] == OUTPUT)

    def transact(self) -> Script[None]:
        for topic, partition in sorted(self.routes):
            if topic == INPUT and partition not in self._positions:
                yield from self._return_to_committed()
        partition = self.rng.choice(sorted(self._positions))
        records, position = yield from self._poll(partition)
        if not records:
            self._positions[partition] = position
            return
        written = self.begin()
        is_good = True
        try:
            output = (OUTPUT, partition % self.world.outputs)
            yield from self.write(written, {output: [self._transformed(written, partition, records)]})
            yield from self.perhaps_stall()
            yield from self._commit_offset(partition, position)
            yield from self.perhaps_stall()
        except Abortable:
            is_good = False
        if is_good and self.rng.random() < COMMITS:
            self._positions[partition] = position
            yield from self.end(written, True)
        else:
            yield from self.end(written, False)
        yield from self._return_to_committed()

    def _transformed(self, written: Written, partition: int, records: list[tuple[int, bytes]]) -> list[Record]:
        made, where = [], f"{OUTPUT}-{partition % self.world.outputs}"
        for number, (offset, _) in enumerate(records):
            made.append(self.record(f"{written.name}/{where}/{number};{partition}@{offset}".encode()))
        return made

    # --- reading --------------------------------------------------------------------------------------------------

    def _poll(self, partition: int) -> Script[tuple[list[tuple[int, bytes]], int]]:
        """Return the next committed records and the next position; nothing if there are none or no leader is known."""
        position = self._positions[partition]
        leader = self.route((INPUT, partition))
        if leader is None:
            self.refresh()
            return [], position
        asked = FetchPartition(partition, leader.epoch, position, partition_max_bytes=2_000)
        request = FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=4_000,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(leader.topic_id, "", [asked])],
        )
        reply = yield self.request(leader.node_id, ApiKey.FETCH, 17, request, "read", 1_500)
        if isinstance(reply, KafkaError) or reply.error_code or not reply.responses:
            self.refresh()
            return [], position
        found = reply.responses[0].partitions[0]
        if found.error_code:
            self.trace_result(f"reads {INPUT}-{partition} at {position}", found.error_code)
            self.refresh()
            return [], position
        return self._filtered(found, position)

    def _filtered(self, found: Any, position: int) -> tuple[list[tuple[int, bytes]], int]:
        aborted = AbortedFilter(found.aborted_transactions)
        records: list[tuple[int, bytes]] = []
        for batch in whole_batches(found.records):
            header = read_header(batch)
            if len(records) >= READ_RECORDS_MAX:
                break
            if aborted.passes(header, batch):
                for record in decode_records(batch, header):
                    if record.offset >= position:
                        records.append((record.offset, record.value or b""))
            position = max(position, header.next_offset)
        return records, position

    # --- committed offsets ----------------------------------------------------------------------------------------

    def _return_to_committed(self) -> Script[None]:
        wanted = sorted(partition for topic, partition in self.routes if topic == INPUT)
        topics = [OffsetFetchRequestTopics(name=INPUT, partition_indexes=wanted)]
        request = OffsetFetchRequest([OffsetFetchRequestGroup(self.group_id, topics=topics)], require_stable=True)
        while True:
            node_id = yield from self.coordinator_of(GROUP, self.group_id)
            was_coordinator = self.world.coordinates(self.group_id, node_id)
            answered = yield from self.coordinated(
                GROUP, self.group_id, "fetches offsets", ApiKey.OFFSET_FETCH, 9, request, _worst_fetched
            )
            self.judge(answered.code, "fetches offsets", frozenset({ErrorCode.NONE}))
            # A former coordinator that does not know it yet returns old offsets, as Kafka's would.
            if was_coordinator and self.world.coordinates(self.group_id, node_id):
                break
            self._coordinators.pop((GROUP, self.group_id), None)
            yield self.pause_after(0)
        found = answered.reply.groups[0].topics[0].partitions
        self._positions = {each.partition_index: max(each.committed_offset, 0) for each in found}

    def _commit_offset(self, partition: int, position: int) -> Script[None]:
        if not self.is_v2:
            request = AddOffsetsToTxnRequest(
                self.transactional_id, self.producer_id, self.producer_epoch, self.group_id
            )
            yield from self.coordinate(
                "adds offsets", ApiKey.ADD_OFFSETS_TO_TXN, 3, request, lambda reply: reply.error_code
            )
        topics = [TxnOffsetCommitRequestTopic(INPUT, [TxnOffsetCommitRequestPartition(partition, position)])]
        commit = TxnOffsetCommitRequest(
            self.transactional_id, self.group_id, self.producer_id, self.producer_epoch, topics=topics
        )
        answered = yield from self.coordinated(
            GROUP,
            self.group_id,
            f"commits {INPUT}-{partition} {position}",
            ApiKey.TXN_OFFSET_COMMIT,
            5 if self.is_v2 else 4,
            commit,
            lambda reply: reply.topics[0].partitions[0].error_code,
        )
        if answered.code is not ErrorCode.NONE:
            self.judge(answered.code, "commits offsets", ABORTABLE)
            self._is_doubtful = True
            raise Abortable
        if answered.was_replaced:
            self.world.violated(
                f"{self.name} commits offsets although another process had replaced it before the request"
            )


def _worst_fetched(reply: Any) -> int:
    group = reply.groups[0]
    codes = [group.error_code, *(each.error_code for topic in group.topics for each in topic.partitions)]
    return next((code for code in codes if code), 0)
