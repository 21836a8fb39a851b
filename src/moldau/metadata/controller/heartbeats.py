"""BrokerHeartbeat v0–2: a broker reports that it is alive, and requests its next state.

    fenced → unfenced: it has applied the metadata log up to its epoch, the offset of its registration record, and up
        to its fencing
    unfenced → in controlled shutdown: it wants to stop, and leads something
    unfenced → fenced: it wants to be fenced, or it wants to stop and leads nothing
    in controlled shutdown → fenced: all others know that it leads nothing

In a controlled shutdown a broker first loses its leaderships, then waits until all other brokers have applied that, and
is fenced together with the response that lets it stop: no client is sent to a broker that is gone.

The response names the end of the metadata log, with what this heartbeat changes: the broker may answer as a leader only
when it knows all of that (decision 034).

Each heartbeat also says whether the broker's disk refuses writes. If so, it stays unfenced and serves readers, but
leaves its leaderships and ISRs to brokers that can write (decision 032).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.fencing import fence
from moldau.metadata.controller.leaderships import (
    confirm_changes,
    leads_any,
    leave_changes,
    lost_directory_changes,
    unfence_changes,
    writability_changes,
)
from moldau.metadata.image import BrokerImage, MetadataImage
from moldau.metadata.records import CAN_WRITE, CANNOT_WRITE, UNFENCE
from moldau.metadata.states import changed_broker
from moldau.wire.log_records.metadata import BrokerRegistrationChangeRecord
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.schema import MetadataRecord


@dataclass(frozen=True, slots=True)
class _NextState:
    """The broker's state after a heartbeat."""

    is_fenced: bool
    records: tuple[MetadataRecord, ...] = ()
    may_stop: bool = False
    waits_for_others: bool = False


def decide_heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    now_ms: int,
    next_offset: int,
    broker_configs: BrokerLayers,
) -> Decision[BrokerHeartbeatResponse]:
    """Decide the broker's next state. Renew its session in `sessions`; during a controlled shutdown also note there the
    offset that the other brokers must reach; the first heartbeat of the shutdown decides it."""
    registered = image.brokers.get(request.broker_id)
    if registered is None or registered.epoch != request.broker_epoch:
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    sessions.touch(registered.id, registered.epoch, now_ms, request.current_metadata_offset)
    next_state = _next_state(image, registered, request, sessions, broker_configs)
    # If there are other records, the rest waits for the next heartbeat, which says the same again.
    records = (
        next_state.records
        or _lost_directory_records(image, registered, request, broker_configs)
        or _writability_records(image, registered, request, broker_configs)
    )
    # A fenced broker leads nothing, and what it leads now has an ISR without fenced members.
    if not sessions.is_confirmed(registered.id) and (registered.fenced or not records):
        records = records or tuple(confirm_changes(image, registered.id, broker_configs))
        sessions.confirm(registered.id)
    if next_state.may_stop:
        sessions.end(registered.id)
    elif next_state.waits_for_others:
        sessions.begin_shutdown(registered.id, next_offset + len(records) - 1)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= registered.epoch,
        is_fenced=next_state.is_fenced,
        should_shut_down=next_state.may_stop,
        metadata_offset=next_offset + len(records) - 1,
        session_timeout_ms=sessions.session_timeout_ms,
    )
    return Decision(response, records)


def _next_state(
    image: MetadataImage,
    registered: BrokerImage,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    broker_configs: BrokerLayers,
) -> _NextState:
    if registered.fenced:
        knows_its_state = sessions.knows_its_state(registered.id, registered.epoch, request.current_metadata_offset)
        if request.want_shut_down or request.want_fence or not knows_its_state:
            return _NextState(is_fenced=True, may_stop=request.want_shut_down)
        unfenced = BrokerRegistrationChangeRecord(registered.id, registered.epoch, UNFENCE)
        return _NextState(is_fenced=False, records=(unfenced, *unfence_changes(image, registered.id, broker_configs)))
    if request.want_fence:
        return _NextState(
            is_fenced=True, records=fence(image, [registered.id], broker_configs), may_stop=request.want_shut_down
        )
    if not (request.want_shut_down or registered.in_controlled_shutdown):
        return _NextState(is_fenced=False)
    if leads_any(image, registered.id):
        return _NextState(
            is_fenced=False, records=_shutdown_records(image, registered, broker_configs), waits_for_others=True
        )
    if not registered.in_controlled_shutdown or _others_have_applied(image, registered, sessions):
        return _NextState(is_fenced=True, records=fence(image, [registered.id], broker_configs), may_stop=True)
    return _NextState(is_fenced=False, waits_for_others=True)


def _others_have_applied(image: MetadataImage, registered: BrokerImage, sessions: BrokerSessions) -> bool:
    """Whether all other brokers know that this one leads nothing. A new controller does not know the offset and waits
    again."""
    offset = sessions.shutdown_offset(registered.id)
    return offset is not None and sessions.others_have_reached(image, registered.id, offset)


def _shutdown_records(
    image: MetadataImage, registered: BrokerImage, broker_configs: BrokerLayers
) -> tuple[MetadataRecord, ...]:
    """Move its leaderships to other in-sync replicas. In this state it gets no leadership and joins no ISR."""
    changes = leave_changes(image, [registered.id], broker_configs)
    if registered.in_controlled_shutdown:
        return tuple(changes)
    return (BrokerRegistrationChangeRecord(registered.id, registered.epoch, in_controlled_shutdown=1), *changes)


def _lost_directory_records(
    image: MetadataImage, registered: BrokerImage, request: BrokerHeartbeatRequest, broker_configs: BrokerLayers
) -> tuple[MetadataRecord, ...]:
    """Remove the directories that went offline. A broker without any directory left stops by itself."""
    offline = set(request.offline_log_dirs)
    lost = [directory for directory in registered.log_dirs if directory in offline]
    remaining = [directory for directory in registered.log_dirs if directory not in offline]
    if not lost or not remaining:
        return ()
    change = BrokerRegistrationChangeRecord(registered.id, registered.epoch, log_dirs=remaining)
    return (*lost_directory_changes(image, registered.id, lost, broker_configs), change)


def _writability_records(
    image: MetadataImage, registered: BrokerImage, request: BrokerHeartbeatRequest, broker_configs: BrokerLayers
) -> tuple[MetadataRecord, ...]:
    """Note that the broker's disk refuses writes or accepts them again, and move what depends on it. A broker without
    others keeps everything: a record would only take space on its disk."""
    if request.cannot_write == registered.cannot_write or not registered.is_active:
        return ()
    if request.cannot_write and len(image.live_brokers()) == 1:
        return ()
    state = CANNOT_WRITE if request.cannot_write else CAN_WRITE
    change = BrokerRegistrationChangeRecord(registered.id, registered.epoch, cannot_write=state)
    brokers = image.brokers.edit()
    brokers[registered.id] = changed_broker(registered, change)
    after = replace(image, brokers=brokers.finish())
    return (change, *writability_changes(after, registered.id, broker_configs))
