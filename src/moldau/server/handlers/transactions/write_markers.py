"""WriteTxnMarkers v1–2. Writes a coordinator's decision about a transaction to the partitions with its records.

Markers for `__consumer_offsets` go through the group shards: they make the offsets of the transaction take effect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.counters import MARKERS_REFUSED, Counters
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.limits import COMMIT_WAIT_MS, TRANSACTION_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.base.turns import CHECKS_A_TURN, SLOW_ITEMS_A_TURN
from moldau.coordinator.machine import ProducerIdAndEpoch
from moldau.log.validate import Origin
from moldau.replica.partition import ACKS_ALL
from moldau.replica.partitions import Partitions
from moldau.replica.verification import Verifications
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.security.acls.requirements import CLUSTER_ACTION, CLUSTER_ALTER
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import reply_or_error, run_steps, steps_when_ready
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
Code = ErrorCode | Promise[ErrorCode]
Written = dict[TopicPartition, Code]
"""The results of one marker; promises of those that are not committed yet."""


class WriteTxnMarkers(Handler):
    api = ApiKey.WRITE_TXN_MARKERS
    versions = (1, 2)
    needs = (CLUSTER_ALTER, CLUSTER_ACTION)
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
            return run_steps(self._timers, _response_steps(request, _denied))
        return run_steps(self._timers, self._steps(request))

    def _steps(
        self, request: WriteTxnMarkersRequest
    ) -> Steps[WriteTxnMarkersResponse | Promise[WriteTxnMarkersResponse]]:
        """Write the markers in the order of the request, some in each turn."""
        turn = TurnItems(SLOW_ITEMS_A_TURN)
        written: list[Written] = []
        commits = _Commits()
        for marker in request.markers:
            codes: Written = {}
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    name = TopicPartition(topic.name, index)
                    if name not in codes:
                        codes[name] = commits.watched(self._write_or_error(marker, name))
                    if turn.ends_after(1):
                        yield
                if turn.ends_after(1):
                    yield
            written.append(codes)
            if turn.ends_after(1):
                yield

        def code_of(number: int, partition: TopicPartition) -> ErrorCode:
            return _outcome(written[number][partition])

        if not commits.missing:
            return (yield from _response_steps(request, code_of))
        commits.finish_within(self._timers, COMMIT_WAIT_MS)
        return steps_when_ready(self._timers, commits.done, lambda _: _response_steps(request, code_of))

    def _write_or_error(self, marker: WritableTxnMarker, name: TopicPartition) -> Code:
        return reply_or_error(partial(self._write, marker, name), lambda error: _marker_error(error.code))

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

    @staticmethod
    def is_of_node(request: WriteTxnMarkersRequest) -> bool:
        return True


def _marker_error(code: ErrorCode) -> ErrorCode:
    """Return an error that the sender can handle: it knows partitions without a leader, but no group coordinators."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in COORDINATOR_NOT_READY else code


class _Commits:
    """The markers that are written and not committed yet."""

    def __init__(self) -> None:
        self.missing = 0
        self.done: Promise[None] = Promise()
        """Completed after the last commit, or after the time limit."""
        self._timer: Timer | None = None

    def watched(self, code: Code) -> Code:
        if isinstance(code, Promise) and not code.done:
            self.missing += 1
            code.then(self._on_commit)
        return code

    def finish_within(self, timers: Timers, wait_ms: int) -> None:
        self._timer = timers.after_ms(wait_ms, lambda: self.done.complete(None))

    def _on_commit(self, _: ErrorCode) -> None:
        self.missing -= 1
        if not self.missing and self._timer is not None and not self.done.done:
            self._timer.cancel()
            self.done.complete(None)


def _response_steps(
    request: WriteTxnMarkersRequest, code_of: Callable[[int, TopicPartition], ErrorCode]
) -> Steps[WriteTxnMarkersResponse]:
    """`code_of` gets the place of a marker in the request, and a partition."""
    turn = TurnItems(CHECKS_A_TURN)
    results: list[WritableTxnMarkerResult] = []
    for number, marker in enumerate(request.markers):
        topics: list[WritableTxnMarkerTopicResult] = []
        for topic in marker.topics:
            result = partial(_result, code_of, number, topic.name)
            partitions = yield from map_in_steps(turn, topic.partition_indexes, result)
            topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            if turn.ends_after(1):
                yield
        results.append(WritableTxnMarkerResult(marker.producer_id, topics))
        if turn.ends_after(1):
            yield
    return WriteTxnMarkersResponse(results)


def _result(
    code_of: Callable[[int, TopicPartition], ErrorCode], number: int, topic: str, index: int
) -> WritableTxnMarkerPartitionResult:
    return WritableTxnMarkerPartitionResult(index, code_of(number, TopicPartition(topic, index)))


def _denied(number: int, partition: TopicPartition) -> ErrorCode:
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _outcome(code: Code) -> ErrorCode:
    """Return the error code of a marker: one that is not committed by now has timed out."""
    if isinstance(code, Promise):
        return code.value() if code.done else ErrorCode.REQUEST_TIMED_OUT
    return code
