"""Builds and reads the control records of the quorum: leader, voters, kraft.version, and a snapshot's ends. The records
are in `wire/log_records/quorum`.

The value of a record is its body in the flexible encoding of `wire.codec`; the key contains its type.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.raft.voters import Endpoint, KRaftVersions, ReplicaKey, Voter, VoterSet
from moldau.wire.codec import decode, encode
from moldau.wire.log_records.quorum import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    VotersRecordEndpoint,
    VotersRecordVersions,
    VotersRecordVoter,
)
from moldau.wire.records import ControlType, Record, control_record
from moldau.wire.schema import ControlRecord

VERSION = 0
"""The format version of each record, in its first field and in its key."""


# --- building -----------------------------------------------------------------------------------------------------


def leader_change(leader_id: int, voters: Iterable[int], granting: Iterable[int], now_ms: int) -> Record:
    voter_lists = [[LeaderChangeVoter(voter_id) for voter_id in ids] for ids in (voters, granting)]
    return _build_record(LeaderChangeMessage(VERSION, leader_id, *voter_lists), now_ms)


def kraft_version_record(level: int, now_ms: int) -> Record:
    return _build_record(KRaftVersionRecord(VERSION, level), now_ms)


def voters_record(voters: VoterSet, now_ms: int) -> Record:
    entries = [
        VotersRecordVoter(
            voter.key.id,
            voter.key.directory_id,
            [VotersRecordEndpoint(*endpoint) for endpoint in voter.endpoints],
            VotersRecordVersions(*voter.kraft_versions),
        )
        for voter in voters
    ]
    return _build_record(VotersRecord(VERSION, entries), now_ms)


def snapshot_header(last_contained_ms: int, now_ms: int) -> Record:
    return _build_record(SnapshotHeaderRecord(VERSION, last_contained_ms), now_ms)


def snapshot_footer(now_ms: int) -> Record:
    return _build_record(SnapshotFooterRecord(VERSION), now_ms)


def _build_record(record: ControlRecord, now_ms: int) -> Record:
    value = bytearray()
    encode(record, VERSION, value)
    return control_record(ControlType(record.TYPE), bytes(value), now_ms)


# --- reading ------------------------------------------------------------------------------------------------------


def read_voters(record: Record) -> VoterSet:
    message = decode(VotersRecord, record.value or b"", VERSION)
    return VoterSet(
        Voter(
            ReplicaKey(each.voter_id, bytes(each.voter_directory_id)),
            tuple(Endpoint(one.name, one.host, one.port) for one in each.endpoints),
            _kraft_versions(each.kraft_version_feature),
        )
        for each in message.voters
    )


def _kraft_versions(feature: VotersRecordVersions | None) -> KRaftVersions:
    if feature is None:
        return KRaftVersions(0, 0)
    return KRaftVersions(feature.min_supported_version, feature.max_supported_version)


def read_kraft_version(record: Record) -> int:
    return decode(KRaftVersionRecord, record.value or b"", VERSION).kraft_version
