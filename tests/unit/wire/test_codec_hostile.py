"""Bytes that were never a message: decoding returns a message or raises MalformedData, in little time and memory.

Valid messages are flipped, cut, stretched, spliced and given huge counts: 50,000 frames over all messages and
versions. MOLDAU_FUZZ_FRAMES=1000000 makes more of them, MOLDAU_FUZZ_SEED makes others.
"""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from harness.depth import deep
from harness.operations import operations_of
from harness.random_messages import Filling, every_message, every_version, least_element, random_message

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.wire.codec import TooManyElements, decode, decoder, encode
from moldau.wire.messages.fetch import FetchRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from moldau.wire.messages.vote import VoteRequest
from moldau.wire.schema import Message, fields_of

FRAMES = int(os.environ.get("MOLDAU_FUZZ_FRAMES", deep(20_000, quick=8_000)))
SEED = os.environ.get("MOLDAU_FUZZ_SEED", "0")
MESSAGES = list(every_message())
COUNTED_FRAMES_PER_VERSION = 5
FRAMES_PER_VERSION = FRAMES // len(list(every_version())) + 1
OPERATIONS_PER_BYTE_MAX = 40
"""Far above the cost of any field, and far below that of a loop over a count that is not there."""

HUGE = (
    b"\x7f\xff\xff\xff",  # as a legacy count: 2**31 - 1
    b"\x80\x00\x00\x00",  # as a legacy count: negative
    b"\xff\xff\xff\xfe",  # -2, which is not null
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",  # as a varint: 2**32 - 1
    b"\xff\xff\xff\xff\x07",  # as a varint: 2**31 - 1
    b"\xff\xff\xff\xff\xff\xff\xff\x01",  # a varint that does not end in time
    b"\x80\x80\x80\x80\x80",
)


def encoded(message: Message, version: int) -> bytes:
    out = bytearray()
    encode(message, version, out)
    return bytes(out)


def decoded(cls: type[Message], data: Buffer, version: int) -> Message | None:
    """Return the message, or None if the bytes were refused; any error but MalformedData fails the test."""
    try:
        return decode(cls, data, version)
    except MalformedData:
        return None


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def overwrite(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.randbytes(rng.randint(1, 8))


def remove(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data))
    del data[place : place + rng.randint(1, 8)]


def claim(data: bytearray, rng: random.Random) -> None:
    """Write something huge where a count may be."""
    huge, place = rng.choice(HUGE), rng.randrange(len(data))
    data[place : place + rng.choice((1, len(huge)))] = huge


def splice(data: bytearray, rng: random.Random) -> None:
    one, other = rng.randrange(len(data)), rng.randrange(len(data))
    data[one:one] = data[other : other + 16]


Mutation = Callable[[bytearray, random.Random], None]
MUTATIONS: tuple[Mutation, ...] = (flip, overwrite, cut, insert, remove, claim, splice)


def mutants(valid: bytes, rng: random.Random, count: int) -> Iterator[bytearray]:
    for _ in range(count):
        data = bytearray(valid)
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            rng.choice(MUTATIONS)(data, rng)
            data = data or bytearray(1)
        yield data


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_mutated_bytes_are_decoded_or_refused(cls: type[Message]) -> None:
    """A decoded message is also stable: encoded and decoded again, it gives the same bytes."""
    low, high = cls.VERSIONS
    for version in range(low, high + 1):
        rng = random.Random(f"{SEED} {cls.__name__} {version}")
        for round_ in range(5):
            valid = encoded(random_message(cls, version, Filling.MIXED, f"{SEED} hostile {round_}"), version)
            assert decoded(cls, valid, version) is not None
            for data in mutants(valid or b"\0", rng, FRAMES_PER_VERSION // 5 + 1):
                message = decoded(cls, bytes(data), version)
                if message is not None:
                    again = encoded(message, version)
                    assert encoded(decode(cls, again, version), version) == again, bytes(data).hex()


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_the_cost_of_mutated_bytes_is_proportional_to_their_length(cls: type[Message]) -> None:
    low, high = cls.VERSIONS
    for version in range(low, high + 1):
        rng = random.Random(f"{SEED} {cls.__name__} {version} counted")
        valid = encoded(random_message(cls, version, Filling.MIXED, f"{SEED} hostile counted"), version)
        decoded(cls, valid, version)  # the decoder is made at its first use
        for data in mutants(valid or b"\0", rng, COUNTED_FRAMES_PER_VERSION):
            spent = operations_of(partial(decoded, cls, bytes(data), version))
            assert spent < OPERATIONS_PER_BYTE_MAX * (len(data) + 20), bytes(data).hex()


def test_every_truncated_message_and_every_extra_byte_is_refused() -> None:
    for cls, version in every_version():
        whole = encoded(random_message(cls, version, Filling.MIXED, "cut"), version)
        for length in range(min(len(whole), 400)):
            with pytest.raises(MalformedData):
                decode(cls, memoryview(whole)[:length], version)
        with pytest.raises(MalformedData, match="after the end"):
            decode(cls, whole + b"\0", version)


def memory_of(action: Callable[[], object]) -> int:
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    action()
    return tracemalloc.get_traced_memory()[1] - before


@pytest.fixture
def traced_memory() -> Iterator[None]:
    """Trace memory without the cycle collector, whose runs would distort the measurement."""
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


@pytest.mark.usefixtures("traced_memory")
def test_a_claimed_count_allocates_nothing() -> None:
    """A huge number at every offset of a small message, and so at every count."""
    for cls, version in every_version():
        valid = encoded(random_message(cls, version, Filling.LEAST, 0), version)
        decode(cls, valid, version)  # compiled now, so that only the decoding is measured
        for huge in HUGE:
            for place in range(len(valid)):
                for data in (valid[:place] + huge + valid[place:], valid[:place] + huge + valid[place + len(huge) :]):
                    peak = memory_of(partial(decoded, cls, data, version))
                    assert peak < 20_000, f"{cls.__name__} v{version}: {peak} bytes for {data.hex()}"


@pytest.mark.usefixtures("traced_memory")
def test_memory_grows_with_the_bytes_received() -> None:
    """The worst valid frames: arrays of the smallest elements. The cost of a frame is proportional to its size."""
    for cls in MESSAGES:
        version = cls.VERSIONS[1]
        for field in fields_of(cls):
            if not field.is_array or version not in field.versions:
                continue
            message = random_message(cls, version, Filling.LEAST, 0)
            setattr(message, field.name, [least_element(field, version)] * 200)
            data = encoded(message, version)
            decode(cls, data, version)
            peak = memory_of(partial(decode, cls, data, version))
            assert peak < 80 * len(data) + 2_000, f"{cls.__name__}.{field.name} v{version}: {peak} for {len(data)}"


@pytest.mark.parametrize(
    ("cls", "version", "text", "complaint"),
    [
        (MetadataRequest, 0, "ffffffff", "topics is null"),
        (MetadataRequest, 1, "fffffffe 01", "topics has a negative length"),
        (MetadataRequest, 1, "7fffffff", "topics claims more than is there"),
        (MetadataRequest, 1, "00000001 7fff", "name is longer than the message"),
        (MetadataRequest, 1, "00000001 ffff", "name is null"),
        (MetadataRequest, 1, "00000001 0001 ff", "not UTF-8"),
        (MetadataRequest, 1, "0000", "cut short"),
        (MetadataRequest, 9, "ffffffff0f", "topics claims more than is there"),
        (MetadataRequest, 9, "ffffffff1f", "more than 32 bits"),
        (MetadataRequest, 9, "8080808080 00", "more than five bytes"),
        (MetadataRequest, 9, "00 00 00 00 02 0500", "more tagged fields claimed"),
        (MetadataRequest, 9, "00 00 00 00 ffffffff0f", "more than 64 tagged fields"),
        (MetadataRequest, 9, "00 00 00 00 41" + "6300" * 65, "more than 64 tagged fields"),
        (MetadataRequest, 9, "00 00 00 00 01 05 7f", "tagged field is longer than the message"),
        (ProduceRequest, 9, "00 0000 00000000 00 00", "topic_data is null"),
        (VoteRequest, 0, "00 80", "cut short"),
    ],
)
def test_error_messages_have_the_reason(cls: type[Message], version: int, text: str, complaint: str) -> None:
    with pytest.raises(MalformedData, match=complaint):
        decode(cls, bytes.fromhex(text), version)


@pytest.mark.parametrize("size", [1, 3])
def test_a_tagged_field_must_have_exactly_its_size(size: int) -> None:
    plain = encoded(FetchRequest(), 12)
    assert plain.endswith(b"\x01\x00")  # an empty rack id, and no tagged fields
    right = plain[:-1] + b"\x01\x00\x02\x02x"
    assert decode(FetchRequest, right, 12) == FetchRequest(cluster_id="x")
    with pytest.raises(MalformedData, match="tagged field cluster_id has a wrong size"):
        decode(FetchRequest, plain[:-1] + bytes([1, 0, size]) + b"\x02x\0", 12)


def test_unknown_tagged_fields_are_skipped() -> None:
    response = MetadataResponse(controller_id=7)
    known = encoded(response, 9)
    assert known.endswith(b"\0")
    unknown = known[:-1] + b"\x02" + b"\x63\x03abc" + b"\xff\xff\xff\xff\x0f\x00"
    assert decode(MetadataResponse, unknown, 9) == response


def test_the_elements_of_all_arrays_together_are_limited() -> None:
    """A Produce request has no other limit on topics times partitions."""
    topics = [TopicProduceData(name=f"t{topic}", partition_data=[PartitionProduceData(0)] * 100) for topic in range(10)]
    frame = memoryview(encoded(ProduceRequest(None, -1, 1, topics), 9))
    decode_all = decoder(ProduceRequest, 9, elements_max=200, total_max=1_010)
    assert len(decode_all(frame, 0, len(frame))[0].topic_data) == 10
    with pytest.raises(TooManyElements, match="its arrays have more than 1,009 elements"):
        decoder(ProduceRequest, 9, elements_max=200, total_max=1_009)(frame, 0, len(frame))
