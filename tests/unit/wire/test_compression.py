"""Compression codecs against other implementations, and against decompression bombs."""

from __future__ import annotations

import gzip
import tracemalloc
import warnings
import zlib
from random import Random

import hypothesis.strategies as st
import pytest
from harness.depth import deep
from hypothesis import given, settings

from moldau.base.errors import MalformedData
from moldau.wire.compression import Compression, DecompressedTooLarge, compress, decompress

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as other

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1 << 20


def their_encode(codec: Compression, data: bytes) -> bytes:
    encoder = getattr(other, f"{codec.name.lower()}_encode")
    return bytes(encoder(data))


def their_decode(codec: Compression, data: bytes) -> bytes:
    decoder = getattr(other, f"{codec.name.lower()}_decode")
    return bytes(decoder(data))


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=deep(10), deadline=None)
@given(data=st.binary(min_size=1, max_size=300) | st.integers(1, 200_000).map(lambda n: b"moldau" * (n // 6 + 1)))
def test_other_implementations_read_our_streams_and_we_read_theirs(codec: Compression, data: bytes) -> None:
    assert their_decode(codec, bytes(compress(codec, data))) == data
    assert bytes(decompress(codec, their_encode(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 32 << 10, (64 << 10) + 1, 300_000])
def test_data_round_trips(codec: Compression, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert bytes(decompress(codec, compress(codec, data[:size]))) == data[:size]


@pytest.mark.parametrize(
    ("codec", "weaker", "stronger"),
    [(Compression.GZIP, 1, 9), (Compression.LZ4, 1, 17), (Compression.ZSTD, 1, 19)],
)
def test_a_higher_level_makes_data_smaller(codec: Compression, weaker: int, stronger: int) -> None:
    random = Random(1)
    data = b" ".join(b"%x" % random.randrange(1_000) for _ in range(10_000))
    weak, strong = compress(codec, data, weaker), compress(codec, data, stronger)
    assert len(strong) < len(weak)
    for compressed in (weak, strong):
        assert bytes(decompress(codec, compressed)) == their_decode(codec, bytes(compressed)) == data


@pytest.mark.parametrize("level", [None, 3])
@pytest.mark.parametrize("codec", CODECS)
def test_any_buffer_is_compressed(codec: Compression, level: int | None) -> None:
    data = b"moldau" * 100
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(data))):
        assert bytes(decompress(codec, compress(codec, buffer, level))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_decompression_bomb_is_refused_and_not_inflated(codec: Compression) -> None:
    bomb = bytes(compress(codec, bytes(64 * MIB)))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedData, match="expand beyond"):
            decompress(codec, bomb, bytes_max=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_of_decompressed_bytes_is_exact(codec: Compression) -> None:
    data = b"x" * 100_000
    assert bytes(decompress(codec, compress(codec, data), bytes_max=100_000)) == data
    with pytest.raises(MalformedData):
        decompress(codec, compress(codec, data), bytes_max=99_999)


def test_a_snappy_length_beyond_the_limit_is_refused_without_decompressing() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\5\xff\xff\xff\xff\x0f"):
        with pytest.raises(DecompressedTooLarge, match="expand beyond"):
            decompress(Compression.SNAPPY, claim)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"\7", b"not compressed at all", b"\xff" * 100])
def test_an_invalid_stream_is_refused(codec: Compression, data: bytes) -> None:
    with pytest.raises(MalformedData):
        decompress(codec, data)


@pytest.mark.parametrize("codec", CODECS)
def test_a_truncated_stream_is_refused(codec: Compression) -> None:
    whole = bytes(compress(codec, bytes(range(256)) * 300))
    for cut in (1, 4, len(whole) // 2):
        with pytest.raises(MalformedData):
            decompress(codec, whole[:-cut])


def test_raw_snappy_is_accepted_too() -> None:
    raw = bytes(other.snappy_encode(b"hello " * 100, xerial_compatible=False))
    assert bytes(decompress(Compression.SNAPPY, raw)) == b"hello " * 100


def test_many_small_members_of_gzip_are_not_copied_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    given_bytes = 0

    class Member:
        def __init__(self, wbits: int) -> None:
            self._member = decompressobj(wbits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal given_bytes
            given_bytes += len(data)
            return self._member.decompress(data, max_length)

        def __getattr__(self, name: str) -> object:
            return getattr(self._member, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Member)
    members = 3_000
    assert bytes(decompress(Compression.GZIP, gzip.compress(b"ab") * members)) == b"ab" * members
    assert 0 < given_bytes <= members * 4096 + (64 << 10)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 300_000])
def test_gzip_streams_of_any_size_are_read_or_refused(size: int) -> None:
    body = Random(1).randbytes(size)
    stream = gzip.compress(body)
    for data, expected in ((stream, body), (stream + stream, body + body)):
        assert bytes(decompress(Compression.GZIP, data, len(expected) or 1)) == expected
        for cut in (1, 8, len(stream) // 2):
            with pytest.raises(MalformedData):
                decompress(Compression.GZIP, data[:-cut])
        if size:
            with pytest.raises(DecompressedTooLarge):
                decompress(Compression.GZIP, data, len(expected) - 1)
    with pytest.raises(MalformedData):
        decompress(Compression.GZIP, stream + b"garbage")


def test_gzip_of_several_members_is_read() -> None:
    two = bytes(compress(Compression.GZIP, b"one")) + bytes(compress(Compression.GZIP, b"two"))
    assert decompress(Compression.GZIP, two) == b"onetwo"


@pytest.mark.parametrize(("level", "header"), [(9, "04224d18604082"), (3, "04224d187040ad"), (17, "04224d187040ad")])
def test_lz4_blocks_are_independent_as_java_demands(level: int, header: str) -> None:
    frame = bytes(compress(Compression.LZ4, b"x" * 200_000, level))
    assert frame[:7] == bytes.fromhex(header)


def test_codecs_by_name_and_id() -> None:
    assert Compression.from_name("uncompressed") is Compression.NONE
    assert Compression.from_name("zstd") is Compression.ZSTD
    with pytest.raises(MalformedData):
        Compression.from_id(5)
