"""BrokerRegistration v0–4: a broker registers for the first time, after a restart, or to update its registration.

It is fenced until a heartbeat shows that it has read its own registration. A new incarnation is another process, and
the leaderships of the old one move. A broker sends the epoch of the previous incarnation only if its logs are complete:
after a clean shutdown, or if only its process ended, and no log is damaged (decision 015). Then it stays in its ISRs.
Otherwise it leaves every ISR that has other members (for the reason in KIP-966). After a controlled shutdown, which has
moved everything, there are no changes.
"""

from __future__ import annotations

from typing import Final

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.features import METADATA_VERSION
from moldau.metadata.controller.leaderships import leave_changes, step_down_changes
from moldau.metadata.image import BrokerImage, MetadataImage
from moldau.wire.log_records.metadata import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from moldau.wire.schema import MetadataRecord

BROKERS_MAX: Final = 1_000
"""Brokers registered at a time; unregistering one makes room."""
ENTRIES_MAX: Final = 256
HOST_LENGTH_MAX: Final = 255
RESERVED_DIRECTORIES = frozenset(bytes(15) + bytes([number]) for number in range(100))


def decide_broker_registration(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    sessions: BrokerSessions,
    now_ms: int,
    next_offset: int,
    cluster_id: str,
    broker_configs: BrokerLayers,
) -> Decision[BrokerRegistrationResponse]:
    """Decide a registration. The broker epoch is its record's offset; a broker that has read up to it is unfenced."""
    try:
        _check(image, request, sessions, now_ms, cluster_id)
    except KafkaError as refused:
        return Decision(BrokerRegistrationResponse(error_code=refused.code))
    registered = image.brokers.get(request.broker_id)
    if registered is not None and registered.incarnation_id == request.incarnation_id:
        record = _registration_record(request, registered.epoch, registered)
        return Decision(BrokerRegistrationResponse(broker_epoch=registered.epoch), (record,))
    sessions.end(request.broker_id)
    has_complete_logs = registered is not None and request.previous_broker_epoch == registered.epoch
    if has_complete_logs:
        changes = step_down_changes(image, request.broker_id, broker_configs)
    else:
        changes = leave_changes(image, [request.broker_id], broker_configs)
    records: list[MetadataRecord] = [*changes]
    epoch = next_offset + len(records)
    records.append(_registration_record(request, epoch, None))
    return Decision(BrokerRegistrationResponse(broker_epoch=epoch), tuple(records))


def _check(
    image: MetadataImage, request: BrokerRegistrationRequest, sessions: BrokerSessions, now_ms: int, cluster_id: str
) -> None:
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    registered = image.brokers.get(request.broker_id)
    if (
        registered is not None
        and registered.incarnation_id != request.incarnation_id
        and sessions.is_live(registered.id, registered.epoch, now_ms)
    ):
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id.")
    _check_bounds(image, request)
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    _check_directories(image, request)
    _check_features(image, request)


def _check_bounds(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    """Refuse absurd or too many registrations: they stay in every node's memory until they are removed."""
    if request.broker_id < 0:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Broker ids must not be negative")
    if request.broker_id not in image.brokers and len(image.brokers) >= BROKERS_MAX:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"{BROKERS_MAX} brokers are registered already")
    if max(len(request.listeners), len(request.features), len(request.log_dirs)) > ENTRIES_MAX:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Too many listeners, features or directories")
    if any(not 0 < len(each.host) <= HOST_LENGTH_MAX or not each.host.isprintable() for each in request.listeners):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "A listener's host is empty, too long or unprintable")


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    if not request.log_dirs:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if not RESERVED_DIRECTORIES.isdisjoint(request.log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(request.log_dirs)) < len(request.log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in image.brokers.values():
        if other.id != request.broker_id and not set(other.log_dirs).isdisjoint(request.log_dirs):
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"Broker {other.id} is already registered with one of the directories"
            )


def _check_features(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    """Check that the broker supports the cluster's feature levels; features that it does not list have only level 0."""
    supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    if METADATA_VERSION not in supported:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
    for name in (*supported, *image.features):
        low, high = supported.get(name, (0, 0))
        level = image.features.get(name, 0)
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )


def _registration_record(
    request: BrokerRegistrationRequest, epoch: int, updated: BrokerImage | None
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(each.name, each.host, each.port, each.security_protocol) for each in request.listeners
        ],
        features=[
            BrokerFeature(each.name, each.min_supported_version, each.max_supported_version)
            for each in request.features
        ],
        rack=request.rack,
        fenced=True if updated is None else updated.fenced,
        in_controlled_shutdown=False if updated is None else updated.in_controlled_shutdown,
        log_dirs=request.log_dirs,
        cannot_write=False if updated is None else updated.cannot_write,
    )
