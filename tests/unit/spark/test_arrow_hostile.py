"""Malformed record batches: the decoder raises MalformedData with the place, or returns the rows of the slow decoder.

Mutations are drawn from a seed, so a failure can be reproduced: the seed is in the assertion message.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

import pyarrow as pa
import pytest
from arrow_rows import PARTITION, SCHEMA, TOPIC, Row, decoded, fetched, plain_log, slowly_decoded
from harness.depth import DEPTH, sample

from moldau.base.errors import MalformedData
from moldau.base.limits import DECOMPRESSED_BYTES_MAX
from moldau.spark.records.decode import decode, next_offset
from moldau.wire.batch import BATCH_HEADER_BYTES, CRC_START, stamp_crc
from moldau.wire.compression import Compression, compress
from moldau.wire.records import NEXT_OFFSET, Record, append_varint, build_batch

WHERE = rf"^{TOPIC}-{PARTITION}, batch at offset -?\d+: "
STRICTER = ("comes next", "beyond what Spark can hold", "message format", "less than its header")
"""Reasons for which the decoder refuses a batch that the slow decoder accepts."""

UNCOMPRESSED = 800 if DEPTH > 1 else 250
"""How many batches without a codec are mutated: `make deep` tries more."""


def random_log(chance: random.Random, codec: Compression) -> bytes:
    def one() -> Record:
        headers = tuple((f"h{number}", chance.choice([None, b"x"])) for number in range(chance.randrange(3)))
        key = None if chance.random() < 0.3 else chance.randbytes(chance.randrange(9))
        return Record(
            NEXT_OFFSET, 1_000_000 + chance.randrange(90_000), key, chance.randbytes(chance.randrange(90)), headers
        )

    batches = [[one() for _ in range(chance.choice([1, 3, 20, 40]))] for _ in range(chance.randrange(1, 4))]
    batches.append([one()] * 40)
    return plain_log(batches, codec)


def mutated(chance: random.Random, log: bytes) -> bytes:
    """One to three changes: a byte, a number made huge, a piece removed or doubled."""
    data = bytearray(log)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(data))
        match chance.randrange(6):
            case 0 | 1:
                data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            case 2:
                data[at] ^= 1 << chance.randrange(8)
            case 3:
                data[at : at + 5] = b"\xfe\xff\xff\xff\x0f"[: len(data) - at]
            case 4:
                del data[at : at + chance.randrange(1, 20)]
            case 5:
                data[at:at] = data[at : at + chance.randrange(1, 20)]
    return bytes(data) or b"\0"


def rows_or_error(decoder: Callable[[], list[Row]]) -> list[Row] | str:
    """The rows, or why there are none. Any other exception is a failure."""
    try:
        return decoder()
    except MalformedData as error:
        return str(error)


def is_refused(log: bytes, what: str) -> bool:
    """Whether the decoder refuses the log. Checks its rows or its error against the slow decoder."""
    got = rows_or_error(lambda: decoded(fetched(log), check_crc=False))
    expected = rows_or_error(lambda: slowly_decoded(log))
    if isinstance(got, list):
        assert got == expected, what
        return False
    assert re.match(WHERE, got), f"{what}: {got}"
    assert isinstance(expected, str) or any(reason in got for reason in STRICTER), f"{what}: {got}"
    return True


@pytest.mark.parametrize(
    ("codec", "count"), [(Compression.NONE, UNCOMPRESSED)] + [(codec, 80) for codec in list(Compression)[1:]]
)
def test_mutated_batches_are_refused_or_decoded_as_by_the_slow_decoder(codec: Compression, count: int) -> None:
    refused = 0
    for seed in range(count):
        chance = random.Random(seed)
        refused += is_refused(mutated(chance, random_log(chance, codec)), f"{codec.name}, seed {seed}")
    assert count // 4 < refused < count, "the mutations are too weak or too strong to be a test"


def test_mutated_records_in_a_batch_with_a_codec_and_a_valid_crc() -> None:
    """A hostile producer mutates its records before it compresses them, and its CRC is valid."""
    refused, seeds = 0, sample(range(300), 3)
    for seed in seeds:
        chance = random.Random(seed)
        log = random_log(chance, Compression.NONE)
        size = 12 + int.from_bytes(log[8:12], "big")
        codec = chance.choice(list(Compression))
        body = compress(codec, mutated(chance, log[BATCH_HEADER_BYTES:size]))
        batch = bytearray(log[:BATCH_HEADER_BYTES]) + body
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        batch[22] |= codec
        stamp_crc(memoryview(batch))
        refused += is_refused(bytes(batch), f"seed {seed}")
        assert "CRC" not in rows_or_error(lambda batch=batch: decoded(fetched(batch)))
    assert refused > len(seeds) / 3


@pytest.mark.parametrize("codec", list(Compression))
def test_any_changed_byte_fails_the_crc_check(codec: Compression) -> None:
    log = random_log(random.Random(1), codec)
    size = 12 + int.from_bytes(log[8:12], "big")
    for at in range(CRC_START - 4, size):
        changed = bytearray(log)
        changed[at] ^= 0x10
        with pytest.raises(MalformedData, match=rf"{WHERE}the CRC"):
            decoded(fetched(changed, start=0, end=1))


def test_a_log_truncated_anywhere_gives_its_complete_batches() -> None:
    log = random_log(random.Random(2), Compression.NONE)
    for size in sample(range(len(log)), 4):
        assert decoded(fetched(log[:size])) == slowly_decoded(log[:size])


# --- single problems --------------------------------------------------------------------------------------------


def batch_of(body: bytes, count: int = 1, last_offset_delta: int = 0, codec: Compression = Compression.NONE) -> bytes:
    """A batch with this body, valid or not. The CRC is valid."""
    batch = bytearray(build_batch([Record(NEXT_OFFSET, 5, None, b"")])[:BATCH_HEADER_BYTES])
    batch += compress(codec, body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[22] = codec
    batch[23:27] = last_offset_delta.to_bytes(4, "big", signed=True)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    stamp_crc(memoryview(batch))
    return bytes(batch)


def varint(number: int) -> bytes:
    target = bytearray()
    append_varint(target, number)
    return bytes(target)


def body_of(*parts: bytes | int) -> bytes:
    rest = b"".join(varint(part) if isinstance(part, int) else part for part in parts)
    return varint(len(rest)) + rest


VALID = body_of(b"\0", 0, 0, -1, 1, b"v", 0)
TWICE = "the same offsets twice"
MALFORMED: dict[str, bytes] = {
    "a key longer than its record": batch_of(body_of(b"\0", 0, 0, 100, b"k", 1, b"v", 0)),
    "a key of length -2": batch_of(body_of(b"\0", 0, 0, -2, 1, b"v", 0)),
    "a key of two GiB": batch_of(body_of(b"\0", 0, 0, 0x7FFFFFFF, 1, b"v", 0)),
    "a value longer than its record": batch_of(body_of(b"\0", 0, 0, -1, 2, b"v", 0) + VALID, 2),
    "a value that takes the header count": batch_of(body_of(b"\0", 0, 0, -1, 2, b"v", 0)),
    "no header count": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v")),
    "an offset delta below 0": batch_of(body_of(b"\0", 0, -1, -1, 1, b"v", 0)),
    "an offset delta beyond the last": batch_of(body_of(b"\0", 0, 1, -1, 1, b"v", 0)),
    "bytes left in the record": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 0, b"?")),
    "bytes left in the batch": batch_of(VALID + b"?"),
    "another record left in the batch": batch_of(VALID + VALID),
    "a record too few": batch_of(VALID, 2),
    "a count below 0": batch_of(VALID, -1),
    "bytes but no record": batch_of(VALID, 0),
    "2147483647 records": batch_of(VALID, 0x7FFFFFFF),
    "a record of negative length": batch_of(b"\x0f" + VALID[1:]),
    "an empty record": batch_of(b"\0" * 7),
    "an unterminated length": batch_of(b"\xff" * 20),
    "a length of more than 32 bits": batch_of(b"\x80\x80\x80\x80\x7f" + VALID),
    "an unterminated timestamp": batch_of(body_of(b"\0", b"\xff" * 11, 0, -1, 1, b"v", 0)),
    "a timestamp of more than 64 bits": batch_of(body_of(b"\0", b"\xff" * 9 + b"\x02", 0, -1, 1, b"v", 0)),
    "headers without bytes": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 1)),
    "2147483647 headers": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 0x7FFFFFFF, b"?" * 9)),
    "a negative number of headers": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", -1)),
    "a header without a key": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 1, -1, -1)),
    "a header's key that is not UTF-8": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 1, 1, b"\xff", -1)),
    "a header's key longer than its record": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 1, 9, b"k", -1)),
    "a header's value longer than its record": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 1, 1, b"k", 9, b"v")),
    "bytes left after the headers": batch_of(body_of(b"\0", 0, 0, -1, 1, b"v", 1, 1, b"k", 1, b"v", b"?")),
    "records that are not a zstd stream": batch_of(VALID)[:22] + b"\x04" + batch_of(VALID)[23:],
    "an unknown codec": batch_of(VALID)[:22] + b"\x07" + batch_of(VALID)[23:],
    "a last offset below the base": batch_of(VALID, last_offset_delta=-1),
    "a base offset below 0": b"\xff" * 8 + batch_of(VALID)[8:],
    "an offset beyond 63 bits": struct.pack(">q", (1 << 63) - 1) + batch_of(VALID)[8:],
    TWICE: batch_of(VALID) + batch_of(VALID),
    "a batch shorter than its header": batch_of(VALID)[:8] + struct.pack(">i", 40) + batch_of(VALID)[12:],
    "a batch of length 0": batch_of(VALID)[:8] + bytes(4) + batch_of(VALID)[12:],
    "a batch of negative length": batch_of(VALID)[:8] + b"\xff" * 4 + batch_of(VALID)[12:],
    "message format 1": batch_of(VALID)[:16] + b"\x01" + batch_of(VALID)[17:],
}
BASE_OFFSETS = {"a base offset below 0": -1, "an offset beyond 63 bits": (1 << 63) - 1}
"""Problems that are the base offset itself. In the others it follows the rows before the batch."""
IN_HEADERS = {
    "headers without bytes",
    "2147483647 headers",
    "a negative number of headers",
    "a header without a key",
    "a header's key that is not UTF-8",
    "a header's key longer than its record",
    "a header's value longer than its record",
    "bytes left after the headers",
}
"""Problems in the content of a record's headers."""


def test_the_batch_before_its_malformation_is_valid() -> None:
    assert [row.record.value for row in decoded(fetched(batch_of(VALID)))] == [b"v"]


@pytest.mark.parametrize("problem", MALFORMED)
@pytest.mark.parametrize("rows_before", [0, 50])
def test_a_malformed_batch_is_refused_with_its_offset(problem: str, rows_before: int) -> None:
    before = plain_log([[Record(NEXT_OFFSET, 5, b"k", b"v" * 9, (("h", b"x"),))] * rows_before]) if rows_before else b""
    malformed = bytearray(MALFORMED[problem])
    if problem not in BASE_OFFSETS:
        for start in (0, len(malformed) // 2) if problem == TWICE else (0,):
            malformed[start : start + 8] = struct.pack(">q", rows_before)
    with pytest.raises(MalformedData, match=WHERE) as refused:
        decoded(fetched(before + malformed), check_crc=False)
    assert f"batch at offset {BASE_OFFSETS.get(problem, rows_before)}: " in str(refused.value)


@pytest.mark.parametrize("problem", [problem for problem in MALFORMED if problem not in IN_HEADERS])
def test_a_malformed_batch_is_refused_even_if_one_column_is_requested(problem: str) -> None:
    """Only the content of headers is not checked when the column is not requested."""
    with pytest.raises(MalformedData, match=WHERE):
        list(decode(fetched(MALFORMED[problem]), pa.schema([SCHEMA.field("key")]), check_crc=False))


@pytest.mark.parametrize("problem", ["an offset beyond 63 bits", "a batch of length 0", "message format 1"])
def test_next_offset_refuses_a_malformed_batch(problem: str) -> None:
    with pytest.raises(MalformedData, match=r"^batch at offset"):
        next_offset(memoryview(MALFORMED[problem]), 0)


def test_an_old_message_format_is_named_in_the_error() -> None:
    message = struct.pack(">qiIbbq", 77, 30, 0, 1, 0, 5) + b"\xff" * 16
    with pytest.raises(MalformedData, match=rf"^{TOPIC}-{PARTITION}, batch at offset 77: message format 1;"):
        decoded(fetched(message))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_decompression_bomb_is_refused(codec: Compression) -> None:
    bomb = batch_of(bytes(DECOMPRESSED_BYTES_MAX + 1), codec=codec)
    with pytest.raises(MalformedData, match=rf"{WHERE}the records expand beyond"):
        decoded(fetched(bomb))


@pytest.mark.parametrize("timestamp", [(1 << 63) // 1000 + 1, -(1 << 63) // 1000 - 2, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("is_log_append_time", [False, True])
def test_a_timestamp_that_spark_cannot_hold_is_refused(timestamp: int, is_log_append_time: bool) -> None:
    log = build_batch([Record(NEXT_OFFSET, timestamp, None, b"v")], is_log_append_time=is_log_append_time)
    with pytest.raises(MalformedData, match=rf"{WHERE}a timestamp beyond"):
        decoded(fetched(log))


def test_timestamps_do_not_wrap_around() -> None:
    """Base and delta both at their end, whose sum is 0 in 64 bits."""
    batch = bytearray(batch_of(body_of(b"\0", -(1 << 63), 0, -1, 1, b"v", 0)))
    batch[27:35] = struct.pack(">q", -(1 << 63))
    with pytest.raises(MalformedData, match="a timestamp beyond"):
        decoded(fetched(batch), check_crc=False)


def test_timestamps_at_the_bounds_are_decoded() -> None:
    bound = ((1 << 63) - 1) // 1000
    log = build_batch([Record(NEXT_OFFSET, timestamp, None, b"v") for timestamp in (bound, -bound, 0, -1)])
    assert [row.record.timestamp for row in decoded(fetched(log))] == [bound, -bound, 0, -1]
