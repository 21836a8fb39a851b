"""A record as JSON: a value that is JSON stays as it is, other text is a string, other bytes are `{"base64": "…"}`."""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from moldau.gateway.ports import FoundRecord

NULL: Final = b"null"
_any_json: Final = msgspec.json.Decoder(msgspec.Raw)
_encode: Final = msgspec.json.Encoder().encode


def record_json(record: FoundRecord) -> bytes:
    """Return the record on one line."""
    headers = b""
    if record.headers:
        pairs = b",".join([b"[%b,%b]" % (_encode(name), _text(value)) for name, value in record.headers])
        headers = b',"headers":[%b]' % pairs
    return b'{"partition":%d,"offset":%d,"timestamp":%d,"key":%b,"value":%b%b}' % (
        record.partition,
        record.offset,
        record.timestamp_ms,
        _text(record.key),
        _value(record.value),
        headers,
    )


def _value(value: bytes | None) -> bytes:
    if value is None:
        return NULL
    try:
        if not value.isascii():
            value.decode()  # what is not decoded is not checked below
        _any_json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return _text(value)
    return msgspec.json.format(value, indent=-1) if b"\n" in value or b"\r" in value else value


def _text(data: bytes | None) -> bytes:
    try:
        content: Any = None if data is None else data.decode()
    except UnicodeDecodeError:
        assert data is not None
        content = {"base64": base64.b64encode(data).decode()}
    return _encode(content)
