"""FindCoordinator v0–6. The node that coordinates a group or a transactional id; from v4 on for several at once.

Key type 0 is a group, 1 a transactional id, 2 (from v6) a share group, which this release does not support.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_MIN_VERSION = 6
SEVERAL_KEYS_MIN_VERSION = 4


class FindCoordinator:
    api = ApiKey.FIND_COORDINATOR
    versions = (0, 6)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(self, current: CurrentImage, groups: GroupCoordinator, transactions: TransactionCoordinator) -> None:
        self._current = current
        self._coordinators: dict[int, GroupCoordinator | TransactionCoordinator] = {
            GROUP: groups,
            TRANSACTION: transactions,
        }

    def answer(
        self, request: FindCoordinatorRequest, caller: Caller
    ) -> FindCoordinatorResponse | Promise[FindCoordinatorResponse]:
        keys = (
            list(dict.fromkeys(request.coordinator_keys))
            if caller.version >= SEVERAL_KEYS_MIN_VERSION
            else [request.key]
        )
        coordinator = self._coordinators.get(request.key_type)
        if coordinator is None:
            return _response([_unsupported_key_type(request, key, caller) for key in keys], caller)
        opening = coordinator.topic.open()
        if opening.done:
            return _response([self._find(coordinator, key, opening.value(), caller) for key in keys], caller)
        return opening.map(lambda code: _response([self._find(coordinator, key, code, caller) for key in keys], caller))

    def _find(
        self, coordinator: GroupCoordinator | TransactionCoordinator, key: str, topic_error: ErrorCode, caller: Caller
    ) -> Coordinator:
        if topic_error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{coordinator.topic.name}: {topic_error.name}.")
        try:
            node_id = coordinator.find(key)
        except KafkaError:
            return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        broker = self._current.image.brokers.get(node_id)
        endpoint = broker.endpoint(caller.listener) if broker is not None else None
        if endpoint is None:
            return _error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(key, node_id, endpoint.host, endpoint.port)


def _unsupported_key_type(request: FindCoordinatorRequest, key: str, caller: Caller) -> Coordinator:
    if request.key_type == SHARE and caller.version >= SHARE_MIN_VERSION:
        return _error(key, ErrorCode.INVALID_REQUEST, "Share groups are not served.")
    return _error(key, ErrorCode.INVALID_REQUEST)


def _error(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, message)


def _response(coordinators: list[Coordinator], caller: Caller) -> FindCoordinatorResponse:
    if caller.version >= SEVERAL_KEYS_MIN_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    first = coordinators[0]
    return FindCoordinatorResponse(
        error_code=first.error_code,
        error_message=first.error_message,
        node_id=first.node_id,
        host=first.host,
        port=first.port,
    )
