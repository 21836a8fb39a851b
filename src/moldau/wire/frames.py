"""Frames and headers around the messages of a connection.

A frame is a four-byte length and that many bytes. A request's bytes begin with a header (v1, or v2 with tagged fields
for flexible versions), a response's with the correlation id (v0, or v1 with tagged fields). ApiVersions is always
answered with header v0, because the client does not yet know the other side's versions (KIP-511).
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple, TypeVar

from moldau.base.buffers import Buffer
from moldau.base.errors import MalformedData
from moldau.base.limits import TAGS_MAX
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.codec import Framer, decode_from, encode, framer, read_uvarint
from moldau.wire.schema import Message

_HEADER_START = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")
M = TypeVar("M", bound=Message)


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


_new_header = partial(tuple.__new__, RequestHeader)
"""Makes a RequestHeader without its own constructor, whose cost every request would pay."""


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header of a request, and the position where its body begins."""
    try:
        key, version, correlation_id, length = _HEADER_START.unpack_from(frame)
        position = _HEADER_START.size
        client_id = None
        if length >= 0:
            if position + length > len(frame):
                raise MalformedData("the client id is longer than the request")
            client_id = str(frame[position : position + length], "utf-8")
            position += length
        elif length != -1:
            raise MalformedData("the client id has a negative length")
        api = APIS.get(key)
        if api is not None and version >= api.flexible_from:
            position = _skip_tags(frame, position)
    except (struct.error, IndexError) as error:
        raise MalformedData("a request header is cut short") from error
    except UnicodeDecodeError as error:
        raise MalformedData("the client id is not UTF-8") from error
    return _new_header((key, version, correlation_id, client_id)), position


def _skip_tags(frame: Buffer, position: int) -> int:
    """Skip tagged fields; a large count is refused before anything is read."""
    count = frame[position]
    position += 1
    if count > TAGS_MAX:
        raise MalformedData("too many tagged fields in a request header")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise MalformedData("a tagged field is longer than the request header")
    return position


class Framing:
    """The framing of the responses of one API and version: looked up once, used for each."""

    __slots__ = ("frame",)

    def __init__(self, key: int, version: int) -> None:
        has_header_tags = version >= APIS[key].flexible_from and key != ApiKey.API_VERSIONS
        self.frame: Framer = framer(response_class(key), version, has_header_tags=has_header_tags)
        """Returns a whole response, ready to send; records still in files are listed in `slices` and counted in its
        size."""


def request_frame(key: int, version: int, correlation_id: int, client_id: str | None, request: Message) -> bytearray:
    """Return a whole request, ready to send, as our own clients write it."""
    name = (client_id or "").encode()
    out = bytearray(4) + _HEADER_START.pack(key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if version >= APIS[key].flexible_from:
        out += b"\0"
    encode(request, version, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def read_response(cls: type[M], frame: Buffer, key: int, version: int) -> tuple[int, M]:
    """Return the correlation id and body of a response frame (without its length)."""
    if len(frame) < 4:
        raise MalformedData("a response header is cut short")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    position = 4
    if version >= APIS[key].flexible_from and key != ApiKey.API_VERSIONS:
        try:
            position = _skip_tags(frame, position)
        except IndexError as error:
            raise MalformedData("a response header is cut short") from error
    body, end_position = decode_from(cls, frame, version, position)
    if end_position != len(frame):
        raise MalformedData(f"{len(frame) - end_position} bytes after the end of {cls.__name__} v{version}")
    return correlation_id, body
