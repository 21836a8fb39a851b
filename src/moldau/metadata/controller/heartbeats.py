"""BrokerHeartbeat v0–2: a broker lives, and says what it would be.

    fenced ──has read its registration──▶ unfenced ──wants to stop, leads something──▶ in controlled shutdown
      ▲                                      │ wants to be fenced, or to stop and leads nothing      │
      └──────────────────────────────────────┴──────── the others know that it leads nothing ◀───────┘

A broker that stops in order first loses its leaderships, then waits until all others have heard of it, and is fenced
with the answer that lets it go: no client is sent to a broker that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.config_def import BrokerLayers
from moldau.base.errors import ErrorCode
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.fencing import fence
from moldau.metadata.controller.leaderships import leads_any, leaves, loses_directories, returns
from moldau.metadata.image import BrokerImage, MetadataImage
from moldau.metadata.records import UNFENCE, BrokerRegistrationChangeRecord, MetadataRecord
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@dataclass(frozen=True, slots=True)
class _Next:
    """What a heartbeat makes of its broker."""

    is_fenced: bool
    records: tuple[MetadataRecord, ...] = ()
    may_stop: bool = False
    is_stopping: bool = False


def decide_heartbeat(
    image: MetadataImage,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    now_ms: int,
    next_offset: int,
    broker: BrokerLayers,
) -> Decision[BrokerHeartbeatResponse]:
    """The contact is noted in `sessions`, and so is where a controlled shutdown has come to."""
    found = image.brokers.get(request.broker_id)
    if found is None or found.epoch != request.broker_epoch:
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    sessions.contact(found.id, found.epoch, now_ms, request.current_metadata_offset)
    to_be = _next(image, found, request, sessions, broker)
    records = to_be.records or _directories_lost(image, found, request, broker)
    if to_be.may_stop:
        sessions.end(found.id)
    elif to_be.is_stopping:
        sessions.begin_shutdown(found.id, next_offset + len(records) - 1)
    response = BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= found.epoch,
        is_fenced=to_be.is_fenced,
        should_shut_down=to_be.may_stop,
    )
    return Decision(response, records)


def _next(
    image: MetadataImage,
    found: BrokerImage,
    request: BrokerHeartbeatRequest,
    sessions: BrokerSessions,
    broker: BrokerLayers,
) -> _Next:
    if found.fenced:
        if request.want_shut_down or request.want_fence or request.current_metadata_offset < found.epoch:
            return _Next(is_fenced=True, may_stop=request.want_shut_down)
        unfenced = BrokerRegistrationChangeRecord(found.id, found.epoch, UNFENCE)
        return _Next(is_fenced=False, records=(unfenced, *returns(image, found.id, broker)))
    if request.want_fence:
        return _Next(is_fenced=True, records=fence(image, [found.id], broker), may_stop=request.want_shut_down)
    if not (request.want_shut_down or found.in_controlled_shutdown):
        return _Next(is_fenced=False)
    if leads_any(image, found.id):
        return _Next(is_fenced=False, records=_moved_away(image, found, broker), is_stopping=True)
    if not found.in_controlled_shutdown or _others_know(image, found, sessions):
        return _Next(is_fenced=True, records=fence(image, [found.id], broker), may_stop=True)
    return _Next(is_fenced=False, is_stopping=True)


def _others_know(image: MetadataImage, found: BrokerImage, sessions: BrokerSessions) -> bool:
    """That it leads nothing. A controller that took over in between does not know since when, and begins anew."""
    offset = sessions.shutdown_offset(found.id)
    return offset is not None and sessions.others_have_reached(image, found.id, offset)


def _moved_away(image: MetadataImage, found: BrokerImage, broker: BrokerLayers) -> tuple[MetadataRecord, ...]:
    """Its leaderships, to others who are in sync; it does not get new ones, nor joins an ISR."""
    changes = leaves(image, [found.id], broker)
    if found.in_controlled_shutdown:
        return tuple(changes)
    return (BrokerRegistrationChangeRecord(found.id, found.epoch, in_controlled_shutdown=1), *changes)


def _directories_lost(
    image: MetadataImage, found: BrokerImage, request: BrokerHeartbeatRequest, broker: BrokerLayers
) -> tuple[MetadataRecord, ...]:
    """Directories that it had and that went offline. A broker that has none left stops by itself."""
    offline = set(request.offline_log_dirs)
    lost = [directory for directory in found.log_dirs if directory in offline]
    left = [directory for directory in found.log_dirs if directory not in offline]
    if not lost or not left:
        return ()
    change = BrokerRegistrationChangeRecord(found.id, found.epoch, log_dirs=left)
    return (*loses_directories(image, found.id, lost, broker), change)
