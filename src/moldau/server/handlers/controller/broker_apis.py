"""BrokerRegistration v0–4, BrokerHeartbeat v0–2, AlterPartition v2–3, AllocateProducerIds v0: what brokers
request from the controller.
"""

from __future__ import annotations

from typing import Any, Protocol

from moldau.base.clock import Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import ALTER_PARTITION_BYTES_MAX, QUORUM_REQUEST_BYTES_MAX
from moldau.base.promise import Promise
from moldau.base.steps import finish
from moldau.runtime.controller.channel import AskController
from moldau.security.acls.denials import denied
from moldau.security.acls.requirements import CLUSTER_ACTION
from moldau.security.principals import Client
from moldau.server.handler import LONG_ELEMENTS_MAX, Caller
from moldau.server.handlers.forwarded import DecidedHandler, Deciders
from moldau.wire.apis import ApiKey
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.wire.messages.alter_partition import AlterPartitionRequest
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest
from moldau.wire.schema import Message


class BrokerConnections(Protocol):
    """Remembers over which connections brokers send heartbeats."""

    def heartbeat_received(self, address: str) -> None: ...

    def heartbeat_accepted(self, broker_id: int, address: str) -> None: ...


class BrokerApiHandler(DecidedHandler):
    is_on_brokers = False
    needs = (CLUSTER_ACTION,)
    request_bytes_max = QUORUM_REQUEST_BYTES_MAX

    def __init__(self, forward: AskController, timers: Timers) -> None:
        self._ask = forward
        self._timers = timers

    def answer(self, request: Any, caller: Caller) -> Message | Promise[Any]:
        if not caller.access.allows(CLUSTER_ACTION):
            return self.response(denied(CLUSTER_ACTION))
        return self._ask(self.api, request, caller.version).map(self.response)

    def response(self, result: Message | KafkaError) -> Message:
        return finish(self.refuse(None, result)) if isinstance(result, KafkaError) else result


class BrokerRegistration(BrokerApiHandler):
    api = ApiKey.BROKER_REGISTRATION
    versions = (0, 4)

    @staticmethod
    def decide(
        deciders: Deciders, request: BrokerRegistrationRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.broker_requests.register(request)


class BrokerHeartbeat(BrokerApiHandler):
    api = ApiKey.BROKER_HEARTBEAT
    versions = (0, 2)

    def __init__(self, forward: AskController, timers: Timers, connections: BrokerConnections) -> None:
        super().__init__(forward, timers)
        self._connections = connections

    def answer(self, request: BrokerHeartbeatRequest, caller: Caller) -> Message | Promise[Any]:
        if not caller.access.allows(CLUSTER_ACTION):
            return self.response(denied(CLUSTER_ACTION))
        broker_id, address = request.broker_id, caller.address
        self._connections.heartbeat_received(address)

        def on_result(result: Message | KafkaError) -> Message:
            response = self.response(result)
            if getattr(response, "error_code", 0) == ErrorCode.NONE:
                self._connections.heartbeat_accepted(broker_id, address)
            return response

        return self._ask(self.api, request, caller.version).map(on_result)

    @staticmethod
    def decide(
        deciders: Deciders, request: BrokerHeartbeatRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.broker_requests.heartbeat(request)


class AlterPartition(BrokerApiHandler):
    api = ApiKey.ALTER_PARTITION
    versions = (2, 3)
    request_bytes_max = ALTER_PARTITION_BYTES_MAX
    elements_max = LONG_ELEMENTS_MAX

    @staticmethod
    def is_of_node(request: AlterPartitionRequest) -> bool:
        return True

    @staticmethod
    def decide(deciders: Deciders, request: AlterPartitionRequest, version: int, client: Client | None) -> Promise[Any]:
        return deciders.broker_requests.alter_partition(request)


class AllocateProducerIds(BrokerApiHandler):
    api = ApiKey.ALLOCATE_PRODUCER_IDS
    versions = (0, 0)

    @staticmethod
    def decide(
        deciders: Deciders, request: AllocateProducerIdsRequest, version: int, client: Client | None
    ) -> Promise[Any]:
        return deciders.broker_requests.allocate_producer_ids(request)
