"""Sends the markers of transactions to the leaders of all their partitions, however often the leaders change.

Each broker gets one request at a time, with all markers that have queued up for it. If a partition does not accept its
marker, the sender retries with the leader at that time. A deleted partition needs no marker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.limits import MARKER_PARTITIONS_PER_REQUEST_MAX, RETRY_DELAY_MS, TRANSACTION_REQUEST_BYTES_MAX
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.metadata.current import CurrentImage
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.own_work import OwnWork
from moldau.wire.apis import ApiKey
from moldau.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger("moldau.transactions")
MARKERS_SENT_BYTES_MAX: Final = TRANSACTION_REQUEST_BYTES_MAX // 2
"""The limit for one request: one that is too long would be refused on every retry, and no transaction in it would
end."""
MARKER_BYTES: Final = 32
"""An upper bound for the size of a marker's producer, or of a partition without its topic name, in a request."""
NO_RETRY_NEEDED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)
"""The marker is written, or not needed: a partition that cannot store a marker has no records of a transaction."""
SUPERSEDED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator, or a newer producer epoch, has taken over: this node stops sending the markers."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _Sending:
    """The markers of one transaction and the partitions that still need one."""

    __slots__ = ("markers", "unwritten")

    def __init__(self, markers: TransactionMarkers) -> None:
        self.markers = markers
        self.unwritten = set(markers.partitions)


class MarkerSender:
    """`Transactions` calls `send` when the prepared end of a transaction is committed, and after it was loaded for each
    prepared end that it finds.

    `on_written` is called when all markers of a transaction are written; `is_coordinator` returns whether this node is
    still the coordinator of a transaction.
    """

    def __init__(
        self,
        current: CurrentImage,
        brokers: BrokerClient,
        own_work: OwnWork,
        on_written: Callable[[TransactionMarkers], None],
        is_coordinator: Callable[[TransactionMarkers], bool],
    ) -> None:
        self._current = current
        self._brokers = brokers
        self._own_work = own_work
        self._on_written = on_written
        self._is_coordinator = is_coordinator
        self._sending: dict[str, _Sending] = {}
        """By transactional id, each of which has at most one transaction that is ending."""
        self._queues: dict[int, dict[_Sending, set[TopicPartition]]] = {}
        """The markers for the next request to each broker."""
        self._in_flight: set[int] = set()
        self._is_closed = False

    def send(self, markers: TransactionMarkers) -> None:
        sending = self._sending[markers.transactional_id] = _Sending(markers)
        # Not at once: the shard that calls this is still applying records and completing requests.
        self._own_work.soon(lambda: self._enqueue(sending, list(markers.partitions)))

    def close(self) -> None:
        self._is_closed = True
        self._sending.clear()
        self._queues.clear()

    def _is_obsolete(self, sending: _Sending) -> bool:
        """Whether a later transaction replaced this one, or another node is the coordinator now."""
        markers = sending.markers
        if self._is_closed or self._sending.get(markers.transactional_id) is not sending:
            return True
        if not self._is_coordinator(markers):
            del self._sending[markers.transactional_id]
            return True
        return False

    def _enqueue(self, sending: _Sending, partitions: Iterable[TopicPartition]) -> None:
        """Put each marker into the queue of the broker that leads its partition now."""
        if self._is_obsolete(sending):
            return
        leaderless = []
        for partition in partitions:
            topic = self._current.image.topics.get(partition.topic)
            if topic is None or partition.partition >= len(topic.partitions):
                sending.unwritten.discard(partition)  # the topic was deleted
                continue
            leader = topic.partitions[partition.partition].leader
            if leader < 0:
                leaderless.append(partition)
            else:
                self._queues.setdefault(leader, {}).setdefault(sending, set()).add(partition)
        self._retry(sending, leaderless)
        self._finish_if_done(sending)
        for node_id in list(self._queues):
            self._send_next(node_id)

    def _retry(self, sending: _Sending, partitions: list[TopicPartition]) -> None:
        if partitions:
            self._own_work.after_ms(RETRY_DELAY_MS, lambda: self._enqueue(sending, partitions))

    def _finish_if_done(self, sending: _Sending) -> None:
        if not sending.unwritten:
            del self._sending[sending.markers.transactional_id]
            self._on_written(sending.markers)

    def _send_next(self, node_id: int) -> None:
        if node_id in self._in_flight:
            return
        queue = self._dequeue(node_id)
        if not queue:
            return
        request = WriteTxnMarkersRequest([_marker(each.markers, partitions) for each, partitions in queue.items()])
        self._in_flight.add(node_id)
        response = self._brokers.ask(node_id, ApiKey.WRITE_TXN_MARKERS, request)
        response.then(self._own_work.guard(partial(self._on_response, node_id, queue)))

    def _dequeue(self, node_id: int) -> dict[_Sending, set[TopicPartition]]:
        """Remove and return as many markers from the queue of a broker as fit into one request."""
        waiting = self._queues.get(node_id, {})
        batch: dict[_Sending, set[TopicPartition]] = {}
        count, size = 0, 0
        for sending, partitions in list(waiting.items()):
            if not self._is_obsolete(sending):
                size += MARKER_BYTES
                for partition in sorted(partitions):
                    if count >= MARKER_PARTITIONS_PER_REQUEST_MAX or size >= MARKERS_SENT_BYTES_MAX:
                        partitions -= batch.get(sending, set())
                        return batch
                    batch.setdefault(sending, set()).add(partition)
                    count, size = count + 1, size + len(partition.topic) + MARKER_BYTES
            del waiting[sending]
        self._queues.pop(node_id, None)
        return batch

    def _on_response(
        self,
        node_id: int,
        sent: dict[_Sending, set[TopicPartition]],
        response: WriteTxnMarkersResponse | KafkaError,
    ) -> None:
        self._in_flight.discard(node_id)
        if self._is_closed:
            return
        codes = {} if isinstance(response, KafkaError) else _codes(response)
        for sending, partitions in sent.items():
            if not self._is_obsolete(sending):
                by_partition = codes.get(sending.markers.producer_id, {})
                results = {each: by_partition.get(each, ErrorCode.REQUEST_TIMED_OUT) for each in partitions}
                self._handle_results(sending, results)
        self._own_work.soon(lambda: self._send_next(node_id))

    def _handle_results(self, sending: _Sending, results: dict[TopicPartition, ErrorCode]) -> None:
        """Retry the partitions that did not write their marker, unless another coordinator has taken over."""
        markers = sending.markers
        if not SUPERSEDED.isdisjoint(results.values()):
            refusals = ", ".join(f"{each} {code.name}" for each, code in results.items() if code in SUPERSEDED)
            log.info(
                "transactional id %s: stopped sending markers, another coordinator or producer epoch took over: %s",
                markers.transactional_id,
                refusals,
            )
            del self._sending[markers.transactional_id]
            return
        for each, code in results.items():
            if code not in NO_RETRY_NEEDED and code not in RETRIABLE:
                log.error(
                    "%s: refused the marker of transactional id %s, which is retried: %s",
                    each,
                    markers.transactional_id,
                    code.name,
                )
        sending.unwritten -= {each for each, code in results.items() if code in NO_RETRY_NEEDED}
        self._retry(sending, [each for each, code in results.items() if code not in NO_RETRY_NEEDED])
        self._finish_if_done(sending)


def _marker(markers: TransactionMarkers, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    by_topic: dict[str, list[int]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    return WritableTxnMarker(
        markers.producer_id,
        markers.producer_epoch,
        markers.committed,
        [WritableTxnMarkerTopic(name, indexes) for name, indexes in by_topic.items()],
        markers.coordinator_epoch,
        markers.transaction_version,
    )


def _codes(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    return {
        marker.producer_id: {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in marker.topics
            for each in topic.partitions
        }
        for marker in response.markers
    }
