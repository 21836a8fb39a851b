"""Control records of the metadata log as kafka-dump-log prints them: a label, and the message as JSON.

A control record's value begins with an int16 version; the flexible body follows.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.base.errors import MalformedData
from moldau.cli.kafka.log_dump.message_json import to_json
from moldau.wire.codec import decode_from
from moldau.wire.log_records.quorum import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from moldau.wire.records import ControlType, Record
from moldau.wire.schema import ControlRecord

_LABELS: Final[dict[int, tuple[str, type[ControlRecord]]]] = {
    ControlType.LEADER_CHANGE: ("LeaderChange: ", LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader ", SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter ", SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: ("KRaftVersion ", KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: ("KRaftVoters ", VotersRecord),
}


def control_text(kind: ControlType | int, record: Record) -> str | None:
    """Return label and JSON of a control record of the metadata log. Return None for control records of other logs."""
    label, message_class = _LABELS.get(kind, (None, None))
    if label is None or message_class is None:
        return None
    value = record.value or b""
    if len(value) < 2:
        raise MalformedData(f"the control record at offset {record.offset} has no version")
    version: int = struct.unpack_from(">h", value)[0]
    if not 0 <= version <= message_class.VERSIONS[1]:
        raise MalformedData(f"the control record at offset {record.offset} is of version {version}")
    message, _ = decode_from(message_class, value, version, 0)
    return label + to_json(message, version)
