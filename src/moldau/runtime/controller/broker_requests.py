"""The requests of brokers to the controller: registrations, heartbeats, changes of in-sync replicas, blocks of producer
ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.base.clock import Clock
from moldau.base.config_def import BrokerLayers
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.metadata.controller.alter_partition import decide_alter_partition
from moldau.metadata.controller.broker_registration import decide_broker_registration
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.fencing import decide_unregister_broker
from moldau.metadata.controller.heartbeats import decide_heartbeat
from moldau.metadata.controller.producer_ids import decide_allocate_producer_ids
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller
from moldau.runtime.controller.duties import ControllerDuties
from moldau.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from moldau.wire.messages.alter_partition import AlterPartitionRequest
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest


class BrokerRequests:
    def __init__(
        self,
        controller: Controller,
        duties: ControllerDuties,
        sessions: BrokerSessions,
        layers: Callable[[MetadataImage], BrokerLayers],
        cluster_id: str,
        clock: Clock,
    ) -> None:
        self._controller = controller
        self._duties = duties
        self._sessions = sessions
        self._layers = layers
        self._cluster_id = cluster_id
        self._clock = clock

    # Each returns a promise of the response, or of KafkaError NOT_CONTROLLER if this node is not the leader.

    def register(self, request: BrokerRegistrationRequest) -> Promise[Any]:
        return self._submit(lambda image: self._register(image, request))

    def heartbeat(self, request: BrokerHeartbeatRequest) -> Promise[Any]:
        return self._submit(lambda image: self._heartbeat(image, request))

    def unregister(self, request: UnregisterBrokerRequest) -> Promise[Any]:
        return self._submit(lambda image: decide_unregister_broker(image, request, self._sessions, self._layers(image)))

    def alter_partition(self, request: AlterPartitionRequest) -> Promise[Any]:
        return self._submit(lambda image: decide_alter_partition(image, request, self._layers(image)))

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> Promise[Any]:
        return self._submit(lambda image: decide_allocate_producer_ids(image, request))

    def _submit(self, decide: Callable[[MetadataImage], Decision[Any] | Steps[Decision[Any]]]) -> Promise[Any]:
        return self._controller.submit(lambda image: self._decide(decide, image))

    def _decide(
        self, decide: Callable[[MetadataImage], Decision[Any] | Steps[Decision[Any]]], image: MetadataImage
    ) -> Decision[Any] | Steps[Decision[Any]]:
        decision = decide(image)
        self._duties.set_fencing_timer()
        return decision

    def _register(
        self, image: MetadataImage, request: BrokerRegistrationRequest
    ) -> Decision[BrokerRegistrationResponse]:
        return decide_broker_registration(
            image,
            request,
            self._sessions,
            self._clock.monotonic_ms(),
            self._controller.next_offset,
            self._cluster_id,
            self._layers(image),
        )

    def _heartbeat(self, image: MetadataImage, request: BrokerHeartbeatRequest) -> Decision[BrokerHeartbeatResponse]:
        now_ms, next_offset = self._clock.monotonic_ms(), self._controller.next_offset
        return decide_heartbeat(image, request, self._sessions, now_ms, next_offset, self._layers(image))
