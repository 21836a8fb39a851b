"""FindCoordinator v0–6. The node that coordinates a group or a transactional id; from v4 on for several at once.

Key type 0 is a group, 1 a transactional id, 2 (from v6) a partition of a share group, group:topicId:partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import Steps, split
from moldau.base.turns import ITEMS_A_TURN
from moldau.metadata.current import CurrentImage
from moldau.runtime.coordinators.group import GroupCoordinator
from moldau.runtime.coordinators.share import ShareCoordinator, share_key
from moldau.runtime.coordinators.transaction import TransactionCoordinator
from moldau.security.acls.access import Needs
from moldau.security.acls.bindings import CLUSTER_NAME, ResourceType
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


AnyCoordinator = GroupCoordinator | TransactionCoordinator | ShareCoordinator


class _KeyType(NamedTuple):
    """The coordinator of keys of one type, and what a client needs to find it."""

    coordinator: AnyCoordinator
    needs: Needs
    denied_code: ErrorCode
    denied_message: str
    check_key: Callable[[str], object] | None = None
    """Raises KafkaError for a text that is not a key."""


class FindCoordinator(Handler):
    api = ApiKey.FIND_COORDINATOR
    versions = (0, 6)
    needs = (GROUP_DESCRIBE, TRANSACTION_DESCRIBE, CLUSTER_ACTION)
    request_bytes_max = LOOKUP_REQUEST_BYTES_MAX

    def __init__(
        self,
        current: CurrentImage,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        share_coordinator: ShareCoordinator,
        timers: Timers,
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
            SHARE: _KeyType(
                share_coordinator,
                CLUSTER_ACTION,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                "Cluster authorization failed.",
                share_key,
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
        if key_type is None or (request.key_type == SHARE and caller.version < SHARE_MIN_VERSION):
            return in_turns(
                self._timers,
                keys,
                lambda key: _error(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {request.key_type}."),
                lambda found: _response(found, caller),
                ITEMS_A_TURN,
            )
        return run_steps(self._timers, self._steps(keys, key_type, caller))

    def _steps(
        self, keys: Sequence[str], key_type: _KeyType, caller: Caller
    ) -> Steps[FindCoordinatorResponse | Promise[FindCoordinatorResponse]]:
        refused: dict[str, Coordinator] = {}
        for some in split(keys, ITEMS_A_TURN):
            if some[0] is not keys[0]:
                yield
            refused |= {key: refusal for key in some if (refusal := _refused(key, key_type, caller)) is not None}
        if len(refused) == len(keys):
            # No key is allowed: do not create the coordinator's topic for it.
            return _response(list(refused.values()), caller)
        coordinator = key_type.coordinator

        def find_all(topic_error: ErrorCode) -> FindCoordinatorResponse | Promise[FindCoordinatorResponse]:
            return in_turns(
                self._timers,
                keys,
                lambda key: refused.get(key) or self._find(coordinator, key, topic_error, caller),
                lambda found: _response(found, caller),
                ITEMS_A_TURN,
            )

        if coordinator.shards.is_cut_off:
            self._asked.check(caller.address)
            return find_all(ErrorCode.NONE)
        created = coordinator.topic.create_if_missing()
        return find_all(created.value()) if created.done else created.and_then(find_all)

    def _find(self, coordinator: AnyCoordinator, key: str, topic_error: ErrorCode, caller: Caller) -> Coordinator:
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


def _refused(key: str, key_type: _KeyType, caller: Caller) -> Coordinator | None:
    """Return the error for a key that the client may not look for, or that is none. As in Kafka, a denial of a single
    resource has a message only in versions with a single key."""
    is_of_cluster = key_type.needs.resource is ResourceType.CLUSTER
    if not caller.access.allows(key_type.needs, CLUSTER_NAME if is_of_cluster else key):
        has_message = is_of_cluster or caller.version < SEVERAL_KEYS_MIN_VERSION
        message = key_type.denied_message if has_message else ""
        return _error(key, key_type.denied_code, message)
    if key_type.check_key is not None:
        try:
            key_type.check_key(key)
        except KafkaError as error:
            return _error(key, error.code, error.message)
    return None


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
