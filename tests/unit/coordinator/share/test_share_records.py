"""The bytes of the share coordinator's records, as Apache Kafka 4.3 writes them."""

from __future__ import annotations

from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.share.batches import Batch
from moldau.coordinator.share.serde import decode_record, encode_record
from moldau.coordinator.share.state import ShareState, StateChange, snapshot_record, tombstone, update_record
from moldau.share.ports import ShareKey

KEY = ShareKey("grp", bytes(range(16)), 7)
KEY_BYTES = bytes.fromhex("0003677270 000102030405060708090a0b0c0d0e0f 00000007")
BATCHES = (Batch(5, 9, 2, 1), Batch(10, 10, 0, 3))
BATCHES_BYTES = bytes.fromhex(
    "03 0000000000000005 0000000000000009 02 0001 00 000000000000000a 000000000000000a 00 0003 00"
)
STATE = ShareState(
    snapshot_epoch=3,
    state_epoch=2,
    leader_epoch=4,
    start_offset=5,
    delivery_complete_count=-1,
    create_timestamp=0x10,
    write_timestamp=0x20,
    batches=BATCHES,
)
SNAPSHOT_BYTES = bytes.fromhex("0000 00000003 00000002 00000004 0000000000000005 0000000000000010 0000000000000020")
NO_TAGS = b"\x00"
COUNT_OF_6 = bytes.fromhex("01 00 04 00000006")
"""One tagged field, with its tag and size."""


def check(record: CoordinatorRecord, key: bytes, value: bytes | None) -> None:
    assert encode_record(record) == (key, value)
    assert decode_record(key, value) == record


def test_a_snapshot() -> None:
    check(snapshot_record(KEY, STATE), b"\x00\x00" + KEY_BYTES, SNAPSHOT_BYTES + BATCHES_BYTES + NO_TAGS)
    with_count = STATE._replace(delivery_complete_count=6, batches=())
    check(snapshot_record(KEY, with_count), b"\x00\x00" + KEY_BYTES, SNAPSHOT_BYTES + b"\x01" + COUNT_OF_6)


def test_an_update() -> None:
    head = bytes.fromhex("0000 00000003 00000004 ffffffffffffffff")
    change = StateChange(-1, -1, BATCHES)
    check(update_record(KEY, STATE, change, 4), b"\x00\x01" + KEY_BYTES, head + BATCHES_BYTES + NO_TAGS)
    change = StateChange(-1, 6, ())
    check(update_record(KEY, STATE, change, 4), b"\x00\x01" + KEY_BYTES, head + b"\x01" + COUNT_OF_6)


def test_a_tombstone_has_the_key_of_a_snapshot() -> None:
    check(tombstone(KEY), b"\x00\x00" + KEY_BYTES, None)
