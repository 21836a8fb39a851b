"""The bytes of every type and version of a record, with what stands before its body in the log: `record_bytes.txt` has
a version, the bytes and the record in each line. Records of a log must be read forever, so a line is never changed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from harness.random_messages import every_record

from moldau.base.errors import MalformedData
from moldau.coordinator.group import serde as group_serde
from moldau.coordinator.serde import RecordCodec
from moldau.coordinator.transaction import serde as transaction_serde
from moldau.metadata.records import decode_record, encode_record
from moldau.wire import consumer_protocol as protocol
from moldau.wire.codec import decode, encode
from moldau.wire.log_records import consumer_protocol, kafka_metadata, metadata, offsets, quorum, transactions
from moldau.wire.schema import ControlRecord, Message, MetadataRecord, RecordKey, RecordValue

MODULES = {
    "metadata": (metadata, kafka_metadata),
    "offsets": (offsets,),
    "transactions": (transactions,),
    "quorum": (quorum,),
    "consumer_protocol": (consumer_protocol,),
}


def read_lines() -> list[tuple[str, int, bytes, Message]]:
    lines: list[tuple[str, int, bytes, Message]] = []
    section = ""
    for line in (Path(__file__).parent / "record_bytes.txt").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            names = {name: value for module in MODULES[section] for name, value in vars(module).items()}
        else:
            version, written, text = line.split(" ", 2)
            lines.append((section, int(version), bytes.fromhex(written), eval(text, dict(names))))
    return lines


LINES = read_lines()


def prefix_of(message: Message, version: int) -> bytes:
    """Return what stands before the body, by Apache Kafka's rules."""
    match message:
        case MetadataRecord():
            return bytes((1, message.TYPE, version))
        case ControlRecord():
            return b""
        case RecordKey():
            return struct.pack(">h", message.TYPE)
    return struct.pack(">h", version)


@pytest.mark.parametrize("section", MODULES)
def test_every_record_is_written_and_read_as_before(section: str) -> None:
    for name, version, written, message in LINES:
        if name == section:
            prefix = prefix_of(message, version)
            out = bytearray(prefix)
            encode(message, version, out)
            assert out == written, f"{message} v{version}"
            assert decode(type(message), written[len(prefix) :], version) == message, f"v{version}"


def test_every_record_has_lines() -> None:
    versions = {(cls, version) for cls in every_record() for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1)}
    assert {(type(message), version) for _, version, _, message in LINES} == versions


def test_values_of_the_metadata_log_are_framed_so() -> None:
    for _, version, written, message in LINES:
        if type(message) in metadata.RECORDS:
            assert isinstance(message, MetadataRecord)
            assert decode_record(written) == message
            if version == message.VERSIONS[1]:
                assert encode_record(message) == written


def test_types_that_only_kafka_writes_are_refused_by_a_node() -> None:
    for cls in kafka_metadata.RECORDS:
        with pytest.raises(MalformedData, match=f"metadata record: type {cls.TYPE} version 0 .* is not supported"):
            decode_record(bytes((1, cls.TYPE, 0)))


@pytest.mark.parametrize(
    ("section", "codec"), [("offsets", group_serde._CODEC), ("transactions", transaction_serde._CODEC)]
)
def test_keys_and_values_of_coordinators_are_framed_so(section: str, codec: RecordCodec) -> None:
    lines = [line for line in LINES if line[0] == section]
    key_of = {value: (key, codec.encode((key(), None))[0]) for key, value in codec._kinds.values()}
    for _, version, written, message in lines:
        if isinstance(message, RecordKey):
            assert codec.encode((message, None)) == (written, None)
            assert codec.decode(written, None) == (message, None)
        else:
            assert isinstance(message, RecordValue)
            key, key_bytes = key_of[type(message)]
            assert codec.encode((key(), message), version) == (key_bytes, written)
            assert codec.decode(key_bytes, written) == (key(), message)


def test_the_consumer_protocol_is_framed_so() -> None:
    for section, version, written, message in LINES:
        if section == "consumer_protocol":
            assert protocol.write(message, version) == written
            assert protocol.read(type(message), written) == (message, version)
