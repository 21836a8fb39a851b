"""Producer ids: takes a block from the controller, hands out its ids, and requests another when it is used up."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.runtime.controller.channel import ControllerChannel
from moldau.runtime.internal_errors import complete_alone
from moldau.wire.apis import ApiKey
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

log = logging.getLogger("moldau.server")


class ProducerIds:
    def __init__(self, allocate: Callable[[], Promise[range | KafkaError]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._waiting: deque[Promise[int | KafkaError]] = deque()
        self._is_allocating = False

    def next(self) -> Promise[int | KafkaError]:
        """Return a promise of an id that was never used, or of a KafkaError if the controller grants none."""
        promise: Promise[int | KafkaError] = Promise()
        self._waiting.append(promise)
        if not self._block and not self._is_allocating:
            self._request_block()
        self._serve_waiting()
        return promise

    def wait_for_id(self) -> Promise[KafkaError | None] | None:
        """Return None if `take` has an id now, else a promise that is completed (None, or the error) when it has."""
        if self._block:
            return None
        return self.next().map(self._put_back)

    def take(self) -> int:
        """Return an id without waiting. If there is none, request a block and raise KafkaError."""
        if not self._block:
            if not self._is_allocating:
                self._request_block()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        producer_id, self._block = self._block[0], self._block[1:]
        return producer_id

    def _put_back(self, producer_id: int | KafkaError) -> KafkaError | None:
        """Return an id to the block: it was taken only to wait for one."""
        if isinstance(producer_id, KafkaError):
            return producer_id
        self._block = range(producer_id, self._block.stop) if self._block else range(producer_id, producer_id + 1)
        return None

    def _request_block(self) -> None:
        promise = self._allocate()
        self._is_allocating = True
        promise.then(self._on_block)

    def _on_block(self, block: range | KafkaError) -> None:
        self._is_allocating = False
        if isinstance(block, KafkaError):
            waiting, self._waiting = self._waiting, deque()
            for promise in waiting:
                complete_alone(promise, block, log, "the controller")
            return
        self._block = block
        self._serve_waiting()
        if self._waiting and not self._is_allocating:
            self._request_block()

    def _serve_waiting(self) -> None:
        while self._waiting and self._block:
            producer_id, self._block = self._block[0], self._block[1:]
            complete_alone(self._waiting.popleft(), producer_id, log, "the controller")


def controller_allocator(
    channel: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]
) -> Callable[[], Promise[range | KafkaError]]:
    """Return a function that requests a block of ids from the active controller."""

    def to_block(response: AllocateProducerIdsResponse | KafkaError) -> range | KafkaError:
        if isinstance(response, KafkaError):
            return response
        if response.error_code:
            return KafkaError(ErrorCode(response.error_code))
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)

    def allocate() -> Promise[range | KafkaError]:
        request = AllocateProducerIdsRequest(broker_id, broker_epoch())
        return channel.ask(ApiKey.ALLOCATE_PRODUCER_IDS, request, purpose="ids").map(to_block)

    return allocate
