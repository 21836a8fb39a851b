"""Brokers that come: their registration as a record. A broker of a quorum of one is live as soon as it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.base.ids import Uuid
from moldau.metadata.controller.decision import Decision
from moldau.metadata.image import Endpoint, MetadataImage
from moldau.metadata.records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord


def decide_register_broker(
    image: MetadataImage,
    broker_id: int,
    incarnation_id: Uuid,
    endpoints: Sequence[Endpoint],
    rack: str | None,
    log_dirs: Sequence[Uuid],
    features: Mapping[str, tuple[int, int]],
) -> Decision[int]:
    """The answer is the broker's epoch: the offset its registration gets, larger than any before."""
    epoch = image.offset + 1
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=incarnation_id,
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(e.listener, e.host, e.port, e.security_protocol) for e in endpoints],
        features=[BrokerFeature(name, low, high) for name, (low, high) in features.items()],
        rack=rack,
        fenced=False,
        log_dirs=log_dirs,
    )
    return Decision(epoch, (record,))
