"""A record as JSON for the pages: text, JSON or bytes, cut if it is long; why it is a dead letter. Pure."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from moldau.wire.records import Header, Record

LIST_BYTES_MAX: Final = 64 << 10
ONE_BYTES_MAX: Final = 4 << 20
HEADERS_MAX: Final = 200
DEPTH_MAX: Final = 100
EXACT_MAX: Final = 2**53
"""A browser rounds greater integers."""
REASON_LENGTH_MAX: Final = 2_000
"""The headers of the record have the rest."""
OFFSET_DIGITS_MAX: Final = 19


class _DeadLetterHeaders(NamedTuple):
    """The headers with which one program writes dead letters."""

    reason: str
    topic: str
    partition: str
    offset: str
    written_by: str
    deliveries: str = ""


DEAD_LETTER_HEADERS: Final = (
    _DeadLetterHeaders("moldau.error", "moldau.topic", "moldau.partition", "moldau.offset", "moldau.pipeline"),
    _DeadLetterHeaders(
        "__connect.errors.exception.message", "__connect.errors.topic", "__connect.errors.partition",
        "__connect.errors.offset", "__connect.errors.connector.name",
    ),
    _DeadLetterHeaders(
        "__dlq.errors.message", "__dlq.errors.topic", "__dlq.errors.partition",
        "__dlq.errors.offset", "__dlq.errors.group", "__dlq.errors.delivery.count",
    ),
)  # fmt: skip


class FoundRecord(NamedTuple):
    """A record with its partition, and whether the broker set its time."""

    partition: int
    record: Record
    is_log_append_time: bool

    @property
    def size_bytes(self) -> int:
        record = self.record
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        return len(record.key or b"") + len(record.value or b"") + headers


def record_data(found: FoundRecord, bytes_max: int = LIST_BYTES_MAX) -> dict[str, Any]:
    record = found.record
    letter = dead_letter(record.headers)
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp if record.timestamp >= 0 else None,
        "timestamp_type": "append" if found.is_log_append_time else "create",
        "key": shown(record.key, bytes_max),
        "value": shown(record.value, bytes_max),
        "headers": [{"name": name, "value": shown(value, bytes_max)} for name, value in record.headers[:HEADERS_MAX]],
        "size_bytes": found.size_bytes,
        **({"headers_cut": True} if len(record.headers) > HEADERS_MAX else {}),
        **({} if letter is None else {"dead_letter": letter}),
    }


def dead_letter(headers: tuple[Header, ...]) -> dict[str, Any] | None:
    """Return the reason in words and the record's first place; None if no header has a reason."""
    for names in DEAD_LETTER_HEADERS:
        found = {name: _header_text(value) for name, value in headers if name in names}
        reason = found.get(names.reason)
        if reason is not None:
            return {
                "reason": reason[:REASON_LENGTH_MAX],
                "topic": found.get(names.topic),
                "partition": _number(found, names.partition),
                "offset": _number(found, names.offset),
                "written_by": found.get(names.written_by),
                "deliveries": _number(found, names.deliveries),
            }
    return None


def _header_text(value: bytes | None) -> str | None:
    return None if value is None else text_of(value)


def _number(found: Mapping[str, str | None], name: str) -> int | None:
    text = found.get(name) or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS_MAX else None


def shown(data: bytes | None, bytes_max: int) -> dict[str, Any]:
    if data is None:
        return {"kind": "null", "text": None, "bytes": 0}
    is_cut = len(data) > bytes_max
    part = data[:bytes_max] if is_cut else data
    text = text_of(part, is_cut)
    if text is None:
        half = bytes_max // 2  # two digits for a byte
        return {"kind": "binary", "text": part[:half].hex(), "bytes": len(data), **_cut(len(data) > half)}
    result: dict[str, Any] = {"kind": "text", "text": text, "bytes": len(data), **_cut(is_cut)}
    if not is_cut:
        content = json_of(text)
        if isinstance(content, dict | list) and _can_be_shown(content, DEPTH_MAX):
            result |= {"kind": "json", "json": content}
    return result


def _cut(is_cut: bool) -> dict[str, bool]:
    return {"cut": True} if is_cut else {}


def text_of(data: bytes, is_cut: bool = False) -> str | None:
    """Return the text of bytes that are UTF-8 and can be printed, else None. If they are cut, the last character may be
    incomplete, and is left out."""
    try:
        text = codecs.utf_8_decode(data, "strict", not is_cut)[0]
    except UnicodeDecodeError:
        return None
    return None if any(ord(letter) < 32 and letter not in "\t\n\r" for letter in text[:4096]) else text


def json_of(text: str) -> Any:
    """Return the parsed JSON; None if the text is not JSON (or is null), is too deep, or has a number that is not
    finite."""
    if text[:1] not in '{["-0123456789tfn \t\r\n' or not text:
        return None
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _can_be_shown(content: Any, depth_max: int) -> bool:
    """Whether a browser shows a value as it is: not nested too deeply, all integers exact."""
    if isinstance(content, int):
        return -EXACT_MAX <= content <= EXACT_MAX
    if not isinstance(content, dict | list):
        return True
    parts = content.values() if isinstance(content, dict) else content
    return depth_max > 1 and all(_can_be_shown(each, depth_max - 1) for each in parts)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
