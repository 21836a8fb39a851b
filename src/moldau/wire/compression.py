"""The five codecs of a batch's records: none, gzip, snappy, lz4, zstd. Output is limited: a decompression bomb is
refused.

Nothing here knows the meaning of the bytes. Other Kafka clients require:

    gzip    RFC 1952, possibly several members
    snappy  written in xerial's framing: 82 'SNAPPY' 00, version 1, compatible 1 (int32 each), then blocks of
            (int32 length, raw snappy); a bare raw snappy block is accepted too, as librdkafka may send it
    lz4     a frame of *independent* 64 KiB blocks: the Java client refuses linked blocks
    zstd    one frame
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.base.limits import DECOMPRESSED_BYTES_MAX


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_id(cls, codec: int) -> Compression:
        try:
            return cls(codec)
        except ValueError:
            raise MalformedData(f"unknown compression codec {codec}") from None

    @classmethod
    def from_name(cls, name: str) -> Compression:
        """Accepts Kafka's names, including `uncompressed` from topic configs."""
        return cls.NONE if name == "uncompressed" else cls[name.upper()]


DEFAULT_LEVEL: Final = {Compression.GZIP: 6, Compression.LZ4: 9, Compression.ZSTD: 3}
"""Kafka's defaults of `compression.<codec>.level` (gzip's -1 is zlib's 6). Snappy has no levels."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> Buffer:
    """`level` None means Kafka's default for the codec."""
    if level is None:
        level = DEFAULT_LEVEL.get(codec, 0)
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return zlib.compress(data, level, wbits=_GZIP_WINDOW)
        case Compression.SNAPPY:
            return _snappy_compress(data)
        case Compression.LZ4:
            return _lz4_compress(data, level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))


class DecompressedTooLarge(MalformedData):
    """The data would grow beyond the limit: it may be a decompression bomb."""


def decompress(codec: Compression, data: Buffer, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """MalformedData for an invalid stream, DecompressedTooLarge for one that would grow beyond `bytes_max`."""
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return _gzip_decompress(data, bytes_max)
        case Compression.SNAPPY:
            return _snappy_decompress(data, bytes_max)
        case Compression.LZ4:
            return _decompress_growing(cramjam.lz4.decompress_into, data, bytes_max)
        case Compression.ZSTD:
            return _decompress_growing(cramjam.zstd.decompress_into, data, bytes_max)


def decompress_into(codec: Compression, data: Buffer, room: memoryview) -> int | None:
    """Return how many bytes were written into `room`, None if it is too small. MalformedData as in `decompress`."""
    match codec:
        case Compression.LZ4:
            return _fit_into(cramjam.lz4.decompress_into, data, room)
        case Compression.ZSTD:
            return _fit_into(cramjam.zstd.decompress_into, data, room)
        case _:
            body = decompress(codec, data)
            if len(body) > len(room):
                return None
            room[: len(body)] = body
            return len(body)


# --- gzip -------------------------------------------------------------------------------------------------------

_GZIP_WINDOW: Final = 31
"""In zlib's encoding: 32 KiB window, gzip header and trailer."""


_GZIP_FIRST_BYTES: Final = 64 << 10
_GZIP_NEXT_BYTES: Final = 4 << 10
"""How much zlib is given at the beginning of the first member of a stream, and of others. It copies what follows a
member, and a hostile stream of a megabyte has 50,000 members."""


def _gzip_decompress(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    parts: list[bytes] = []
    position = size = 0
    first_bytes = _GZIP_FIRST_BYTES
    while True:
        member, piece_bytes = zlib.decompressobj(wbits=_GZIP_WINDOW), first_bytes
        while not member.eof:
            piece = view[position : position + piece_bytes]
            if not piece:
                raise MalformedData("gzip: the stream ends early")
            try:
                # One byte more than allowed: reaching it proves that the stream is too long without inflating the rest.
                part = member.decompress(piece, bytes_max - size + 1)
            except zlib.error as error:
                raise MalformedData(f"gzip: {error}") from error
            size += len(part)
            if size > bytes_max:
                raise _too_long(bytes_max)
            parts.append(part)
            position += len(piece) - len(member.unused_data)
            piece_bytes *= 2
        if position == len(view):
            return b"".join(parts)
        first_bytes = _GZIP_NEXT_BYTES


# --- snappy -----------------------------------------------------------------------------------------------------

_XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_MAGIC: Final = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_INT32: Final = struct.Struct(">i")


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, bytes_max, 0)
    parts: list[bytes] = []
    size, position = 0, len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < _INT32.size:
            raise MalformedData("snappy: the stream ends inside a block length")
        (length,) = _INT32.unpack_from(view, position)
        position += _INT32.size
        if not 0 <= length <= len(view) - position:
            raise MalformedData(f"snappy: a block claims {length} bytes, {len(view) - position} are there")
        part = _snappy_block(view[position : position + length], bytes_max, size)
        parts.append(part)
        size += len(part)
        position += length
    return b"".join(parts)


def _snappy_block(block: memoryview, bytes_max: int, size_before: int) -> bytes:
    """Raw snappy starts with its length: limit it before decompressing (CVE-2023-34455)."""
    try:
        if cramjam.snappy.decompress_raw_len(block) > bytes_max - size_before:
            raise _too_long(bytes_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise MalformedData(f"snappy: {error}") from error


# --- lz4 --------------------------------------------------------------------------------------------------------

_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic; version 1 with independent blocks and no checksums; blocks of 64 KiB; xxHash byte over the two before."""
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_STORED_BIT: Final = 0x80000000
_LZ4_END_MARK: Final = bytes(4)
_LZ4_LENGTH: Final = struct.Struct("<I")


def _lz4_compress(data: Buffer, level: int) -> bytes:
    """The default level is lz4's fast mode, as in Kafka; other levels from 3 on compress harder."""
    if level != DEFAULT_LEVEL[Compression.LZ4]:
        # Not by blocks as below: cramjam's `compress_block` ignores the level.
        compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        compressor.compress(bytes(data))  # it takes no other buffer
        return bytes(compressor.finish())
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_LENGTH.pack(len(raw) | _LZ4_STORED_BIT), bytes(raw))
    parts.append(_LZ4_END_MARK)
    return b"".join(parts)


# --- lz4 and zstd: decompression --------------------------------------------------------------------------------

_BUFFER_TOO_SMALL: Final = "failed to write whole buffer"


def _decompress_growing(into: Callable[[Buffer, Buffer], int], data: Buffer, bytes_max: int) -> Buffer:
    """Decompress into a guessed buffer that grows fourfold up to the limit: neither frame's length can be trusted.

    A stream that does not fit stops at the end of the buffer: a bomb costs at most the limit, once.
    """
    room = min(bytes_max, max(8 * len(data), 64 << 10))
    while True:
        output = bytearray(room)
        size = _fit_into(into, data, output)
        if size is not None:
            return memoryview(output)[:size]
        if room == bytes_max:
            raise _too_long(bytes_max)
        room = min(bytes_max, room * 4)


def _fit_into(into: Callable[[Buffer, Buffer], int], data: Buffer, room: Buffer) -> int | None:
    if not len(data):
        raise MalformedData("an empty compressed stream")
    try:
        return into(data, room)
    except cramjam.DecompressionError as error:
        if str(error) != _BUFFER_TOO_SMALL:
            raise MalformedData(f"a broken compressed stream: {error}") from error
        return None


def _too_long(bytes_max: int) -> MalformedData:
    return DecompressedTooLarge(f"the records expand beyond {bytes_max} bytes")
