"""The records in the body of a POST: JSON, JSON lines, or bytes as they are. JSON is checked and cut, not rebuilt: a
value in Kafka has the bytes that the device sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec

from moldau.gateway.http.query import parameters, partition_number, timestamp_ms
from moldau.gateway.ports import Headers, NewRecord
from moldau.web.failures import ApiError, bad_request

JSON: Final = "application/json"
JSON_LINES: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
PARAMETERS: Final = ("key", "key_field", "partition", "timestamp")
HEADER_PREFIX: Final = b"kafka-header-"
RECORDS_MAX: Final = 50_000
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])
_value: Final = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class Options:
    """What the query and the headers say of all records of a request."""

    key: bytes | None = None
    key_field: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()

    @property
    def is_plain(self) -> bool:
        """Whether records are values alone."""
        return self == _PLAIN


_PLAIN: Final = Options()


def options_of(query: bytes, headers: Sequence[tuple[bytes, bytes]]) -> Options:
    """Return the options of a request. ApiError for one that is unknown or cannot be."""
    own = tuple(
        (name[len(HEADER_PREFIX) :].decode("latin-1"), value)
        for name, value in headers
        if name.startswith(HEADER_PREFIX)
    )
    if not query and not own:
        return _PLAIN
    given = parameters(query, PARAMETERS)
    key, key_field = given.get("key"), given.get("key_field")
    if key is not None and key_field is not None:
        raise bad_request("a request has key or key_field, not both")
    return Options(
        None if key is None else key.encode(errors="surrogateescape"),
        key_field,
        partition_number(given.get("partition")),
        timestamp_ms(given["timestamp"]) if "timestamp" in given else None,
        own,
    )


def values_of(content_type: str, body: bytes | bytearray) -> list[bytes]:
    """Return the values of the records in a body. ApiError if it is not what its type says."""
    if content_type == JSON or content_type.endswith("+json"):
        start = body[:1] if body[:1] not in b" \t\r\n" else body.lstrip()[:1]
        raws = _decoded(_array.decode, body) if start == b"[" else [_decoded(_value.decode, body)]
    elif content_type in JSON_LINES:
        raws = _decoded(_lines, body)
    else:
        return [bytes(body)]
    if len(raws) > RECORDS_MAX:
        raise ApiError(413, "TOO_LARGE", f"a request has at most {RECORDS_MAX} records")
    return list(map(bytes, raws))


def _decoded(decode: Any, body: bytes | bytearray) -> Any:
    try:
        if not body.isascii():
            body.decode()  # what is not decoded is not checked below
        return decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise bad_request(f"the body is not JSON: {str(error)[:200]}") from None


def _lines(body: bytes | bytearray) -> list[msgspec.Raw]:
    return [_value.decode(line) for line in body.split(b"\n") if line and not line.isspace()]


def records_of(values: Sequence[bytes], options: Options) -> list[NewRecord]:
    """Return records with these values. ApiError if one lacks the field that is to be its key."""
    keys = [options.key] * len(values) if options.key_field is None else _keys(values, options.key_field)
    return [
        NewRecord(value, key, options.headers, options.timestamp_ms, options.partition)
        for value, key in zip(values, keys, strict=True)
    ]


def _keys(values: Sequence[bytes], field: str) -> list[bytes | None]:
    """Return the key of each value: a text as it is, anything else as it is written in JSON, null as no key."""
    field_of = _field_reader(field)
    keys: list[bytes | None] = []
    for number, value in enumerate(values):
        try:
            keys.append(_key(bytes(field_of(value))))
        except (msgspec.DecodeError, KeyError, RecursionError, UnicodeDecodeError):
            raise bad_request(f"record {number} is no JSON object with a field {field[:40]!r}, its key") from None
    return keys


def _key(raw: bytes) -> bytes | None:
    if raw[:1] != b'"':
        return None if raw == b"null" else raw
    text: str = msgspec.json.decode(raw)
    return text.encode()


@lru_cache(256)
def _field_reader(field: str) -> Callable[[bytes], msgspec.Raw]:
    """Return what reads one field of an object. A name that no field of a Struct can have takes a little longer."""
    try:
        keyed = msgspec.defstruct("Keyed", [("key", msgspec.Raw, msgspec.field(name=field))])
    except ValueError:
        objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
        return lambda value: objects.decode(value)[field]
    decoder: Any = msgspec.json.Decoder(keyed)
    return lambda value: decoder.decode(value).key
