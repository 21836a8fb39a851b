"""A wire client with nothing between the test and the socket: bytes out, bytes in, frames split by hand.

It has `Wire` (one connection), `message` (a kio request from plain values) and `encode_request` (its bytes). It uses no
code of Moldau: these tests must not share its mistakes.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import itertools
import socket
import struct
import types
import typing
from collections import deque
from typing import Any, Self

from harness.patience import PATIENCE_S
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer

API_KEYS = {name: key for key, name in api_key_map.items()}


class ConnectionEnded(Exception):
    """The broker closed the connection, in order or with a reset."""


def entity_inside(annotation: Any) -> type | None:
    """Return the dataclass in `tuple[X, ...]`, `X | None` or `X`; None for plain values."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return annotation
    if typing.get_origin(annotation) in (tuple, typing.Union, types.UnionType):
        found = (entity_inside(part) for part in typing.get_args(annotation))
        return next((entity for entity in found if entity), None)
    return None


@functools.cache
def entity_hints(entity: type) -> dict[str, Any]:
    return typing.get_type_hints(entity)


def build(entity: Any, values: dict[str, Any]) -> Any:
    """Return a kio entity from dicts, lists and ints. Missing arrays are empty; milliseconds become timedeltas."""
    hints = entity_hints(entity)
    known = {field.name: field for field in dataclasses.fields(entity)}
    unknown = values.keys() - known.keys()
    assert not unknown, f"{entity.__name__} v{entity.__version__} has no {sorted(unknown)}; it has {sorted(known)}"
    filled: dict[str, Any] = {}
    for name, field in known.items():
        is_array = typing.get_origin(hints[name]) is tuple
        if name in values:
            filled[name] = convert(values[name], hints[name], str(field.metadata.get("kafka_type")))
        elif is_array and field.default is dataclasses.MISSING:
            filled[name] = ()
    return entity(**filled)


def convert(value: Any, hint: Any, kafka_type: str) -> Any:
    if isinstance(value, list | tuple):
        return tuple(convert(item, hint, kafka_type) for item in value)
    if isinstance(value, dict):
        return build(entity_inside(hint), value)
    if kafka_type.startswith("timedelta") and isinstance(value, int):
        return datetime.timedelta(milliseconds=value)
    return value


def message(api: str, version: int, **values: Any) -> Any:
    """Return a request of kio, e.g. `message("metadata", 12, topics=None, allow_auto_topic_creation=False)`."""
    return build(load_request_schema(API_KEYS[api], version), values)


def encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def encode_request(payload: Any, correlation_id: int = 0, client_id: str | None = "interop") -> bytes:
    header = payload.__header_schema__(
        request_api_key=payload.__api_key__,
        request_api_version=payload.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    return encode(header) + encode(payload)


def decode_response(payload: Any, body: bytes, correlation_id: int) -> Any:
    """Return the response to `payload`; check that it belongs to it and that every byte was decoded."""
    schema = load_response_schema(payload.__api_key__, payload.__version__)
    header_schema: Any = schema.__header_schema__
    header, header_size = entity_reader(header_schema)(body, 0)
    assert header.correlation_id == correlation_id, "a response out of order"
    response, size = entity_reader(schema)(body, header_size)
    assert header_size + size == len(body), "bytes after the end of the response"
    return response


class Wire:
    """One connection. `ask` is a round trip; `post` and `collect` are its halves, for pipelining."""

    def __init__(self, bootstrap: str, timeout: float = PATIENCE_S) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_ids = itertools.count(1)
        self.posted: deque[tuple[Any, int]] = deque()
        self.client_id = "interop"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, payload: Any) -> Any:
        assert not self.posted, "answers are still owed: collect them first"
        self.post(payload)
        return self.collect()

    def post(self, payload: Any, expect_answer: bool = True) -> None:
        correlation_id = next(self.correlation_ids)
        self.send_frame(encode_request(payload, correlation_id, self.client_id))
        if expect_answer:
            self.posted.append((payload, correlation_id))

    def collect(self) -> Any:
        payload, correlation_id = self.posted.popleft()
        return decode_response(payload, self.receive_frame(), correlation_id)

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(body)) + body)

    def send_bytes(self, raw: bytes) -> None:
        try:
            self.socket.sendall(raw)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEnded from error

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(count - len(parts))
            except ConnectionResetError as error:
                raise ConnectionEnded from error
            if not part:
                raise ConnectionEnded
            parts += part
        return bytes(parts)

    def answer_or_close(self) -> bytes | None:
        """Return the next response's bytes, or None if the broker has closed. No response is a failure
        (TimeoutError)."""
        try:
            return self.receive_frame()
        except ConnectionEnded:
            return None

    def is_silent(self, seconds: float) -> bool:
        """Whether the connection stays open without a byte for that long."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        else:
            return False
        finally:
            self.socket.settimeout(PATIENCE_S)
