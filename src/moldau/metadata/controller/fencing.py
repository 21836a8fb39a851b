"""Brokers that are not heard of any more, and brokers that are taken off the list."""

from __future__ import annotations

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.leaderships import leaves
from moldau.metadata.image import MetadataImage
from moldau.metadata.records import (
    FENCE,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    UnregisterBrokerRecord,
)
from moldau.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def decide_fence_stale(
    image: MetadataImage, sessions: BrokerSessions, now_ms: int, broker: BrokerLayers
) -> Decision[list[int]]:
    """Fences every broker whose session is over; the answer is who was fenced. Their sessions end with that."""
    fenced: list[int] = []
    for broker_id, broker_epoch in sessions.stale(now_ms):
        sessions.end(broker_id)
        found = image.brokers.get(broker_id)
        if found is not None and found.epoch == broker_epoch and not found.fenced:
            fenced.append(broker_id)
    return Decision(fenced, fence(image, fenced, broker))


def fence(image: MetadataImage, broker_ids: list[int], broker: BrokerLayers) -> tuple[MetadataRecord, ...]:
    """First what they led and where they were in sync, then they themselves, as Kafka orders it."""
    if not broker_ids:
        return ()
    changes = [BrokerRegistrationChangeRecord(id, image.brokers[id].epoch, FENCE) for id in broker_ids]
    return (*leaves(image, broker_ids, broker), *changes)


def decide_unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, sessions: BrokerSessions, broker: BrokerLayers
) -> Decision[UnregisterBrokerResponse]:
    """UnregisterBroker v0. The broker stays on the lists of replicas: where they go is for a reassignment to say."""
    found = image.brokers.get(request.broker_id)
    if found is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        refused = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message)
        return Decision(refused)
    sessions.end(request.broker_id)
    gone = UnregisterBrokerRecord(request.broker_id, found.epoch)
    return Decision(UnregisterBrokerResponse(error_message=None), (*leaves(image, [request.broker_id], broker), gone))
