"""A batch as a view of bytes: splitting, checking and stamping it."""

from __future__ import annotations

import pytest

from moldau.base.errors import MalformedData
from moldau.wire.batch import (
    BATCH_HEADER_BYTES,
    has_valid_crc,
    next_sequence,
    read_header,
    split_batches,
    stamp,
    stamp_log_append_time,
)
from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, decode_records


def one_batch(value: bytes = b"value") -> bytearray:
    return build_batch([Record(NEXT_OFFSET, 1000, b"key", value), Record(NEXT_OFFSET, 2000, None, None)])


def test_the_header_is_61_bytes_and_has_the_given_fields() -> None:
    batch = build_batch(
        [Record(NEXT_OFFSET, 1000, b"a", b"b"), Record(NEXT_OFFSET, 900, b"c", b"d")],
        base_offset=50,
        leader_epoch=3,
        compression=Compression.ZSTD,
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 1,
        is_transactional=True,
    )
    header = read_header(batch)
    assert BATCH_HEADER_BYTES == 61
    assert header.size_in_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (50, 51, 52)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1000)
    assert (header.leader_epoch, header.magic, header.record_count) == (3, 2, 2)
    assert header.compression is Compression.ZSTD
    assert header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time
    assert header.last_sequence == 0, "sequences wrap to 0"


def test_sequences_wrap_after_31_bits() -> None:
    assert next_sequence(0, 3) == 3
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 2, 4) == 2


def test_batches_are_split_at_their_lengths() -> None:
    batches = [one_batch(b"x" * size) for size in (0, 10, 1000)]
    found = list(split_batches(memoryview(b"".join(batches))))
    assert [bytes(window) for _, window in found] == [bytes(batch) for batch in batches]
    assert list(split_batches(memoryview(b""))) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 10_000, 2**31 - 1])
def test_a_wrong_length_is_refused(length: int) -> None:
    batch = one_batch()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(MalformedData):
        list(split_batches(memoryview(batch)))


def test_trailing_bytes_that_are_not_a_batch_are_refused() -> None:
    with pytest.raises(MalformedData):
        list(split_batches(memoryview(one_batch() + b"\0" * 20)))
    with pytest.raises(MalformedData):
        list(split_batches(memoryview(one_batch()[:-1])))


def test_other_magic_is_refused() -> None:
    batch = one_batch()
    batch[16] = 1
    with pytest.raises(MalformedData, match="magic 1"):
        list(split_batches(memoryview(batch)))


def test_every_changed_byte_after_the_crc_makes_it_invalid() -> None:
    for position in range(17, len(one_batch())):
        batch = one_batch()
        batch[position] ^= 0x40
        assert not has_valid_crc(memoryview(batch))


def test_stamping_offset_and_epoch_keeps_the_crc_right() -> None:
    batch = one_batch()
    stamp(memoryview(batch), 123456789012, 42)
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (123456789012, 42)
    assert header.size_in_bytes == len(batch)
    assert has_valid_crc(memoryview(batch))


def test_stamping_log_append_time() -> None:
    batch = one_batch()
    stamp_log_append_time(memoryview(batch), 777_000)
    assert has_valid_crc(memoryview(batch))
    assert read_header(batch).is_log_append_time
    assert [record.timestamp for record in decode_records(batch)] == [777_000, 777_000]


def test_unknown_codec_is_refused() -> None:
    batch = one_batch()
    batch[22] |= 6
    with pytest.raises(MalformedData, match="codec 6"):
        _ = read_header(batch).compression
