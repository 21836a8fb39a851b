"""WriteTxnMarkers v1–2. Writes a coordinator's decision about a transaction to the partitions with its records.

Markers for `__consumer_offsets` go through the group shards: they make the offsets of the transaction take effect.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from moldau.base.clock import Clock, Timers
from moldau.base.counters import MARKERS_REFUSED, Counters
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.limits import TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.log.validate import Origin
from moldau.replica.partition import ACKS_ALL
from moldau.replica.partitions import Partitions
from moldau.replica.verification import Verifications
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.requirements import CLUSTER_ACTION, CLUSTER_ALTER
from moldau.server.handlers.replies import TimeLimit, in_turns, reply_or_error, run_steps
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from moldau.wire.records import EndTxnMarker, end_txn_batch

COORDINATOR_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
COMMIT_WAIT_MS = 5_000
"""A partition that lost its in-sync replicas may never commit its marker: other transactions must not wait for it."""
MARKERS_A_TURN: Final = 100
"""Each marker is an append: some 50 microseconds."""
DENIED_A_TURN: Final = 2_000
Code = ErrorCode | Promise[ErrorCode]


class WriteTxnMarkers:
    api = ApiKey.WRITE_TXN_MARKERS
    versions = (1, 2)
    request_bytes_max = TRANSACTION_REQUEST_BYTES_MAX

    def __init__(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        verifications: Verifications,
        clock: Clock,
        timers: Timers,
        counters: Counters,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._verifications = verifications
        self._clock = clock
        self._timers = timers
        self._counters = counters

    def answer(
        self, request: WriteTxnMarkersRequest, caller: Caller
    ) -> WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]:
        if not (caller.access.allows_quietly(CLUSTER_ALTER) or caller.access.allows(CLUSTER_ACTION)):
            self._counters.add(MARKERS_REFUSED, len(request.markers))
            return run_steps(self._timers, _denied_steps(request))
        requested = [(marker, _partitions(marker)) for marker in request.markers]
        to_write = [(marker, each) for marker, partitions in requested for each in partitions]

        def make_response(all_codes: list[ErrorCode]) -> WriteTxnMarkersResponse:
            remaining_codes = iter(all_codes)
            return WriteTxnMarkersResponse(
                [
                    _result(marker, dict(zip(partitions, remaining_codes, strict=False)))
                    for marker, partitions in requested
                ]
            )

        return in_turns(
            self._timers,
            to_write,
            lambda each: reply_or_error(partial(self._write, *each), lambda error: _marker_error(error.code)),
            make_response,
            MARKERS_A_TURN,
            TimeLimit(self._timers, COMMIT_WAIT_MS, lambda _: ErrorCode.REQUEST_TIMED_OUT),
        )

    def _write(self, marker: WritableTxnMarker, name: TopicPartition) -> Code:
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        end_marker = EndTxnMarker(marker.transaction_result, marker.coordinator_epoch)
        partition = self._partitions.find(name.topic, name.partition)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name.topic == CONSUMER_OFFSETS_TOPIC:
            written = self._groups.shards.end_transaction(
                name.partition, producer, end_marker, marker.transaction_version
            )
            self._verifications.finish(partition, marker.producer_id)
            return written
        now_ms = self._clock.now_ms()
        batch = end_txn_batch(end_marker, now_ms, *producer)
        appended = partition.append(
            memoryview(batch),
            ACKS_ALL,
            now_ms,
            Origin.COORDINATOR,
            transaction_version=marker.transaction_version,
        )
        self._verifications.finish(partition, marker.producer_id)
        return partition.acknowledged(appended.last_offset) or ErrorCode.NONE


def _denied_steps(request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """Refuse all markers, some partitions in each turn."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    turn = TurnItems(DENIED_A_TURN)
    results = []
    for marker in request.markers:
        topics = []
        for topic in marker.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            for some in split(topic.partition_indexes, DENIED_A_TURN):
                partitions += [WritableTxnMarkerPartitionResult(index, code) for index in some]
                if turn.is_over(len(some)):
                    yield
            topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            if turn.is_over(1):
                yield
        results.append(WritableTxnMarkerResult(marker.producer_id, topics))
        if turn.is_over(1):
            yield
    return WriteTxnMarkersResponse(results)


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    return list(dict.fromkeys(partitions))


def _marker_error(code: ErrorCode) -> ErrorCode:
    """Return an error that the sender can handle: it knows partitions without a leader, but no group coordinators."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_NOT_READY else code


def _result(marker: WritableTxnMarker, codes: dict[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    topics = [
        WritableTxnMarkerTopicResult(
            topic.name,
            [
                WritableTxnMarkerPartitionResult(index, codes[TopicPartition(topic.name, index)])
                for index in topic.partition_indexes
            ],
        )
        for topic in marker.topics
    ]
    return WritableTxnMarkerResult(marker.producer_id, topics)
