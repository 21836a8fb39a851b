"""BrokerRegistration v0–4, BrokerHeartbeat v0–2, AlterPartition v2–3, AllocateProducerIds v0: what brokers
request from the controller.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import ALTER_PARTITION_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.runtime.controller.channel import AskController
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ACTION
from moldau.server.router import Caller
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.wire.schema import Message

BROKER_APIS: Final[dict[ApiKey, tuple[int, int]]] = {
    ApiKey.BROKER_REGISTRATION: (0, 4),
    ApiKey.BROKER_HEARTBEAT: (0, 2),
    ApiKey.ALTER_PARTITION: (2, 3),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
}


class BrokerConnections(Protocol):
    """Remembers over which connections brokers send heartbeats."""

    def heartbeat_received(self, address: str) -> None: ...

    def heartbeat_accepted(self, broker_id: int, address: str) -> None: ...


class BrokerApiHandler:
    """The handler of one of these APIs."""

    def __init__(
        self,
        api: ApiKey,
        versions: tuple[int, int],
        send_to_controller: AskController,
        connections: BrokerConnections,
    ) -> None:
        self.api = api
        self.versions = versions
        self._send_to_controller = send_to_controller
        self._connections = connections
        is_long = api is ApiKey.ALTER_PARTITION
        self.request_bytes_max = ALTER_PARTITION_BYTES_MAX if is_long else QUORUM_REQUEST_BYTES_MAX

    def answer(self, request: Message, caller: Caller) -> Message | Promise[Message]:
        if not caller.access.allows(CLUSTER_ACTION):
            return self._response(denied(CLUSTER_ACTION))
        if isinstance(request, BrokerHeartbeatRequest):
            broker_id = request.broker_id
            self._connections.heartbeat_received(caller.address)
            promise = self._send_to_controller(self.api, request, caller.version)
            return promise.map(lambda result: self._heartbeat_response(result, broker_id, caller.address))
        return self._send_to_controller(self.api, request, caller.version).map(self._response)

    def _heartbeat_response(self, result: Any, broker_id: int, address: str) -> Message:
        response = self._response(result)
        if getattr(response, "error_code", 0) == ErrorCode.NONE:
            self._connections.heartbeat_accepted(broker_id, address)
        return response

    def _response(self, result: Any) -> Message:
        if isinstance(result, KafkaError):
            error_response: Any = response_class(self.api)()
            error_response.error_code = result.code
            result = error_response
        assert isinstance(result, Message)
        return result


def broker_api_handlers(send_to_controller: AskController, connections: BrokerConnections) -> list[BrokerApiHandler]:
    return [BrokerApiHandler(api, versions, send_to_controller, connections) for api, versions in BROKER_APIS.items()]
