"""The states of partitions, brokers and controllers in the image, from the records that describe or change them."""

from __future__ import annotations

from dataclasses import replace

from moldau.metadata.image import BrokerImage, ControllerImage, Endpoint, PartitionState
from moldau.metadata.records import (
    CAN_WRITE,
    CANNOT_WRITE,
    FENCE,
    LEADER_UNCHANGED,
    RECOVERY_STATE_UNCHANGED,
    UNFENCE,
)
from moldau.wire.log_records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)


def new_partition(record: PartitionRecord) -> PartitionState:
    return PartitionState(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.directories),
        record.leader_recovery_state,
    )


def changed_partition(old: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """Return the partition's state after this record. A response may need it before the record is applied."""
    is_elected = record.leader != LEADER_UNCHANGED
    return PartitionState(
        old.replicas if record.replicas is None else tuple(record.replicas),
        old.isr if record.isr is None else tuple(record.isr),
        record.leader if is_elected else old.leader,
        old.leader_epoch + 1 if is_elected else old.leader_epoch,
        old.partition_epoch + 1,
        old.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
        old.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
        old.directories if record.directories is None else tuple(record.directories),
        old.leader_recovery_state
        if record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        else record.leader_recovery_state,
    )


def changed_indexes(before: tuple[PartitionState, ...], now: tuple[PartitionState, ...]) -> set[int]:
    """Return the indexes of the partitions that are new or changed."""
    return {index for index, state in enumerate(now) if index >= len(before) or before[index] is not state}


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
