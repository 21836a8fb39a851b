"""Compression codecs against other implementations, and against decompression bombs."""

from __future__ import annotations

import random
import tracemalloc
import warnings
import zlib
from typing import Any

import hypothesis.strategies as st
import pytest
from depth import deep
from hypothesis import given, settings

from moldau.base.errors import MalformedData
from moldau.wire.compression import Compression, compress, decompress

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
@settings(max_examples=deep(30), deadline=None)
@given(data=st.binary(min_size=1, max_size=300) | st.integers(1, 200_000).map(lambda n: b"moldau" * (n // 6 + 1)))
def test_other_implementations_read_our_streams_and_we_read_theirs(codec: Compression, data: bytes) -> None:
    assert their_decode(codec, bytes(compress(codec, data))) == data
    assert bytes(decompress(codec, their_encode(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1, 32 << 10, (64 << 10) + 1, 300_000])
def test_data_round_trips(codec: Compression, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert bytes(decompress(codec, compress(codec, data[:size]))) == data[:size]


@pytest.mark.parametrize(("codec", "level"), [(Compression.GZIP, 1), (Compression.LZ4, 1), (Compression.ZSTD, 19)])
def test_levels(codec: Compression, level: int) -> None:
    data = bytes(zlib.compress(bytes(range(256)) * 40, 0)) * 3
    assert bytes(decompress(codec, compress(codec, data, level))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_and_not_inflated(codec: Compression) -> None:
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
def test_the_cap_is_exact(codec: Compression) -> None:
    data = b"x" * 100_000
    assert bytes(decompress(codec, compress(codec, data), bytes_max=100_000)) == data
    with pytest.raises(MalformedData):
        decompress(codec, compress(codec, data), bytes_max=99_999)


def test_a_wrong_snappy_length_allocates_nothing() -> None:
    for claim in (b"\xff\xff\xff\xff\x0f", b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\5\xff\xff\xff\xff\x0f"):
        with pytest.raises(MalformedData):
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


def test_gzip_of_many_empty_members_is_not_copied_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    members = 2_000
    fed, make = 0, zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._member = make(wbits=wbits)

        def decompress(self, data: memoryview, max_length: int) -> bytes:
            nonlocal fed
            fed += len(data)
            return self._member.decompress(data, max_length)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    stream = bytes(compress(Compression.GZIP, b"")) * members + bytes(compress(Compression.GZIP, b"end"))
    assert decompress(Compression.GZIP, stream) == b"end"
    assert fed < members * 1_000


@pytest.mark.parametrize("sizes", [(0,), (1, 0, 2), (511, 512, 513), (300_000, 1, 300_000)])
def test_gzip_members_of_any_size(sizes: tuple[int, ...]) -> None:
    contents = [random.Random(size).randbytes(size) for size in sizes]
    stream = b"".join(bytes(compress(Compression.GZIP, content)) for content in contents)
    assert bytes(decompress(Compression.GZIP, stream)) == b"".join(contents)
    for cut in (1, 9):
        with pytest.raises(MalformedData, match="ends early"):
            decompress(Compression.GZIP, stream[:-cut])


def test_gzip_of_several_members() -> None:
    two = bytes(compress(Compression.GZIP, b"one")) + bytes(compress(Compression.GZIP, b"two"))
    assert decompress(Compression.GZIP, two) == b"onetwo"


def test_lz4_blocks_are_independent_as_java_demands() -> None:
    frame = bytes(compress(Compression.LZ4, b"x" * 200_000))
    assert frame[:7] == bytes.fromhex("04224d18604082")


def test_names() -> None:
    assert Compression.from_name("uncompressed") is Compression.NONE
    assert Compression.from_name("zstd") is Compression.ZSTD
    with pytest.raises(MalformedData):
        Compression.from_id(5)
