"""Records of the group coordinator: the bytes are those of Apache Kafka, encoded records are decoded unchanged, and no
bytes in a log can crash a reader.

The bytes under APACHE are from a `__consumer_offsets` that Apache Kafka 4.3.1 wrote; those of older values are put
together here by hand.
"""

from __future__ import annotations

import struct
from typing import Any

import hypothesis.strategies as st
import pytest
from harness.depth import deep
from hypothesis import given, settings

from moldau.base.errors import MalformedData
from moldau.coordinator.group.serde import decode_record, encode_record
from moldau.coordinator.machine import CoordinatorRecord
from moldau.wire.codec import encode
from moldau.wire.log_records import offsets as consumer
from moldau.wire.log_records.offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.wire.schema import Field, Message, RecordKey, RecordValue, fields_of

KINDS: dict[type[RecordKey], type[RecordValue]] = {
    LegacyOffsetCommitKey: OffsetCommitValue,
    OffsetCommitKey: OffsetCommitValue,
    GroupMetadataKey: GroupMetadataValue,
    consumer.ConsumerGroupMetadataKey: consumer.ConsumerGroupMetadataValue,
    consumer.ConsumerGroupMemberMetadataKey: consumer.ConsumerGroupMemberMetadataValue,
    consumer.ConsumerGroupTargetAssignmentMetadataKey: consumer.ConsumerGroupTargetAssignmentMetadataValue,
    consumer.ConsumerGroupTargetAssignmentMemberKey: consumer.ConsumerGroupTargetAssignmentMemberValue,
    consumer.ConsumerGroupCurrentMemberAssignmentKey: consumer.ConsumerGroupCurrentMemberAssignmentValue,
    consumer.ConsumerGroupRegularExpressionKey: consumer.ConsumerGroupRegularExpressionValue,
}
TYPES = {key.TYPE for key in KINDS}
some = settings(max_examples=deep(35, quick=12), deadline=None)


# --- any record at all --------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "string": TEXTS,
    "bytes": st.binary(max_size=12),
    "uuid": st.binary(min_size=16, max_size=16),
}


def values_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    if version not in field.versions:
        return st.just(field.default)
    one = messages(field.struct, version) if field.struct else PLAIN[field.type_name]
    value = st.lists(one, max_size=3) if field.is_array else one
    return st.none() | value if version in field.nullable else value


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Return a strategy for messages of this version; fields that it does not have get their default."""
    return st.builds(cls, **{field.name: values_of(field, version) for field in fields_of(cls)})


keys = st.sampled_from(sorted(KINDS, key=lambda key: key.TYPE))
records = keys.flatmap(
    lambda key: st.builds(
        CoordinatorRecord, messages(key, 0), st.none() | messages(KINDS[key], KINDS[key].WRITTEN)
    )
)  # fmt: skip


@some
@given(records)
def test_a_record_is_decoded_as_it_was_encoded(record: CoordinatorRecord) -> None:
    key, value = encode_record(record)
    assert decode_record(key, value) == record
    window = None if value is None else memoryview(value)
    assert decode_record(memoryview(key), window) == record, "decoded from a memoryview of a batch"


@some
@given(keys.flatmap(lambda key: st.tuples(messages(key, 0), st.just(KINDS[key]))), st.data())
def test_every_version_of_a_value_is_read(kind: tuple[RecordKey, type[RecordValue]], data: st.DataObject) -> None:
    key, value_class = kind
    version = data.draw(st.integers(*value_class.VERSIONS))
    value = data.draw(messages(value_class, version))
    written = bytearray(struct.pack(">h", version))
    encode(value, version, written)
    assert decode_record(encode_record(CoordinatorRecord(key, None))[0], written) == (key, value)


@some
@given(records)
def test_a_tombstone_has_the_key_of_its_record(record: CoordinatorRecord) -> None:
    assert encode_record(record)[0] == encode_record(CoordinatorRecord(record.key, None))[0]


# --- records of Apache Kafka --------------------------------------------------------------------------------------

TOPIC = bytes.fromhex("1cb6cf4d6b094da0bc34114aac63d6c6")
SUBSCRIPTION = b"\0\3\0\0\0\1\0\ttt-clicks\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0"
APACHE = {
    "a committed offset": (
        b"\0\1\0\x08tt-mixed\0\ttt-orders\0\0\0\0",
        b"\0\4\0\0\0\0\0\0\0\5\0\0\0\0\1\0\0\1\xa1\xdf\x8b\xa9\x10\1\0\x10" + TOPIC,
        OffsetCommitKey("tt-mixed", "tt-orders", 0),
        OffsetCommitValue(5, 0, "", 0x1A1DF8BA910, topic_id=TOPIC),
    ),
    "a classic group without members": (
        b"\0\2\0\x15it-group-d6c911160fc2",
        b"\0\3\0\x08consumer\0\0\0\2\xff\xff\xff\xff\0\0\1\xa1\xdf\x90\xd9c\0\0\0\0",
        GroupMetadataKey("it-group-d6c911160fc2"),
        GroupMetadataValue("consumer", 2, None, None, 0x1A1DF90D963),
    ),
    "a group epoch without subscriptions": (
        b"\0\3\0\x15it-group-1203c37c5c24",
        b"\0\0\0\0\0\2\0",
        consumer.ConsumerGroupMetadataKey("it-group-1203c37c5c24"),
        consumer.ConsumerGroupMetadataValue(2),
    ),
    "a group epoch": (
        b"\0\3\0\x15it-group-1203c37c5c24",
        b'\0\0\0\0\0\3\1\0\x08"\xee\x10\xa6\xa1\x0fvk',
        consumer.ConsumerGroupMetadataKey("it-group-1203c37c5c24"),
        consumer.ConsumerGroupMetadataValue(3, 0x22EE10A6A10F766B),
    ),
    "a member of the consumer protocol": (
        b"\0\5\0\x15it-group-193f0aa5ccdf\0$b9881755-5565-499c-837f-49c52ff83393",
        b"\0\0\0\0\x08interop\x0b/127.0.0.1\1\x11it-f3e9a2fa-14-.\0\0\xea`\0\1\0\1\0",
        consumer.ConsumerGroupMemberMetadataKey("it-group-193f0aa5ccdf", "b9881755-5565-499c-837f-49c52ff83393"),
        consumer.ConsumerGroupMemberMetadataValue(
            None, None, "interop", "/127.0.0.1", [], "it-f3e9a2fa-14-.", 60_000, None, None
        ),
    ),
    "a member of the classic protocol": (
        b"\0\5\0\x08tt-mixed\0\x16lmn16jANTymopmMPe9K9CQ",
        b"\0\0\0\0\x04old\x0b/127.0.0.1\2\ntt-clicks\1\5&\\\0\0\1\0Z\1\0\0\xaf\xc8\3"
        b"\6range\x20" + SUBSCRIPTION + b"\0\x0broundrobin\x20" + SUBSCRIPTION + b"\0\0",
        consumer.ConsumerGroupMemberMetadataKey("tt-mixed", "lmn16jANTymopmMPe9K9CQ"),
        consumer.ConsumerGroupMemberMetadataValue(
            None, None, "old", "/127.0.0.1", ["tt-clicks"], "", 86_400_000, None,
            consumer.ClassicMemberMetadata(
                45_000,
                [consumer.ClassicProtocol("range", SUBSCRIPTION), consumer.ClassicProtocol("roundrobin", SUBSCRIPTION)],
            ),
        ),
    ),
    "the epoch and time of a target assignment": (
        b"\0\6\0\x15it-group-b7ee0f8eec86",
        b"\0\0\0\0\0\2\1\0\x08\0\0\1\xa1\xdf\x98\xcd+",
        consumer.ConsumerGroupTargetAssignmentMetadataKey("it-group-b7ee0f8eec86"),
        consumer.ConsumerGroupTargetAssignmentMetadataValue(2, 0x1A1DF98CD2B),
    ),
    "the target assignment of a member": (
        b"\0\7\0\x15it-group-3bf6ef74c734\0$6e828a47-31af-43b3-b6ee-bec0adef4e90",
        b"\0\0\2" + TOPIC + b"\3\0\0\0\2\0\0\0\3\0\0",
        consumer.ConsumerGroupTargetAssignmentMemberKey(
            "it-group-3bf6ef74c734", "6e828a47-31af-43b3-b6ee-bec0adef4e90"
        ),
        consumer.ConsumerGroupTargetAssignmentMemberValue([consumer.TopicPartition(TOPIC, [2, 3])]),
    ),
    "the current assignment of a member": (
        b"\0\x08\0\x15it-group-88daaee41088\0$a388bc24-aca6-41d3-8c90-de33c551e779",
        b"\0\0\0\0\0\3\0\0\0\3\0\2" + TOPIC + b"\3\0\0\0\2\0\0\0\3\1\0\t\3\0\0\0\3\0\0\0\3\1\0",
        consumer.ConsumerGroupCurrentMemberAssignmentKey(
            "it-group-88daaee41088", "a388bc24-aca6-41d3-8c90-de33c551e779"
        ),
        consumer.ConsumerGroupCurrentMemberAssignmentValue(
            3, 3, 0, [consumer.TopicPartitions(TOPIC, [2, 3], [3, 3])], []
        ),
    ),
    "the topics of a pattern": (
        b"\0\x10\0\rtt-live-regex\0\t(^tt-a.*)",
        b"\0\0\2!tt-a-much-longer-topic-name-here\0\0\0\0\0\0\x0e\xd2\0\0\1\xa1\xdf\x95\xc7\xcc\0",
        consumer.ConsumerGroupRegularExpressionKey("tt-live-regex", "(^tt-a.*)"),
        consumer.ConsumerGroupRegularExpressionValue(["tt-a-much-longer-topic-name-here"], 0xED2, 0x1A1DF95C7CC),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", APACHE)
def test_records_of_apache_kafka_are_read_and_written_byte_for_byte(name: str) -> None:
    key, value, read_key, read_value = APACHE[name]
    assert decode_record(key, value) == (read_key, read_value)
    assert encode_record(CoordinatorRecord(read_key, read_value)) == (key, value)


def test_a_consumer_member_is_written_as_not_classic() -> None:
    """Apache takes a missing tag for a classic member without protocols, so null must be written."""
    with_null = consumer.ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    with_default = consumer.ConsumerGroupMemberMetadataValue(classic_member_metadata=consumer.ClassicMemberMetadata())
    key = consumer.ConsumerGroupMemberMetadataKey("g", "m")
    null_bytes, default_bytes = (
        encode_record(CoordinatorRecord(key, with_null))[1],
        encode_record(CoordinatorRecord(key, with_default))[1],
    )
    assert null_bytes is not None
    assert default_bytes is not None
    assert null_bytes.endswith(b"\1\0\1\0"), "one tagged field, tag 0, one byte, null"
    assert null_bytes[:-4] + b"\0" == default_bytes


# --- records of older brokers -------------------------------------------------------------------------------------


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


OFFSETS = {
    (0, 0): struct.pack(">hq", 0, 7) + text("m") + struct.pack(">q", 11),
    (1, 0): struct.pack(">hq", 0, 7) + text("m") + struct.pack(">q", 11),
    (1, 1): struct.pack(">hq", 1, 7) + text("m") + struct.pack(">qq", 11, 13),
    (1, 2): struct.pack(">hq", 2, 7) + text("m") + struct.pack(">q", 11),
    (1, 3): struct.pack(">hqi", 3, 7, 5) + text("m") + struct.pack(">q", 11),
}


@pytest.mark.parametrize(("key_type", "version"), OFFSETS)
def test_offsets_of_older_brokers_are_read(key_type: int, version: int) -> None:
    record = decode_record(
        struct.pack(">h", key_type) + text("g") + text("t") + b"\0\0\0\2", OFFSETS[key_type, version]
    )
    assert record is not None
    assert record.key == (OffsetCommitKey if key_type else LegacyOffsetCommitKey)("g", "t", 2)
    expires, epoch = 13 if version == 1 else -1, 5 if version == 3 else -1
    assert record.value == OffsetCommitValue(7, epoch, "m", 11, expires)


@pytest.mark.parametrize("version", range(4))
def test_classic_groups_of_older_brokers_are_read(version: int) -> None:
    member = text("id") + (text("i") if version >= 3 else b"") + text("client") + text("/host")
    member += (struct.pack(">i", 300) if version >= 1 else b"") + struct.pack(">i", 100)
    member += b"\0\0\0\2sb" + b"\0\0\0\1a"
    raw = struct.pack(">h", version) + text("consumer") + struct.pack(">i", 4) + text("range") + text(None)
    raw += (struct.pack(">q", 99) if version >= 2 else b"") + struct.pack(">i", 1) + member
    record = decode_record(b"\0\2" + text("g"), raw)
    assert record is not None
    read = MemberMetadata(
        "id", "i" if version >= 3 else None, "client", "/host", 300 if version >= 1 else -1, 100, b"sb", b"a"
    )
    assert record.value == GroupMetadataValue("consumer", 4, "range", None, 99 if version >= 2 else -1, [read])


# --- hostile bytes ------------------------------------------------------------------------------------------------


def decode_or_refuse(key: bytes, value: bytes | None) -> None:
    """Decode; anything but a record, None or MalformedData fails the test."""
    try:
        record = decode_record(key, value)
    except MalformedData:
        return
    assert record is None or type(record.key) in KINDS


@settings(max_examples=deep(100, quick=30), deadline=None)
@given(st.sampled_from(sorted(TYPES)), st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(key_type: int, key: bytes, value: bytes | None) -> None:
    decode_or_refuse(struct.pack(">h", key_type) + key, value)
    decode_or_refuse(key, value)


@settings(max_examples=deep(100, quick=30), deadline=None)
@given(records, st.data())
def test_damaged_records_are_decoded_or_refused(record: CoordinatorRecord, data: st.DataObject) -> None:
    key, value = map(bytearray, (encode_record(record)[0], encode_record(record)[1] or b""))
    for damaged in (key, value):
        if damaged and data.draw(st.booleans()):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    decode_or_refuse(bytes(key), bytes(value))


@some
@given(records, st.data())
def test_a_record_that_is_cut_short_is_refused(record: CoordinatorRecord, data: st.DataObject) -> None:
    key, value = encode_record(record)
    with pytest.raises(MalformedData):
        decode_record(key[: data.draw(st.integers(0, len(key) - 1))], value)
    if value is not None:
        with pytest.raises(MalformedData):
            decode_record(key, value[: data.draw(st.integers(0, len(value) - 1))])


@some
@given(st.integers(-(2**15), 2**15 - 1).filter(lambda number: number not in TYPES), st.binary(), st.binary())
def test_an_unknown_type_is_skipped(key_type: int, key: bytes, value: bytes) -> None:
    assert decode_record(struct.pack(">h", key_type) + key, value) is None


@pytest.mark.parametrize("version", [-1, 5, 300])
def test_a_value_of_an_unknown_version_is_refused(version: int) -> None:
    key, value = encode_record(CoordinatorRecord(OffsetCommitKey("g", "t", 0), OffsetCommitValue()))
    assert value is not None
    with pytest.raises(MalformedData, match=f"OffsetCommitValue has no version {version}"):
        decode_record(key, struct.pack(">h", version) + value[2:])
