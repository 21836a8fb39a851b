"""Metrics as lines of StatsD and of Graphite, without I/O.

StatsD      shop.orders:1|c|#city:brno        (counter c, gauge g, timer ms, histogram h, distribution d, set s)
Graphite    shop.orders;city=brno 1 1769846400
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from moldau.backends.interface import Refused, Row

Format = Literal["statsd", "graphite"]
TYPES: Final = ("c", "g", "ms", "h", "d", "s")
_NAME: Final = re.compile(r"[^\s:|@#;~=\x00-\x1f\x7f]{1,400}")
_TAG: Final = re.compile(r"[^\s:|@#;,~=\x00-\x1f\x7f]{1,200}")
_SET_MEMBER: Final = re.compile(r"[^|\x00-\x1f\x7f]{1,400}")


def statsd_line(row: Row, prefix: str) -> bytes:
    """Return the line of a metric. Raises Refused for values that would be another."""
    type_ = row.values.get("type") or "c"
    if type_ not in TYPES:
        raise Refused(f"{type_!r} is not a type of StatsD: one of {', '.join(TYPES)}")
    value = str(row.values.get("value", ""))
    if type_ != "s":
        value = number(value)
    elif not _SET_MEMBER.fullmatch(value):
        raise Refused("the member of a set is empty, or has '|' or a control character")
    tags = ",".join(f"{name}:{tag}" for name, tag in _tags(row))
    return f"{_name(row, prefix)}:{value}|{type_}{'|#' + tags if tags else ''}".encode()


def graphite_line(row: Row, prefix: str, now_s: float) -> bytes:
    """Return the line of a metric, with the time of the row (seconds since 1970) or else the present."""
    at = row.values.get("timestamp")
    at_s = now_s if at is None else float(number(str(at)))
    tags = "".join(f";{name}={tag}" for name, tag in _tags(row))
    return f"{_name(row, prefix)}{tags} {number(str(row.values.get('value', '')))} {int(at_s)}\n".encode()


def number(text: str) -> str:
    """Return a finite number as it was written. Raises Refused for all else."""
    try:
        is_finite = math.isfinite(float(text)) and text.isascii() and "_" not in text
    except ValueError:
        is_finite = False
    if not is_finite:
        raise Refused(f"{text[:40]!r} is not a number")
    return text.strip()


def packets(lines: Iterable[bytes], bytes_max: int) -> Iterator[bytes]:
    """Join lines to datagrams that are not longer than `bytes_max`; a longer line goes alone."""
    packet = b""
    for line in lines:
        if packet and len(packet) + 1 + len(line) > bytes_max:
            yield packet
            packet = b""
        packet = packet + b"\n" + line if packet else line
    if packet:
        yield packet


def _name(row: Row, prefix: str) -> str:
    name = f"{prefix}{row.values.get('metric') or ''}"
    if not _NAME.fullmatch(name):
        raise Refused(f"{name[:60]!r} cannot be the name of a metric")
    return name


def _tags(row: Row) -> Iterator[tuple[str, str]]:
    headers: Mapping[str, Any] = row.headers or {}
    for name, value in headers.items():
        if not _TAG.fullmatch(name) or not _TAG.fullmatch(value):
            raise Refused(f"{name[:40]!r}: {value[:40]!r} cannot be a tag")
        yield name, value
