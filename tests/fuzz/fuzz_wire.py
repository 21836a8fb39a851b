"""Targets without a node: the decoders of messages, record batches and compressed records."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import cramjam
from fuzz_checks import Limits, Violation
from fuzz_mutations import HUGE, mutate
from harness.random_messages import Filling, every_message, every_record, random_message

from moldau.base.errors import MalformedData
from moldau.coordinator.group import serde as group_serde
from moldau.coordinator.transaction import serde as transaction_serde
from moldau.metadata import records as metadata_records
from moldau.wire import consumer_protocol
from moldau.wire.batch import BATCH_HEADER, BATCH_HEADER_BYTES, LENGTH_PREFIX, stamp_crc
from moldau.wire.codec import decode, encode
from moldau.wire.compression import Compression, compress, decompress
from moldau.wire.frames import read_request_header
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription
from moldau.wire.records import Record, append_varint, build_batch, decode_records
from moldau.wire.schema import Message

MESSAGES = (*every_message(), *every_record())
NOW_MS = 1_700_000_000_000
HEADER_FIELDS = "qiibIhiqqqhii"
INTEGER_BITS = {"q": 64, "i": 32, "I": 32, "h": 16, "b": 8}
MAGIC, CRC = 3, 4
"""Places of fields in the header of a batch."""


class Stateless:
    """Base of targets whose cases do not depend on each other."""

    block_cases = 1000
    limits = Limits()

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass

    def size_of(self, made: Any) -> int:
        return len(made)


@cache
def valid_message(cls: type[Message], version: int, variant: int) -> bytes:
    filling = Filling.MOST if variant == 7 else Filling.MIXED
    out = bytearray()
    encode(random_message(cls, version, filling, variant), version, out)
    decode(cls, bytes(out), version)  # it is compiled now, and not in the case that is measured
    return bytes(out)


def _encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    encode(message, version, out)
    return bytes(out)


class Messages(Stateless):
    """Requests and responses of all APIs and records of all logs in all versions, what stands before them, and the
    messages of consumers inside them."""

    name = "messages"

    def make(self, rng: Random) -> tuple[type[Message] | None, int, bytes]:
        cls = rng.choice(MESSAGES)
        version = rng.randint(*cls.VERSIONS)
        variant = 7 if rng.random() < 0.02 else rng.randrange(7)
        data = bytes(mutate(valid_message(cls, version, variant) or b"\0", rng))
        return (None, 0, data) if rng.random() < 0.05 else (cls, version, data)

    def size_of(self, made: tuple[type[Message] | None, int, bytes]) -> int:
        return len(made[2])

    def run(self, made: tuple[type[Message] | None, int, bytes]) -> None:
        cls, version, data = made
        if cls is None:
            _read_as_other_types(data)
            return
        try:
            message = decode(cls, data, version)
        except MalformedData:
            return
        again = _encoded(message, version)
        if _encoded(decode(cls, again, version), version) != again:
            raise Violation(f"{cls.__name__} v{version} is not the same after it was written and read")


def _read_as_other_types(data: bytes) -> None:
    """Read bytes of any message as the header of a request, as what a consumer sends inside of one, and as records with
    what stands before them."""
    for read in (
        read_request_header,
        lambda data: consumer_protocol.read(Subscription, data),
        lambda data: consumer_protocol.read(Assignment, data),
        lambda data: metadata_records.decode_record(b"\1" + data),
        lambda data: group_serde.decode_record(data[:40], data[40:]),
        lambda data: transaction_serde.decode_record(data[:40], data[40:]),
    ):
        try:
            read(data)
        except MalformedData:
            continue


# --- batches ------------------------------------------------------------------------------------------------------


VALID_BATCHES = 2000


@cache
def valid_batch(number: int) -> bytes:
    """Return a batch with whatever a producer may set; some are control batches, which it may not."""
    rng = Random(number)
    records = [
        Record(
            -1,
            NOW_MS + rng.choice((0, 0, 1, -1, 10**6, -(10**12))),
            rng.choice((None, b"", b"key", rng.randbytes(3))),
            rng.choice((None, b"", b"value", bytes(rng.randrange(200)))),
            tuple(("h", rng.choice((None, b"", b"x"))) for _ in range(rng.choice((0, 0, 0, 1, 3)))),
        )
        for _ in range(rng.choice((1, 1, 2, 3, 10)))
    ]
    idempotent = {"producer_id": rng.randrange(3), "producer_epoch": 0, "base_sequence": rng.choice((0, 0, 1, 5))}
    batch = build_batch(
        records,
        compression=Compression(rng.choice((0, 0, 0, 1, 2, 3, 4))),
        is_control=rng.random() < 0.05,
        is_transactional=rng.random() < 0.05,
        is_log_append_time=rng.random() < 0.05,
        **(idempotent if rng.random() < 0.3 else {}),
    )
    return bytes(batch)


def mutated_batch(rng: Random) -> bytearray:
    """Return a hostile batch. Most have the right length and CRC, so that more than these is checked."""
    batch = bytearray(valid_batch(rng.randrange(VALID_BATCHES)))
    chance = rng.random()
    if chance < 0.25:
        return mutate(batch, rng)
    if chance < 0.55:
        _set_header_field(batch, rng)
    elif chance < 0.9:
        _replace_records(batch, rng)
    else:
        _append_garbage(batch, rng)
    if rng.random() < 0.9 and len(batch) >= BATCH_HEADER_BYTES:
        if rng.random() < 0.9:
            LENGTH_PREFIX.pack_into(batch, 0, 0, len(batch) - LENGTH_PREFIX.size)
        stamp_crc(memoryview(batch))
    return batch


def _set_header_field(batch: bytearray, rng: Random) -> None:
    fields = list(BATCH_HEADER.unpack_from(batch))
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(HEADER_FIELDS))
        bits = INTEGER_BITS[HEADER_FIELDS[place]]
        low, high = (0, 2**32 - 1) if place == CRC else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        value = rng.choice((low, high, 0, 1, -1, fields[place] + 1, fields[place] - 1, rng.randint(low, high)))
        fields[place] = min(max(value, low), high)
    BATCH_HEADER.pack_into(batch, 0, *fields)


def _replace_records(batch: bytearray, rng: Random) -> None:
    codec = Compression(rng.choice((0, 0, 1, 2, 3, 4)))
    try:
        body = bytes(decompress(Compression(batch[22] & 7), batch[BATCH_HEADER_BYTES:]))
    except MalformedData:
        body = b"\0"
    if rng.random() < 0.3:
        body = _odd_record(rng)
    else:
        body = bytes(mutate(body, rng))
    packed = bytes(compress(codec, body))
    if rng.random() < 0.3:
        packed = bytes(mutate(packed, rng))
    batch[BATCH_HEADER_BYTES:] = packed
    batch[22] = batch[22] & ~7 | codec


def _odd_record(rng: Random) -> bytes:
    """Return a record whose length is right and whose varints are odd."""
    body = bytearray(b"\0")
    odd = (0, 1, -1, -2, 5, 2**31 - 1, -(2**31))
    for _ in range(rng.randint(1, 7)):
        append_varint(body, rng.choice(odd))
    body += rng.randbytes(rng.randrange(8))
    record = bytearray()
    append_varint(record, len(body))
    return bytes(record + body)


def _append_garbage(batch: bytearray, rng: Random) -> None:
    batch += rng.choice((bytes(batch), rng.randbytes(rng.randint(1, 80)), rng.choice(HUGE)))


class Batches(Stateless):
    """Record batches: header, CRC, compression and records."""

    name = "records"
    limits = Limits(memory=3_000_000)

    def make(self, rng: Random) -> bytes:
        return bytes(mutated_batch(rng))

    def run(self, made: bytes) -> None:
        try:
            records = decode_records(made)
        except MalformedData:
            return
        if len(records) > 10 * len(made) + 10_000:
            raise Violation(f"{len(records)} records in {len(made)} bytes")


# --- compression --------------------------------------------------------------------------------------------------

EXPANDED_MAX = 1 << 20
CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)


@cache
def compressed(codec: Compression, kind: int) -> bytes:
    plain = (b"", b"a", bytes(range(256)) * 4, b"abc" * 3000, Random(1).randbytes(3000), bytes(2 * EXPANDED_MAX))[kind]
    if codec is Compression.SNAPPY and kind in (0, 2):
        return bytes(cramjam.snappy.compress_raw(plain))
    return bytes(compress(codec, plain))


class Decompression(Stateless):
    """Compressed streams, among them ones that expand beyond the limit."""

    name = "compression"
    limits = Limits(memory=4 * EXPANDED_MAX)

    def make(self, rng: Random) -> tuple[Compression, bytes]:
        codec = rng.choice(CODECS)
        kind = rng.choice((0, 1, 2, 2, 3, 4, 5) if rng.random() < 0.1 else (0, 1, 2, 2, 3, 4))
        data = compressed(codec, kind)
        if rng.random() < 0.1:
            data += compressed(codec, rng.randrange(4))
        return codec, bytes(mutate(data, rng))

    def size_of(self, made: tuple[Compression, bytes]) -> int:
        return len(made[1])

    def run(self, made: tuple[Compression, bytes]) -> None:
        try:
            expanded = decompress(*made, EXPANDED_MAX)
        except MalformedData:
            return
        if len(expanded) > EXPANDED_MAX:
            raise Violation(f"{made[0].name}: {len(expanded)} bytes; the limit is {EXPANDED_MAX}")
