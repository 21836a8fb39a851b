"""FindCoordinator v0–6. The node that coordinates a group or a transactional id; from v4 on for several at once.

Key type 0 is a group, 1 a transactional id, 2 (from v6) a share group, which this release does not support.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Needs
from moldau.security.acls.requirements import CLUSTER_ACTION, GROUP_DESCRIBE, TRANSACTION_DESCRIBE
from moldau.server.handler import Caller, Handler
from moldau.server.handlers.current_leaders import AskedLately
from moldau.server.handlers.replies import in_turns, run_steps
from moldau.wire.apis import ApiKey
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_MIN_VERSION = 6
SEVERAL_KEYS_MIN_VERSION = 4
SUCCESS_MESSAGE = "NONE"
"""What Kafka says in versions with a single key if there is no error."""


class _KeyType(NamedTuple):
    """The coordinator of keys of one type, and what a client needs to find it."""

    coordinator: GroupCoordinator | TransactionCoordinator
    needs: Needs
    denied_code: ErrorCode
    denied_message: str


class FindCoordinator(Handler):
    api = ApiKey.FIND_COORDINATOR
    versions = (0, 6)
    needs = (GROUP_DESCRIBE, TRANSACTION_DESCRIBE, CLUSTER_ACTION)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(
        self, current: CurrentImage, groups: GroupCoordinator, transactions: TransactionCoordinator, timers: Timers
    ) -> None:
        self._current = current
        self._timers = timers
        self._asked = AskedLately(timers)
        self._key_types = {
            GROUP: _KeyType(
                groups, GROUP_DESCRIBE, ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."
            ),
            TRANSACTION: _KeyType(
                transactions,
                TRANSACTION_DESCRIBE,
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "Transactional Id authorization failed.",
            ),
        }

    def answer(
        self, request: FindCoordinatorRequest, caller: Caller
    ) -> FindCoordinatorResponse | Promise[FindCoordinatorResponse]:
        keys = (
            list(dict.fromkeys(request.coordinator_keys))
            if caller.version >= SEVERAL_KEYS_MIN_VERSION
            else [request.key]
        )
        key_type = self._key_types.get(request.key_type)
        if key_type is None:
            return in_turns(
                self._timers,
                keys,
                lambda key: _unsupported_key_type(request, key, caller),
                lambda found: _response(found, caller),
                ITEMS_A_TURN,
            )
        return run_steps(self._timers, self._steps(keys, key_type, caller))

    def _steps(
        self, keys: Sequence[str], key_type: _KeyType, caller: Caller
    ) -> Steps[FindCoordinatorResponse | Promise[FindCoordinatorResponse]]:
        denied: dict[str, Coordinator] = {}
        for some in split(keys, ITEMS_A_TURN):
            if some[0] is not keys[0]:
                yield
            denied |= {
                key: _denied(key, key_type, caller) for key in some if not caller.access.allows(key_type.needs, key)
            }
        if len(denied) == len(keys):
            # No key is allowed: do not create the coordinator's topic for it.
            return _response(list(denied.values()), caller)
        coordinator = key_type.coordinator

        def find_all(topic_error: ErrorCode) -> FindCoordinatorResponse | Promise[FindCoordinatorResponse]:
            return in_turns(
                self._timers,
                keys,
                lambda key: denied.get(key) or self._find(coordinator, key, topic_error, caller),
                lambda found: _response(found, caller),
                ITEMS_A_TURN,
            )

        if coordinator.shards.is_cut_off:
            self._asked.check(caller.address)
            return find_all(ErrorCode.NONE)
        created = coordinator.topic.create_if_missing()
        return find_all(created.value()) if created.done else created.and_then(find_all)

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
        if not caller.access.allows(CLUSTER_ACTION):
            return _error(key, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        return _error(key, ErrorCode.INVALID_REQUEST, "Share groups are not served.")
    return _error(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {request.key_type}.")


def _denied(key: str, key_type: _KeyType, caller: Caller) -> Coordinator:
    """Return the error for a key. As in Kafka, it has a message only in versions with a single key."""
    message = "" if caller.version >= SEVERAL_KEYS_MIN_VERSION else key_type.denied_message
    return _error(key, key_type.denied_code, message)


def _error(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(key, -1, "", -1, code, message)


def _response(coordinators: list[Coordinator], caller: Caller) -> FindCoordinatorResponse:
    if caller.version >= SEVERAL_KEYS_MIN_VERSION:
        return FindCoordinatorResponse(coordinators=coordinators)
    first = coordinators[0]
    return FindCoordinatorResponse(
        error_code=first.error_code,
        error_message=first.error_message if first.error_code else SUCCESS_MESSAGE,
        node_id=first.node_id,
        host=first.host,
        port=first.port,
    )
