"""What a client chooses when it makes a consumer."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

import msgspec

from moldau.gateway.http.proxy.failures import INVALID_CONFIG, ProxyError, schemas_needed, unprocessable
from moldau.gateway.http.proxy.requests import parsed

FORMATS: Final = ("binary", "json")
WITH_SCHEMAS: Final = ("avro", "jsonschema", "protobuf")
RESETS: Final = {"earliest": "earliest", "latest": "latest", "none": "error"}
"""librdkafka's words for where to begin without a committed offset."""
MIN_BYTES_MAX: Final = 10_000_000
TIMEOUT_MS: Final = 1_000
TIMEOUT_MS_MAX: Final = 60_000
"""Who wants to wait longer is answered after so long."""
NAME_LENGTH_MAX: Final = 200
DIGITS_MAX: Final = 18


class ConsumerConfig(NamedTuple):
    group: str
    name: str
    is_json: bool
    auto_offset_reset: str
    commits: bool
    """Whether offsets are committed without a request."""
    min_bytes: int
    """Fewer are answered only when the time is over; -1: always then."""
    timeout_ms: int


class _Chosen(msgspec.Struct, forbid_unknown_fields=True):
    """Clients send numbers and truth also as texts."""

    id: str | None = None
    name: str | None = None
    format: str | None = None
    auto_offset_reset: str | None = msgspec.field(default=None, name="auto.offset.reset")
    auto_commit_enable: bool | str | None = msgspec.field(default=None, name="auto.commit.enable")
    min_bytes: int | str | None = msgspec.field(default=None, name="fetch.min.bytes")
    timeout_ms: int | str | None = msgspec.field(default=None, name="consumer.request.timeout.ms")


_chosen: Final = msgspec.json.Decoder(_Chosen)


def consumer_config(group: str, body: bytes) -> ConsumerConfig:
    """Return what the client chose; nothing is needed. ProxyError if something cannot be."""
    chosen = parsed(_chosen, body) if body else _Chosen()
    kind = (chosen.format or "binary").lower()
    if kind in WITH_SCHEMAS:
        raise schemas_needed(f"The format {kind}")
    if kind not in FORMATS:
        raise unprocessable(f"Invalid format type. Expected one of {', '.join(FORMATS)}")
    name = chosen.id or chosen.name or f"rest-consumer-{uuid.uuid4()}"
    if len(name) > NAME_LENGTH_MAX or "/" in name or "\0" in name:
        raise _invalid(f"the name has more than {NAME_LENGTH_MAX} characters, a / or a zero")
    reset = chosen.auto_offset_reset or "latest"
    if reset not in RESETS:
        raise _invalid(f"auto.offset.reset {reset[:40]!r}: expected one of {', '.join(RESETS)}")
    min_bytes = _number("fetch.min.bytes", chosen.min_bytes, -1)
    if not -1 <= min_bytes <= MIN_BYTES_MAX:
        text = "Invalid consumer configuration. It does not abide by the constraints: "
        raise ProxyError(422, 40001, f"{text}fetch.min.bytes must be -1 to {MIN_BYTES_MAX}")
    timeout_ms = _number("consumer.request.timeout.ms", chosen.timeout_ms, TIMEOUT_MS)
    if timeout_ms < 0:
        raise _invalid("consumer.request.timeout.ms must not be negative")
    commits = _truth("auto.commit.enable", chosen.auto_commit_enable)
    return ConsumerConfig(
        group, name, kind == "json", RESETS[reset], commits, min_bytes, min(timeout_ms, TIMEOUT_MS_MAX)
    )


def _number(name: str, value: int | str | None, default: int) -> int:
    if value is None:
        return default
    text = str(value)
    digits = text.removeprefix("-")
    if len(digits) > DIGITS_MAX or not digits.isascii() or not digits.isdigit():
        raise _invalid(f"{name} {text[:40]!r} is not a number")
    return int(text)


def _truth(name: str, value: bool | str | None) -> bool:
    text = "true" if value is None else str(value).lower()
    if text not in ("true", "false"):
        raise _invalid(f"{name} {text[:40]!r}: expected true or false")
    return text == "true"


def _invalid(message: str) -> ProxyError:
    return unprocessable(f"Invalid consumer configuration: {message}", INVALID_CONFIG)
