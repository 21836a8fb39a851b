"""Control records of the metadata log, and Kafka's way of writing a message as JSON.

A control record's value begins with an int16 version; the flexible body follows. Names in JSON are Kafka's: the field
names in camel case, UUIDs and bytes in base64, tagged fields only where they differ from their default.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from moldau.base.errors import MalformedData
from moldau.base.ids import ZERO_UUID, uuid_text
from moldau.wire.codec import decode_from
from moldau.wire.records import ControlType, Record
from moldau.wire.schema import Field, Message, fields_of

_ESCAPED: Final = re.compile(r"\\(?:u([0-9a-f]{4})|.)")


class Voter(Message):
    __slots__ = ("voter_directory_id", "voter_id")
    SCHEMA = """
        voter_id int32 0+
        voter_directory_id uuid 1+
    """

    def __init__(self, voter_id: int = 0, voter_directory_id: bytes = ZERO_UUID) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id


class ControlMessage(Message):
    __slots__ = ()
    VERSIONS = (0, 1)
    FLEXIBLE = 0
    LABEL: ClassVar[str]
    """What Kafka prints before the JSON."""


class LeaderChange(ControlMessage):
    __slots__ = ("granting_voters", "leader_id", "version", "voters")
    LABEL = "LeaderChange: "
    SCHEMA = """
        version int16 0+
        leader_id int32 0+
        voters []Voter 0+
        granting_voters []Voter 0+
    """

    def __init__(
        self, version: int = 0, leader_id: int = 0, voters: Sequence[Voter] = (), granting_voters: Sequence[Voter] = ()
    ) -> None:
        self.version = version
        self.leader_id = leader_id
        self.voters = voters
        self.granting_voters = granting_voters


class SnapshotHeader(ControlMessage):
    __slots__ = ("last_contained_log_timestamp", "version")
    LABEL = "SnapshotHeader "
    SCHEMA = """
        version int16 0+
        last_contained_log_timestamp int64 0+
    """

    def __init__(self, version: int = 0, last_contained_log_timestamp: int = 0) -> None:
        self.version = version
        self.last_contained_log_timestamp = last_contained_log_timestamp


class SnapshotFooter(ControlMessage):
    __slots__ = ("version",)
    LABEL = "SnapshotFooter "
    SCHEMA = """
        version int16 0+
    """

    def __init__(self, version: int = 0) -> None:
        self.version = version


class KRaftVersion(ControlMessage):
    __slots__ = ("k_raft_version", "version")
    LABEL = "KRaftVersion "
    SCHEMA = """
        version int16 0+
        k_raft_version int16 0+
    """

    def __init__(self, version: int = 0, k_raft_version: int = 0) -> None:
        self.version = version
        self.k_raft_version = k_raft_version


_MESSAGES: Final[dict[int, type[ControlMessage]]] = {
    ControlType.LEADER_CHANGE: LeaderChange,
    ControlType.SNAPSHOT_HEADER: SnapshotHeader,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooter,
    ControlType.KRAFT_VERSION: KRaftVersion,
}


def control_text(kind: ControlType | int, record: Record) -> str | None:
    """Label and JSON of a control record of the metadata log; None for a kind that is not told here."""
    message_class = _MESSAGES.get(kind)
    if message_class is None:
        return None
    value = record.value or b""
    if len(value) < 2:
        raise MalformedData(f"the control record at offset {record.offset} has no version")
    version: int = struct.unpack_from(">h", value)[0]
    if not 0 <= version <= message_class.VERSIONS[1]:
        raise MalformedData(f"the control record at offset {record.offset} is of version {version}")
    message, _ = decode_from(message_class, value, version, 0)
    return message_class.LABEL + to_json(message, version)


def to_json(message: Message, version: int) -> str:
    """A message as Kafka's tools print it: no blanks, fields in the order they have on the wire."""
    return json_text(plain(message, version))


def json_text(value: Any) -> str:
    """With the few characters that must be escaped in the spelling of Kafka's library: hexadecimal in capitals."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(lambda found: "\\u" + found[1].upper() if found[1] else found[0], text)


def plain(message: Message, version: int) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for field in fields_of(message.__class__):
        value = getattr(message, field.name)
        if version in field.versions and (field.tag is None or value != field.default):
            shown[_camel_case(field.name)] = _field(value, field, version)
    return shown


def _field(value: Any, field: Field, version: int) -> Any:
    if field.is_array and value is not None:
        return [_element(item, field, version) for item in value]
    return _element(value, field, version)


def _element(value: Any, field: Field, version: int) -> Any:
    if isinstance(value, Message):
        return plain(value, version)
    if not isinstance(value, bytes):
        return value
    return uuid_text(value) if field.type_name == "uuid" else base64.b64encode(value).decode()


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
