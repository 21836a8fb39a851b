"""What a replica does that does not lead: it fetches from the leader, or looks for one; voters and observers alike.

It fetches on only when what came is on disk, since the leader counts what lies below the offset as had. A log that
parts from the leader's is cut where they part; one that is too far behind is replaced by a snapshot.
"""

from __future__ import annotations

from typing import Any

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import METADATA_TOPIC_UUID
from moldau.base.names import METADATA_TOPIC
from moldau.raft import requests
from moldau.raft.core import Core
from moldau.raft.parsing import leader_endpoint, learn_from
from moldau.raft.ports import EpochEnd
from moldau.raft.responses import PARTITION
from moldau.raft.roles import Follower, OutgoingRequest, Unattached
from moldau.raft.snapshots import SnapshotId
from moldau.raft.voters import Endpoint
from moldau.wire.apis import ApiKey
from moldau.wire.batch import split_batches
from moldau.wire.messages.fetch import FetchResponse, PartitionData
from moldau.wire.messages.fetch_snapshot import FetchSnapshotResponse, ResponsePartitionSnapshot
from moldau.wire.messages.update_raft_voter import UpdateRaftVoterResponse

# --- asking -------------------------------------------------------------------------------------------------------


def fetch(core: Core) -> None:
    role = core.role
    assert isinstance(role, Follower | Unattached)
    is_under_way = any(fetches for _, fetches in role.asked)
    if is_under_way or core.log.flushed_offset < core.log.end_offset:
        return
    if isinstance(role, Follower) and core.may_ask(role.leader_id, fetches=True):
        _ask_leader(core, role)
    else:
        _ask_anyone(core)


def _ask_leader(core: Core, role: Follower) -> None:
    settings = core.settings
    if role.download is not None and role.downloading is not None:
        request = requests.fetch_snapshot_request(core.me, role.epoch, role.downloading, role.download.size, settings)
        core.ask(role.leader_id, role.leader_endpoint, ApiKey.FETCH_SNAPSHOT, request)
    else:
        fetch_request = requests.fetch_request(core.me, role.epoch, core.log, core.high_watermark, settings)
        core.ask(role.leader_id, role.leader_endpoint, ApiKey.FETCH, fetch_request)


def _ask_anyone(core: Core) -> None:
    """Whoever is asked answers with the leader, if it knows one."""
    ready = [(node_id, to) for node_id, to in _those_who_may_know(core) if core.may_ask(node_id, fetches=True)]
    if ready:
        node_id, to = core.rng.choice(ready)
        request = requests.fetch_request(core.me, core.role.epoch, core.log, core.high_watermark, core.settings)
        core.ask(node_id, to, ApiKey.FETCH, request)


def _those_who_may_know(core: Core) -> list[tuple[int, Endpoint]]:
    """The bootstrap servers, by ids below -1 since theirs are not known, and voters that are not among them."""
    known = {each[1:] for each in core.bootstrap}
    others = [
        (voter.key.id, endpoint)
        for voter in core.voters
        if voter.key.id != core.me.node_id
        and (endpoint := voter.endpoint(core.me.listener)) is not None
        and endpoint[1:] not in known
    ]
    return [*((-2 - place, each) for place, each in enumerate(core.bootstrap)), *others]


def on_fetch_failed(core: Core, asked: OutgoingRequest, failure: KafkaError) -> None:
    role = core.role
    core.ask_again_after(asked, core.settings.retry_backoff_ms)
    is_broken = failure.code is ErrorCode.NETWORK_EXCEPTION
    if is_broken and isinstance(role, Follower) and asked.node_id == role.leader_id:
        # A process that died has its connections closed for it: there is no need to wait out the whole timeout.
        # Pre-votes make it safe to ask, and the chance in the delay lets one of the followers be first.
        role.has_fetched = False
        delay_ms = core.rng.randint(0, core.settings.lost_leader_delay_max_ms)
        role.fetch_by_ms = min(role.fetch_by_ms, core.now_ms + delay_ms)


# --- batches ------------------------------------------------------------------------------------------------------


def _learn(
    core: Core, found: PartitionData | ResponsePartitionSnapshot, response: FetchResponse | FetchSnapshotResponse
) -> bool | None:
    """What both kinds of answers tell of epochs and leaders: `learn_from`."""
    told = found.current_leader
    leader_id, epoch = (told.leader_id, told.leader_epoch) if told is not None else (-1, -1)
    endpoint = leader_endpoint(core, leader_id, response.node_endpoints)
    return learn_from(core, found.error_code, leader_id, epoch, endpoint)


def on_fetch_response(core: Core, asked: OutgoingRequest, response: FetchResponse) -> bool:
    found = _partition(response)
    if response.error_code or found is None:
        return False
    handled = _learn(core, found, response)
    if handled is not None:
        return handled
    role = core.role
    if found.error_code or not isinstance(role, Follower):
        return False
    try:
        _take(core, role, found)
    except (KafkaError, MalformedData):
        # A leader's batches that are broken are as good as none: they are asked for again.
        return False
    role.has_fetched = True
    role.fetch_by_ms = core.now_ms + core.settings.fetch_timeout_ms
    return True


def _partition(response: FetchResponse) -> PartitionData | None:
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
        return None
    topic = response.responses[0]
    is_ours = bytes(topic.topic_id) == METADATA_TOPIC_UUID or topic.topic == METADATA_TOPIC
    return topic.partitions[0] if is_ours and topic.partitions[0].partition_index == PARTITION else None


def _take(core: Core, role: Follower, found: PartitionData) -> None:
    diverging, snapshot = found.diverging_epoch, found.snapshot_id
    if diverging is not None and diverging.epoch >= 0:
        cut_where_logs_part(core, EpochEnd(diverging.epoch, diverging.end_offset))
    elif snapshot is not None and snapshot.epoch >= 0 and snapshot.end_offset >= 0:
        _begin_download(core, role, SnapshotId(snapshot.end_offset, snapshot.epoch))
    else:
        append(core, memoryview_of(found.records), role.epoch)
        core.commit(min(found.high_watermark, core.log.end_offset))


def cut_where_logs_part(core: Core, diverging: EpochEnd) -> None:
    """The leader knows the epoch of our last batch up to that offset only, or knows an earlier epoch instead."""
    ours = core.log.end_of_epoch(diverging.epoch)
    offset = min(ours.end_offset, diverging.end_offset) if ours.epoch == diverging.epoch else ours.end_offset
    if diverging.epoch == 0:
        offset = min(diverging.end_offset, core.log.end_offset)
    assert offset >= core.high_watermark, f"the leader asks to cut at {offset}, {core.high_watermark} is committed"
    core.log.truncate(offset)
    core.history.truncate(core.log.end_offset)


def append(core: Core, batches: memoryview, epoch: int) -> None:
    if not len(batches):
        return
    start = core.log.end_offset
    core.log.append_from_leader(batches, core.clock.now_ms())
    for header, batch in _whole_batches(batches, core.log.end_offset - 1):
        assert header.base_offset >= start, "what was taken came behind what was there"
        assert header.leader_epoch <= epoch, "a leader has nothing younger than itself"
        core.history.learn(header, batch)


def _whole_batches(batches: memoryview, last_offset: int) -> Any:
    """Those that were taken: the last one sent may be cut short."""
    for header, batch in split_batches(batches):
        yield header, batch
        if header.last_offset >= last_offset:
            return


def memoryview_of(records: Any) -> memoryview:
    """Records of a response as one piece of memory. Between nodes of one process they may still be in their file."""
    if records is None:
        return memoryview(b"")
    return memoryview(records if isinstance(records, bytes | bytearray | memoryview) else records.read())


# --- snapshots ----------------------------------------------------------------------------------------------------


def _begin_download(core: Core, role: Follower, snapshot: SnapshotId) -> None:
    if core.log.snapshot_size(snapshot) is not None:
        _adopt(core)
        return
    role.download, role.downloading = core.log.receive_snapshot(snapshot), snapshot


def on_snapshot_response(core: Core, asked: OutgoingRequest, response: FetchSnapshotResponse) -> bool:
    if response.error_code or len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        # Apache's leaders answer like this when they no longer have the snapshot: the next fetch tells of another.
        if isinstance(core.role, Follower):
            _drop_download(core.role)
        return False
    found = response.topics[0].partitions[0]
    handled = _learn(core, found, response)
    if handled is not None:
        return handled
    role = core.role
    if not isinstance(role, Follower):
        return False
    if found.error_code == ErrorCode.NONE and not _take_piece(core, role, found):
        _drop_download(role)
    elif found.error_code in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        # The leader has a newer one by now: the next fetch tells which.
        _drop_download(role)
    elif found.error_code:
        return False
    role.has_fetched = True
    role.fetch_by_ms = core.now_ms + core.settings.fetch_timeout_ms
    return True


def _take_piece(core: Core, role: Follower, found: ResponsePartitionSnapshot) -> bool:
    """Whether the piece is the next one of the snapshot under way, and the whole of it sound."""
    download, named = role.download, found.snapshot_id
    if download is None or named is None or (named.end_offset, named.epoch) != role.downloading:
        return False
    piece = memoryview_of(found.unaligned_records)
    if found.position != download.size or not len(piece) or download.size + len(piece) > found.size:
        return False
    download.append(piece)
    if download.size == found.size:
        try:
            download.freeze()
        except MalformedData:
            return False
        role.download = role.downloading = None
        _adopt(core)
    return True


def _drop_download(role: Follower) -> None:
    if role.download is not None:
        role.download.abandon()
    role.download = role.downloading = None


def _adopt(core: Core) -> None:
    """What the log held is in the snapshot, or was never committed."""
    snapshot = core.log.latest_snapshot()
    assert snapshot is not None, "it was just received"
    core.log.truncate_to_snapshot()
    core.history.load(core.log)
    core.commit(snapshot.end_offset)


# --- telling the leader who this voter has become -----------------------------------------------------------------


def update_voter(core: Core, role: Follower) -> None:
    """A voter whose endpoints or versions changed since the log speaks of it says so (KIP-853)."""
    if core.now_ms < role.update_voter_at_ms:
        return
    role.update_voter_at_ms = core.now_ms + core.settings.fetch_timeout_ms
    is_behind = core.history.can_change and core.voters.needs_update(core.me.voter)
    if is_behind and core.is_voter and core.may_ask(role.leader_id):
        request = requests.update_voter_request(core.me, role.epoch)
        core.ask(role.leader_id, role.leader_endpoint, ApiKey.UPDATE_RAFT_VOTER, request)


def on_update_voter_response(core: Core, asked: OutgoingRequest, response: UpdateRaftVoterResponse) -> bool:
    told = response.current_leader
    if told is None:
        return False
    endpoint = leader_endpoint(core, told.leader_id, ())
    handled = learn_from(core, response.error_code, told.leader_id, told.leader_epoch, endpoint)
    return handled is None or handled
