"""Fencing brokers whose session has expired, and unregistering brokers."""

from __future__ import annotations

from collections.abc import Callable

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.leaderships import leave_changes
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import FENCE
from moldau.wire.log_records.metadata import BrokerRegistrationChangeRecord, UnregisterBrokerRecord
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from moldau.wire.schema import MetadataRecord


def decide_fence_stale(
    image: MetadataImage, sessions: BrokerSessions, now_ms: int, broker_configs: BrokerLayers
) -> Decision[list[int]]:
    """Fence every broker whose session has expired, and end the sessions. The response lists the fenced brokers. They
    stay in the ISRs of which this controller has not heard from any other member yet: if all were killed together, the
    sessions that it began when it took over do not tell who is alive, and each of them may be the only intact one."""
    fenced: list[int] = []
    for broker_id, broker_epoch in sessions.stale(now_ms):
        sessions.end(broker_id)
        registered = image.brokers.get(broker_id)
        if registered is not None and registered.epoch == broker_epoch and not registered.fenced:
            fenced.append(broker_id)
            sessions.fenced(broker_id, image.offset + 1)
    return Decision(fenced, fence(image, fenced, broker_configs, sessions.is_confirmed))


def fence(
    image: MetadataImage,
    broker_ids: list[int],
    broker_configs: BrokerLayers,
    is_alive: Callable[[int], bool] = lambda _: True,
) -> tuple[MetadataRecord, ...]:
    """Return the records of the partitions that the brokers leave, then those of the brokers: this is Kafka's order."""
    if not broker_ids:
        return ()
    changes = [BrokerRegistrationChangeRecord(id, image.brokers[id].epoch, FENCE) for id in broker_ids]
    return (*leave_changes(image, broker_ids, broker_configs, is_alive), *changes)


def decide_unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, sessions: BrokerSessions, broker_configs: BrokerLayers
) -> Decision[UnregisterBrokerResponse]:
    """UnregisterBroker v0. The broker stays in the lists of replicas; only a reassignment removes it from them."""
    registered = image.brokers.get(request.broker_id)
    if registered is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        refused = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message)
        return Decision(refused)
    sessions.end(request.broker_id)
    record = UnregisterBrokerRecord(request.broker_id, registered.epoch)
    changes = leave_changes(image, [request.broker_id], broker_configs)
    return Decision(UnregisterBrokerResponse(error_message=None), (*changes, record))
