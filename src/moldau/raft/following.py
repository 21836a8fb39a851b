"""A replica that does not lead, voter or observer: it fetches from the leader, or looks for one.

It sends the next fetch only when the last one's records are on disk, since the leader counts everything below the
fetch offset as replicated. A diverging log is truncated; one that is too far behind is replaced by a snapshot.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.topic_names import METADATA_TOPIC
from moldau.raft import requests
from moldau.raft.core import Core
from moldau.raft.parsing import leader_endpoint, learn_from
from moldau.raft.ports import EpochEnd, SnapshotDownload
from moldau.raft.responses import PARTITION
from moldau.raft.roles import Follower, OutgoingRequest, Unattached
from moldau.raft.snapshots import SnapshotId
from moldau.raft.voters import Endpoint
from moldau.wire.apis import ApiKey
from moldau.wire.batch import split_batches
from moldau.wire.messages.fetch import FetchResponse, PartitionData
from moldau.wire.messages.fetch_snapshot import FetchSnapshotResponse, ResponsePartitionSnapshot
from moldau.wire.messages.update_raft_voter import UpdateRaftVoterResponse

# --- sending fetches ----------------------------------------------------------------------------------------------


def fetch(core: Core) -> None:
    role = core.role
    assert isinstance(role, Follower | Unattached)
    is_fetching = any(fetches for _, fetches in role.in_flight)
    if is_fetching or core.checking is not None or core.log.flushed_offset < core.log.end_offset:
        return
    if isinstance(role, Follower) and core.may_send(role.leader_id, fetches=True):
        _fetch_from_leader(core, role)
    else:
        _fetch_from_anyone(core)


def _fetch_from_leader(core: Core, role: Follower) -> None:
    settings = core.settings
    if role.download is not None and role.download_id is not None:
        request = requests.fetch_snapshot_request(core.me, role.epoch, role.download_id, role.download.size, settings)
        core.send(role.leader_id, role.leader_endpoint, ApiKey.FETCH_SNAPSHOT, request)
    else:
        fetch_request = requests.fetch_request(core.me, role.epoch, core.log, core.high_watermark, settings)
        core.send(role.leader_id, role.leader_endpoint, ApiKey.FETCH, fetch_request)


def _fetch_from_anyone(core: Core) -> None:
    """Send a fetch to any of the possible leaders: the response names the leader, if that node knows it."""
    candidates = [
        (node_id, endpoint) for node_id, endpoint in _possible_leaders(core) if core.may_send(node_id, fetches=True)
    ]
    if candidates:
        node_id, endpoint = core.rng.choice(candidates)
        request = requests.fetch_request(core.me, core.role.epoch, core.log, core.high_watermark, core.settings)
        core.send(node_id, endpoint, ApiKey.FETCH, request)


def _possible_leaders(core: Core) -> list[tuple[int, Endpoint]]:
    """The bootstrap servers, under ids below -1 since theirs are unknown, and the voters that are not among them."""
    bootstrap_addresses = {each[1:] for each in core.bootstrap}
    others = [
        (voter.key.id, endpoint)
        for voter in core.voters
        if voter.key.id != core.me.node_id
        and (endpoint := voter.endpoint(core.me.listener)) is not None
        and endpoint[1:] not in bootstrap_addresses
    ]
    return [*((-2 - index, each) for index, each in enumerate(core.bootstrap)), *others]


def on_fetch_failed(core: Core, sent: OutgoingRequest, failure: KafkaError) -> None:
    role = core.role
    core.retry_after(sent, core.settings.retry_backoff_ms)
    is_disconnected = failure.code is ErrorCode.NETWORK_EXCEPTION
    if is_disconnected and isinstance(role, Follower) and sent.node_id == role.leader_id:
        # The connections of a process that died are closed at once: do not wait for the whole fetch timeout.
        # Pre-votes make an early election safe, and the random delay lets one of the followers be first.
        role.has_fetched = False
        delay_ms = core.rng.randint(0, core.settings.lost_leader_delay_max_ms)
        role.fetch_by_ms = min(role.fetch_by_ms, core.now_ms + delay_ms)


# --- batches ------------------------------------------------------------------------------------------------------


def _learn_leader(
    core: Core, partition: PartitionData | ResponsePartitionSnapshot, response: FetchResponse | FetchSnapshotResponse
) -> bool | None:
    """Take over the epoch and leader of a Fetch or FetchSnapshot response; return as `learn_from` does."""
    current_leader = partition.current_leader
    leader_id, epoch = (
        (current_leader.leader_id, current_leader.leader_epoch) if current_leader is not None else (-1, -1)
    )
    endpoint = leader_endpoint(core, leader_id, response.node_endpoints)
    return learn_from(core, partition.error_code, leader_id, epoch, endpoint)


def on_fetch_response(core: Core, sent: OutgoingRequest, response: FetchResponse) -> bool:
    partition = _partition(response)
    if response.error_code or partition is None:
        return False
    handled = _learn_leader(core, partition, response)
    if handled is not None:
        return handled
    role = core.role
    if partition.error_code or not isinstance(role, Follower):
        return False
    try:
        _apply_partition(core, role, partition)
    except (KafkaError, MalformedData):
        # Corrupt batches count as none: the same offset is fetched again.
        return False
    except StorageFault:
        _note_leader(core, role)
        raise
    _note_leader(core, role)
    return True


def _note_leader(core: Core, role: Follower) -> None:
    """Note that the leader answers: as long as it does, no election is needed, even if this disk is full."""
    role.has_fetched = True
    role.fetch_by_ms = core.now_ms + core.settings.fetch_timeout_ms


def _partition(response: FetchResponse) -> PartitionData | None:
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    topic = response.responses[0]
    is_ours = bytes(topic.topic_id) == METADATA_TOPIC_UUID or topic.topic == METADATA_TOPIC
    return topic.partitions[0] if is_ours and topic.partitions[0].partition_index == PARTITION else None


def _apply_partition(core: Core, role: Follower, partition: PartitionData) -> None:
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging is not None and diverging.epoch >= 0:
        truncate_to_leader(core, EpochEnd(diverging.epoch, diverging.end_offset))
    elif snapshot is not None and snapshot.epoch >= 0 and snapshot.end_offset >= 0:
        _begin_download(core, role, SnapshotId(snapshot.end_offset, snapshot.epoch))
    else:
        append(core, memoryview_of(partition.records), role.epoch)
        core.commit(min(partition.high_watermark, core.log.end_offset))


def truncate_to_leader(core: Core, diverging: EpochEnd) -> None:
    """Truncate the log where it diverges: the leader's log has `diverging.epoch` only up to that end offset."""
    own = core.log.end_of_epoch(diverging.epoch)
    offset = min(own.end_offset, diverging.end_offset) if own.epoch == diverging.epoch else own.end_offset
    if diverging.epoch == 0:
        # No batch has this epoch. Apache Kafka's leaders name it, the bootstrap snapshot's, if all theirs are later.
        offset = min(diverging.end_offset, core.log.end_offset)
    assert offset >= core.high_watermark, (
        f"the leader's log diverges at {offset}, below the high watermark {core.high_watermark}"
    )
    try:
        core.log.truncate(offset)
    finally:  # without room on the disk it may be truncated only in part
        core.history.truncate(core.log.end_offset)


def append(core: Core, batches: memoryview, epoch: int) -> None:
    if not len(batches):
        return
    start = core.log.end_offset
    try:
        core.log.append_from_leader(batches, core.clock.now_ms())
    finally:  # also of the batches before one that is corrupt, or found no room on the disk
        if core.log.end_offset > start:
            for header, batch in _appended_batches(batches, core.log.end_offset - 1):
                assert header.base_offset >= start, "appended batches start at the old end of the log"
                assert header.leader_epoch <= epoch, "a leader has no batch of a later epoch"
                core.history.read_batch(header, batch)


def _appended_batches(batches: memoryview, last_offset: int) -> Any:
    """The batches that were appended: the last one of a response may be incomplete."""
    for header, batch in split_batches(batches):
        yield header, batch
        if header.last_offset >= last_offset:
            return


def memoryview_of(records: Any) -> memoryview:
    """Return a response's records as one memoryview. Between nodes of one process they may be a slice of a file."""
    if records is None:
        return memoryview(b"")
    return memoryview(records if isinstance(records, bytes | bytearray | memoryview) else records.read())


# --- snapshots ----------------------------------------------------------------------------------------------------


def _begin_download(core: Core, role: Follower, snapshot: SnapshotId) -> None:
    if core.log.snapshot_size(snapshot) is not None:
        _adopt_snapshot(core)
        return
    if snapshot == role.download_id:
        # After a failed request for a piece, a fetch reached the leader as a bootstrap server: the download goes on.
        return
    _drop_download(role)
    role.download, role.download_id = core.log.receive_snapshot(snapshot), snapshot


def on_snapshot_response(core: Core, sent: OutgoingRequest, response: FetchSnapshotResponse) -> bool:
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        # Apache Kafka's leaders answer like this when they no longer have the snapshot: the next fetch names another.
        if isinstance(core.role, Follower):
            _drop_download(core.role)
        return False
    partition = response.topics[0].partitions[0]
    handled = _learn_leader(core, partition, response)
    if handled is not None:
        return handled
    role = core.role
    if not isinstance(role, Follower):
        return False
    if partition.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        # The leader has a newer snapshot by now: the next fetch names it.
        _drop_download(role)
    elif partition.error_code:
        return False
    _note_leader(core, role)
    if not partition.error_code and not _append_piece(core, role, partition):
        _drop_download(role)
    return True


def _append_piece(core: Core, role: Follower, partition: ResponsePartitionSnapshot) -> bool:
    """Append the piece to the download, and have it checked once it is complete; return False if it is not the next
    piece."""
    download, snapshot_id = role.download, partition.snapshot_id
    if download is None or snapshot_id is None or (snapshot_id.end_offset, snapshot_id.epoch) != role.download_id:
        return False
    piece = memoryview_of(partition.unaligned_records)
    if partition.position != download.size or not len(piece) or download.size + len(piece) > partition.size:
        return False
    download.append(piece)
    if download.size == partition.size:
        core.checking = download
        core.received.append(download)
    return True


def on_snapshot_checked(core: Core, download: SnapshotDownload, is_sound: bool) -> None:
    core.checking = None
    role = core.role
    if isinstance(role, Follower) and role.download is download:
        role.download = role.download_id = None
        if is_sound:
            download.freeze()
            _adopt_snapshot(core)
            return
    # It is corrupt, or the role changed meanwhile: the next leader names a snapshot if one is needed.
    download.abandon()


def _drop_download(role: Follower) -> None:
    if role.download is not None:
        role.download.abandon()
    role.download = role.download_id = None


def _adopt_snapshot(core: Core) -> None:
    """Continue from the latest snapshot. All batches of the log are in it, or were never committed."""
    snapshot = core.log.latest_snapshot()
    assert snapshot is not None, "the snapshot was just received"
    core.log.truncate_to_snapshot()
    core.history.load(core.log)
    core.commit(snapshot.end_offset)


# --- updating this voter's record ---------------------------------------------------------------------------------


def update_voter(core: Core, role: Follower) -> None:
    """Send UpdateRaftVoter if this voter's endpoints or versions differ from its record in the log (KIP-853)."""
    if core.now_ms < role.update_voter_at_ms:
        return
    role.update_voter_at_ms = core.now_ms + core.settings.fetch_timeout_ms
    is_outdated = core.history.can_change and core.voters.needs_update(core.me.voter)
    if is_outdated and core.is_voter and core.may_send(role.leader_id):
        request = requests.update_voter_request(core.me, role.epoch)
        core.send(role.leader_id, role.leader_endpoint, ApiKey.UPDATE_RAFT_VOTER, request)


def on_update_voter_response(core: Core, sent: OutgoingRequest, response: UpdateRaftVoterResponse) -> bool:
    current_leader = response.current_leader
    if current_leader is None:
        return False
    endpoint = leader_endpoint(core, current_leader.leader_id, ())
    handled = learn_from(core, response.error_code, current_leader.leader_id, current_leader.leader_epoch, endpoint)
    return handled is None or handled
