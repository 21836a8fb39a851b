"""The registration of a broker or controller in the image, from the records that describe it or change it."""

from __future__ import annotations

from dataclasses import replace

from moldau.metadata.image import BrokerImage, ControllerImage, Endpoint
from moldau.metadata.records import CAN_WRITE, CANNOT_WRITE, FENCE, UNFENCE
from moldau.wire.log_records.metadata import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)


def registered_broker(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        record.rack,
        record.fenced,
        tuple(record.log_dirs),
        record.in_controlled_shutdown,
        {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
        record.cannot_write,
    )


def changed_broker(old: BrokerImage, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    assert old.epoch == record.broker_epoch, "a change refers to the current registration"
    return replace(
        old,
        fenced=(old.fenced or record.fenced == FENCE) and record.fenced != UNFENCE,
        in_controlled_shutdown=old.in_controlled_shutdown or bool(record.in_controlled_shutdown),
        log_dirs=tuple(record.log_dirs) or old.log_dirs,
        cannot_write=(old.cannot_write or record.cannot_write == CANNOT_WRITE) and record.cannot_write != CAN_WRITE,
    )


def registered_controller(record: RegisterControllerRecord) -> ControllerImage:
    return ControllerImage(
        record.controller_id,
        record.incarnation_id,
        tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features},
    )
