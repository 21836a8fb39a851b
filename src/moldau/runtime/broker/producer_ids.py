"""Producer ids at hand: a block from the controller, given out one by one, and the next block asked for in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise
from moldau.runtime.controller.channel import ControllerChannel
from moldau.wire.apis import ApiKey
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class ProducerIds:
    def __init__(self, allocate: Callable[[], Promise[range | KafkaError]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._waiting: deque[Promise[int | KafkaError]] = deque()
        self._is_asked = False

    def next(self) -> Promise[int | KafkaError]:
        """An id nobody else has or ever had; a KafkaError if the controller grants none."""
        answer: Promise[int | KafkaError] = Promise()
        self._waiting.append(answer)
        if not self._block and not self._is_asked:
            self._ask()
        self._give()
        return answer

    def ready(self) -> Promise[KafkaError | None] | None:
        """None if an id is at hand for `take`; else a promise of that, or of why not."""
        if self._block:
            return None
        return self.next().map(self._put_back)

    def take(self) -> int:
        """An id that is at hand, for who cannot wait. KafkaError if there is none: more are asked for."""
        if not self._block:
            if not self._is_asked:
                self._ask()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        given, self._block = self._block[0], self._block[1:]
        return given

    def _put_back(self, given: int | KafkaError) -> KafkaError | None:
        if isinstance(given, KafkaError):
            return given
        self._block = range(given, self._block.stop) if self._block else range(given, given + 1)
        return None

    def _ask(self) -> None:
        promise = self._allocate()
        self._is_asked = True
        promise.then(self._arrived)

    def _arrived(self, block: range | KafkaError) -> None:
        self._is_asked = False
        if isinstance(block, KafkaError):
            waiting, self._waiting = self._waiting, deque()
            for answer in waiting:
                answer.complete(block)
            return
        self._block = block
        self._give()
        if self._waiting and not self._is_asked:
            self._ask()

    def _give(self) -> None:
        while self._waiting and self._block:
            given, self._block = self._block[0], self._block[1:]
            self._waiting.popleft().complete(given)


def allocate_by(
    channel: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]
) -> Callable[[], Promise[range | KafkaError]]:
    """Blocks of ids, asked of the active controller."""

    def granted(given: AllocateProducerIdsResponse | KafkaError) -> range | KafkaError:
        if isinstance(given, KafkaError):
            return given
        if given.error_code:
            return KafkaError(ErrorCode(given.error_code))
        return range(given.producer_id_start, given.producer_id_start + given.producer_id_len)

    def allocate() -> Promise[range | KafkaError]:
        request = AllocateProducerIdsRequest(broker_id, broker_epoch())
        return channel.ask(ApiKey.ALLOCATE_PRODUCER_IDS, request, "ids").map(granted)

    return allocate
