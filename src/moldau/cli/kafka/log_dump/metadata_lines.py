"""Records of the metadata log as kafka-dump-log prints them: their type, their version, and their fields as JSON.

Logs of Kafka's own controllers can be read too, including records that Moldau does not write
(`wire/log_records/kafka_metadata`). Pure.
"""

from __future__ import annotations

import re
from typing import Final

from moldau.base.errors import MalformedData
from moldau.cli.kafka.java.exceptions import PACKAGE
from moldau.cli.kafka.java.numbers import double_text
from moldau.cli.kafka.log_dump.message_json import json_text, message_fields
from moldau.client.secret_properties import is_secret
from moldau.metadata.records import FRAME_VERSION
from moldau.wire.codec import decode_from, read_uvarint
from moldau.wire.log_records import kafka_metadata, metadata
from moldau.wire.log_records.metadata import ClientQuotaRecord, ConfigRecord, UserScramCredentialRecord
from moldau.wire.records import Record
from moldau.wire.schema import MetadataRecord

INT16_MAX: Final = 2**15 - 1
HIDDEN: Final = "[hidden]"
_ALL_TYPES: Final = {record.TYPE: record for record in (*metadata.RECORDS, *kafka_metadata.RECORDS)}
_NEXT_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_DOUBLE: Final = re.compile(r'(?<=[^\\]":)-?\d[^,}]*(?=,"remove":)')


def metadata_texts(record: Record) -> tuple[None, str]:
    """Return no key, and the payload to print; for a record that cannot be decoded, the reason in Kafka's words."""
    try:
        decoded, version = _read(record.value or b"")
    except MalformedData as error:
        return None, f"Error at {record.offset}, skipping. {error}"
    # Kafka prints secrets; but dumps are sent to others who look for a fault.
    if isinstance(decoded, ConfigRecord) and decoded.value and is_secret(decoded.name):
        decoded.value = HIDDEN
    fields = message_fields(decoded, version)
    if isinstance(decoded, UserScramCredentialRecord):
        fields |= {"storedKey": HIDDEN, "serverKey": HIDDEN}
    text = json_text({"type": _type_name(decoded), "version": version, "data": fields})
    if isinstance(decoded, ClientQuotaRecord):
        text = _DOUBLE.sub(lambda number: double_text(float(number[0])), text)
    return None, text


def _read(value: bytes) -> tuple[MetadataRecord, int]:
    frame, position = _number(value, 0, "frame version")
    if frame == 0:
        raise MalformedData(
            "Could not deserialize metadata record with frame version 0. "
            "Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported."
        )
    if frame != FRAME_VERSION:
        raise MalformedData(
            f"Could not deserialize metadata record due to unknown frame version {frame}"
            f"(only frame version {FRAME_VERSION} is supported)"
        )
    kind, position = _number(value, position, "type")
    version, position = _number(value, position, "version")
    record_class = _ALL_TYPES.get(kind)
    if record_class is None:
        raise MalformedData(f"{PACKAGE}.UnsupportedVersionException: Unknown metadata id {kind}")
    try:
        record, end = decode_from(record_class, value, min(version, record_class.VERSIONS[1]), position)
    except MalformedData as error:
        raise MalformedData(f"Failed to deserialize record with type {kind}") from error
    if end < len(value):
        raise MalformedData(f"Found {len(value) - end} byte(s) of garbage after {kind}")
    return record, version


def _number(value: bytes, position: int, what: str) -> tuple[int, int]:
    try:
        number, position = read_uvarint(value, position)
    except (IndexError, MalformedData) as error:
        raise MalformedData(f"Error while reading {what}") from error
    if number > INT16_MAX:
        raise MalformedData(f"Value for {what} was too large.")
    return number, position


def _type_name(record: MetadataRecord) -> str:
    return _NEXT_WORD.sub("_", record.__class__.__name__).upper()
