"""The control records of the quorum in Apache Kafka's formats: leader, voters, kraft.version, and a snapshot's ends.

The value of a record is its body in the flexible encoding of `wire.codec`; the key contains its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moldau.base.ids import ZERO_UUID
from moldau.raft.voters import Endpoint, KRaftVersions, ReplicaKey, Voter, VoterSet
from moldau.wire.codec import decode, encode
from moldau.wire.records import ControlType, Record, control_record
from moldau.wire.schema import Message

VERSION = 0
"""The format version of each record, in its first field and in its key."""


class ControlMessage(Message):
    __slots__ = ()
    VERSIONS = (0, 0)
    FLEXIBLE = 0


class LeaderChangeVoter(Message):
    __slots__ = ("voter_directory_id", "voter_id")
    SCHEMA = """
        voter_id int32 0+
        voter_directory_id uuid 1+
    """

    def __init__(self, voter_id: int = 0, voter_directory_id: bytes = ZERO_UUID) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id


class LeaderChangeMessage(ControlMessage):
    __slots__ = ("granting_voters", "leader_id", "version", "voters")
    VERSIONS = (0, 1)  # 1 is only read, by kafka-dump-log
    SCHEMA = """
        version int16 0+
        leader_id int32 0+
        voters []LeaderChangeVoter 0+
        granting_voters []LeaderChangeVoter 0+
    """

    def __init__(
        self,
        version: int = VERSION,
        leader_id: int = 0,
        voters: Sequence[LeaderChangeVoter] = (),
        granting_voters: Sequence[LeaderChangeVoter] = (),
    ) -> None:
        self.version = version
        self.leader_id = leader_id
        self.voters = voters
        self.granting_voters = granting_voters


class VotersRecordEndpoint(Message):
    __slots__ = ("host", "name", "port")
    SCHEMA = """
        name string 0+
        host string 0+
        port uint16 0+
    """

    def __init__(self, name: str = "", host: str = "", port: int = 0) -> None:
        self.name = name
        self.host = host
        self.port = port


class VotersRecordVersions(Message):
    __slots__ = ("max_supported_version", "min_supported_version")
    SCHEMA = """
        min_supported_version int16 0+
        max_supported_version int16 0+
    """

    def __init__(self, min_supported_version: int = 0, max_supported_version: int = 0) -> None:
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class VotersRecordVoter(Message):
    __slots__ = ("endpoints", "kraft_version_feature", "voter_directory_id", "voter_id")
    SCHEMA = """
        voter_id int32 0+
        voter_directory_id uuid 0+
        endpoints []VotersRecordEndpoint 0+
        kraft_version_feature VotersRecordVersions 0+
    """

    def __init__(
        self,
        voter_id: int = 0,
        voter_directory_id: bytes = ZERO_UUID,
        endpoints: Sequence[VotersRecordEndpoint] = (),
        kraft_version_feature: VotersRecordVersions | None = None,
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.endpoints = endpoints
        self.kraft_version_feature = kraft_version_feature


class VotersRecord(ControlMessage):
    __slots__ = ("version", "voters")
    SCHEMA = """
        version int16 0+
        voters []VotersRecordVoter 0+
    """

    def __init__(self, version: int = VERSION, voters: Sequence[VotersRecordVoter] = ()) -> None:
        self.version = version
        self.voters = voters


class KRaftVersionRecord(ControlMessage):
    __slots__ = ("kraft_version", "version")
    SCHEMA = """
        version int16 0+
        kraft_version int16 0+
    """

    def __init__(self, version: int = VERSION, kraft_version: int = 0) -> None:
        self.version = version
        self.kraft_version = kraft_version


class SnapshotHeaderRecord(ControlMessage):
    __slots__ = ("last_contained_log_timestamp", "version")
    SCHEMA = """
        version int16 0+
        last_contained_log_timestamp int64 0+
    """

    def __init__(self, version: int = VERSION, last_contained_log_timestamp: int = 0) -> None:
        self.version = version
        self.last_contained_log_timestamp = last_contained_log_timestamp


class SnapshotFooterRecord(ControlMessage):
    __slots__ = ("version",)
    SCHEMA = "version int16 0+"

    def __init__(self, version: int = VERSION) -> None:
        self.version = version


# --- building -----------------------------------------------------------------------------------------------------


def leader_change(leader_id: int, voters: Iterable[int], granting: Iterable[int], now_ms: int) -> Record:
    voter_lists = [[LeaderChangeVoter(voter_id) for voter_id in ids] for ids in (voters, granting)]
    return _build_record(ControlType.LEADER_CHANGE, LeaderChangeMessage(VERSION, leader_id, *voter_lists), now_ms)


def kraft_version_record(level: int, now_ms: int) -> Record:
    return _build_record(ControlType.KRAFT_VERSION, KRaftVersionRecord(VERSION, level), now_ms)


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
    return _build_record(ControlType.KRAFT_VOTERS, VotersRecord(VERSION, entries), now_ms)


def snapshot_header(last_contained_ms: int, now_ms: int) -> Record:
    return _build_record(ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(VERSION, last_contained_ms), now_ms)


def snapshot_footer(now_ms: int) -> Record:
    return _build_record(ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(), now_ms)


def _build_record(kind: ControlType, message: ControlMessage, now_ms: int) -> Record:
    value = bytearray()
    encode(message, VERSION, value)
    return control_record(kind, bytes(value), now_ms)


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
