"""Parses input bytes into records: one per line, or one per JSON envelope.

    line         the value; with a separator, key before its first occurrence and value after it
    envelope     {"key": "a", "value": "b", "headers": {"h": "1"}, "partition": 0, "timestamp": 1700000000000}
                 every field may be missing; `key_base64` and `value_base64` hold bytes that are not text;
                 headers may also be a list of {"key": ..., "value": ...}, for names that repeat;
                 a key or value that is not a string is written as its own JSON text

`moldau consume --json` prints such envelopes. Pure: this module uses neither files nor brokers.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from moldau.base.limits import PARTITION_MAX

TIMESTAMP_MAX: Final = (1 << 63) - 1
Headers = list[tuple[str, bytes | None]]


class InputRecord(NamedTuple):
    """A record to send. If `partition` or `timestamp` is None, the producer chooses."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp: int | None = None


LineParser = Callable[[bytes], InputRecord]
"""Turns one line, without its line end, into a record."""


class BadRecord(ValueError):
    """The line is not a record; the message says why."""


def line_parser(key: bytes | None, separator: bytes | None, empty_is_null: bool, headers: Headers | None) -> LineParser:
    """Return the parser of lines for these options; what is the same for all lines is decided once."""

    def whole(line: bytes) -> InputRecord:
        return InputRecord(None if empty_is_null and not line else line, key, headers)

    def split(line: bytes) -> InputRecord:
        assert separator
        before, has_separator, after = line.partition(separator)
        if not has_separator:
            raise BadRecord(f"no key separator {separator.decode(errors='replace')!r} in it")
        return InputRecord(None if empty_is_null and not after else after, before, headers)

    return split if separator else whole


def envelope_parser(headers: Headers | None) -> LineParser:
    """Return the parser of JSON envelopes; `headers` are put before an envelope's own."""
    return lambda line: parse_envelope(line, headers or [])


def parse_envelope(line: bytes, headers: Headers) -> InputRecord:
    try:
        envelope = json.loads(line)
    except ValueError as error:
        raise BadRecord(f"not JSON: {error}") from error
    except RecursionError as error:
        raise BadRecord("too many brackets inside each other") from error
    if not isinstance(envelope, dict):
        raise BadRecord('not a JSON object like {"key": "a", "value": "b"}')
    return InputRecord(
        value=_payload(envelope, "value"),
        key=_payload(envelope, "key"),
        headers=[*headers, *_headers(envelope.get("headers"))] or None,
        partition=_whole_number(envelope, "partition", PARTITION_MAX),
        timestamp=_whole_number(envelope, "timestamp", TIMESTAMP_MAX),
    )


def _payload(envelope: dict[str, Any], field: str) -> bytes | None:
    encoded = envelope.get(field + "_base64")
    if encoded is None:
        return _text_bytes(envelope.get(field), field)
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise BadRecord(f"{field}_base64 is not base64: {error}") from error


def _text_bytes(value: Any, field: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return str(value).encode()
    except UnicodeEncodeError as error:  # "\\ud800": JSON has it, Unicode does not
        raise BadRecord(f"{field} has a character that is not Unicode") from error


def _headers(headers: Any) -> Headers:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return [(_header_name(name), _text_bytes(value, "headers")) for name, value in headers.items()]
    if isinstance(headers, list) and all(
        isinstance(header, dict) and isinstance(header.get("key"), str) for header in headers
    ):
        return [(_header_name(header["key"]), _payload(header, "value")) for header in headers]
    raise BadRecord('headers are neither {"name": "value"} nor [{"key": "name", "value": "value"}]')


def _header_name(name: str) -> str:
    _text_bytes(name, "headers")  # librdkafka's Python module crashes at a name that it cannot encode
    return name


def _whole_number(envelope: dict[str, Any], field: str, largest: int) -> int | None:
    number = envelope.get(field)
    if number is None or (isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= largest):
        return number
    raise BadRecord(f"{field} is not a whole number from 0 to {largest}")
