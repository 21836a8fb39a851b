"""Bytes <-> messages. For each message class and version, one flat function is generated as source and compiled at
first use: runs of fixed-size fields become one struct call, nested arrays become nested loops, nothing is looked up
by name at run time. The input is not trusted: every length is checked against the bytes that are present.

`decoder_source` and `encoder_source` write the source, from the fields that `schema` reads out of a message class. A
server decodes with `decoder` (with limits for requests) and writes responses with `framer`, through `frames`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.wire.decoder_source import REQUEST_ELEMENTS_MAX, decoder_source
from moldau.wire.encoder_source import COMPACT_MAX, encoder_source, framer_source
from moldau.wire.schema import Message, Records

M = TypeVar("M", bound=Message)
Encoder = Callable[[Any, bytearray], None]
Decoder = Callable[[Buffer, int, int], tuple[Any, int]]
Framer = Callable[[int, Any], "Outgoing"]
"""Returns a whole response: its size, a correlation id and a message."""


class Outgoing(bytearray):
    """A reply being written. Records that stay in their file are listed in `slices` with their position. After it is
    sent, no request of the connection is read for `pause_ms`. An empty one closes the connection, unless it is a
    NoReply or has a pause: `refusal` says why.

    All are attributes of the class until they are set: a constructor would cost every reply more than its bytes."""

    refusal = "its reply could not be written"
    slices: Sequence[tuple[int, Any]] = ()
    pause_ms = 0


class Refusal(Outgoing):
    """No reply: the connection is closed for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.refusal = reason


class NoReply(Outgoing):
    """Takes the place of the reply to a request that gets none: Produce with acks=0."""


NO_REPLY: Final = NoReply()
"""The one without a pause."""


def encode(message: Message, version: int, out: bytearray) -> None:
    """Append the message in the format of that version."""
    encoder(message.__class__, version)(message, out)


def decode(cls: type[M], data: Buffer, version: int) -> M:
    """Read a whole message; bytes left over are malformed."""
    message, end = decode_from(cls, data, version, 0)
    if end != len(data):
        raise MalformedData(f"{len(data) - end} bytes after the end of {cls.__name__} v{version}")
    return message


UNREADABLE = (IndexError, struct.error, UnicodeDecodeError)
"""The exceptions of a decoder when bytes are missing or not UTF-8; `malformed` turns them into a message."""


def decode_from(cls: type[M], data: Buffer, version: int, position: int) -> tuple[M, int]:
    """Read a message that begins at `position`; return it and the position behind it."""
    try:
        return decoder(cls, version)(data, position, len(data))
    except UNREADABLE as error:
        raise malformed(cls, version, error) from error


class TooManyElements(MalformedData):
    """An array of a request has more elements than the decoder reads."""


def malformed(cls: type[Message], version: int, error: Exception) -> MalformedData:
    if isinstance(error, UnicodeDecodeError):
        return MalformedData(f"{cls.__name__} v{version} holds a string that is not UTF-8")
    return MalformedData(f"{cls.__name__} v{version} is cut short")


_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders: dict[tuple[type[Message], int, int, int | None], Decoder] = {}
_framers: dict[tuple[type[Message], int, bool], Framer] = {}


def encoder(cls: type[Message], version: int) -> Encoder:
    encode_function = _encoders.get((cls, version))
    if encode_function is None:
        _check_version(cls, version)
        encode_function = _encoders[cls, version] = _compile(encoder_source(cls, version), "encode", cls, version)
    return encode_function


def decoder(
    cls: type[Message], version: int, elements_max: int = REQUEST_ELEMENTS_MAX, total_max: int | None = None
) -> Decoder:
    """Return the function that reads a message. That of a request raises TooManyElements if one of its arrays has more
    than `elements_max`, or all of them together more than `total_max`. An array of numbers, which is read in one call,
    may have REQUEST_ELEMENTS_MAX and does not count."""
    decode_function = _decoders.get((cls, version, elements_max, total_max))
    if decode_function is None:
        _check_version(cls, version)
        source = decoder_source(cls, version, elements_max, total_max)
        decode_function = _decoders[cls, version, elements_max, total_max] = _compile(source, "decode", cls, version)
    return decode_function


def framer(cls: type[Message], version: int, *, has_header_tags: bool) -> Framer:
    """Return the function that writes a response with its header, which has tagged fields or not."""
    frame_function = _framers.get((cls, version, has_header_tags))
    if frame_function is None:
        _check_version(cls, version)
        source = framer_source(cls, version, has_header_tags)
        frame_function = _framers[cls, version, has_header_tags] = _compile(source, "frame", cls, version)
    return frame_function


def _check_version(cls: type[Message], version: int) -> None:
    low, high = cls.VERSIONS
    assert low <= version <= high, f"{cls.__name__} has no version {version}"


def _compile(source: tuple[str, dict[str, Any]], name: str, cls: type, version: int) -> Any:
    text, names = source
    scope = {
        "invalid": MalformedData,
        "too_many": TooManyElements,
        "uvarint_rest": _uvarint_rest,
        "uvarint": uvarint,
        "buffers": _BUFFERS,
        "compact": _COMPACT,
        "integers": _integers,
        "Outgoing": Outgoing,
        "new": object.__new__,
        **names,
    }
    exec(compile(text, f"<{name} {cls.__name__} v{version}>", "exec"), scope)
    return scope[name]


def _uvarint_rest(data: Buffer, position: int, low: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint whose first byte, `low`, had its high bit set. Five bytes at most."""
    value, shift = low & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise MalformedData("a varint of more than 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedData("a varint of more than five bytes")


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the position behind it; IndexError if the bytes end inside it."""
    low = data[position]
    return (low, position + 1) if low < 0x80 else _uvarint_rest(data, position + 1, low)


def _write_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = tuple(_write_uvarint(n) for n in range(COMPACT_MAX + 1))
_COMPACT = _SMALL[1:]
"""A compact length is the varint of the length plus one."""


def uvarint(value: int) -> bytes:
    return _SMALL[value] if value <= COMPACT_MAX else _write_uvarint(value)


_BUFFERS = (bytes, bytearray, memoryview)


def size_of(records: Records) -> int:
    return len(records) if isinstance(records, _BUFFERS) else records.length


@lru_cache(256)
def _integers(code: str, count: int) -> struct.Struct:
    """Return a struct that packs a whole array of numbers in one call."""
    return struct.Struct(f">{count}{code}")
