"""Sends record batches to the leaders of their partitions: a few requests in flight, in order, with retries.

The caller makes the batches and assigns sequence numbers. After a failure, all unacknowledged batches are sent again in
order with the same sequence numbers, so that the broker drops those it already has.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.channel import Channel
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, RETRIABLE, Cluster
from moldau.client.producing import Produce
from moldau.spark.options import WriteOptions
from moldau.wire.apis import ApiKey
from moldau.wire.messages.produce import ProduceResponse

IN_FLIGHT_MAX: Final = 5
"""A broker remembers the last five batches of a producer, so a sixth unacknowledged one could be duplicated."""
REQUEST_BYTES_MAX: Final = 16 << 20
TRANSACTIONAL_PRODUCE_VERSIONS: Final = (3, 11)
"""Versions of Produce before the second part of KIP-890: AddPartitionsToTxn adds the partitions to the transaction."""
PRODUCER_STATE_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """A record batch to be sent to a partition."""

    partition: TopicPartition
    data: bytearray


class _InFlight(NamedTuple):
    """A request whose response has not been read yet."""

    channel: Channel
    batches: Sequence[RecordBatch]
    produce: Produce


class Sending:
    """What one producer has in flight. Used by one task at a time."""

    def __init__(
        self,
        cluster: Cluster,
        options: WriteOptions,
        transactional_id: str | None = None,
        renew_producer_id: Callable[[Iterable[RecordBatch]], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._transactional_id = transactional_id
        self._renew_producer_id = renew_producer_id
        """Writes a new producer id into batches after the broker has lost the producer's state. Without this function,
        the loss of the state is an error."""
        self._in_flight: dict[int, deque[_InFlight]] = {}
        """Node id -> the requests without a response, oldest first."""
        self._sent_to: dict[TopicPartition, int] = {}
        """The node that got the partition's last batch."""
        self._unacknowledged: dict[TopicPartition, deque[RecordBatch]] = {}
        """With acks=0 a batch counts as acknowledged as soon as it is sent."""

    def send(self, batches: Iterable[RecordBatch]) -> None:
        """Send batches. Blocks only while too many requests are in flight."""
        batches = list(batches)
        for batch in batches:
            self._unacknowledged.setdefault(batch.partition, deque()).append(batch)
        try:
            for node, request_batches in self._grouped(batches):
                self._send_request(node, request_batches)
        except (OSError, MalformedData, KafkaError) as error:
            self._recover(error)

    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        try:
            for node in self._in_flight:
                self._receive_responses(node)
        except (OSError, MalformedData, KafkaError) as error:
            self._recover(error)

    def abandon(self) -> None:
        """Drop connections with requests in flight: the next user of the cached Cluster must not read their
        responses."""
        for node, in_flight in self._in_flight.items():
            if in_flight:
                self._cluster.drop(node)
        self._in_flight.clear()

    def _grouped(self, batches: Iterable[RecordBatch]) -> Iterator[tuple[int, list[RecordBatch]]]:
        """Group batches into requests: one leader, one batch per partition (a rule of the protocol), a bounded size."""
        open_requests: dict[int, list[RecordBatch]] = {}
        sizes: dict[int, int] = {}
        for batch in batches:
            node = self._cluster.leader(batch.partition)
            request = open_requests.setdefault(node, [])
            is_full = sizes.get(node, 0) + len(batch.data) > REQUEST_BYTES_MAX
            if request and (is_full or any(other.partition == batch.partition for other in request)):
                yield node, request
                request = open_requests[node] = []
                sizes[node] = 0
            request.append(batch)
            sizes[node] = sizes.get(node, 0) + len(batch.data)
        yield from open_requests.items()

    def _send_request(self, node: int, batches: list[RecordBatch]) -> None:
        channel = self._cluster.channel(node)
        produce = Produce(
            self._cluster.topic,
            {batch.partition: batch.data for batch in batches},
            self._options.request_timeout_ms,
            self._options.acks,
            self._transactional_id,
        )
        if not self._options.acks:
            channel.send_unanswered(ApiKey.PRODUCE, produce.request)
            for batch in batches:
                self._on_acknowledged(batch)
            return
        in_flight = self._in_flight.setdefault(node, deque())
        while len(in_flight) >= IN_FLIGHT_MAX:
            self._receive_response(node)
        if in_flight and in_flight[0].channel is not channel:
            raise ConnectionError(f"the connection to node {node} was closed before all responses were received")
        self._receive_from_earlier_leaders(node, batches)
        versions = None if self._transactional_id is None else TRANSACTIONAL_PRODUCE_VERSIONS
        channel.send(ApiKey.PRODUCE, produce.request, versions)
        in_flight.append(_InFlight(channel, batches, produce))
        self._sent_to.update((batch.partition, node) for batch in batches)

    def _receive_from_earlier_leaders(self, leader: int, batches: Sequence[RecordBatch]) -> None:
        """Receive the responses of nodes that led one of these partitions before: its older batches come first."""
        for node in {self._sent_to.get(batch.partition, leader) for batch in batches} - {leader}:
            self._receive_responses(node)

    def _receive_responses(self, node: int) -> None:
        """Read the responses to all requests in flight at a node."""
        while self._in_flight.get(node):
            self._receive_response(node)

    def _receive_response(self, node: int) -> None:
        """Read one response. Drop acknowledged batches; raise the error of a rejected one."""
        request = self._in_flight[node][0]
        # Not from `Cluster.channel`: that may be a newer connection, whose responses are those of other requests.
        response = request.channel.receive(ProduceResponse)
        self._in_flight[node].popleft()
        batches = {batch.partition: batch for batch in request.batches}
        error: KafkaError | None = None
        for partition, result in request.produce.partitions(response).items():
            if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._on_acknowledged(batches[partition])
            else:
                code = ErrorCode(result.error_code)
                error = KafkaError(code, f"{partition}: {_reason(result.error_message, code)}")
        if error is not None:
            raise error

    def _on_acknowledged(self, batch: RecordBatch) -> None:
        first = self._unacknowledged[batch.partition].popleft()
        assert first is batch, "responses come in the order of requests"

    # --- retries --------------------------------------------------------------------------------------------------

    def _recover(self, error: Exception) -> None:
        """Send unacknowledged batches again, one per partition at a time, until all are acknowledged or time runs
        out."""
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1000
        wait = BACKOFF_SECONDS_FIRST
        while True:
            if not self._is_retriable(error) or time.monotonic() + wait > deadline:
                raise error
            # Responses to earlier requests must not be taken for those of the next ones: use new connections.
            self._in_flight.clear()
            self._sent_to.clear()
            self._cluster.close()
            time.sleep(wait)
            wait = min(BACKOFF_SECONDS_MAX, wait * 2)
            try:
                if (
                    isinstance(error, KafkaError)
                    and error.code in PRODUCER_STATE_LOST
                    and self._renew_producer_id is not None
                ):
                    self._renew_producer_id(batch for waiting in self._unacknowledged.values() for batch in waiting)
                while firsts := [waiting[0] for waiting in self._unacknowledged.values() if waiting]:
                    for node, request_batches in self._grouped(firsts):
                        self._send_request(node, request_batches)
                        self._receive_responses(node)
                return
            except (OSError, MalformedData, KafkaError) as next_error:
                error = next_error

    def _is_retriable(self, error: Exception) -> bool:
        if not isinstance(error, KafkaError):
            return True
        return error.code in RETRIABLE or (error.code in PRODUCER_STATE_LOST and self._renew_producer_id is not None)


def _reason(message: str | None, code: ErrorCode) -> str:
    """Return the broker's message with the name of the error, by which a pipeline decides whether to try again."""
    return code.name if not message else message if code.name in message else f"{message}: {code.name}"
