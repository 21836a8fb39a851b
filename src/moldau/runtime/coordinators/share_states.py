"""`ShareStates` over the share coordinators of the cluster: this node's own shards, and requests to other nodes.

Each node gets one request of a kind and group at a time, with what has queued up for it meanwhile. What fails for a
reason that passes is tried again; later calls for the same partition wait behind it, so that they keep their order.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Any, Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import COMMIT_WAIT_MS, SHARE_STATE_REQUEST_BYTES_MAX
from moldau.base.promise import Promise, resolved
from moldau.runtime.broker.broker_client import BrokerClient
from moldau.runtime.coordinators.share import ShareCoordinator
from moldau.runtime.coordinators.share_apis import DELETE, INITIALIZE, READ, READ_SUMMARY, WRITE, ShareApi
from moldau.runtime.internal_errors import complete_alone
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareKey, ShareStates
from moldau.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

log = logging.getLogger("moldau.coordinator")
TRIES_MAX: Final = 8
FIRST_DELAY_MS: Final = 100
"""The delay before the second try; each further one is twice as long, so that all tries take 13 seconds: longer than
the controller needs to find another leader for a node that is silent."""
REQUEST_BYTES_MAX: Final = SHARE_STATE_REQUEST_BYTES_MAX // 2
"""The limit for one request: one that is too long would be refused with everything in it, on every try."""
PARTITIONS_MAX: Final = 1_000
"""The limit for one request, which the coordinator handles in a few turns."""
PARTITION_BYTES: Final = 64
"""An upper bound for a partition in a request, with its topic and without its batches."""
BATCH_BYTES: Final = 24
"""An upper bound for a state batch in a request."""
RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the coordinator may not know a new topic yet
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class _Call:
    """A call for one partition, until its promise is completed."""

    __slots__ = ("api", "data", "key", "number", "promise", "size", "tries")

    def __init__(self, number: int, api: ShareApi, key: ShareKey, data: Any) -> None:
        self.number = number
        self.api = api
        self.key = key
        self.data = data
        self.size = PARTITION_BYTES + BATCH_BYTES * len(getattr(data, "state_batches", ()))
        self.promise: Promise[Any] = Promise()
        self.tries = 0


class _Queue(NamedTuple):
    """What waits for one request: it has one kind and one group."""

    node_id: int
    api: ShareApi
    group_id: str


class CoordinatedShareStates(ShareStates):
    def __init__(self, node_id: int, coordinator: ShareCoordinator, brokers: BrokerClient, own_work: OwnWork) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._brokers = brokers
        self._own_work = own_work
        self._is_closed = False
        self._is_creating = False
        self._creation_error = ErrorCode.NONE
        self._count = 0
        self._queues: dict[_Queue, deque[_Call]] = {}
        self._in_flight: dict[_Queue, list[_Call]] = {}
        self._held: dict[ShareKey, list[_Call]] = {}
        """Calls that wait for the next try of the first of them, in their order."""

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Promise[ErrorCode]:
        data = initialize_share_group_state.PartitionData(key.partition, state_epoch, start_offset)
        return self._call(INITIALIZE, key, data).map(_code)

    def read(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state.PartitionResult]:
        return self._call(READ, key, read_share_group_state.PartitionData(key.partition, leader_epoch))

    def write(self, key: ShareKey, data: write_share_group_state.PartitionData) -> Promise[ErrorCode]:
        return self._call(WRITE, key, data).map(_code)

    def delete(self, key: ShareKey) -> Promise[ErrorCode]:
        return self._call(DELETE, key, delete_share_group_state.PartitionData(key.partition)).map(_code)

    def read_summary(self, key: ShareKey, leader_epoch: int) -> Promise[read_share_group_state_summary.PartitionResult]:
        data = read_share_group_state_summary.PartitionData(key.partition, leader_epoch)
        return self._call(READ_SUMMARY, key, data)

    def close(self) -> None:
        """Complete all promises because the node stops."""
        self._is_closed = True
        waiting = [call for calls in (*self._held.values(), *self._queues.values()) for call in calls]
        waiting += [call for calls in self._in_flight.values() for call in calls]
        self._held.clear()
        self._queues.clear()
        self._in_flight.clear()
        for call in sorted(waiting, key=lambda call: call.number):
            _complete(call, _error(call, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    # --- tries --------------------------------------------------------------------------------------------------

    def _call(self, api: ShareApi, key: ShareKey, data: Any) -> Promise[Any]:
        self._count += 1
        call = _Call(self._count, api, key, data)
        if self._is_closed:
            call.promise.complete(_error(call, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._try(call)
        return call.promise

    def _try(self, call: _Call) -> None:
        if call.key in self._held:
            self._hold(call)
            return
        call.tries += 1
        try:
            node_id = self._coordinator.node_of(call.key)
        except KafkaError as error:
            self._create_topic()
            self._on_result(call, error)
            return
        if node_id == self._node_id:
            self._try_here(call)
            return
        queue = _Queue(node_id, call.api, call.key.group_id)
        self._queues.setdefault(queue, deque()).append(call)
        self._send_next(queue)

    def _try_here(self, call: _Call) -> None:
        try:
            reply = self._coordinator.submit(call.key, call.api.decide, call.data)
        except KafkaError as error:
            self._on_result(call, error)
            return
        if not isinstance(reply, Promise) or reply.done:
            resolved(reply).then(partial(self._on_result, call))
            return
        # Another node would answer after this time too. Without it, a call waits as long as replicas are missing.
        first: Promise[Any] = Promise()
        first.then(partial(self._on_result, call))
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the change is not committed yet")
        timer = self._own_work.after_ms(COMMIT_WAIT_MS, lambda: first.complete(late))

        def on_reply(result: Any) -> None:
            if not first.done:
                timer.cancel()
                first.complete(result)

        reply.then(on_reply)

    def _on_result(self, call: _Call, result: Any) -> None:
        """Complete a call, or hold it for another try. `result` may be a KafkaError."""
        if call.promise.done:
            return  # by `close`
        if isinstance(result, KafkaError):
            result = _error(call, result.code, result.message)
        if result.error_code not in RETRIABLE or call.tries >= TRIES_MAX or self._is_closed:
            _complete(call, result)
        else:
            self._hold(call)

    def _hold(self, call: _Call) -> None:
        calls = self._held.get(call.key)
        if calls is None:
            self._held[call.key] = [call]
            delay_ms = FIRST_DELAY_MS << call.tries - 1
            self._own_work.after_ms(delay_ms, partial(self._release, call.key))
        else:
            calls.append(call)
            calls.sort(key=lambda each: each.number)

    def _release(self, key: ShareKey) -> None:
        for call in self._held.pop(key, ()):
            self._try(call)

    def _create_topic(self) -> None:
        """Create the coordinators' topic if it is missing. Nobody waits for it but the next try."""
        if not self._is_creating:
            self._is_creating = True
            self._coordinator.topic.create_if_missing().then(self._own_work.guard(self._on_created))

    def _on_created(self, code: ErrorCode) -> None:
        self._is_creating = False
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, self._creation_error):
            log.warning("%s cannot be created; it is tried again: %s", self._coordinator.topic.name, code.name)
        self._creation_error = code

    # --- requests to other nodes --------------------------------------------------------------------------------

    def _send_next(self, queue: _Queue) -> None:
        if queue in self._in_flight:
            return
        calls = self._dequeue(queue)
        if calls:
            self._in_flight[queue] = calls
            request = queue.api.request(queue.group_id, [(call.key.topic_id, call.data) for call in calls])
            response = self._brokers.ask(queue.node_id, queue.api.api, request)
            response.then(self._own_work.guard(partial(self._on_response, queue, calls)))

    def _dequeue(self, queue: _Queue) -> list[_Call]:
        """Remove and return the calls of the next request: as many as fit, and one of each partition."""
        waiting = self._queues.pop(queue, ())
        calls: dict[ShareKey, _Call] = {}
        left: deque[_Call] = deque()
        size = 0
        for call in waiting:
            is_full = calls and (size + call.size > REQUEST_BYTES_MAX or len(calls) >= PARTITIONS_MAX)
            if call.key in self._held:
                self._hold(call)
            elif is_full or call.key in calls:
                left.append(call)
            else:
                calls[call.key] = call
                size += call.size
        if left:
            self._queues[queue] = left
        return list(calls.values())

    def _on_response(self, queue: _Queue, calls: list[_Call], response: Any) -> None:
        if self._in_flight.pop(queue, None) is None:
            return  # closed
        results: dict[tuple[bytes, int], Any] = {}
        missing: KafkaError = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's response lacks the partition"
        )
        if isinstance(response, KafkaError | MalformedData):
            missing = response if isinstance(response, KafkaError) else KafkaError(ErrorCode.NETWORK_EXCEPTION)
        else:
            results = {
                (topic.topic_id, each.partition): each for topic in response.results for each in topic.partitions
            }
        for call in calls:
            self._on_result(call, results.get((call.key.topic_id, call.key.partition), missing))
        # Not at once: callers that got a result have more to write, which then goes into the same request.
        self._own_work.soon(lambda: self._send_next(queue))


def _error(call: _Call, code: ErrorCode, message: str | None = None) -> Any:
    return call.api.error(call.key.partition, code, message)


def _complete(call: _Call, result: Any) -> None:
    complete_alone(call.promise, result, log, "its share coordinator")


def _code(result: Any) -> ErrorCode:
    return ErrorCode(result.error_code)
