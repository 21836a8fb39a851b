"""What the APIs of share coordinators have in common: each partition of a request is one request to its shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.limits import COMMIT_WAIT_MS, SHARE_STATE_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, TurnItems, map_in_steps
from moldau.base.turns import CHANGES_A_TURN, CHECKS_A_TURN
from moldau.runtime.coordinators.share import ShareCoordinator
from moldau.runtime.coordinators.share_apis import ShareApi
from moldau.security.acls.requirements import CLUSTER_ACTION
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.replies import TimeLimit, in_turns, reply_or_error
from moldau.share.ports import ShareKey
from moldau.wire.schema import Message

Item = tuple[Uuid, Any]
"""A partition of a request or of a response, with the id of its topic."""


class ShareStateHandler(Handler):
    needs = (CLUSTER_ACTION,)
    request_bytes_max = SHARE_STATE_REQUEST_BYTES_MAX
    messages: ClassVar[ShareApi]

    def __init__(self, share_coordinator: ShareCoordinator, timers: Timers) -> None:
        self._coordinator = share_coordinator
        self._timers = timers

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any]:
        items = _items(request)
        if not caller.access.allows(CLUSTER_ACTION):
            denied = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
            return self._in_turns(items, lambda item: self._error(item, denied), CHECKS_A_TURN)
        if not request.group_id or not all(topic.partitions for topic in request.topics):
            return self.messages.response([])
        # A partition may be named twice: its changes are made in the order of the request.
        return self._in_turns(items, lambda item: self._submit(request.group_id, item), CHANGES_A_TURN)

    def _in_turns(
        self, items: Sequence[Item], handle: Callable[[Item], Item | Promise[Item]], items_a_turn: int
    ) -> Message | Promise[Any]:
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the change is not committed yet")
        limit = TimeLimit(self._timers, COMMIT_WAIT_MS, lambda index: self._error(items[index], late))
        return in_turns(self._timers, items, handle, self.messages.response, items_a_turn, limit)

    def _submit(self, group_id: str, item: Item) -> Item | Promise[Item]:
        topic_id, data = item
        key = ShareKey(group_id, topic_id, data.partition)

        def submit() -> Any:
            result = self._coordinator.submit(key, self.messages.decide, data)
            if isinstance(result, Promise):
                return result.map(lambda value: value if isinstance(value, KafkaError) else (topic_id, value))
            return topic_id, result

        return reply_or_error(submit, lambda error: self._error(item, error))

    def _error(self, item: Item, error: KafkaError) -> Item:
        topic_id, data = item
        return topic_id, self.messages.error(data.partition, error.code, error.message)

    def refuse(self, request: Any, error: KafkaError) -> Steps[Message]:
        results = yield from map_in_steps(
            TurnItems(CHECKS_A_TURN), _items(request), lambda item: self._error(item, error)
        )
        return self.messages.response(results)

    @staticmethod
    def is_of_node(request: Any) -> bool:
        return True


def _items(request: Any) -> list[Item]:
    return [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
